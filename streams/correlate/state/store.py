"""The correlator's state: rows in memory, decoded once, written once per batch and only if they changed.

What is seen at nodes, pods and ports is stored in a log beside their rows, a row for each batch. So what a signal costs to
keep does not depend on how large the cluster is, nor on how many places a batch touches.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence, Set
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar

from streams.correlate.same_observation import added_once
from streams.correlate.sightings import KEPT_EACH_END, Sighting, order
from streams.correlate.state.place import Place
from streams.correlate.state.rows import (
    BaseRow,
    DocumentRow,
    Groups,
    HistoryRow,
    JobRow,
    NodeRow,
    PodRow,
    PortRow,
    RunsRow,
    WorkHabitRow,
)
from streams.correlate.state.sighting_log import PREFIX, SightingLog, UnwrittenLog
from streams.model.codec import decode, encode
from streams.model.kinds import SignalKind

MAX_GROUPS = 256
"""Kinds of sightings kept at one place. Log text can name any number of addresses, and must not fill the memory."""

Rows = MutableMapping[str, bytes]
"""What is stored, for one cluster: a dict in tests and replay, in the process what goes to the changelog."""

V = TypeVar("V")
S = TypeVar("S", bound="PlaceRow")


class PlaceRow(Protocol):
    """The row of a place where things are seen."""

    @property
    def seen(self) -> Groups:
        """What is kept of them."""

    def with_seen(self, seen: Groups) -> Self:
        """The row with other sightings."""


class RowStore(dict[str, V]):
    """Rows of one kind, by their name; remembers which ones `State.flush` has to write."""

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

    def hold(self, name: str, row: V) -> None:
        """Keep a row that sees the same, without writing it: what is new in it follows from what is stored."""
        self[name] = row

    def write(self, name: str, row: V) -> None:
        """Keep a row that sees the same, and write it with what was only held until now."""
        self[name] = row
        self.changed.add(name)

    def drop(self, name: str) -> None:
        """Forget a row."""
        if self.pop(name, None) is not None:
            self.changed.add(name)

    def flushed(self) -> list[tuple[str, V | None]]:
        """The rows to write, None for those to delete; the next call starts from here."""
        names, self.changed = sorted(self.changed), set()
        return [(name, self.get(name)) for name in names]

    def settle(self) -> None:
        """Start the next batch without writing this one."""
        self.changed.clear()


class SightingStore(RowStore[S]):
    """Rows of places where things are seen. What is seen goes to the log, the rest is written as a row."""

    def __init__(self, kind: str, row: type[S], log: SightingLog) -> None:
        super().__init__(kind, row)
        self._log = log
        self._open: dict[str, Groups] = {}
        """Groups that grow in place until the next flush, so that a batch copies a row once."""
        self._since: dict[str, datetime] = {}
        """By name of a row where anything was seen: nothing that is kept of it is older."""

    @property
    def reporting(self) -> Set[str]:
        """Names of rows where anything was seen."""
        return self._since.keys()

    def reaching_before(self, cut: datetime) -> list[str]:
        """Names of rows that may hold a sighting from before `cut`, sorted: most places of a busy cluster spoke lately only."""
        return sorted(name for name, since in self._since.items() if since < cut)

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
            self._log_changes(name, old, row.seen)
            if before is None or before.with_seen({}) != row.with_seen({}):
                self.changed.add(name)
            self._note_since(name, row.seen)
        self._open.pop(name, None)
        self[name] = row
        return True

    def see(self, name: str, key: str, new: Sighting) -> bool:
        """Keep one more sighting in a group of a row; False when nothing changed."""
        row = self.get(name)
        before = row.seen.get(key, ()) if row is not None else ()
        after = added_once(before, new)
        if after is before:
            return False
        groups = self._open.get(name)
        if groups is None:
            if row is None:
                row = self.row()
                self.changed.add(name)
            groups = self._open[name] = dict(row.seen)
            self[name] = row.with_seen(groups)
        groups[key] = after
        first = after[0].at
        if first < self._since.setdefault(name, first):
            self._since[name] = first
        place = f"{self.kind}/{name}"
        if len(after) == len(before) + 1:  # nothing had to go for it, as with nearly every sighting
            self._log.add(place, key, new)
        else:
            known, kept = set(map(id, before)), set(map(id, after))
            for s in before:
                if id(s) not in kept:
                    self._log.drop(place, s)
            for s in after:
                if id(s) not in known:
                    self._log.add(place, key, s)
        if len(groups) > MAX_GROUPS:
            for s in groups.pop(min(groups, key=lambda k: (*_worth(groups[k][0]), k))):
                self._log.drop(place, s)
        return True

    def row_with_room(self, names: Sequence[str], key: str) -> str:
        """The row of these that has a group; else the first with room for one more, or the last where all are full."""
        rows = {name: row.seen for name in names if (row := self.get(name)) is not None}
        has_it = (name for name, seen in rows.items() if key in seen)
        has_room = (name for name in names if len(rows.get(name, ())) < MAX_GROUPS)
        return next(has_it, None) or next(has_room, names[-1])

    def drop(self, name: str) -> None:
        """Forget a row."""
        row = self.get(name)
        if row is not None:
            self._log_changes(name, row.seen, {})
            self._open.pop(name, None)
            self._since.pop(name, None)
        super().drop(name)

    def restored(self, name: str, key: str, sighting: Sighting) -> None:
        """Take back a sighting that the log holds."""
        row = self.get(name) or self.row()
        group = tuple(sorted((*row.seen.get(key, ()), sighting), key=order))
        self[name] = row.with_seen({**row.seen, key: group})
        self._since[name] = min(group[0].at, self._since.get(name, group[0].at))

    def flushed(self) -> list[tuple[str, S | None]]:
        """The rows to write, without what is seen; the next call starts from here."""
        self._open.clear()
        return [(name, row.with_seen({}) if row is not None else None) for name, row in super().flushed()]

    def settle(self) -> None:
        """Start the next batch without writing this one."""
        self._open.clear()
        super().settle()

    def _note_since(self, name: str, seen: Groups) -> None:
        if seen:
            self._since[name] = min(group[0].at for group in seen.values())
        else:
            self._since.pop(name, None)

    def _log_changes(self, name: str, before: Groups, after: Groups) -> None:
        old = {s.id: s for group in before.values() for s in group}
        new = {s.id: (key, s) for key, group in after.items() for s in group}
        for sid, s in old.items():
            if sid not in new or new[sid][1] is not s:
                self._log.drop(f"{self.kind}/{name}", s)
        for sid, (key, s) in new.items():
            if old.get(sid) is not s:
                self._log.add(f"{self.kind}/{name}", key, s)


def _worth(first: Sighting) -> tuple[bool, int, float]:
    """By which a place that is full gives up a group, the lowest first: what no rule knows, then the least severe and latest."""
    return (first.kind != SignalKind.UNKNOWN, first.severity.rank, -first.at.timestamp())


class State:
    """All rows of one cluster: reads `rows` once, and writes there what changed whenever `flush` is called.

    Without `rows` nothing is written: a replay has no successor, and encoding would be a tenth of its time.
    """

    def __init__(self, rows: Rows | None, cluster: str) -> None:
        self._rows = rows
        self.cluster = cluster
        self._log = SightingLog() if rows is not None else UnwrittenLog()
        self.nodes = SightingStore("node", NodeRow, self._log)
        self.pods = SightingStore("pod", PodRow, self._log)
        self.ports = SightingStore("port", PortRow, self._log)
        self.places: dict[str, SightingStore[Any]] = {
            "node": self.nodes,
            "pod": self.pods,
            "port": self.ports,
        }
        self.jobs = RowStore("job", JobRow)
        self.runs = RowStore("run", RunsRow)
        self.documents = RowStore("incident", DocumentRow)
        self.bases = RowStore("base", BaseRow)
        self.histories = RowStore("history", HistoryRow)
        self.habits = RowStore("habit", WorkHabitRow)
        self._written: set[str] = set()
        self._load(list(rows.items()) if rows is not None else [])

    def _load(self, rows: list[tuple[str, bytes]]) -> None:
        stores = {store.kind: store for store in self._stores()}
        for key, value in rows:
            kind, _, name = key.partition("/")
            if kind in stores:
                stores[kind][name] = decode(stores[kind].row, value)
                self._written.add(key)
        for entry in self._log.load((key, value) for key, value in rows if key.startswith(PREFIX)):
            kind, _, name = entry.row.partition("/")
            self.places[kind].restored(name, entry.group, entry.sighting)

    def _stores(self) -> Iterator[RowStore[Any]]:
        yield from (self.nodes, self.pods, self.jobs, self.ports, self.runs, self.documents)
        yield from (self.bases, self.histories, self.habits)

    def seen_at(self, kind: str, name: str) -> list[Sighting]:
        """All that is kept of sightings of a place: a `node`, a `pod` or a `port`."""
        row = self.places[kind].get(name)
        return [s for group in row.seen.values() for s in group] if row is not None else []

    def is_crowded(self, place: Place) -> bool:
        """Whether more was seen at a node or a port than is kept."""
        row = self.places[place.kind].get(place.name) if place.kind in self.places else None
        if row is None:
            return False
        # No incident is built from what is unknown, and it makes room for everything else.
        groups = [group for group in row.seen.values() if group[0].kind != SignalKind.UNKNOWN]
        return len(groups) >= MAX_GROUPS or any(len(group) >= 2 * KEPT_EACH_END for group in groups)

    def flush(self) -> int:
        """Write every changed row once; returns how many."""
        if self._rows is None:
            for store in self._stores():
                store.settle()
            return 0
        count = self._log.flush(self._rows)
        for store in self._stores():
            for name, row in store.flushed():
                key = f"{store.kind}/{name}"
                if row is not None:
                    self._rows[key] = encode(row)
                    self._written.add(key)
                elif key in self._written:
                    del self._rows[key]
                    self._written.discard(key)
                count += 1
        return count
