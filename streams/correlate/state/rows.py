"""What the correlator keeps of each node, pod, job, switch port and incident: one row each. Functions return changed rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, Self, TypeVar

from streams.correlate.sightings import Sighting
from streams.correlate.state.place import Place
from streams.model.codec import encode
from streams.model.facts import JobFact, LinkFact, NodeFact, PodFact
from streams.model.hostnames import NOBODYS, folded
from streams.model.incident import Incident

MAX_TENANCIES = 24
"""Pods that bore the same name, one after the other: what a job that is tried again every few minutes leaves while its signals
are kept. Without its pod a report has no node."""
MAX_GONE = 8
MAX_RANKS = 64
"""The latest ranks that a pod's processes reported: sixteen in each of a few pods of the name."""
MAX_CORDONS = 8
MAX_WORK = 16
MAX_BOOTS = 8
MAX_NAMES = 8
"""Changes of a node's other names, and the names of each, four times as many."""
MAX_LASTING = 16
"""Stretches in which pods of one name went on failing for services: as many services, or times that one was well in between."""
GOES_ON = timedelta(minutes=15)
"""What fails again within this goes on failing (`over_s` in job_rules/services.yaml)."""
MOVES_KEPT = timedelta(hours=1)
COARSE_MOVES_KEPT = timedelta(hours=8)
"""Longer than a hang without further reports stays open."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_FINE, _COARSE = MOVES_KEPT // _MINUTE, COARSE_MOVES_KEPT // _MINUTE

Groups = dict[str, tuple[Sighting, ...]]
T = TypeVar("T", bool, tuple[str, ...])
WorkStatement = tuple[datetime, tuple[str, ...]]
"""What a fact says of work on a node, from when on: who does it and how it ends (`NodeWork`); empty for nobody."""
GpuStatement = tuple[datetime, tuple[str, ...]]
"""How many GPUs a node has by a fact, from when on: the number, the node's uid, how they are handed out, and its kernel."""


def of_kind(seen: Groups, kind: str) -> list[Sighting]:
    """The sightings of one kind; all of a group are of the same kind."""
    return [s for group in seen.values() if group[0].kind == kind for s in group]


@dataclass(frozen=True, slots=True)
class Naming:
    """Names that one line or set of labels gave one NIC, sorted, and when it did first and last."""

    names: tuple[str, ...]
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: its latest fact and what was seen on it."""

    fact: NodeFact | None = None
    gone_at: datetime | None = None
    seen: Groups = field(default_factory=dict)
    cordons: tuple[tuple[datetime, str], ...] = ()
    """Incidents whose cordon the node bore, and when each was first seen there; the latest few."""
    work: tuple[WorkStatement, ...] = ()
    """When facts began and ceased to say that somebody works on the node; the latest few."""
    names: tuple[tuple[datetime, tuple[str, ...]], ...] = ()
    """By which other names facts knew it, and when they began to; the latest few."""
    gpus_at: datetime | None = None
    """When its GPUs' metrics were reported last, where no inventory does."""
    nics: tuple[Naming, ...] | None = None
    """Which names mean one NIC, as far as anything named two at once; the latest (`nic_names.py`). None where nothing did."""
    boots: tuple[tuple[datetime, str], ...] | None = None
    """When facts showed each boot of it first, by its id; the latest few."""
    shares: tuple[str, ...] | None = None
    """What the labels of its GPUs' metrics say that it shares with others, `kind=name` each; None where they say nothing."""
    gpus: tuple[GpuStatement, ...] | None = None
    """How many GPUs facts showed while it served, with what else changes that number (`lost_gpus.py`); the latest few."""
    metrics_at: datetime | None = None
    """When metrics of its GPUs were reported last, where an inventory lists it; else `gpus_at` says that."""

    def with_seen(self, seen: Groups) -> Self:
        """The row with other sightings."""
        return type(
            self
        )(
            self.fact,
            self.gone_at,
            seen,
            self.cordons,
            self.work,
            self.names,
            self.gpus_at,
            self.nics,
            self.boots,
            self.shares,
            self.gpus,
            self.metrics_at,
        )  # not `replace`, which takes three times as long, and every batch does this for each place that it touches

    @property
    def left_at(self) -> datetime | None:
        """When it was deleted; None while it is there, or there again."""
        there = self.gone_at is None or (self.fact is not None and self.fact.observed_at > self.gone_at)
        return None if there else self.gone_at


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One pod by uid: its latest fact and since when it is known."""

    fact: PodFact
    first_seen: datetime


@dataclass(frozen=True, slots=True)
class ObservedRank:
    """One process of a pod as NCCL's own lines report it: its rank among `nranks`, and its GPU."""

    at: datetime
    rank: int
    nranks: int
    index: int | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """A checkpoint that was reported. `begun`: as it began to be written, by a program that reports no end."""

    at: datetime
    step: int | None = None
    begun: bool = False


@dataclass(frozen=True, slots=True, order=True)
class LastingFailure:
    """A stretch in which pods of one name failed for one service again and again.

    Of the lines that say so only the first and the last few are kept: what was in between would look like two failures.
    """

    service: str
    """Its kind, and after a slash how the lines call it (`SignalRule.named_service`)."""
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class PodRow:
    """Every pod of one name, when the name was free, and what its ranks statements."""

    tenancies: tuple[Tenancy, ...] = ()
    gone: tuple[datetime, ...] = ()
    seen: Groups = field(default_factory=dict)
    progress_at: datetime | None = None
    progress_step: int | None = None
    moves: tuple[datetime, ...] = ()
    """The first sign of progress of each minute of the last hour in which there was any, and of each ten minutes before."""
    busy: tuple[datetime, ...] | None = None
    """The same of what its processes count that is no training: an evaluation, videos. None where there is none."""
    ranks: tuple[ObservedRank, ...] = ()
    """The latest ranks that processes in pods of this name reported."""
    saves: tuple[Save, ...] | None = None
    """The latest checkpoints that pods of this name reported. None where there is none."""
    lasting: tuple[LastingFailure, ...] | None = None
    """When pods of this name failed for a service that others share; the latest few stretches. None where they never did."""

    def with_seen(self, seen: Groups) -> Self:
        """The row with other sightings."""
        progress = (self.progress_at, self.progress_step, self.moves)
        saves, lasting = self.saves, self.lasting
        return type(self)(self.tenancies, self.gone, seen, *progress, self.busy, self.ranks, saves, lasting)


@dataclass(frozen=True, slots=True)
class Labelled:
    """What the metrics of a node's GPUs say of a job of Slurm, whose number they bear."""

    node: str
    said: tuple[tuple[datetime, bool], ...]
    """When they were seen to bear it, and when they did last before they no longer did (False); the latest few."""
    gpus: int = 0
    """How many of its GPUs did."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's latest fact."""

    fact: JobFact | None = None
    gone_at: datetime | None = None
    ran_at: datetime | None = None
    """When a pod of it first stood on a node."""
    suspensions: tuple[tuple[datetime, bool], ...] | None = None
    """When facts began and ceased to say that it is suspended; the latest few. None for a job that never was."""
    allocations: tuple[tuple[datetime, tuple[str, ...]], ...] | None = None
    """Of a job without an object: when its nodes were reported, and which; none when it ended. The latest few."""
    components: tuple[tuple[datetime, int, tuple[str, ...]], ...] | None = None
    """Of a heterogeneous job, whose `allocations` follow from them: when something was said of which component, and its nodes;
    none when it ended, and -1 when all did."""
    asked: tuple[datetime, ...] | None = None
    """When somebody asked for the end of such a job, or its time was up; the latest few."""
    outcomes: tuple[tuple[datetime, bool], ...] | None = None
    """When such a job was said to have ended, and whether well; the latest few."""
    gpus_per_node: int | None = None
    """What such a job was given on each of its nodes, where that is told."""
    steps: tuple[tuple[str, datetime], ...] | None = None
    """Nodes whose own daemons said that they were done with such a job, and when they said so first."""
    speakers: tuple[tuple[str, datetime, int | None], ...] | None = None
    """Nodes where processes of such a job spoke, and when they did first; with a rank those that only shipped its line."""
    saves: tuple[Save, ...] | None = None
    """The latest checkpoints that an annotation of the job named. None where there is none."""
    labelled: tuple[Labelled, ...] | None = None
    """Where metrics of GPUs bear such a job, by node; None where they never did, or Slurm had said so before."""
    logs_training: Literal[True] | None = None
    """Set where the inventory only guesses that it serves or is batch, and its pods log the steps of a training."""
    user: str | None = None
    """Whose it is, by number, where a node's daemon says so of a job of Slurm that it was soon done with."""

    @property
    def was_placed(self) -> bool:
        """Whether nodes of such a job are known."""
        if self.labelled:
            return True
        told = dict(self.steps or ()) | dict(self.spoken_on)
        return any(nodes for _, nodes in self.allocations or ()) or len(told) > 1

    @property
    def spoken_on(self) -> tuple[tuple[str, datetime], ...]:
        """Where its processes spoke, as they say themselves; else the hosts that ship what they print, one rank's lines each.

        Where all hosts read one file they ship the same rank's line first, and nobody knows where that rank is.
        """
        told = self.speakers or ()
        if own := tuple((node, at) for node, at, rank in told if rank is None):
            return own
        alike = len({rank for _, _, rank in told}) < len(told)
        return () if alike or self.steps or len(told) < 2 else tuple((node, at) for node, at, _ in told)

    @property
    def stops(self) -> tuple[datetime, ...]:
        """When it was suspended, or deleted before it had finished."""
        deleted = (self.gone_at,) if self.gone_at and not (self.fact and self.fact.finished) else ()
        said = self.suspensions or ()
        began = (at for i, (at, on) in enumerate(said) if on and not (i and said[i - 1][1]))
        return (*began, *deleted)

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted, and not made again under its name since."""
        return self.gone_at is not None and (self.fact is None or self.fact.observed_at <= self.gone_at)

    @property
    def ends(self) -> tuple[datetime, ...]:
        """When it finished or was deleted, as far as that is known."""
        finished = self.fact.observed_at if self.fact and self.fact.finished else None
        return tuple(at for at in (finished, self.gone_at) if at is not None)


@dataclass(frozen=True, slots=True)
class PortRow:
    """A switch port: what is at its other end, and its storms."""

    link: LinkFact | None = None
    seen: Groups = field(default_factory=dict)

    def with_seen(self, seen: Groups) -> Self:
        """The row with other sightings."""
        return type(self)(self.link, seen)


@dataclass(frozen=True, slots=True)
class RunsRow:
    """What the responder and people statements about one incident."""

    events: tuple[Sighting, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """An incident as published last, and its place as it is stored."""

    incident: Incident
    scope: str
    last_at: datetime
    """Its latest evidence."""
    withdrawn: bool = False
    """Whether later evidence contradicts it, and nothing else explains it."""

    @property
    def place(self) -> Place:
        """The place whose evaluation made it."""
        return Place.parse(self.scope)


@dataclass(frozen=True, slots=True)
class BaseRow:
    """How many incarnations of a root and domain are forgotten; evidence up to `until` that comes late is ignored."""

    count: int
    until: datetime


@dataclass(frozen=True, slots=True, order=True)
class Absence:
    """One time that a node was NotReady because somebody worked on it."""

    start: datetime
    node: str
    seconds: float

    @property
    def ended(self) -> datetime:
        """When it was back."""
        return self.start + timedelta(seconds=self.seconds)


@dataclass(frozen=True, slots=True)
class WorkHabitRow:
    """How long nodes of the cluster were away when somebody worked on them: the latest few, by their times."""

    absences: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class PastFault:
    """One incident in the history of a faulty entity. `gpu` is the UUID of the GPU, where it was known."""

    incident: str
    family: str
    fault_at: datetime
    gpu: str | None = None
    job: str | None = None
    """The job that failed first on this host, where that is what is counted."""
    nodes: str | None = None
    """Which set of nodes it ran on."""
    device: str | None = None
    """The GPU whose rank failed first, as `NODE/GPU`, where the job's own words tell which."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """The incidents of one GPU, node or link, by their times."""

    faults: tuple[PastFault, ...] = ()


def with_cordon(row: NodeRow, incident: str, at: datetime) -> NodeRow:
    """The row with a cordon of an incident in it."""
    first = {name: since for since, name in row.cordons}
    first[incident] = min(at, first.get(incident, at))
    latest = sorted((since, name) for name, since in first.items())[-MAX_CORDONS:]
    return replace(row, cordons=tuple(latest))


def with_work(row: NodeRow, fact: NodeFact) -> NodeRow:
    """The row with work on the node as a fact states it. Of facts in a row that state the same, the outermost are kept.

    Of two of one moment the later one counts: a mark may be taken off, and the node opened, within a millisecond.
    """
    said = _work_of(fact)
    if not said and not row.work:
        return row
    others = {statement for statement in row.work if statement[0] != fact.observed_at}
    return replace(row, work=outermost({*others, (fact.observed_at, said)})[-MAX_WORK:])


def with_boot(row: NodeRow, fact: NodeFact) -> NodeRow:
    """The row with the boot that a fact shows."""
    if fact.boot_id is None:
        return row
    first = {boot: since for since, boot in row.boots or ()}
    first[fact.boot_id] = min(fact.observed_at, first.get(fact.boot_id, fact.observed_at))
    return replace(row, boots=tuple(sorted((since, boot) for boot, since in first.items())[-MAX_BOOTS:]))


def _work_of(fact: NodeFact) -> tuple[str, ...]:
    work = fact.worked_on
    return (work.by, work.ends) if work is not None else ()


def with_suspension(row: JobRow, fact: JobFact) -> JobRow:
    """The row with what a fact says of its suspension. Of facts in a row that say the same, the outermost are kept."""
    if not fact.suspended and not row.suspensions:
        return row
    statements = outermost({*(row.suspensions or ()), (fact.observed_at, fact.suspended)})
    return replace(row, suspensions=statements[-MAX_WORK:])


def with_names(row: NodeRow, fact: NodeFact) -> NodeRow:
    """The row with the node's other names from a fact. Of facts in a row that state the same, the outermost are kept."""
    own = folded(fact.name)
    others = sorted({folded(name) for name in (*fact.addresses, *fact.aliases)} - NOBODYS - {own})
    names = outermost({*row.names, (fact.observed_at, tuple(others[: 4 * MAX_NAMES]))})
    return replace(row, names=names[-MAX_NAMES:])


def outermost(statements: set[tuple[datetime, T]]) -> tuple[tuple[datetime, T], ...]:
    """Statements in order of time, without those between two that state the same: arrival in any order gives the same result."""
    ordered: list[tuple[datetime, T]] = sorted(statements)
    return tuple(
        one
        for before, one, after in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False)
        if before is None or after is None or not before[1] == one[1] == after[1]
    )


def name_changes(row: NodeRow) -> tuple[tuple[datetime, tuple[str, ...]], ...]:
    """The other names of a node and since when it had them, without repetitions."""
    statements = row.names or (with_names(row, row.fact).names if row.fact is not None else ())
    return tuple(
        one
        for before, one in zip([None, *statements], statements, strict=False)
        if before is None or before[1] != one[1]
    )


def work_statements(row: NodeRow) -> tuple[WorkStatement, ...]:
    """What facts say of work on the node, the latest fact included."""
    if row.fact is None or (row.work and row.work[-1][0] >= row.fact.observed_at):
        return row.work
    said = _work_of(row.fact)
    return (*row.work, (row.fact.observed_at, said)) if said or row.work else ()


def with_progress(row: PodRow, at: datetime, step: int | None) -> PodRow:
    """The row with a sign of progress in it."""
    latest = max(
        (row.progress_at, row.progress_step),
        (at, step),
        key=lambda p: (p[0] is not None, p[0] or at, p[1] or 0),
    )
    return replace(row, progress_at=latest[0], progress_step=latest[1], moves=_with_moment(row.moves, at))


def _with_moment(moments: tuple[datetime, ...], at: datetime) -> tuple[datetime, ...]:
    """Thinned moments with one more. One that follows in the same minute is none of those that are kept."""
    if moments and moments[-1] <= at and _minute(moments[-1]) == _minute(at):
        return moments
    return _thinned((*moments, at))


def _minute(moment: datetime) -> int:
    """The minute since the epoch that a moment lies in."""
    return (moment - _EPOCH) // _MINUTE


def _thinned(moments: Iterable[datetime]) -> tuple[datetime, ...]:
    """The first of each minute of the last hour with any, and of each ten minutes before."""
    # Nearly always they are in order already. It is called for every progress of every pod, with 100 moments.
    ordered = sorted(moments)
    newest = _minute(ordered[-1])
    kept: list[datetime] = []
    last_minute = last_coarse = -1
    for move in ordered:
        minute = _minute(move)
        if minute == last_minute:
            continue
        last_minute, coarse = minute, minute // 10
        is_first, last_coarse = coarse != last_coarse, coarse
        if minute > newest - _FINE or (is_first and coarse * 10 > newest - _COARSE):
            kept.append(move)
    return tuple(kept)


def with_own_work(row: PodRow, at: datetime) -> PodRow:
    """The row with a sign that one of its processes works on something of its own."""
    return replace(row, busy=_with_moment(row.busy or (), at))


def with_pod_fact(row: PodRow, fact: PodFact) -> PodRow:
    """The row with a fact in it: of one uid the latest counts, of many uids the latest few are kept."""
    known = {tenancy.fact.uid: tenancy for tenancy in row.tenancies}
    old = known.get(fact.uid)
    if old is None:
        known[fact.uid] = Tenancy(fact, fact.observed_at)
    else:
        newest = max(old.fact, fact, key=lambda f: (f.observed_at, encode(f)))
        # A pod stays on its node for good: what calls it scheduled later than before is about its containers.
        times = [f.scheduled_at for f in (old.fact, fact) if f.scheduled_at and f.node in (None, newest.node)]
        removed = [f.removed_at for f in (old.fact, fact) if f.removed_at]
        newest = replace(newest, scheduled_at=min(times, default=None), removed_at=min(removed, default=None))
        known[fact.uid] = Tenancy(newest, min(old.first_seen, fact.observed_at))
    latest = sorted(known.values(), key=lambda t: (t.first_seen, t.fact.uid))[-MAX_TENANCIES:]
    return replace(row, tenancies=tuple(latest))


def with_rank(row: PodRow, observed: ObservedRank) -> PodRow:
    """The row with a rank that a process reported."""
    known = sorted({*row.ranks, observed}, key=lambda t: (t.at, t.nranks, t.rank, t.pci or ""))
    return replace(row, ranks=tuple(known[-MAX_RANKS:]))


def with_lasting(row: PodRow, service: str, at: datetime) -> PodRow:
    """The row with one more failure for a service. Failures in any order, and repeated, make the same stretches."""
    known = row.lasting or ()
    mine = sorted([*(one for one in known if one.service == service), LastingFailure(service, at, at)])
    joined = mine[:1]
    for one in mine[1:]:
        if one.since - joined[-1].until <= GOES_ON:
            joined[-1] = replace(joined[-1], until=max(joined[-1].until, one.until))
        else:
            joined.append(one)
    latest = sorted(
        [*(one for one in known if one.service != service), *joined],
        key=lambda one: (one.until, one.since, one.service),
    )
    return replace(row, lasting=tuple(latest[-MAX_LASTING:]))


def goes_without_saying(
    stored: Iterable[LastingFailure], now: Iterable[LastingFailure], kept_since: datetime
) -> bool:
    """Whether stretches follow from those that are stored and the lines that are kept, all of them from `kept_since` on.

    So they do where only a stretch that is known goes on, and what is stored of it reaches to those lines.
    """
    known = {(one.service, one.since): one.until for one in stored}
    grown = {(one.service, one.since): one.until for one in now}
    return known.keys() == grown.keys() and all(
        until == known[key] or kept_since - known[key] <= GOES_ON for key, until in grown.items()
    )


def with_pod_gone(row: PodRow, at: datetime) -> PodRow:
    """The row with a tombstone in it."""
    return replace(row, gone=tuple(sorted({*row.gone, at})[-MAX_GONE:]))
