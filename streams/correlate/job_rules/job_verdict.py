"""Evaluates one job: what explains its symptoms, and which node or switch is suspected when nothing does.

The order of precedence is in `judge`: hardware on a member node, a storm in its part of the fabric, the job's own code,
and only then the ranks themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import LEAF_GUESSED, SOMEWHERE, Blame, Hypothesis
from streams.correlate.job_rules.accused_hosts import AccusedHosts
from streams.correlate.job_rules.applications import Burst, bursts
from streams.correlate.job_rules.applications import numbered as numbered_bursts
from streams.correlate.job_rules.blockers import claim_ends, claim_waits, evaluate_blockers, for_a_service
from streams.correlate.job_rules.connection_votes import NO_COMMON_END, ONE_PAIR, Vote, only_deaths
from streams.correlate.job_rules.culprit import WANDERS, HangFinding
from streams.correlate.job_rules.device_reports import lost_access
from streams.correlate.job_rules.explaining_causes import (
    between_jobs,
    broken_before,
    evicting_node,
    explaining,
    fabric_for,
    gone_meanwhile,
    gone_node,
    ill_where_pods_ended,
    lossy_leaf_for,
    missed_nodes,
    still_between_jobs,
    storm_for,
    unheard_node,
    weak_cause,
)
from streams.correlate.job_rules.first_failures import (
    RULE,
    accusation,
    crashed,
    earlier_firsts,
    suspected_host,
)
from streams.correlate.job_rules.hang_findings import (
    behind_in_kin,
    finding_of,
    hangs_of,
    wandering_ranks,
)
from streams.correlate.job_rules.job_causes import (
    application_root,
    audience_of,
    hang_root,
    one_of_repeats,
    rejections,
    resubmission_of,
)
from streams.correlate.job_rules.job_evidence import (
    Behind,
    JobEvidence,
    ended_by_slurm,
    forgotten,
    placed_at,
    recovered,
    removed_before,
    without_told_exits,
)
from streams.correlate.job_rules.late_joins import LateJoin, claim_late_joins, late_join
from streams.correlate.job_rules.left_partitions import left_partition
from streams.correlate.job_rules.pod_failures import is_exception, is_interrupt, is_own
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.job_rules.slow_jobs import slowed
from streams.correlate.job_rules.start_failures import StartFailures, start_failures
from streams.correlate.job_rules.unreached_nodes import Unreached, unreached
from streams.correlate.job_rules.verdict import JobVerdict, Suspicion
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.correlate.state.allocations import is_partial
from streams.correlate.state.place import Cause, Place, PlaceKind, Suspect
from streams.model.clock import span, to_the_second
from streams.model.entity import SLURM_JOB, Entity
from streams.model.incident import Audience, Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.message import some


def judge(evidence: JobEvidence, config: Config) -> JobVerdict:
    """What explains this job's symptoms.

    Its bursts and its hangs are numbered in the order of their times, whatever explains them: so an incarnation does not
    depend on what was read first, nor on what is found to explain another one.
    """
    verdict = JobVerdict()
    interrupts = (s.at for s in evidence.failed if s.firing and is_interrupt(s))
    evidence = replace(
        evidence, failed=without_told_exits(evidence, config), asked=(*evidence.asked, *interrupts)
    )
    hangs = hangs_of(evidence, config)
    hang_count, _ = forgotten(evidence, IncidentFamily.HANG)
    count, until = forgotten(evidence, IncidentFamily.APPLICATION)
    failures = (*evidence.codes, *evidence.failed)
    words = [s for s in _ended_by_exceptions(evidence, hangs, config) if until is None or s.at > until]
    faults = bursts((s for s in failures if until is None or s.at > until), config, words)
    unstarted = _accuse_by_starts(evidence, verdict, config)
    barred = unreached(evidence, hangs, config)
    loose: dict[int, list[Burst]] = {}
    torn_down: list[Burst] = []
    firsts = AccusedHosts(evidence, config)
    for number, burst in numbered_bursts(
        faults, count, evidence.own_closed, config, firsts.crashed_on, firsts.one_gpu
    ):
        own = burst.speaks_for_itself
        if (cause := _explaining_burst(evidence, burst, config)) is not None:
            verdict.claim(cause.id, burst, burst.sightings)
        elif not own and not burst.is_mute and (service := for_a_service(evidence, burst)) is not None:
            verdict.claim(service, burst, burst.sightings)
        elif (reason := _cannot_start(burst, unstarted, config)) is not None:
            verdict.claim(reason, burst, burst.sightings)
        elif (gave_up := next((one for one in barred if one.ends(burst, config)), None)) is not None:
            verdict.claim(gave_up.cause.id, burst, burst.sightings)
        elif not own and _is_teardown(burst, hangs, config):
            torn_down.append(burst)
        elif (why := _no_failure(burst, evidence, hangs, config)) is not None:
            verdict.leave(burst.sightings, *why)
        elif not firsts.accuse(verdict, burst, loose):
            loose.setdefault(number, []).append(burst)
    crashes_of: list[tuple[Burst, Cause]] = [*firsts.accused]
    on_gpus: set[tuple[str, Entity | None]] = set()
    for number, crashes in loose.items():
        if not crashes:
            continue
        place = (crashes[0].signature, firsts.one_gpu(crashes[0]))
        follows_gpu = place in on_gpus and place[1] is not None
        on_gpus.add(place)
        hypothesis = application_root(evidence, crashes, number, config, follows_gpu=follows_gpu)
        if hypothesis is None:
            told = (s for burst in crashes for s in burst.sightings)
            verdict.leave(
                told, "what its processes left says nothing by itself, or the job started since", _OWN_NEEDS
            )
        else:
            verdict.hypotheses.append(hypothesis)
            crashes_of += [(burst, hypothesis.id) for burst in crashes]
    wandering = wandering_ranks(evidence, hangs, config)
    late_joins: list[LateJoin] = []
    for number, episode in enumerate(hangs, hang_count + 1):
        spoke = set(episode.reporters.values())
        cause = explaining(evidence, episode.start, episode.reported_at, episode.end, config, spoke)
        if cause is not None and (
            cause.certainty is Certainty.DECISIVE
            or not _outweighed(cause, finding_of(evidence, episode, config))
        ):
            verdict.claim(cause.id, episode, [*episode.lines, *_teardown(torn_down, episode, config)])
            continue
        if (
            all(t.sighting.kind == SignalKind.NCCL_ERROR for t in episode.reports)
            and (reason := _why_unstarted(episode.start, unstarted, config)) is not None
        ):
            verdict.claim(reason, episode, episode.lines)
            continue
        if (waited := late_join(evidence, episode, config)) is not None:
            late_joins.append(waited)
            continue
        node = next((one for one in barred if one.episode is episode), None)
        _judge_hang(evidence, verdict, episode, number, crashes_of, torn_down, config, wandering, node)
    verdict.hypotheses = one_of_repeats(verdict.hypotheses, evidence, config)
    _claim_teardown(evidence, verdict, config)
    for slow, cause in slowed(evidence, config):
        verdict.claims.setdefault(cause.id, []).append(slow)
    claim_ends(evidence, verdict, config)
    claim_waits(evidence, verdict, config)
    claim_late_joins(late_joins, evaluate_blockers(evidence, verdict, config), verdict)
    return verdict


def _ended_by_exceptions(evidence: JobEvidence, hangs: Sequence[Episode], config: Config) -> list[Sighting]:
    """The exceptions of the program that explain why ranks report that others have ended, and no more than that.

    Alone they are its daily business, and a launcher that says how the process ended has said enough. What reading and writing
    failed with may be the storage's.
    """
    found: dict[str, Sighting] = {}
    own = [s.at for s in evidence.failed if s.firing and is_own(s)]
    exceptions = [
        s for s in evidence.failed if s.firing and is_exception(s) and "[Errno" not in s.text("reason")
    ]
    for hang in hangs if exceptions else ():
        if not only_deaths(hang.reports) or ended_by_slurm(evidence, hang.start, config):
            continue
        if removed_before(evidence, hang.start, config, min(s.seen_at for s in hang.lines)):
            continue
        since, until = hang.start - config.episode_gap, hang.reported_at + config.together
        if any(since <= at <= hang.end + config.episode_gap for at in own):
            continue
        found |= {s.id: s for s in exceptions if since <= s.at <= until}
    return list(found.values())


def _explaining_burst(evidence: JobEvidence, burst: Burst, config: Config) -> Hypothesis | None:
    """What is known to be wrong besides the job and explains what its processes left."""
    # Many nodes do not fault for a lost GPU before it is lost; one node may, when both are the same fault.
    late = config.skew if burst.is_shared else None
    own = burst.speaks_for_itself
    cause = explaining(evidence, burst.start, burst.start, burst.end, config, late=late, by_network=not own)
    if cause is None and {s.code for s in burst.sightings} <= families().quiet_alone:
        # What killed processes leave may come before the scrapes at which a counter shows the storm that killed them.
        cause = explaining(
            evidence, burst.start, burst.start, burst.end, config, late=config.scrape, domain="pfc"
        )
    if cause is not None or own:
        return cause
    if not burst.is_shared:
        cause = gone_meanwhile(evidence, burst.start, burst.nodes, config)
        cause = cause or broken_before(evidence, burst.start, config)
    cause = cause or evicting_node(evidence, burst.start, burst.start, config)
    return cause or lost_access(evidence, burst.start, burst.end, config)


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
    cause = explaining(evidence, failures.start, failures.start, failures.end, config)
    cause = cause or lost_access(evidence, failures.start, failures.end, config)
    if cause is not None:
        return cause.id
    since = failures.start - config.retention
    here = [
        c
        for c in evidence.causes
        if c.root.node == failures.node and since <= c.fault_at <= failures.end and not c.only_drops
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
    barred: Unreached | None,
) -> None:
    """The first of these: claim a hang for what explains it, accuse a node or a switch of it, or add it as one of the job."""
    finding = wandering.get(episode.start) or finding_of(evidence, episode, config)
    teardown = _teardown(torn_down, episode, config)
    lines = [*episode.lines, *teardown]
    evicting = evicting_node(evidence, episode.start, episode.start, config)
    why = evicting.id if evicting is not None else for_a_service(evidence, episode)
    if why is not None and finding.certainty is not Certainty.DECISIVE:
        verdict.claim(why, episode, lines)
        return
    shared = (
        left_partition(evidence, episode, finding, config)
        or storm_for(evidence, episode, finding, config)
        or lossy_leaf_for(evidence, episode, finding, config)
        or fabric_for(evidence, episode, finding, config)
        or lossy_leaf_for(evidence, episode, finding, config, by_rail=True)
    )
    if shared is not None and not _outweighed(shared, finding):
        if LEAF_GUESSED in shared.facts:
            # Until all ranks have spoken, those that fail within a rack may be missing.
            verdict.doubted.setdefault(shared.id, episode.seen_at + config.doubt_settle)
        verdict.claim(shared.id, episode, episode.lines)
        return
    for burst, cause in crashes_of:
        if _crash_explains(burst, episode, finding, config):
            verdict.claim(cause, episode, episode.lines)
            return
    ready_at = _ready_at(finding, episode, config)
    if not finding.node and evidence.job.kind == SLURM_JOB:
        # What is silent may stand on a node that Slurm has not missed yet. That the job is there, nobody may know either.
        partial = any(map(is_partial, placed_at(evidence.placements, episode.start, config)))
        ready_at = max(ready_at, (episode.seen_at if partial else episode.start) + config.missed_late)
    if (
        barred is not None
        and not finding.mismatch
        and (finding.certainty is not Certainty.DECISIVE or finding.node == barred.cause.root.node)
        and not _got_over(evidence, episode, ready_at)
    ):
        verdict.doubted.setdefault(barred.cause.id, ready_at)
        verdict.claim(barred.cause.id, episode, lines)
        return
    candidates = rejections(evidence, episode, finding, config)
    if (blame := _blamed(evidence, episode, finding, ready_at)) is not None:
        verdict.blames.append(blame)
        suspect = Suspect(Place(PlaceKind.SWITCH, blame.switch))
        verdict.claim(suspect, episode, lines)
        return
    there = placed_at(evidence.placements, episode.start, config)
    host = suspected_host(finding, there)
    if host and (earlier := earlier_firsts(host, evidence.job, there, evidence.firsts, episode.start)):
        finding = accusation(host, earlier)
    missed = missed_nodes(evidence, episode, config)
    node = _accused(finding, missed)
    # When every other rank has reported, silence is proof enough: do not wait until the kubelet is missed.
    proven = finding.silent and finding.certainty is Certainty.DECISIVE
    gone = gone_node(evidence, node, episode, config) if node is not None and not proven else None
    gone = gone or unheard_node(evidence, episode, finding, config)
    if gone is not None:
        verdict.claim(gone.id, episode, lines)
        return
    deaths = only_deaths(episode.reports)
    if deaths and (_runs_again(evidence, episode, ready_at) or _was_ended(evidence, episode, config)):
        # Somebody ended it on purpose, or whatever it was is over.
        verdict.leave(
            episode.lines,
            "its processes ended, and the job started again, came to its end or was deleted",
            f"ranks that wait in a collective, or no new start by {to_the_second(ready_at)}",
        )
        return
    if not finding.mismatch and ended_by_slurm(evidence, episode.start, config):
        verdict.leave(
            episode.lines,
            "Slurm was ending the job: somebody cancelled it, its time was up, another job preempted it, or it was done",
            f"ranks that wait or fail before that, or more than {span(config.removal)} after it",
        )
        return
    heard_at = None if deaths else min(s.seen_at for s in episode.lines)
    if (removed := removed_before(evidence, episode.start, config, heard_at)) and (
        deaths or node is None or node in removed
    ):
        verdict.leave(
            episode.lines,
            f"its ranks wait for pods that were taken away on purpose, from {some(sorted(removed), 3)}",
            f"no pod of it that is asked to go within {span(config.removal)} before; or one node whose ranks alone are silent, "
            "and that is none of these",
        )
        return
    if node is not None and not deaths and finding.others_keep_up and node not in missed:
        mine = Behind(evidence.job, episode.start, node, finding.ranks)
        verdict.behind.append(mine)
        alike = [b for b in evidence.kin if b.ranks == mine.ranks]
        if (of_program := behind_in_kin(finding, mine, alike)) is not None:
            finding, node = of_program, None
            lead = min((mine, *alike), key=lambda b: (b.start, b.job.key))
            if (root := next((h for h in evidence.kin_roots if lead.job in h.jobs[:1]), None)) is not None:
                verdict.claim(root.id, episode, lines)
                return
    if node is not None and (not deaths or finding.rule == RULE):
        audience = (
            audience_of(evidence, [episode.start], config) if finding.is_of_program else Audience.ON_CALL
        )
        verdict.suspicions.append(
            Suspicion(node, evidence.job, finding, episode, ready_at, candidates, audience)
        )
        verdict.claim(Suspect(Place(PlaceKind.NODE, node)), episode, teardown)
        return
    weak = weak_cause(evidence, episode, finding, config)
    if weak is None and not finding.mismatch:
        weak = ill_where_pods_ended(evidence, episode, config)
    if weak is not None:
        # As long as where the culprit is likely: it is named for its sign, not by the ranks.
        settled = ready_at if finding.complete else max(ready_at, episode.seen_at + config.doubt_settle)
        verdict.doubted.setdefault(weak.id, settled)
        verdict.claim(weak.id, episode, lines)
        return
    if finding.vote is not None and finding.vote.rule in (ONE_PAIR, NO_COMMON_END) and not finding.mismatch:
        # This incident names other jobs that fail so at this moment, and theirs name this one; dead nodes are missed before that.
        settle = config.hang_settle if finding.complete else 2 * config.doubt_settle
        ready_at = max(ready_at, episode.seen_at + settle)
        verdict.blames.append(_blame(SOMEWHERE, finding.vote, evidence, episode, ready_at))
        network = between_jobs(evidence, episode, config)
    else:
        network = still_between_jobs(evidence, episode, finding, config)
    if network is not None:
        verdict.claim(network.id, episode, lines)
        return
    family = IncidentFamily.APPLICATION if finding.mismatch else IncidentFamily.HANG
    if finding.rule == WANDERS and (
        known := next((h for h in verdict.hypotheses if h.rule == WANDERS), None)
    ):
        verdict.claim(known.id, episode, lines)
        return
    if finding.mismatch:
        verdict.mismatched = True
        if (before := resubmission_of(finding, episode, evidence, config)) is not None:
            verdict.claim(before.id, episode, lines)
            return
    hypothesis = hang_root(evidence, episode, finding, count, family, ready_at, candidates, teardown, config)
    verdict.hypotheses.append(hypothesis)


def _blamed(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, ready_at: datetime
) -> Blame | None:
    """The leaf under which the failing connections meet, when no node is suspected."""
    vote = finding.vote
    if vote is None or vote.level != "leaf" or vote.leaf is None or finding.node or finding.mismatch:
        return None
    return _blame(vote.leaf, vote, evidence, episode, ready_at)


def _blame(switch: str, vote: Vote, evidence: JobEvidence, episode: Episode, ready_at: datetime) -> Blame:
    lines = tuple(t.sighting for t in episode.reports if t.sighting.kind == SignalKind.NCCL_ERROR)
    return Blame(switch, evidence.job, episode.start, episode.end, ready_at, lines, vote.why, vote.pairs)


def _ready_at(finding: HangFinding, episode: Episode, config: Config) -> datetime:
    """When a hang may open an incident: the less is proven, the longer it waits for ranks that have not reported."""
    if only_deaths(episode.reports):
        # However many report it, the next try may be under way.
        return episode.seen_at + config.restart_settle
    if finding.complete:
        return episode.seen_at
    # Connections to a dead node fail long before its kubelet is missed: errors that name nobody wait for that.
    waits = any(t.sighting.kind == SignalKind.NCCL_TIMEOUT for t in episode.reports)
    by_leaf = finding.vote is not None and finding.vote.leaf is not None
    firm = (finding.node is None and (waits or by_leaf)) or finding.certainty is Certainty.DECISIVE
    return episode.seen_at + (config.hang_settle if firm else max(config.hang_settle, config.doubt_settle))


def _got_over(evidence: JobEvidence, episode: Episode, until: datetime) -> bool:
    """Whether the same processes went on by then, or the job came to its end."""
    over = recovered(evidence, episode.end, None)
    return (
        over is not None
        and over <= until
        and not any(episode.start < p.start <= over for p in evidence.placements)
    )


def _runs_again(evidence: JobEvidence, episode: Episode, until: datetime) -> bool:
    """Whether the job was started again, moved or came to its end meanwhile."""
    over = recovered(evidence, episode.end, None)
    return any(episode.start < p.start <= until for p in evidence.placements) or (
        over is not None and over <= until
    )


def _was_ended(evidence: JobEvidence, episode: Episode, config: Config) -> bool:
    """Whether the job was stopped or finished shortly before its processes ended, and did not start again since.

    Where whoever deletes it has its pods deleted first, the job itself goes some seconds after its last process.
    """
    ends = [end for end in evidence.ended if end <= episode.end]
    ends += [stop for stop in evidence.stopped if stop <= episode.end + config.together]
    return any(
        episode.start - config.before <= end
        and not any(end < p.start <= episode.start for p in evidence.placements)
        for end in ends
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
        # Also where containers start again in the same pods, and the job goes on within the minute.
        return False
    moved = any(burst.end + config.together < at <= until for at in evidence.moved)
    if moved and not any(burst.start < p.start <= until for p in evidence.placements):
        return True
    return not burst.failures and all(p.succeeded is True for p in ended)


_OWN_NEEDS = (
    "a failure that no killed process leaves (an exception, memory that ran out, a CUDA error with its reason), or a second "
    "try that fails alike"
)


def _no_failure(
    burst: Burst, evidence: JobEvidence, hangs: Sequence[Episode], config: Config
) -> tuple[str, str] | None:
    """Why what processes of a job left is no failure of it, and what would make it one; None where it is one."""
    if burst.says_nothing:
        return "killed processes leave this, whatever they were killed for", _OWN_NEEDS
    if _did_no_harm(burst, evidence, hangs, config):
        return (
            "only the kernel spoke, and the job went on or came to a good end",
            f"a process of it that ends badly, or ranks that stand still, within {span(config.restart_settle)}",
        )
    if _was_stopped(burst, evidence, config):
        return (
            "pods of it had been taken away on purpose: by preemption, a drain, a queue or a person",
            f"no pod of it that was asked to go within {span(config.removal)} before",
        )
    return None


def _was_stopped(burst: Burst, evidence: JobEvidence, config: Config) -> bool:
    """Whether pods of the job were taken away on purpose before it failed: by preemption, a drain, a queue, a person."""
    return not burst.speaks_for_itself and (
        ended_by_slurm(evidence, burst.start, config) or bool(removed_before(evidence, burst.start, config))
    )


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


def _claim_teardown(evidence: JobEvidence, verdict: JobVerdict, config: Config) -> None:
    """Clean-up codes (45 and its like) go to whatever explains the job at that time; alone they mean nothing."""
    for s in evidence.codes if evidence.local else ():
        if (
            families().role(s) == "symptom"
            and (cause := explaining(evidence, s.at, s.at, s.at, config)) is not None
        ):
            verdict.claims.setdefault(cause.id, []).append(s)
