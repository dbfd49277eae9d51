"""The correlator's state: rows behind a narrow port, decoded once, written once per batch and only if they changed.

One row per node, pod, job, switch port, incident, and incident that runs spoke of; what was seen at nodes, pods and ports
is stored in a journal beside them, a row for each batch. So what a signal costs to keep does not depend on how large the
cluster is, nor on how many places a batch touches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from streams.correlate.sightings import KEPT_EACH_END, Sighting, added, order
from streams.correlate.state import sighting_log
from streams.correlate.state.sighting_log import Journal
from streams.model.codec import decode, encode
from streams.model.facts import JobFact, LinkFact, NodeFact, PodFact
from streams.model.hostnames import NOBODYS, folded
from streams.model.incident import Incident

MAX_GROUPS = 256
"""Kinds of sightings kept at one place. Log text can name any number of addresses; memory is not its to fill."""
MAX_TENANCIES = 6
"""Pods that bore the same name, one after the other."""
MAX_GONE = 8
MAX_RANKS = 64
"""Of the ranks that a pod's processes tell, the latest: sixteen in each of a few pods that bore the name."""
MAX_CORDONS = 8
MAX_UPKEEP = 16
MAX_NAMES = 8
"""Changes of a node's other names, and the names of each, four times as many."""
MOVES_KEPT = timedelta(hours=1)
COARSE_MOVES_KEPT = timedelta(hours=8)
"""Longer than a hang stays open of which nothing more is heard."""

Groups = dict[str, tuple[Sighting, ...]]
V = TypeVar("V")
S = TypeVar("S", bound="NodeRow | PodRow | PortRow")


class Rows(Protocol):
    """The port: a mapping of text to bytes, for one cluster. A dict in tests and replay, Faust's table in the process."""

    def __setitem__(self, key: str, value: bytes) -> None: ...
    def __delitem__(self, key: str) -> None: ...
    def items(self) -> Any:
        """Pairs of key and value."""
        ...


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: its latest fact and what was seen on it."""

    fact: NodeFact | None = None
    gone_at: datetime | None = None
    seen: Groups = field(default_factory=dict)
    cordons: tuple[tuple[datetime, str], ...] = ()
    """Incidents whose cordon the node bore, and when each was first seen there; the latest few."""
    upkeep: tuple[tuple[datetime, bool], ...] = ()
    """When facts began and ceased to say that the node is in planned maintenance; the latest few."""
    names: tuple[tuple[datetime, tuple[str, ...]], ...] = ()
    """By which other names facts knew it, and when they began to; the latest few."""

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
class RankTold:
    """What NCCL's own lines say of one process of a pod: its rank among `nranks`, and its GPU."""

    at: datetime
    rank: int
    nranks: int
    index: int | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True)
class PodRow:
    """Every pod of one name, when the name was free, and what its ranks said."""

    tenancies: tuple[Tenancy, ...] = ()
    gone: tuple[datetime, ...] = ()
    seen: Groups = field(default_factory=dict)
    progress_at: datetime | None = None
    progress_step: int | None = None
    moves: tuple[datetime, ...] = ()
    """The first sign of progress of each minute of the last hour in which there was any, and of each ten minutes before."""
    ranks: tuple[RankTold, ...] = ()
    """The latest that processes in pods of this name told of their ranks."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's latest fact."""

    fact: JobFact | None = None
    gone_at: datetime | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted, and not made anew under its name since."""
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


@dataclass(frozen=True, slots=True)
class RunsRow:
    """What the responder and people said about one incident."""

    events: tuple[Sighting, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """An incident as published last, and the place whose evaluation made it (`node/…`, `job/…`, `port/…`)."""

    incident: Incident
    scope: str
    last_at: datetime
    """Its latest evidence."""
    withdrawn: bool = False
    """Whether later evidence took its reason away, and nothing else explains it."""


@dataclass(frozen=True, slots=True)
class BaseRow:
    """How many incarnations of a root and domain are forgotten, and up to when what comes late is ignored."""

    count: int
    until: datetime


@dataclass(frozen=True, slots=True)
class PastFault:
    """One incident in the history of an offender. `gpu` is the UUID of the GPU, where it was known."""

    incident: str
    family: str
    fault_at: datetime
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """The incidents of one GPU, node or link, by their times."""

    faults: tuple[PastFault, ...] = ()


class Shelf(dict[str, V]):
    """Rows of one kind, by their name; changes are noted for `State.flush`."""

    def __init__(self, kind: str, row: type[V]) -> None:
        super().__init__()
        self.kind, self.row = kind, row
        self.changed: set[str] = set()

    def put(self, name: str, row: V) -> bool:
        """Keep a row; False when it is the one already there."""
        before = self.get(name)
        if before is row or before == row:
            return False
        self[name] = row
        self.changed.add(name)
        return True

    def drop(self, name: str) -> None:
        """Forget a row."""
        if self.pop(name, None) is not None:
            self.changed.add(name)

    def flushed(self) -> list[tuple[str, V | None]]:
        """The rows to write, None for those to delete, and begin anew."""
        names, self.changed = sorted(self.changed), set()
        return [(name, self.get(name)) for name in names]


class SeenShelf(Shelf[S]):
    """Rows of places where things are seen. What is seen goes to the journal, the rest is written as a row."""

    def __init__(self, kind: str, row: type[S], journal_: Journal) -> None:
        super().__init__(kind, row)
        self._journal = journal_
        self._open: dict[str, Groups] = {}
        """Groups that grow in place until the next flush, so that a batch copies a row once."""
        self.told: set[str] = set()
        """Names of rows where anything was seen."""

    def put(self, name: str, row: S) -> bool:
        """Keep a row; False when it is the one already there."""
        before = self.get(name)
        if before is row:
            return False
        old: Groups = before.seen if before is not None else {}
        if row.seen is old or row.seen == old:
            if before == row:
                return False
            self.changed.add(name)
        else:
            self._journal_changes(name, old, row.seen)
            if before is None or replace(before, seen={}) != replace(row, seen={}):
                self.changed.add(name)
        self._open.pop(name, None)
        self._set(name, row)
        return True

    def see(self, name: str, key: str, new: Sighting) -> bool:
        """Keep one more sighting in a group of a row; False when nothing changed."""
        row = self.get(name)
        before = row.seen.get(key, ()) if row is not None else ()
        after = added(before, new)
        if after is before:
            return False
        groups = self._open.get(name)
        if groups is None:
            if row is None:
                row = self.row()
                self.changed.add(name)
            groups = self._open[name] = dict(row.seen)
            self._set(name, replace(row, seen=groups))
            self.told.add(name)
        groups[key] = after
        if len(after) <= len(before):
            gone = next(s for s in before if not any(s is kept for kept in after))
            self._journal.drop(f"{self.kind}/{name}", gone)
        self._journal.add(f"{self.kind}/{name}", key, new)
        if len(groups) > MAX_GROUPS:
            least = min(groups, key=lambda k: (groups[k][0].severity.rank, -groups[k][0].at.timestamp(), k))
            for s in groups.pop(least):
                self._journal.drop(f"{self.kind}/{name}", s)
        return True

    def drop(self, name: str) -> None:
        """Forget a row."""
        row = self.get(name)
        if row is not None:
            self._journal_changes(name, row.seen, {})
            self._open.pop(name, None)
            self.told.discard(name)
        super().drop(name)

    def restored(self, name: str, key: str, sighting: Sighting) -> None:
        """Take back what the journal holds."""
        row = self.get(name) or self.row()
        group = tuple(sorted((*row.seen.get(key, ()), sighting), key=order))
        self[name] = replace(row, seen={**row.seen, key: group})
        self.told.add(name)

    def flushed(self) -> list[tuple[str, S | None]]:
        """The rows to write, without what is seen, and begin anew."""
        self._open.clear()
        return [(name, replace(row, seen={}) if row is not None else None) for name, row in super().flushed()]

    def _set(self, name: str, row: S) -> None:
        self[name] = row
        (self.told.add if row.seen else self.told.discard)(name)

    def _journal_changes(self, name: str, before: Groups, after: Groups) -> None:
        old = {s.id: s for group in before.values() for s in group}
        new = {s.id: (key, s) for key, group in after.items() for s in group}
        for sid, s in old.items():
            if sid not in new or new[sid][1] is not s:
                self._journal.drop(f"{self.kind}/{name}", s)
        for sid, (key, s) in new.items():
            if old.get(sid) is not s:
                self._journal.add(f"{self.kind}/{name}", key, s)


class State:
    """All rows of one cluster. Reads the port once, writes what changed when told to."""

    def __init__(self, rows: Rows, cluster: str) -> None:
        self._rows = rows
        self.cluster = cluster
        self._journal = Journal()
        self.nodes = SeenShelf("node", NodeRow, self._journal)
        self.pods = SeenShelf("pod", PodRow, self._journal)
        self.ports = SeenShelf("port", PortRow, self._journal)
        self.places: dict[str, SeenShelf[Any]] = {"node": self.nodes, "pod": self.pods, "port": self.ports}
        self.jobs = Shelf("job", JobRow)
        self.runs = Shelf("run", RunsRow)
        self.documents = Shelf("incident", DocumentRow)
        self.bases = Shelf("base", BaseRow)
        self.histories = Shelf("history", HistoryRow)
        self._written: set[str] = set()
        self._load(list(rows.items()))

    def _load(self, rows: list[tuple[str, bytes]]) -> None:
        shelves = {shelf.kind: shelf for shelf in self._shelves()}
        for key, value in rows:
            kind, _, name = key.partition("/")
            if kind in shelves:
                shelves[kind][name] = decode(shelves[kind].row, value)
                self._written.add(key)
        for entry in self._journal.load(
            (key, value) for key, value in rows if key.startswith(sighting_log.PREFIX)
        ):
            kind, _, name = entry.row.partition("/")
            self.places[kind].restored(name, entry.group, entry.sighting)

    def _shelves(self) -> Iterator[Shelf[Any]]:
        yield from (self.nodes, self.pods, self.jobs, self.ports, self.runs, self.documents)
        yield from (self.bases, self.histories)

    def seen_at(self, kind: str, name: str) -> list[Sighting]:
        """All that is kept of what was seen at a place: a `node`, a `pod` or a `port`."""
        row = self.places[kind].get(name)
        return [s for group in row.seen.values() for s in group] if row is not None else []

    def is_crowded(self, scope: str) -> bool:
        """Whether more was seen at a node or a port than is kept."""
        kind, _, name = scope.partition("/")
        row = self.places[kind].get(name) if kind in ("node", "port") else None
        if row is None:
            return False
        return len(row.seen) >= MAX_GROUPS or any(len(g) >= 2 * KEPT_EACH_END for g in row.seen.values())

    def flush(self) -> int:
        """Write every changed row once; returns how many."""
        count = self._journal.flush(self._rows)
        for shelf in self._shelves():
            for name, row in shelf.flushed():
                key = f"{shelf.kind}/{name}"
                if row is not None:
                    self._rows[key] = encode(row)
                    self._written.add(key)
                elif key in self._written:
                    del self._rows[key]
                    self._written.discard(key)
                count += 1
        return count


def with_cordon(row: NodeRow, incident: str, at: datetime) -> NodeRow:
    """The row with a cordon of an incident in it."""
    first = {name: since for since, name in row.cordons}
    first[incident] = min(at, first.get(incident, at))
    latest = sorted((since, name) for name, since in first.items())[-MAX_CORDONS:]
    return replace(row, cordons=tuple(latest))


def with_upkeep(row: NodeRow, fact: NodeFact) -> NodeRow:
    """The row with what a fact says of planned maintenance. Of facts that say the same in a row the outermost are kept."""
    if not fact.maintenance and not row.upkeep:
        return row
    said = sorted({*row.upkeep, (fact.observed_at, fact.maintenance)})
    kept = [
        one
        for before, one, after in zip([None, *said], said, [*said[1:], None], strict=False)
        if before is None or after is None or not before[1] == one[1] == after[1]
    ]
    return replace(row, upkeep=tuple(kept[-MAX_UPKEEP:]))


def with_names(row: NodeRow, fact: NodeFact) -> NodeRow:
    """The row with the other names that a fact gives its node. Of facts that say the same in a row the outermost are kept."""
    own = folded(fact.name)
    told = sorted({folded(name) for name in (*fact.addresses, *fact.aliases)} - NOBODYS - {own})
    said = sorted({*row.names, (fact.observed_at, tuple(told[: 4 * MAX_NAMES]))})
    kept = [
        one
        for before, one, after in zip([None, *said], said, [*said[1:], None], strict=False)
        if before is None or after is None or not before[1] == one[1] == after[1]
    ]
    return replace(row, names=tuple(kept[-MAX_NAMES:]))


def names_told(row: NodeRow) -> tuple[tuple[datetime, tuple[str, ...]], ...]:
    """The other names of a node and since when it had them, without repetitions."""
    said = row.names or (with_names(row, row.fact).names if row.fact is not None else ())
    return tuple(
        one for before, one in zip([None, *said], said, strict=False) if before is None or before[1] != one[1]
    )


def in_maintenance(row: NodeRow, since: datetime, until: datetime) -> bool:
    """Whether the node was in planned maintenance during all of that time, as far as its facts tell."""
    said = row.upkeep
    if row.fact is not None and (not said or said[-1][0] < row.fact.observed_at):
        said = (*said, (row.fact.observed_at, row.fact.maintenance))
    begun = [on for at, on in said if at <= since]
    return bool(begun) and begun[-1] and all(on for at, on in said if since < at <= until)


def with_progress(row: PodRow, at: datetime, step: int | None) -> PodRow:
    """The row with a sign of progress in it."""
    latest = max(
        (row.progress_at, row.progress_step),
        (at, step),
        key=lambda p: (p[0] is not None, p[0] or at, p[1] or 0),
    )
    first: dict[datetime, datetime] = {}
    coarse: dict[datetime, datetime] = {}
    for move in sorted((*row.moves, at)):
        minute = move.replace(second=0, microsecond=0)
        first.setdefault(minute, move)
        coarse.setdefault(minute.replace(minute=minute.minute // 10 * 10), move)
    newest = max(first)
    kept = {move for minute, move in first.items() if newest - minute < MOVES_KEPT}
    kept |= {move for minute, move in coarse.items() if newest - minute < COARSE_MOVES_KEPT}
    moves = tuple(sorted(kept))
    return replace(row, progress_at=latest[0], progress_step=latest[1], moves=moves)


def with_pod_fact(row: PodRow, fact: PodFact) -> PodRow:
    """The row with a fact in it: of one uid the latest counts, of many uids the latest few are kept."""
    known = {tenancy.fact.uid: tenancy for tenancy in row.tenancies}
    old = known.get(fact.uid)
    if old is None:
        known[fact.uid] = Tenancy(fact, fact.observed_at)
    else:
        newest = max(old.fact, fact, key=lambda f: (f.observed_at, encode(f)))
        known[fact.uid] = Tenancy(newest, min(old.first_seen, fact.observed_at))
    latest = sorted(known.values(), key=lambda t: (t.first_seen, t.fact.uid))[-MAX_TENANCIES:]
    return replace(row, tenancies=tuple(latest))


def with_rank(row: PodRow, told: RankTold) -> PodRow:
    """The row with a rank that a process told."""
    known = sorted({*row.ranks, told}, key=lambda t: (t.at, t.nranks, t.rank, t.pci or ""))
    return replace(row, ranks=tuple(known[-MAX_RANKS:]))


def with_pod_gone(row: PodRow, at: datetime) -> PodRow:
    """The row with a tombstone in it."""
    return replace(row, gone=tuple(sorted({*row.gone, at})[-MAX_GONE:]))
