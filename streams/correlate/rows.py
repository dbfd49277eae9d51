"""The correlator's state: rows behind a narrow port, decoded once, written once per batch and only if they changed.

One row per node, pod, job, switch port, incident, and incident that runs spoke of; so what a signal costs to keep does not
depend on how large the cluster is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from streams.correlate.sightings import Sighting, added
from streams.model.codec import decode, encode
from streams.model.incident import Incident
from streams.model.inventory import JobFact, LinkFact, NodeFact, PodFact

MAX_GROUPS = 256
"""Kinds of sightings kept at one place. Log text can name any number of addresses; memory is not its to fill."""
MAX_TENANCIES = 6
"""Pods that bore the same name, one after the other."""
MAX_GONE = 8
MOVES_KEPT = timedelta(hours=1)

Groups = dict[str, tuple[Sighting, ...]]
V = TypeVar("V")


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


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One pod by uid: its latest fact and since when it is known."""

    fact: PodFact
    first_seen: datetime


@dataclass(frozen=True, slots=True)
class PodRow:
    """Every pod of one name, when the name was free, and what its ranks said."""

    tenancies: tuple[Tenancy, ...] = ()
    gone: tuple[datetime, ...] = ()
    seen: Groups = field(default_factory=dict)
    progress_at: datetime | None = None
    progress_step: int | None = None
    moves: tuple[datetime, ...] = ()
    """The first sign of progress of each minute of the last hour in which there was any."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's latest fact."""

    fact: JobFact | None = None
    gone_at: datetime | None = None


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


class Shelf(dict[str, V]):
    """Rows of one kind, by their name; changes are noted for `State.flush`."""

    def __init__(self, kind: str, row: type[V]) -> None:
        super().__init__()
        self.kind, self.row = kind, row
        self.changed: set[str] = set()

    def put(self, name: str, row: V) -> bool:
        """Keep a row; False when it is the one already there."""
        if self.get(name) == row:
            return False
        self[name] = row
        self.changed.add(name)
        return True

    def drop(self, name: str) -> None:
        """Forget a row."""
        if self.pop(name, None) is not None:
            self.changed.add(name)


class State:
    """All rows of one cluster. Reads the port once, writes what changed when told to."""

    def __init__(self, rows: Rows, cluster: str) -> None:
        self._rows = rows
        self.cluster = cluster
        self.nodes = Shelf("node", NodeRow)
        self.pods = Shelf("pod", PodRow)
        self.jobs = Shelf("job", JobRow)
        self.ports = Shelf("port", PortRow)
        self.runs = Shelf("run", RunsRow)
        self.documents = Shelf("incident", DocumentRow)
        self.bases = Shelf("base", BaseRow)
        self._written: set[str] = set()
        for key, value in list(rows.items()):
            self._load(key, value)

    def _load(self, key: str, value: bytes) -> None:
        kind, _, name = key.partition("/")
        for shelf in self._shelves():
            if shelf.kind == kind:
                shelf[name] = decode(shelf.row, value)
                self._written.add(key)

    def _shelves(self) -> Iterator[Shelf[Any]]:
        yield from (self.nodes, self.pods, self.jobs, self.ports, self.runs, self.documents, self.bases)

    def flush(self) -> int:
        """Write every changed row once; returns how many."""
        count = 0
        for shelf in self._shelves():
            for name in sorted(shelf.changed):
                key = f"{shelf.kind}/{name}"
                if name in shelf:
                    self._rows[key] = encode(shelf[name])
                    self._written.add(key)
                elif key in self._written:
                    del self._rows[key]
                    self._written.discard(key)
                count += 1
            shelf.changed.clear()
        return count


def with_sighting(groups: Groups, key: str, new: Sighting) -> Groups:
    """The groups with one more sighting; the same object when nothing changed."""
    before = groups.get(key, ())
    after = added(before, new)
    if after is before:
        return groups
    grown = {**groups, key: after}
    if len(grown) > MAX_GROUPS:
        least = min(grown, key=lambda k: (grown[k][0].severity.rank, -grown[k][0].at.timestamp(), k))
        del grown[least]
    return grown


def with_progress(row: PodRow, at: datetime, step: int | None) -> PodRow:
    """The row with a sign of progress in it."""
    latest = max(
        (row.progress_at, row.progress_step),
        (at, step),
        key=lambda p: (p[0] is not None, p[0] or at, p[1] or 0),
    )
    first: dict[datetime, datetime] = {}
    for move in sorted((*row.moves, at)):
        first.setdefault(move.replace(second=0, microsecond=0), move)
    newest = max(first)
    moves = tuple(move for minute, move in first.items() if newest - minute < MOVES_KEPT)
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


def with_pod_gone(row: PodRow, at: datetime) -> PodRow:
    """The row with a tombstone in it."""
    return replace(row, gone=tuple(sorted({*row.gone, at})[-MAX_GONE:]))
