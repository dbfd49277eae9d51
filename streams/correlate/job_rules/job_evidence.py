"""The evidence about one job."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.connection_votes import NO_ADDRESSES, Addresses
from streams.correlate.job_rules.job_complaints import Refused, is_retry
from streams.correlate.job_rules.pod_failures import PodTimes, is_exception, is_exit, is_of_pace
from streams.correlate.job_rules.rank_reports import Rank, RankReport
from streams.correlate.job_rules.services import Shortage
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import BaseRow, PastFault
from streams.model.entity import Entity, JobRef
from streams.model.incident import Certainty


@dataclass(frozen=True, slots=True)
class Behind:
    """Ranks of a job that were behind on one node, while others of that node kept up."""

    job: JobRef
    start: datetime
    node: str
    ranks: tuple[Rank, ...]


class KnownBy(NamedTuple):
    """What the inventory knows a placement by."""

    addresses: tuple[str, ...]
    """Its pod's."""
    names: tuple[str, ...]
    """Addresses and names of its node."""
    leaf: str | None
    """Under which its node hangs."""


@dataclass(frozen=True, slots=True)
class JobEvidence:
    """Everything that the evaluation of one job may use."""

    cluster: str
    job: JobRef
    reports: Sequence[RankReport]
    codes: Sequence[Sighting]
    """XIDs on nodes while the job ran there."""
    placements: Sequence[Placement]
    """Every known placement."""
    failed: Sequence[Sighting]
    """Failures that its programs, its pods and their nodes' kernels reported, each with its node if known."""
    causes: Sequence[Hypothesis]
    """Roots on nodes the job ran on, and storms and faults of switches it may suffer from."""
    near_storms: frozenset[str]
    """Ids of storms and faults of switches that reach the job: a node on the source, on its leaf, or with pause received."""
    closed: dict[str, datetime]
    """When the incidents of `causes` ended."""
    moved: Sequence[datetime]
    """Signs of progress, in order."""
    ended: tuple[datetime, ...]
    """When the job finished or was deleted. One that was deleted may have been made again under its name, and finish later."""
    steps: tuple[tuple[datetime, int], ...] = ()
    """The last step that each of its pods reported, and when, in order; looked up where something of it failed."""
    world: int | None = None
    """How many ranks the job has by its own specification."""
    addresses: Callable[[Sequence[Placement]], Addresses] = lambda placements: NO_ADDRESSES
    """What peers' names and addresses meant while the job ran there."""
    known_by: Sequence[KnownBy] = ()
    """By what that is told, for each placement; looked up where reports name others (`names_others`)."""
    attached: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The switches of each of its nodes of which any is known; looked up where a port may be an uplink, and guessed from names
    (empty where only the rack is known) where no switch is known of any."""
    pods: Mapping[str, PodTimes] = field(default_factory=dict)
    """By uid: its pods of which failures were reported."""
    started: Mapping[str, datetime] = field(default_factory=dict)
    """By uid: when each of its pods had started, looked up where one does not."""
    owners: Mapping[str, Hypothesis] = field(default_factory=dict)
    """By id of a cause: the root that it was merged into; looked up where the job became slower."""
    joining: Mapping[str, tuple[str, PodTimes]] = field(default_factory=dict)
    """By uid: name and times of its pods that hold ranks and may have started late; looked up where ranks waited for others."""
    own_closed: Mapping[int, datetime] = field(default_factory=dict)
    """When runs or people closed incidents of its own code, by their number."""
    hangs_closed: Mapping[int, datetime] = field(default_factory=dict)
    """The same of hangs."""
    stopped: tuple[datetime, ...] = ()
    """When it was suspended, or deleted before it had finished."""
    asked: tuple[datetime, ...] = ()
    """When Slurm was asked to end it, or did so by itself: somebody cancelled it, its time was up, another job preempted it."""
    done: tuple[datetime, ...] = ()
    """When Slurm says that it had ended well."""
    ran_at: datetime | None = None
    """When a pod of it first stood on a node."""
    forgotten: Mapping[str, BaseRow] = field(default_factory=dict)
    """By domain: how many of the job's own incidents are forgotten, and until when."""
    firsts: Mapping[str, Sequence[PastFault]] = field(default_factory=dict)
    gpu_firsts: Mapping[str, Sequence[PastFault]] = field(default_factory=dict)
    """By node of the job: earlier jobs that failed first on a GPU of it, as far as their own words tell which."""
    rank_firsts: Callable[[int], Sequence[PastFault]] = lambda rank: ()
    """Earlier jobs that failed first in the rank of a number, wherever it stood."""
    """By node of the job: earlier jobs that failed first there."""
    kin: Sequence[Behind] = ()
    """What other runs of its program waited for, as their names tell."""
    kin_roots: Sequence[Hypothesis] = ()
    """Hangs of those runs of which no node is why."""
    shortages: Sequence[Shortage] = ()
    """Faults of services that it complains of, together with other jobs."""
    refused: Sequence[Refused] = ()
    """Where whoever's pods are refused their sandbox; looked up where a pod of it is."""
    storages: Sequence[Hypothesis] = ()
    """Faults of storage anywhere; looked up where a volume of it cannot be mounted."""
    mismatches: Sequence[Hypothesis] = ()
    """What other jobs' own programs did whose ranks called different collectives."""
    rollouts: Sequence[Hypothesis] = ()
    """Software that was rolled out to nodes and broke them; looked up where pods wait for a node."""
    lost_devices: Sequence[Hypothesis] = ()
    """Faults by which containers on several nodes lost their GPUs; looked up where one of it cannot open its own."""
    local: Sequence[tuple[Hypothesis, Sequence[Placement]]] = field(init=False)
    """Roots on the job's own nodes that may explain its symptoms, each with the job's placements there."""

    def __post_init__(self) -> None:
        there: dict[str | None, list[Placement]] = {}
        for cause in self.causes:
            there |= {node: [] for node in (cause.root.node, *cause.nodes)}
        for placement in self.placements:
            if placement.node in there:
                there[placement.node].append(placement)
        local = [
            (cause, placements)
            for cause in self.causes
            if cause.certainty is not Certainty.WEAK
            and cause.stops != "never"
            and (placements := [s for node in {cause.root.node, *cause.nodes} for s in there[node]])
        ]
        object.__setattr__(self, "local", local)

    @property
    def place(self) -> Place:
        """The job as a place."""
        return Place(PlaceKind.JOB, self.job.key)

    @property
    def root(self) -> Entity:
        """The job as a root."""
        return Entity(self.cluster, job=self.job)


def forgotten(evidence: JobEvidence, domain: str) -> tuple[int, datetime | None]:
    """How many of the job's own incidents of a domain are forgotten, and until when."""
    base = evidence.forgotten.get(domain)
    return (base.count, base.until) if base else (0, None)


def removed_before(
    evidence: JobEvidence, at: datetime, config: Config, heard_at: datetime | None = None
) -> frozenset[str]:
    """Nodes from which pods of the job were taken on purpose shortly before that moment, by whomever; the job feels it then.

    Whoever restarts a job that failed removes its pods after that, not before; and what fails once new pods stand is theirs.
    Clocks may be off, and the API server tells whole seconds: what was removed after its trouble had been heard of, at
    `heard_at`, is no reason of that, however soon it came.
    """
    since, until = at - config.removal, at + config.skew
    if heard_at is not None:
        until = min(until, heard_at)
    since = max([since, *(p.start for p in evidence.placements if p.start <= at)])
    if any(since <= stop <= until for stop in (*evidence.stopped, *evidence.asked)):
        return frozenset(p.node for p in evidence.placements)
    taken = [p for p in evidence.placements if p.removed_at is not None and since <= p.removed_at <= until]
    if _failed_first(evidence.placements, taken, at, config):
        return frozenset()
    return frozenset(p.node for p in taken)


def ended_by_slurm(evidence: JobEvidence, at: datetime, config: Config) -> bool:
    """Whether Slurm was ending the job at that moment: somebody cancelled it, its time was up, it was preempted, or it was done.

    Its nodes need not be known for that. What ranks say of each other then is their end, also where clocks differ by seconds:
    who watches a job needs longer to cancel it.
    """
    since = max([at - config.removal, *(p.start for p in evidence.placements if p.start <= at)])
    asked = any(since <= moment <= at + config.skew for moment in evidence.asked)
    return asked or any(since <= moment <= at + config.together for moment in evidence.done)


def _failed_first(
    placements: Sequence[Placement], taken: Sequence[Placement], at: datetime, config: Config
) -> bool:
    """Whether a pod of the job had failed before these were asked to go: its controller takes the others away and starts anew.

    That is seconds after the failure, which is what clocks may differ by. Where all the others went at once, whoever took them
    spared the one that had ended, so the order is the API server's own; a drain takes some of them, and peers fail afterwards.
    """
    asked = [p.removed_at for p in taken if p.removed_at is not None]
    failed = [
        p
        for p in placements
        if p.succeeded is False
        and p.end is not None
        and p.start <= at
        and abs(p.end - at) <= config.removal
        and (p.removed_at is None or p.removed_at > p.end)
    ]
    ended = min((p.end for p in failed if p.end is not None), default=None)
    if ended is None or not asked:
        return False
    stood = {p.uid for p in placements if p.start <= at and (p.end is None or p.end >= ended)}
    all_others = (
        stood <= {p.uid for p in (*taken, *failed)}
        and len(taken) >= len(failed)
        and max(asked) - min(asked) <= config.skew
    )
    return ended < min(asked) - (timedelta() if all_others else config.skew)


def placed_at(placements: Sequence[Placement], at: datetime, config: Config) -> list[Placement]:
    """Where the job ran when a hang began, and of each pod name and rank only one placement.

    Pods that came later count only for ranks that no pod held before: a resumed job must not shift the blame.
    """
    there = [s for s in placements if s.overlaps(at - config.slack, at + config.slack)]
    # A launcher or a driver holds no rank, where others hold GPUs.
    there = [s for s in there if s.gpus or s.ranks or s.observed or s.position is not None] or there
    held = {rank for s in there if s.start <= at for rank in s.ranks}
    latest: dict[str, Placement] = {}
    for placement in sorted(there, key=lambda s: (s.start, s.uid)):
        if placement.start > at and held.intersection(placement.ranks):
            continue
        if placement.start <= at or placement.pod not in latest:
            latest[placement.pod] = placement
    return [latest[pod] for pod in sorted(latest)]


def launchers_beside(placements: Sequence[Placement], workers: Sequence[Placement]) -> frozenset[str]:
    """The job's pods that hold no GPU, where those that take part hold some."""
    if not any(p.gpus for p in workers):
        return frozenset()
    return frozenset(p.pod for p in placements if not p.gpus) - {p.pod for p in workers}


def recovered(evidence: JobEvidence, after: datetime, config: Config | None) -> datetime | None:
    """When a stalled job made progress again, finished or was deleted."""
    slack = (config or Config()).together
    return min((at for at in (*evidence.moved, *evidence.ended) if at > after + slack), default=None)


def without_told_exits(evidence: JobEvidence, config: Config) -> Sequence[Sighting]:
    """The job's failures without the bad ends of its pods of which its ranks, programs or launchers tell as well.

    Those know why, or at least when: a pod ends when the last of its containers has.
    """
    exits = [s for s in evidence.failed if is_exit(s)]
    if not exits:
        return evidence.failed
    others = (
        s
        for s in evidence.failed
        if s.firing and not is_exit(s) and not is_retry(s) and not is_of_pace(s) and not is_exception(s)
    )
    told = sorted([*(s.at for s in others), *(t.sighting.at for t in evidence.reports)])
    mute = {
        s.id
        for s in exits
        if (i := bisect_left(told, s.at - config.quiet)) == len(told) or told[i] > s.at + config.quiet
    }
    return [s for s in evidence.failed if not is_exit(s) or s.id in mute]
