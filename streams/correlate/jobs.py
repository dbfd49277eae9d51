"""Judging one job: what its symptoms are explained by, and who is suspected when nothing explains them.

The order of precedence is read in `judge`: hardware on a member node, a storm in its part of the fabric, the job's own code,
and only then the ranks themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streams.correlate.applications import Burst, bursts
from streams.correlate.config import Config
from streams.correlate.culprits import Finding, find_culprit
from streams.correlate.fabric import Blame
from streams.correlate.failures import PLATFORM, Obstacle, obstacles
from streams.correlate.families import families
from streams.correlate.hypotheses import Hypothesis, rejected
from streams.correlate.lives import MISMATCHES_FROM
from streams.correlate.numbering import gpus_of, numbered
from streams.correlate.placement import Stay
from streams.correlate.reports import ERROR, Episode, Told, episodes, joined
from streams.correlate.rows import BaseRow
from streams.correlate.sightings import Sighting
from streams.correlate.votes import NO_ADDRESSES, Addresses, only_deaths
from streams.model.entity import Entity, JobRef
from streams.model.incident import Candidate, Certainty
from streams.model.signal import Attribute


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything about one job that the judgement may use."""

    cluster: str
    job: JobRef
    told: Sequence[Told]
    codes: Sequence[Sighting]
    """XIDs on nodes where the job stood at that moment."""
    stays: Sequence[Stay]
    """Every known stay."""
    failed: Sequence[Sighting]
    """What its programs, its pods and the kernels under it said of its failing, each with its node where that is known."""
    causes: Sequence[Hypothesis]
    """Roots on nodes the job stood on, and storms and faults of switches it may suffer from."""
    near_storms: frozenset[str]
    """Ids of storms and faults of switches that reach the job: a node on the source, on its leaf, or with pause received."""
    closed: dict[str, datetime]
    """When the incidents of `causes` ended."""
    moved: Sequence[datetime]
    """Signs of progress, in order."""
    ended: tuple[datetime, ...]
    """When the job finished or was deleted. One that was deleted may have been made anew under its name, and finish later."""
    world: int | None = None
    """How many ranks the job has by its own specification."""
    addresses: Callable[[Sequence[Stay]], Addresses] = lambda stays: NO_ADDRESSES
    """What peers' names and addresses stood for while the job stood so."""
    forgotten: Mapping[str, BaseRow] = field(default_factory=dict)
    """By domain: how many of the job's own incidents are forgotten, and until when."""
    local: Sequence[tuple[Hypothesis, Sequence[Stay]]] = field(init=False)
    """Roots on the job's own nodes that may explain its symptoms, each with the job's stays there."""

    def __post_init__(self) -> None:
        there: dict[str | None, list[Stay]] = {}
        for cause in self.causes:
            there |= {node: [] for node in (cause.root.node, *cause.nodes)}
        for stay in self.stays:
            if stay.node in there:
                there[stay.node].append(stay)
        local = [
            (cause, stays)
            for cause in self.causes
            if cause.certainty is not Certainty.WEAK
            and cause.stops != "never"
            and (stays := [s for node in {cause.root.node, *cause.nodes} for s in there[node]])
        ]
        object.__setattr__(self, "local", local)

    @property
    def scope(self) -> str:
        """The place that is evaluated as one."""
        return f"job/{self.job.key}"

    @property
    def root(self) -> Entity:
        """The job as a root."""
        return Entity(self.cluster, job=self.job)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A node that one job's ranks point at."""

    node: str
    job: JobRef
    finding: Finding
    episode: Episode
    ready_at: datetime
    candidates: tuple[Candidate, ...]


@dataclass(slots=True)
class Judgement:
    """The outcome for one job. `explained` maps a period of its symptoms to the incident that explains them."""

    claims: dict[str, list[Sighting]] = field(default_factory=dict)
    explained: list[tuple[datetime, datetime, str]] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    suspicions: list[Suspicion] = field(default_factory=list)
    blames: list[Blame] = field(default_factory=list)

    def claim(self, cause: str, since: datetime, until: datetime, symptoms: Sequence[Sighting]) -> None:
        """These symptoms follow from that incident."""
        self.explained.append((since, until, cause))
        self.claims.setdefault(cause, []).extend(symptoms)


def judge(evidence: Evidence, config: Config) -> Judgement:
    """What explains this job's symptoms.

    Its bursts and its hangs are numbered in the order of their times, whatever explains them: so an incarnation does not
    depend on what was read first, nor on what is found to explain another one.
    """
    judgement = Judgement()
    hangs = _hangs(evidence, config)
    hang_count, _ = _forgotten(evidence, "hang")
    count, until = _forgotten(evidence, "application")
    own = (*evidence.codes, *evidence.failed)
    faults = bursts((s for s in own if until is None or s.at > until), config)
    loose: list[tuple[int, Burst]] = []
    torn_down: list[Burst] = []
    for burst in faults:
        count += not burst.says_nothing
        # Many nodes do not fault for a lost GPU before it is lost; one node may, when both are the same fault.
        late = config.skew if burst.is_shared else None
        cause = _explaining(evidence, burst.start, burst.start, burst.end, config, late=late)
        if cause is None and {s.code for s in burst.sightings} <= families().quiet_alone:
            # What killed processes leave may come before the scrapes at which a counter tells of the storm that killed them.
            cause = _explaining(
                evidence, burst.start, burst.start, burst.end, config, late=config.scrape, domain="pfc"
            )
        if cause is not None:
            judgement.claim(cause.id, burst.start, burst.end, burst.sightings)
        elif not burst.speaks_for_itself and _torn_down_by(burst, hangs, config) is not None:
            torn_down.append(burst)
        else:
            loose.append((count, burst))
    applications = [
        (burst, hypothesis)
        for number, burst in loose
        if (hypothesis := _application(evidence, burst, number, config)) is not None
    ]
    judgement.hypotheses += [hypothesis for _, hypothesis in applications]
    for number, episode in enumerate(hangs, hang_count + 1):
        spoke = set(episode.reporters.values())
        cause = _explaining(evidence, episode.start, episode.told_at, episode.end, config, spoke)
        if cause is not None and (
            cause.certainty is Certainty.DECISIVE
            or not _outweighed(cause, _finding(evidence, episode, config))
        ):
            lines = [t.sighting for t in episode.told]
            judgement.claim(
                cause.id, episode.start, episode.end, [*lines, *_teardown(torn_down, episode, config)]
            )
            continue
        _judge_hang(evidence, judgement, episode, number, applications, torn_down, config)
    _claim_teardown(evidence, judgement, config)
    _judge_obstacles(evidence, judgement, config)
    return judgement


def _forgotten(evidence: Evidence, domain: str) -> tuple[int, datetime | None]:
    base = evidence.forgotten.get(domain)
    return (base.count, base.until) if base else (0, None)


def _hangs(evidence: Evidence, config: Config) -> list[Episode]:
    """The job's hangs: what the same pods report within minutes is still the same one being torn down."""
    _, until = _forgotten(evidence, "hang")
    told = [t for t in evidence.told if until is None or t.sighting.at > until]
    found: list[Episode] = []
    for episode in episodes(told, config.episode_gap):
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


def _same_pods(evidence: Evidence, one: Episode, other: Episode) -> bool:
    spoke = {t.pod for t in one.told} & {t.pod for t in other.told}
    before = {s.uid for s in evidence.stays if s.pod in spoke and s.overlaps(one.end, one.end)}
    after = {s.uid for s in evidence.stays if s.pod in spoke and s.overlaps(other.end, other.end)}
    return bool(before & after)


def _finding(evidence: Evidence, episode: Episode, config: Config) -> Finding:
    """What the ranks themselves say of a hang."""
    numbers = numbered(standing(evidence.stays, episode.start, config), episode.told)
    stays = numbers.stays
    failed = any(t.sighting.kind == ERROR for t in episode.told)
    finding = find_culprit(episode, stays, evidence.addresses(stays) if failed else NO_ADDRESSES)
    if numbers.conflicts and finding.certainty is Certainty.DECISIVE:
        finding = replace(finding, certainty=Certainty.LIKELY)
    if finding.certainty is Certainty.DECISIVE and (doubt := _doubt(evidence, episode, stays, finding)):
        finding = replace(finding, certainty=Certainty.LIKELY, why=f"{finding.why}; but {doubt}")
    return replace(finding, gpus=gpus_of(stays, finding.ranks), doubts=numbers.conflicts)


def _doubt(evidence: Evidence, episode: Episode, stays: Sequence[Stay], finding: Finding) -> str:
    """Why what the ranks prove may be another's fault all the same; empty where nothing speaks against it."""
    placed = sum(stay.expected for stay in stays)
    world = max((evidence.world or 0, *(t.nranks for stay in stays for t in stay.told)))
    if placed < world:
        return f"only {placed} of the job's {world} ranks are placed, and the others may be what it waits for"
    here = [stay for stay in stays if stay.node == finding.node]
    if finding.silent and any(stay.end is not None and stay.end < episode.told_at for stay in here):
        return "its pod had ended before the others spoke, so that its silence says nothing of the node"
    return ""


def _outweighed(cause: Hypothesis, finding: Finding) -> bool:
    """Whether the ranks prove that they wait for another node than the one of a cause that is only likely."""
    return (
        cause.certainty is not Certainty.DECISIVE
        and cause.root.node is not None
        and finding.certainty is Certainty.DECISIVE
        and finding.node not in (None, cause.root.node, *cause.nodes)
    )


def _judge_hang(
    evidence: Evidence,
    judgement: Judgement,
    episode: Episode,
    count: int,
    applications: Sequence[tuple[Burst, Hypothesis]],
    torn_down: Sequence[Burst],
    config: Config,
) -> None:
    finding = _finding(evidence, episode, config)
    shared = _storm_for(evidence, episode, finding, config) or _fabric_for(evidence, episode, finding, config)
    if shared is not None and not _outweighed(shared, finding):
        judgement.claim(shared.id, episode.start, episode.end, [t.sighting for t in episode.told])
        return
    for burst, application in applications:
        if _crash_explains(burst, episode, finding, config):
            judgement.claim(application.id, episode.start, episode.end, [t.sighting for t in episode.told])
            return
    ready_at = _ready_at(finding, episode, config)
    teardown = _teardown(torn_down, episode, config)
    candidates = _rejections(evidence, episode, finding, config)
    if (blame := _blamed(evidence, episode, finding, ready_at)) is not None:
        judgement.blames.append(blame)
        lines = [t.sighting for t in episode.told]
        judgement.claim(f"leaf:{blame.switch}", episode.start, episode.end, [*lines, *teardown])
        return
    node = _accused(finding, _missed(evidence, episode, config))
    # Where every other rank has spoken the silence is proof enough, and may be acted on already when the kubelet is missed.
    proven = finding.silent and finding.certainty is Certainty.DECISIVE
    gone = _gone(evidence, node, episode, config) if node is not None and not proven else None
    if gone is not None:
        judgement.claim(gone.id, episode.start, episode.end, [*(t.sighting for t in episode.told), *teardown])
        return
    deaths = only_deaths(episode.told)
    if deaths and _runs_again(evidence, episode, ready_at):
        return  # somebody ended it on purpose, or whatever it was is over
    if node is not None and not deaths:
        judgement.suspicions.append(Suspicion(node, evidence.job, finding, episode, ready_at, candidates))
        judgement.claim(f"silent:{node}", episode.start, episode.end, teardown)
        return
    if (weak := _corroborated(evidence, episode, finding, config)) is not None:
        judgement.claim(weak.id, episode.start, episode.end, [*(t.sighting for t in episode.told), *teardown])
        return
    family = "application" if finding.mismatch else "hang"
    hypothesis = _hang(evidence, episode, finding, count, family, ready_at, candidates, teardown)
    judgement.hypotheses.append(hypothesis)


def _blamed(evidence: Evidence, episode: Episode, finding: Finding, ready_at: datetime) -> Blame | None:
    """The leaf under which the failing connections meet, when no node is accused."""
    vote = finding.vote
    if vote is None or vote.level != "leaf" or vote.leaf is None or finding.node or finding.mismatch:
        return None
    lines = tuple(t.sighting for t in episode.told if t.sighting.kind == ERROR)
    return Blame(vote.leaf, evidence.job, episode.start, episode.end, ready_at, lines, vote.why, vote.pairs)


def _ready_at(finding: Finding, episode: Episode, config: Config) -> datetime:
    """From when on a hang may be told: the less is proven, the longer the ranks that have not spoken are waited for."""
    if finding.complete:
        return episode.seen_at
    if only_deaths(episode.told):
        return episode.seen_at + config.restart_settle
    firm = finding.node is None or finding.certainty is Certainty.DECISIVE
    return episode.seen_at + (config.hang_settle if firm else max(config.hang_settle, config.doubt_settle))


def _missed(evidence: Evidence, episode: Episode, config: Config) -> frozenset[str]:
    """Nodes that were NotReady around the hang."""
    return frozenset(
        cause.root.node
        for cause in evidence.causes
        if cause.family == "node_down"
        and cause.root.node is not None
        and episode.start - config.before <= cause.fault_at <= episode.end + config.before
    )


def _corroborated(
    evidence: Evidence, episode: Episode, finding: Finding, config: Config
) -> Hypothesis | None:
    """Weak evidence on just one of several suspects, from the moment the hang began: one incident, and still a weak one."""
    found = [
        cause
        for cause in evidence.causes
        if cause.certainty is Certainty.WEAK
        and cause.root.node in finding.suspects
        and cause.stops != "never"
        and abs(cause.fault_at - episode.start) <= config.episode_gap
    ]
    if finding.mismatch or len({cause.root.node for cause in found}) != 1:
        return None
    return max(found, key=lambda c: (*c.strength, c.fault_at, c.id))


def _runs_again(evidence: Evidence, episode: Episode, until: datetime) -> bool:
    """Whether the job was started again, moved or came to its end meanwhile."""
    over = _recovered(evidence, episode.end, None)
    return any(episode.start < stay.start <= until for stay in evidence.stays) or (
        over is not None and over <= until
    )


def _accused(finding: Finding, missed: frozenset[str]) -> str | None:
    """The one node to name. Of several suspects it is the one that was also NotReady, if just one was."""
    gone = [node for node in finding.suspects if node in missed]
    if len(gone) == 1:
        return gone[0]
    return finding.node if finding.certainty is not Certainty.WEAK else None


def _gone(evidence: Evidence, node: str, episode: Episode, config: Config) -> Hypothesis | None:
    """The accused node itself went away as the hang began: connections fail within seconds, a kubelet is missed later."""
    found = [
        cause
        for cause in evidence.causes
        if cause.family == "node_down"
        and cause.certainty is not Certainty.WEAK
        and cause.root.node == node
        and episode.start - config.before <= cause.fault_at <= episode.start + cause.lag
    ]
    if node in episode.reporters.values():
        return None
    return max(found, key=lambda c: (c.fault_at, c.id), default=None)


def standing(stays: Sequence[Stay], at: datetime, config: Config) -> list[Stay]:
    """Where the job stood when a hang began, and of each pod name and rank only one stay.

    Pods that came later count only for ranks nobody held before: a job that is already resumed must not move the blame.
    """
    there = [s for s in stays if s.overlaps(at - config.slack, at + config.slack)]
    held = {rank for s in there if s.start <= at for rank in s.ranks}
    latest: dict[str, Stay] = {}
    for stay in sorted(there, key=lambda s: (s.start, s.uid)):
        if stay.start > at and held.intersection(stay.ranks):
            continue
        if stay.start <= at or stay.pod not in latest:
            latest[stay.pod] = stay
    return [latest[pod] for pod in sorted(latest)]


def _explaining(
    evidence: Evidence,
    start: datetime,
    told_at: datetime,
    end: datetime,
    config: Config,
    spoke: Collection[str | None] = (),
    late: timedelta | None = None,
    domain: str | None = None,
) -> Hypothesis | None:
    """The strongest root on a member node that was there when the symptoms began, or told soon after.

    A node that is NotReady but whose ranks still speak (`spoke`) is not what the others wait for.
    """
    fitting = [
        cause
        for cause, stays in evidence.local
        if any(s.overlaps(start - config.slack, end) for s in stays)
        and (cause.family != "node_down" or (cause.ready_at <= told_at and cause.root.node not in spoke))
        and _in_time(cause, start, told_at, evidence, config)
        and (late is None or cause.fault_at <= told_at + late)
        and domain in (None, cause.domain)
    ]
    return max(fitting, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id), default=None)


def _in_time(
    cause: Hypothesis, start: datetime, told_at: datetime, evidence: Evidence, config: Config
) -> bool:
    if cause.fault_at > told_at + cause.lag or _was_outlived(cause, start, evidence, config):
        return False
    if cause.domain in ("link", "fabric") and start < told_at:
        # What has waited since a known moment lost its connection then, or not by this.
        return cause.last_at >= start - config.connection_loss
    if cause.stops == "near":
        # A port nobody uses may be down for weeks: only what fails when the link does fails of it, and not long after it is back.
        back = cause.cleared_at is not None and cause.cleared_at + config.linger < start
        return cause.last_at >= start - config.before and not back
    over = evidence.closed.get(cause.id) or cause.cleared_at
    return cause.last_at >= start - config.before or over is None or over + config.linger >= start


def _was_outlived(cause: Hypothesis, start: datetime, evidence: Evidence, config: Config) -> bool:
    """Whether the job went on well after the last sign of a fault, and before it stood still.

    An incident may be open for days, because a person has to look or a part is on its way; what its jobs suffer later is new.
    """
    return any(cause.last_at + config.outlived < at < start - config.slack for at in evidence.moved)


def _storm_for(evidence: Evidence, episode: Episode, finding: Finding, config: Config) -> Hypothesis | None:
    """A storm elsewhere: it takes a job whose own ranks accuse nobody, or one that it surely reaches."""
    storms = [
        c
        for c in evidence.causes
        if c.family == "pfc_storm"
        and (c.id in evidence.near_storms or finding.node is None)
        and _in_time(c, episode.start, episode.told_at, evidence, config)
    ]
    return max(
        storms,
        key=lambda c: (c.id in evidence.near_storms, *c.strength, -c.fault_at.timestamp(), c.id),
        default=None,
    )


def _fabric_for(evidence: Evidence, episode: Episode, finding: Finding, config: Config) -> Hypothesis | None:
    """A switch or uplink that failed near the job: it takes network errors, and waiting whose ranks accuse nobody."""
    if finding.node is not None and all(t.sighting.kind != ERROR for t in episode.told):
        return None
    near = [
        c
        for c in evidence.causes
        if c.domain == "fabric"
        and c.id in evidence.near_storms
        and _in_time(c, episode.start, episode.told_at, evidence, config)
    ]
    return max(near, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id), default=None)


def _torn_down_by(burst: Burst, hangs: Sequence[Episode], config: Config) -> Episode | None:
    """A hang whose watchdogs spoke before the codes: killed processes leave XIDs on every node.

    Where all that ranks report is that others have ended, there was no hang: what those ended of comes first.
    """
    for hang in hangs:
        if hang.told_at - config.together <= burst.start <= hang.end + config.quiet and not only_deaths(
            hang.told
        ):
            return hang
    return None


def _teardown(torn_down: Sequence[Burst], hang: Episode, config: Config) -> list[Sighting]:
    return [s for burst in torn_down if _torn_down_by(burst, [hang], config) for s in burst.sightings]


def _crash_explains(burst: Burst, episode: Episode, finding: Finding, config: Config) -> bool:
    if only_deaths(episode.told):
        return episode.start - config.before <= burst.start <= episode.told_at + config.together
    # Peers may tell of a connection that is gone before the program that closed it has said why.
    until = episode.told_at + (config.together if burst.speaks_for_itself else timedelta())
    if not episode.start - config.before <= burst.start < until:
        return False
    return burst.is_shared or not finding.suspects or set(finding.suspects) <= set(burst.nodes)


def _application(evidence: Evidence, burst: Burst, count: int, config: Config) -> Hypothesis | None:
    if burst.says_nothing:
        return None
    job, code = evidence.job, burst.code
    gpus = sorted({s.entity.key: s.entity for s in burst.sightings if s.kind == "gpu.xid"}.items())
    facts: dict[str, Attribute] = {"shared_nodes": len(burst.nodes)} if burst.is_shared else {}
    if code:
        facts |= {"xid": code, "xids": tuple(sorted({s.code for s in burst.sightings if s.code}))}
    return Hypothesis(
        scope=evidence.scope,
        root=evidence.root,
        family="application",
        incarnation=count,
        certainty=burst.certainty,
        fault_at=burst.start,
        first_at=burst.start,
        last_at=burst.end,
        ready_at=burst.seen_at + config.application_settle,
        rule="same code on many nodes" if burst.is_shared else "application code" if code else "own failure",
        why=burst.why(job),
        cleared_at=_recovered(evidence, burst.end, config),
        causes=burst.sightings,
        jobs=(job,),
        facts=facts,
        candidates=tuple(
            rejected(
                entity,
                "gpu_fault",
                "hardware",
                f"{code} asks for no reset, and no other code stands beside it",
            )
            for _, entity in gpus[:6]
        ),
    )


def _judge_obstacles(evidence: Evidence, judgement: Judgement, config: Config) -> None:
    """What the platform does to the job, unless an incident that the job already has is why."""
    count, until = _forgotten(evidence, families()[PLATFORM].domain)
    failed = [s for s in evidence.failed if until is None or s.at > until]
    for number, obstacle in enumerate(obstacles(failed, config), count + 1):
        why = _behind(evidence, judgement, obstacle, config)
        if why is not None:
            judgement.claim(why, obstacle.start, obstacle.end, obstacle.sightings)
            continue
        ends = [obstacle.over_at(evidence.stays), _recovered(evidence, obstacle.end, config)]
        judgement.hypotheses.append(
            Hypothesis(
                scope=evidence.scope,
                root=evidence.root,
                family=PLATFORM,
                incarnation=number,
                certainty=Certainty.LIKELY,
                fault_at=obstacle.start,
                first_at=obstacle.start,
                last_at=obstacle.end,
                ready_at=obstacle.seen_at + config.application_settle,
                rule="platform in the way",
                why=f"{evidence.job}: {obstacle.says}, and nothing that happened to it before explains that",
                cleared_at=min((at for at in ends if at is not None), default=None),
                causes=obstacle.sightings,
                jobs=(evidence.job,),
                facts={"nodes_told": obstacle.nodes[:16]},
                stops="never",
            )
        )


def _behind(evidence: Evidence, judgement: Judgement, obstacle: Obstacle, config: Config) -> str | None:
    """The incident that took the job's pods away, or that the node has where they cannot start."""
    if not obstacle.may_follow:
        return None
    since = obstacle.start - config.retention
    behind = [
        c
        for c in evidence.causes
        if since <= c.fault_at <= obstacle.end
        and (c.root.node in obstacle.nodes or (c.certainty is not Certainty.WEAK and c.stops != "never"))
        and c.domain not in ("pfc", "fabric", "link")
    ]
    if behind:
        return max(behind, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id)).id
    own = [
        h.id for h in judgement.hypotheses if h.family != PLATFORM and since <= h.fault_at <= obstacle.start
    ]
    own += [f"silent:{s.node}" for s in judgement.suspicions if since <= s.episode.start <= obstacle.start]
    return min(own, default=None)


def _hang(
    evidence: Evidence,
    episode: Episode,
    finding: Finding,
    count: int,
    family: str,
    ready_at: datetime,
    candidates: tuple[Candidate, ...],
    teardown: list[Sighting],
) -> Hypothesis:
    return Hypothesis(
        scope=evidence.scope,
        root=evidence.root,
        family=family,
        incarnation=count if family == "hang" else MISMATCHES_FROM + count,
        certainty=finding.certainty,
        fault_at=episode.start,
        first_at=episode.start,
        last_at=episode.end,
        ready_at=ready_at,
        rule=finding.rule,
        why=finding.why,
        cleared_at=_recovered(evidence, episode.end, None),
        causes=tuple(t.sighting for t in episode.told),
        symptoms=tuple(teardown),
        jobs=(evidence.job,),
        facts=culprit_facts(finding, episode),
        candidates=candidates,
    )


def culprit_facts(
    finding: Finding, episode: Episode
) -> dict[str, int | bool | str | tuple[int, ...] | tuple[str, ...]]:
    """What runbooks and people may want to know of a hang."""
    ranks = tuple(r for r in finding.ranks if isinstance(r, int))[:64]
    facts: dict[str, int | bool | str | tuple[int, ...] | tuple[str, ...]] = {
        "culprit_ranks": ranks,
        "suspect_nodes": finding.suspects[:16],
        "silent": finding.silent,
        "ranks_reported": len(episode.reporters),
        "waited_s": int((episode.told_at - episode.start).total_seconds()),
    }
    if finding.gpus:
        facts["culprit_gpus"] = finding.gpus[:16]
    vote = finding.vote
    if vote is not None and vote.pairs:
        facts["failing_pairs"] = vote.pairs
        facts |= {name: value for name, value in (("nic", vote.nic), ("leaf", vote.leaf)) if value}
    return facts


def _recovered(evidence: Evidence, after: datetime, config: Config | None) -> datetime | None:
    """When a job that stood still was seen to move again, or came to its end."""
    slack = (config or Config()).together
    return min((at for at in (*evidence.moved, *evidence.ended) if at > after + slack), default=None)


def _rejections(
    evidence: Evidence, episode: Episode, finding: Finding, config: Config
) -> tuple[Candidate, ...]:
    found = []
    for cause in evidence.causes:
        if cause.certainty is Certainty.WEAK:
            reason = "its evidence is too weak to explain a hang"
        elif cause.stops == "never":
            reason = "it makes a job slow and does not stop it"
        elif cause.family == "pfc_storm" and cause.id not in evidence.near_storms:
            reason = "the storm does not reach this job's nodes"
        elif _was_outlived(cause, episode.start, evidence, config):
            reason = "the job made progress after it"
        elif not _in_time(cause, episode.start, episode.told_at, evidence, config):
            reason = "it was over before the hang began, or came long after"
        else:
            continue
        found.append(rejected(cause.root, cause.family, cause.rule, reason))
    if finding.node is None and len(finding.suspects) > 1:
        for node in finding.suspects[:6]:
            root = Entity(evidence.cluster, node=node)
            found.append(
                rejected(
                    root,
                    "silent_node",
                    finding.rule,
                    "one of several suspected nodes: none is closed on that",
                )
            )
    for node, reason in finding.doubts[:4]:
        found.append(rejected(Entity(evidence.cluster, node=node), "silent_node", "source of ranks", reason))
    for node, reason in finding.cleared:
        found.append(rejected(Entity(evidence.cluster, node=node), "silent_node", "victim", reason))
    return tuple(found[:12])


def _claim_teardown(evidence: Evidence, judgement: Judgement, config: Config) -> None:
    """Clean-up codes (45 and its like) go to whatever explains the job at that time; alone they mean nothing."""
    for s in evidence.codes if evidence.local else ():
        if (
            families().role(s) == "symptom"
            and (cause := _explaining(evidence, s.at, s.at, s.at, config)) is not None
        ):
            judgement.claims.setdefault(cause.id, []).append(s)
