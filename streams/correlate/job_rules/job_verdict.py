"""Evaluates one job: what explains its symptoms, and which node or switch is suspected when nothing does.

The order of precedence is in `judge`: hardware on a member node, a storm in its part of the fabric, the job's own code,
and only then the ranks themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Blame, Hypothesis
from streams.correlate.job_rules.applications import Burst, bursts
from streams.correlate.job_rules.applications import numbered as numbered_bursts
from streams.correlate.job_rules.busy_ranks import cleared_by_work
from streams.correlate.job_rules.connection_votes import NO_ADDRESSES, only_deaths
from streams.correlate.job_rules.culprit import HangFinding, find_culprit
from streams.correlate.job_rules.explaining_causes import (
    evicting_node,
    explaining,
    fabric_for,
    gone_meanwhile,
    gone_node,
    ill_where_pods_ended,
    missed_nodes,
    storm_for,
    unheard_node,
    weak_cause,
)
from streams.correlate.job_rules.first_failures import (
    RULE,
    accusation,
    accusers,
    any_first_host,
    as_episode,
    circumstances,
    crashed,
    crashed_on,
    earlier_firsts,
    first_host,
    suspected_host,
)
from streams.correlate.job_rules.job_causes import (
    application_root,
    hang_root,
    one_of_repeats,
    rejections,
)
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at, recovered, removed_before
from streams.correlate.job_rules.pod_failures import PLATFORM, PlatformBlocker, platform_blockers
from streams.correlate.job_rules.rank_assignment import (
    gpus_of,
    numbered,
    where_ranks_stand,
    without_group_ranks,
)
from streams.correlate.job_rules.rank_reports import Episode, episodes, joined
from streams.correlate.job_rules.services import complaints, shortage_at
from streams.correlate.job_rules.slow_jobs import slowed
from streams.correlate.job_rules.start_failures import StartFailures, start_failures, stuck_on_node
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import Cause, Place, PlaceKind, Suspect
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import PastFault
from streams.model.entity import Entity, JobRef
from streams.model.incident import Candidate, Certainty
from streams.model.kinds import IncidentFamily, SignalKind

_PORT_EVENT = "async_event"
WANDERS = "another node's rank each time"
"""The rule of a job in which ranks of different nodes hang, try after try."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A node that one job's ranks suspect."""

    node: str
    job: JobRef
    finding: HangFinding
    episode: Episode
    ready_at: datetime
    candidates: tuple[Candidate, ...]


@dataclass(slots=True)
class JobVerdict:
    """The result for one job. `explained` lists periods of its symptoms with the cause of each."""

    claims: dict[Cause, list[Sighting]] = field(default_factory=dict)
    explained: list[tuple[datetime, datetime, Cause]] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    suspicions: list[Suspicion] = field(default_factory=list)
    blames: list[Blame] = field(default_factory=list)

    def claim(
        self, cause: Cause, trouble: Burst | Episode | PlatformBlocker, symptoms: Sequence[Sighting]
    ) -> None:
        """Record that these symptoms of a trouble follow from a cause."""
        self.explained.append((trouble.start, trouble.end, cause))
        self.claims.setdefault(cause, []).extend(symptoms)


def judge(evidence: JobEvidence, config: Config) -> JobVerdict:
    """What explains this job's symptoms.

    Its bursts and its hangs are numbered in the order of their times, whatever explains them: so an incarnation does not
    depend on what was read first, nor on what is found to explain another one.
    """
    verdict = JobVerdict()
    hangs = _hangs(evidence, config)
    hang_count, _ = _forgotten(evidence, IncidentFamily.HANG)
    count, until = _forgotten(evidence, IncidentFamily.APPLICATION)
    failures = (*evidence.codes, *evidence.failed)
    faults = bursts((s for s in failures if until is None or s.at > until), config)
    unstarted = _accuse_by_starts(evidence, verdict, config)
    loose: dict[int, list[Burst]] = {}
    torn_down: list[Burst] = []
    firsts = _Firsts(evidence, config)
    for number, burst in numbered_bursts(faults, count, evidence.own_closed, config, firsts.crashed_on):
        # Many nodes do not fault for a lost GPU before it is lost; one node may, when both are the same fault.
        late = config.skew if burst.is_shared else None
        own = burst.speaks_for_itself
        cause = explaining(
            evidence, burst.start, burst.start, burst.end, config, late=late, by_network=not own
        )
        if cause is None and {s.code for s in burst.sightings} <= families().quiet_alone:
            # What killed processes leave may come before the scrapes at which a counter tells of the storm that killed them.
            cause = explaining(
                evidence, burst.start, burst.start, burst.end, config, late=config.scrape, domain="pfc"
            )
        if cause is None and not own and not burst.is_shared:
            cause = gone_meanwhile(evidence, burst.start, burst.nodes, config)
        if cause is None and not own:
            cause = evicting_node(evidence, burst.start, burst.start, config)
        if cause is not None:
            verdict.claim(cause.id, burst, burst.sightings)
        elif not own and not burst.is_mute and (service := _for_a_service(evidence, burst)) is not None:
            verdict.claim(service, burst, burst.sightings)
        elif (reason := _cannot_start(burst, unstarted, config)) is not None:
            verdict.claim(reason, burst, burst.sightings)
        elif not own and _is_teardown(burst, hangs, config):
            torn_down.append(burst)
        elif not (
            burst.says_nothing
            or _did_no_harm(burst, evidence, hangs, config)
            or _was_stopped(burst, evidence, config)
        ) and not firsts.accuse(verdict, burst, loose):
            loose.setdefault(number, []).append(burst)
    crashes_of: list[tuple[Burst, Cause]] = [*firsts.accused]
    on_gpus: set[tuple[str, Entity | None]] = set()
    for number, crashes in loose.items():
        if not crashes:
            continue
        place = (crashes[0].signature, crashes[0].gpu)
        follows_gpu = place in on_gpus and crashes[0].gpu is not None
        on_gpus.add(place)
        hypothesis = application_root(evidence, crashes, number, config, follows_gpu=follows_gpu)
        if hypothesis is not None:
            verdict.hypotheses.append(hypothesis)
            crashes_of += [(burst, hypothesis.id) for burst in crashes]
    wandering = _wandering(evidence, hangs, config)
    for number, episode in enumerate(hangs, hang_count + 1):
        spoke = set(episode.reporters.values())
        cause = explaining(evidence, episode.start, episode.reported_at, episode.end, config, spoke)
        if cause is not None and (
            cause.certainty is Certainty.DECISIVE
            or not _outweighed(cause, _finding(evidence, episode, config))
        ):
            verdict.claim(cause.id, episode, [*episode.lines, *_teardown(torn_down, episode, config)])
            continue
        if (
            all(t.sighting.kind == SignalKind.NCCL_ERROR for t in episode.reports)
            and (reason := _why_unstarted(episode.start, unstarted, config)) is not None
        ):
            verdict.claim(reason, episode, episode.lines)
            continue
        _judge_hang(evidence, verdict, episode, number, crashes_of, torn_down, config, wandering)
    verdict.hypotheses = one_of_repeats(verdict.hypotheses, evidence, config)
    _claim_teardown(evidence, verdict, config)
    for slow, cause in slowed(evidence, config):
        verdict.claims.setdefault(cause.id, []).append(slow)
    _evaluate_blockers(evidence, verdict, config)
    return verdict


def _for_a_service(evidence: JobEvidence, trouble: Burst | Episode | PlatformBlocker) -> Cause | None:
    """The fault of a service of which the job complains as it fails."""
    if not evidence.shortages:
        return None
    found = shortage_at(complaints(evidence.failed), evidence.shortages, trouble.start, trouble.end)
    return found.incident if found is not None else None


def _accuse_by_starts(
    evidence: JobEvidence, verdict: JobVerdict, config: Config
) -> list[tuple[StartFailures, Cause]]:
    """Tries to start that failed on one node, each with what explains them: what is wrong there, else the node itself."""
    found: list[tuple[StartFailures, Cause]] = []
    for failures in start_failures(evidence, config):
        episode, cause = failures.episode(), _at_fault(evidence, failures, config)
        if cause is None:
            cause = Suspect(Place(PlaceKind.NODE, failures.node))
            ready_at = episode.seen_at + config.application_settle
            verdict.suspicions.append(
                Suspicion(failures.node, evidence.job, failures.finding(), episode, ready_at, ())
            )
        verdict.claim(cause, episode, failures.lines)
        found.append((failures, cause))
    return found


def _at_fault(evidence: JobEvidence, failures: StartFailures, config: Config) -> Cause | None:
    """What is known to be wrong already: under the job, or however weak on that very node."""
    if (cause := explaining(evidence, failures.start, failures.start, failures.end, config)) is not None:
        return cause.id
    since = failures.start - config.retention
    here = [
        c for c in evidence.causes if c.root.node == failures.node and since <= c.fault_at <= failures.end
    ]
    return max(here, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id)).id if here else None


def _cannot_start(
    burst: Burst, unstarted: Sequence[tuple[StartFailures, Cause]], config: Config
) -> Cause | None:
    """Why the job could not start when it failed so."""
    return None if burst.speaks_for_itself else _why_unstarted(burst.start, unstarted, config)


def _why_unstarted(
    at: datetime, unstarted: Sequence[tuple[StartFailures, Cause]], config: Config
) -> Cause | None:
    """Why the job could not start then."""
    return next((cause for failures, cause in unstarted if failures.covers(at, config)), None)


class _Firsts:
    """The hosts on which the job ended first, crash by crash, in order of time."""

    def __init__(self, evidence: JobEvidence, config: Config) -> None:
        self._evidence, self._config = evidence, config
        self._seen: dict[str, list[tuple[Burst, PastFault]]] = {}
        self.accused: list[tuple[Burst, Cause]] = []
        """The crashes that began on a suspected host, with that host."""

    def crashed_on(self, burst: Burst) -> str | None:
        """The one of many hosts on which the job crashed first."""
        return crashed_on(burst, self._there(burst))

    def _there(self, burst: Burst) -> list[Placement]:
        return placed_at(self._evidence.placements, burst.start, self._config)

    def accuse(self, verdict: JobVerdict, burst: Burst, loose: Mapping[int, list[Burst]]) -> bool:
        """Suspect the host on which the job ended first, if jobs have done so before: also of this job's earlier crashes there.

        Returns whether it is suspected.
        """
        evidence = self._evidence
        there = self._there(burst)
        host = first_host(burst, there)
        if host is None:
            return self._accuse_known(verdict, burst, there)
        before = self._seen.setdefault(host, [])
        own = {name: [fault for _, fault in crashes] for name, crashes in self._seen.items()}
        earlier = earlier_firsts(host, evidence.job, there, evidence.firsts, burst.start, own, burst)
        past = PastFault(
            "", IncidentFamily.APPLICATION, burst.start, None, evidence.job.key, circumstances(there, burst)
        )
        before.append((burst, past))
        if not earlier:
            return False
        suspect = self._suspect(verdict, burst, host, earlier)
        for crash, _ in before:
            verdict.claim(suspect, crash, crash.sightings)
            if crash is not burst:
                self.accused.append((crash, suspect))
            for crashes in loose.values():
                crashes[:] = [c for c in crashes if c is not crash]
        return True

    def _accuse_known(self, verdict: JobVerdict, burst: Burst, there: Sequence[Placement]) -> bool:
        """Suspect the host on which the job ended first, if other jobs accuse it already: also by rank 0, or as its only one."""
        evidence, host = self._evidence, any_first_host(burst, there)
        if host is None or not (earlier := accusers(host, evidence.firsts, burst, evidence.job)):
            return False
        verdict.claim(self._suspect(verdict, burst, host, earlier), burst, burst.sightings)
        return True

    def _suspect(self, verdict: JobVerdict, burst: Burst, host: str, earlier: Sequence[PastFault]) -> Suspect:
        ready_at = burst.seen_at + self._config.application_settle
        finding, episode = accusation(host, earlier), as_episode(burst)
        verdict.suspicions.append(Suspicion(host, self._evidence.job, finding, episode, ready_at, ()))
        suspect = Suspect(Place(PlaceKind.NODE, host))
        self.accused.append((burst, suspect))
        return suspect


def _forgotten(evidence: JobEvidence, domain: str) -> tuple[int, datetime | None]:
    base = evidence.forgotten.get(domain)
    return (base.count, base.until) if base else (0, None)


def _hangs(evidence: JobEvidence, config: Config) -> list[Episode]:
    """The job's hangs: what the same pods report within minutes is still the same one being torn down."""
    _, until = _forgotten(evidence, IncidentFamily.HANG)
    reports = [t for t in evidence.reports if until is None or t.sighting.at > until]
    found: list[Episode] = []
    for episode in episodes(reports, config.episode_gap):
        if all(s.text("subtype") == _PORT_EVENT for s in episode.lines):
            continue  # a port that bounced, as a library saw it: nothing waits or has failed
        last = found[-1] if found else None
        if (
            last is not None
            and episode.start - last.end <= config.same_pods_gap
            and _same_pods(evidence, last, episode)
        ):
            found[-1] = joined(last, episode)
        else:
            found.append(episode)
    return found


def _same_pods(evidence: JobEvidence, one: Episode, other: Episode) -> bool:
    spoke = {t.pod for t in one.reports} & {t.pod for t in other.reports}
    before = {s.uid for s in evidence.placements if s.pod in spoke and s.overlaps(one.end, one.end)}
    after = {s.uid for s in evidence.placements if s.pod in spoke and s.overlaps(other.end, other.end)}
    return bool(before & after)


def _finding(evidence: JobEvidence, episode: Episode, config: Config) -> HangFinding:
    """What the ranks' reports say about a hang."""
    there = placed_at(evidence.placements, episode.start, config)
    episode = replace(episode, reports=without_group_ranks(there, episode.reports))
    numbers = numbered(there, episode.reports)
    placements = numbers.placements
    episode = replace(episode, reports=where_ranks_stand(placements, episode.reports))
    addressed = any(
        t.sighting.kind == SignalKind.NCCL_ERROR or t.sighting.text("ip") for t in episode.reports
    )
    finding = find_culprit(episode, placements, evidence.addresses(placements) if addressed else NO_ADDRESSES)
    if numbers.is_guess:
        finding = replace(finding, complete=False)
    if (numbers.conflicts or numbers.is_guess) and finding.certainty is Certainty.DECISIVE:
        finding = replace(finding, certainty=Certainty.LIKELY)
    if finding.certainty is Certainty.DECISIVE and (doubt := _doubt(evidence, episode, placements, finding)):
        finding = replace(finding, certainty=Certainty.LIKELY, why=f"{finding.why}; but {doubt}")
    finding = cleared_by_work(finding, episode, placements, config)
    held = gpus_of(placements, finding.ranks)
    return replace(
        finding,
        gpu=next(iter(held.values())) if len(finding.ranks) == len(held) == 1 else None,
        gpus=tuple(sorted({gpu.pci for gpu in held.values() if gpu.pci})),
        doubts=numbers.conflicts,
    )


def _doubt(
    evidence: JobEvidence, episode: Episode, placements: Sequence[Placement], finding: HangFinding
) -> str:
    """Why the node that the ranks prove may be innocent all the same; "" if nothing contradicts them."""
    placed = sum(p.expected for p in placements)
    world = max((evidence.world or 0, *(t.nranks for p in placements for t in p.observed)))
    if placed < world:
        return f"only {placed} of the job's {world} ranks are placed, and the others may be what it waits for"
    here = [p for p in placements if p.node == finding.node]
    if finding.silent and any(p.end is not None and p.end < episode.reported_at for p in here):
        return "its pod had ended before the others spoke, so that its silence says nothing of the node"
    return ""


def _outweighed(cause: Hypothesis, finding: HangFinding) -> bool:
    """Whether the ranks prove that they wait for another node than the one of a cause that is only likely."""
    return (
        cause.certainty is not Certainty.DECISIVE
        and cause.root.node is not None
        and finding.certainty is Certainty.DECISIVE
        and finding.node not in (None, cause.root.node, *cause.nodes)
    )


def _judge_hang(
    evidence: JobEvidence,
    verdict: JobVerdict,
    episode: Episode,
    count: int,
    crashes_of: Sequence[tuple[Burst, Cause]],
    torn_down: Sequence[Burst],
    config: Config,
    wandering: Mapping[datetime, HangFinding],
) -> None:
    finding = wandering.get(episode.start) or _finding(evidence, episode, config)
    evicting = evicting_node(evidence, episode.start, episode.start, config)
    why = evicting.id if evicting is not None else _for_a_service(evidence, episode)
    if why is not None and finding.certainty is not Certainty.DECISIVE:
        verdict.claim(why, episode, [*episode.lines, *_teardown(torn_down, episode, config)])
        return
    shared = storm_for(evidence, episode, finding, config) or fabric_for(evidence, episode, finding, config)
    if shared is not None and not _outweighed(shared, finding):
        verdict.claim(shared.id, episode, episode.lines)
        return
    for burst, cause in crashes_of:
        if _crash_explains(burst, episode, finding, config):
            verdict.claim(cause, episode, episode.lines)
            return
    ready_at = _ready_at(finding, episode, config)
    teardown = _teardown(torn_down, episode, config)
    candidates = rejections(evidence, episode, finding, config)
    if (blame := _blamed(evidence, episode, finding, ready_at)) is not None:
        verdict.blames.append(blame)
        suspect = Suspect(Place(PlaceKind.SWITCH, blame.switch))
        verdict.claim(suspect, episode, [*episode.lines, *teardown])
        return
    there = placed_at(evidence.placements, episode.start, config)
    host = suspected_host(finding, there)
    if host and (earlier := earlier_firsts(host, evidence.job, there, evidence.firsts, episode.start)):
        finding = accusation(host, earlier)
    node = _accused(finding, missed_nodes(evidence, episode, config))
    # When every other rank has reported, silence is proof enough: do not wait until the kubelet is missed.
    proven = finding.silent and finding.certainty is Certainty.DECISIVE
    gone = gone_node(evidence, node, episode, config) if node is not None and not proven else None
    gone = gone or unheard_node(evidence, episode, finding, config)
    if gone is not None:
        verdict.claim(gone.id, episode, [*episode.lines, *teardown])
        return
    deaths = only_deaths(episode.reports)
    if deaths and (_runs_again(evidence, episode, ready_at) or _was_ended(evidence, episode, config)):
        return  # somebody ended it on purpose, or whatever it was is over
    if (removed := removed_before(evidence, episode.start, config)) and (
        deaths or node is None or node in removed
    ):
        return  # its ranks wait for pods that were taken away on purpose
    if node is not None and (not deaths or finding.rule == RULE):
        verdict.suspicions.append(Suspicion(node, evidence.job, finding, episode, ready_at, candidates))
        verdict.claim(Suspect(Place(PlaceKind.NODE, node)), episode, teardown)
        return
    if (weak := weak_cause(evidence, episode, finding, config)) is not None:
        verdict.claim(weak.id, episode, [*episode.lines, *teardown])
        return
    if (ill := ill_where_pods_ended(evidence, episode, config)) is not None and not finding.mismatch:
        verdict.claim(ill.id, episode, [*episode.lines, *teardown])
        return
    family = IncidentFamily.APPLICATION if finding.mismatch else IncidentFamily.HANG
    if finding.rule == WANDERS and (
        known := next((h for h in verdict.hypotheses if h.rule == WANDERS), None)
    ):
        verdict.claim(known.id, episode, [*episode.lines, *teardown])
        return
    hypothesis = hang_root(evidence, episode, finding, count, family, ready_at, candidates, teardown, config)
    verdict.hypotheses.append(hypothesis)


def _wandering(
    evidence: JobEvidence, hangs: Sequence[Episode], config: Config
) -> Mapping[datetime, HangFinding]:
    """Hangs of one job in which ranks of different nodes were behind, while others of the same nodes kept up; by their start.

    It follows the program, try after try, and no node: two nodes do not fail one after the other for the same job.
    """
    if len(hangs) < 2:
        return {}
    behind = {e.start: f for e in hangs if (f := _finding(evidence, e, config)).others_keep_up}
    nodes = sorted({f.node for f in behind.values() if f.node is not None})
    if len(nodes) < 2:
        return {}
    why = f"{len(behind)} times some ranks of one node were behind: of {', '.join(nodes[:8])}, while others there kept up"
    return {
        start: replace(
            found, node=None, certainty=Certainty.WEAK, rule=WANDERS, why=f"{found.why}. {why}", suspects=()
        )
        for start, found in behind.items()
    }


def _blamed(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, ready_at: datetime
) -> Blame | None:
    """The leaf under which the failing connections meet, when no node is suspected."""
    vote = finding.vote
    if vote is None or vote.level != "leaf" or vote.leaf is None or finding.node or finding.mismatch:
        return None
    lines = tuple(t.sighting for t in episode.reports if t.sighting.kind == SignalKind.NCCL_ERROR)
    return Blame(vote.leaf, evidence.job, episode.start, episode.end, ready_at, lines, vote.why, vote.pairs)


def _ready_at(finding: HangFinding, episode: Episode, config: Config) -> datetime:
    """When a hang may open an incident: the less is proven, the longer it waits for ranks that have not reported."""
    if only_deaths(episode.reports):
        return (
            episode.seen_at + config.restart_settle
        )  # however many tell of it, the next try may be under way
    if finding.complete:
        return episode.seen_at
    # Connections to a dead node fail long before its kubelet is missed: errors that name nobody wait for that.
    waits = any(t.sighting.kind == SignalKind.NCCL_TIMEOUT for t in episode.reports)
    by_leaf = finding.vote is not None and finding.vote.leaf is not None
    firm = (finding.node is None and (waits or by_leaf)) or finding.certainty is Certainty.DECISIVE
    return episode.seen_at + (config.hang_settle if firm else max(config.hang_settle, config.doubt_settle))


def _runs_again(evidence: JobEvidence, episode: Episode, until: datetime) -> bool:
    """Whether the job was started again, moved or came to its end meanwhile."""
    over = recovered(evidence, episode.end, None)
    return any(episode.start < p.start <= until for p in evidence.placements) or (
        over is not None and over <= until
    )


def _was_ended(evidence: JobEvidence, episode: Episode, config: Config) -> bool:
    """Whether the job was deleted or finished shortly before its processes ended, and did not start again since."""
    return any(
        episode.start - config.before <= end <= episode.end
        and not any(end < p.start <= episode.start for p in evidence.placements)
        for end in evidence.ended
    )


def _accused(finding: HangFinding, missed: frozenset[str]) -> str | None:
    """The one node to name. Of several suspects it is the one that was also NotReady, if just one was."""
    gone = [node for node in finding.suspects if node in missed]
    if len(gone) == 1:
        return gone[0]
    return finding.node if finding.certainty is not Certainty.WEAK else None


def _is_teardown(burst: Burst, hangs: Sequence[Episode], config: Config) -> bool:
    """Whether the watchdogs of a hang reported before the codes: killed processes leave XIDs on every node.

    Where ranks report no more than that others have ended, there was no hang: why those ended comes first. So it does where one
    crashed before any rank reported: what is torn down is killed.
    """
    return any(
        hang.reported_at - config.together <= burst.start <= hang.end + config.quiet
        and not only_deaths(hang.reports)
        and not any(crashed(s) and s.at <= hang.reported_at for s in burst.failures)
        for hang in hangs
    )


def _did_no_harm(burst: Burst, evidence: JobEvidence, hangs: Sequence[Episode], config: Config) -> bool:
    """Whether only the kernel spoke, and the job went on or came to a good end: that was not its own, or no matter.

    What kernels on GPUs leave is a program's daily business, and counts only where something of the job ended or stood still
    with it; where the kernel killed a process, that is the end of something.
    """
    if not burst.is_mute:
        return False
    since, until = burst.start - config.slack, burst.end + config.restart_settle
    ended = [p for p in evidence.placements if p.end is not None and since <= p.end <= until]
    if any(p.succeeded and p.node in burst.nodes for p in ended):
        return True
    if any(hang.start - config.before <= burst.start <= hang.reported_at + config.together for hang in hangs):
        return (
            False  # also where containers start again in the same pods, and the job goes on within the minute
        )
    moved = any(burst.end + config.together < at <= until for at in evidence.moved)
    if moved and not any(burst.start < p.start <= until for p in evidence.placements):
        return True
    return not burst.failures and all(p.succeeded is True for p in ended)


def _was_stopped(burst: Burst, evidence: JobEvidence, config: Config) -> bool:
    """Whether pods of the job were taken away on purpose before it failed: by preemption, a drain, a queue, a person."""
    return not burst.speaks_for_itself and bool(removed_before(evidence, burst.start, config))


def _teardown(torn_down: Sequence[Burst], hang: Episode, config: Config) -> list[Sighting]:
    return [s for burst in torn_down if _is_teardown(burst, [hang], config) for s in burst.sightings]


def _crash_explains(burst: Burst, episode: Episode, finding: HangFinding, config: Config) -> bool:
    since = episode.start - config.before
    if only_deaths(episode.reports):
        return burst.hit_between(since, episode.reported_at + config.together)
    # Peers may report a closed connection before the program that closed it has logged why.
    own = burst.speaks_for_itself or any(map(crashed, burst.failures))
    until = episode.reported_at + (config.together if own else timedelta())
    if not burst.hit_between(since, until):
        return False
    return burst.is_shared or not finding.suspects or set(finding.suspects) <= set(burst.nodes)


def _evaluate_blockers(evidence: JobEvidence, verdict: JobVerdict, config: Config) -> None:
    """Platform faults that keep the job from running, unless another incident of the job is why."""
    count, until = _forgotten(evidence, families()[PLATFORM].domain)
    failed = [s for s in evidence.failed if until is None or s.at > until]
    for number, blocker in enumerate(platform_blockers(failed, evidence.pods, config), count + 1):
        service = _for_a_service(evidence, blocker) if not blocker.waits else None
        why = service or _evicted_by(evidence, blocker, config) or _behind(evidence, verdict, blocker, config)
        if why is not None:
            verdict.claim(why, blocker, blocker.sightings)
            continue
        if (here := stuck_on_node(evidence, blocker)) is not None:
            episode, node = here.episode(), here.node
            ready_at = blocker.seen_at + config.application_settle
            verdict.suspicions.append(Suspicion(node, evidence.job, here.finding(), episode, ready_at, ()))
            verdict.claim(Suspect(Place(PlaceKind.NODE, node)), blocker, blocker.sightings)
            continue
        ends = [blocker.over_at(evidence.placements), recovered(evidence, blocker.end, config)]
        over_at = min((at for at in ends if at is not None), default=None)
        ready_at, says = blocker.seen_at + config.application_settle, blocker.says
        if blocker.waits:
            ready_at = max(ready_at, _patience_ends(evidence, blocker))
            if not _ran_before(evidence, blocker) or (over_at is not None and over_at <= ready_at):
                continue  # a condition of a full cluster, which `faultline capacity` reports
            says = f"it ran before, and {says} since {blocker.since or blocker.start:%Y-%m-%d %H:%M} UTC"
        verdict.hypotheses.append(
            Hypothesis(
                place=evidence.place,
                root=evidence.root,
                family=PLATFORM,
                incarnation=number,
                certainty=Certainty.LIKELY,
                fault_at=blocker.start,
                last_at=blocker.end,
                ready_at=ready_at,
                rule="waits too long" if blocker.waits else "platform in the way",
                why=f"{evidence.job}: {says}, and nothing that happened to it before explains that",
                alone=not blocker.is_routine(len(placed_at(evidence.placements, blocker.start, config))),
                cleared_at=over_at,
                causes=blocker.sightings,
                jobs=(evidence.job,),
                facts={"nodes_told": blocker.nodes[:16]},
                stops="never",
            )
        )


def _evicted_by(evidence: JobEvidence, blocker: PlatformBlocker, config: Config) -> Cause | None:
    """The node that evicts the job's pods for what it lacks itself."""
    if not blocker.is_eviction:
        return None
    node = evicting_node(evidence, blocker.start, blocker.end, config)
    return node.id if node is not None else None


def _patience_ends(evidence: JobEvidence, blocker: PlatformBlocker) -> datetime:
    """Until when it is usual that a job of this kind waits."""
    return (blocker.since or blocker.start) + policy().waiting.of(evidence.job.kind)


def _ran_before(evidence: JobEvidence, blocker: PlatformBlocker) -> bool:
    """Whether pods of the job stood on nodes before those that wait came to be."""
    return evidence.ran_at is not None and evidence.ran_at < (blocker.since or blocker.start)


def _behind(
    evidence: JobEvidence, verdict: JobVerdict, blocker: PlatformBlocker, config: Config
) -> Cause | None:
    """The incident that took the job's pods away, or that of the node where they cannot start."""
    if not blocker.may_follow:
        return None
    since = blocker.start - config.retention
    # What happens on a node that the pods come to at last is not what they waited for.
    left = {p.node for p in evidence.placements if p.start <= blocker.end}
    behind = [
        c
        for c in evidence.causes
        if since <= c.fault_at <= blocker.end
        and not (blocker.is_eviction and c.certainty is Certainty.WEAK and not c.alone)
        and (c.root.node in blocker.nodes or (c.certainty is not Certainty.WEAK and c.stops != "never"))
        and (
            c.root.node is None
            or c.root.node in blocker.nodes
            or not left.isdisjoint({c.root.node, *c.nodes})
        )
        and c.domain not in ("pfc", "fabric", "link")
    ]
    if behind:
        return max(behind, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id)).id
    own = [h.id for h in verdict.hypotheses if h.family != PLATFORM and since <= h.fault_at <= blocker.start]
    accused = [s.node for s in verdict.suspicions if since <= s.episode.start <= blocker.start]
    return Suspect(Place(PlaceKind.NODE, min(accused))) if accused and not own else min(own, default=None)


def _claim_teardown(evidence: JobEvidence, verdict: JobVerdict, config: Config) -> None:
    """Clean-up codes (45 and its like) go to whatever explains the job at that time; alone they mean nothing."""
    for s in evidence.codes if evidence.local else ():
        if (
            families().role(s) == "symptom"
            and (cause := explaining(evidence, s.at, s.at, s.at, config)) is not None
        ):
            verdict.claims.setdefault(cause.id, []).append(s)
