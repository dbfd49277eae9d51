"""How sightings are stored: a log of what came and went, one row for each batch, however many places it touched.

A row for each place would be written whole for one more sighting, and a bad day touches hundreds of places in a batch. Here a
batch is one row, a *segment*: the sightings that are new, and the names of those that are dropped. Dropped sightings stay in
their old segment until half of it is dropped; then the rest moves to a new one. So the rows hold at most about twice what is
kept, and each sighting is written about twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field

from streams.correlate.sightings import Sighting
from streams.correlate.state.sighting_codec import Entry, pack, unpack

PREFIX = "seen/"
"""Segments are rows named `seen/NUMBER`, numbered as they were written."""

MAX_SEGMENT = 500
"""Sightings in one segment. At some 500 bytes each that is a quarter of what a broker takes in one record."""

MAX_BYTES = 500_000
"""A segment that came out larger is written as two."""


Name = tuple[str, str]
"""A sighting at one place: the row's name and the sighting's id."""

Gone = dict[Name, frozenset[int]]
"""Deleted names, and the segments that still hold an entry of each."""


@dataclass(slots=True)
class _Segment:
    """A stored segment: its entries that are still kept, and the names it deletes, with the older segments that hold those."""

    size: int
    live: dict[Name, Entry] = field(default_factory=dict)
    gone: Gone = field(default_factory=dict)

    @property
    def needs_compaction(self) -> bool:
        """Whether more than half of it is no longer kept."""
        return 2 * len(self.live) < self.size


class SightingLog:
    """All segments of one cluster, and what is to be written with the next flush."""

    def __init__(self) -> None:
        self._segments: dict[int, _Segment] = {}
        self._home: dict[Name, int] = {}
        """The segment that holds a name."""
        self._new: dict[Name, Entry] = {}
        self._gone: Gone = {}
        self._to_compact: set[int] = set()
        self._next = 0

    def load(self, stored: Iterable[tuple[str, bytes]]) -> Iterator[Entry]:
        """Load the rows under `PREFIX`; gives the entries that are kept, in the order in which they were written."""
        holders: dict[Name, frozenset[int]] = {}
        nowhere: frozenset[int] = frozenset()
        for number, value in sorted((int(key.removeprefix(PREFIX)), value) for key, value in stored):
            content = unpack(value)
            segment = self._segments[number] = _Segment(len(content.seen) + len(content.gone))
            for name in content.gone:
                segment.gone[name] = holders.get(name, nowhere)
                self._remove(name)
            for entry in content.seen:
                name = (entry.row, entry.sighting.id)
                if (old := self._remove(name)) is not None:
                    # It was moved, and the writer ended before it had deleted the old segment.
                    self._to_compact.add(old)
                segment.live[name] = entry
                self._home[name] = number
                holders[name] = holders.get(name, nowhere) | {number}
            self._next = number + 1
        self._to_compact |= {number for number, segment in self._segments.items() if segment.needs_compaction}
        for segment in self._segments.values():
            yield from segment.live.values()

    def add(self, row: str, group: str, sighting: Sighting) -> None:
        """Keep a sighting; it replaces one of the same name."""
        name = (row, sighting.id)
        if name in self._home:
            self.drop(row, sighting)
        self._new[name] = Entry(row, group, sighting)

    def drop(self, row: str, sighting: Sighting) -> None:
        """Stop keeping a sighting."""
        name = (row, sighting.id)
        if self._new.pop(name, None) is None and (home := self._remove(name)) is not None:
            self._gone[name] = self._gone.get(name, frozenset()) | {home}

    def flush(self, rows: MutableMapping[str, bytes]) -> int:
        """Write what was added and dropped since the last flush; returns how many rows were written or deleted."""
        if not self._new and not self._gone:
            return 0
        over = self._compact()
        entries, gone = list(self._new.items()), self._gone
        self._new, self._gone = {}, {}
        written = 0
        for start in range(0, max(1, len(entries)), MAX_SEGMENT):
            written += self._write(rows, entries[start : start + MAX_SEGMENT], gone)
            gone = {}
        for number in over:
            del rows[_key(number)]
        return written + len(over)

    def _remove(self, name: Name) -> int | None:
        """Remove a name from the segment that holds it; returns that segment's number."""
        home = self._home.pop(name, None)
        if home is not None:
            segment = self._segments[home]
            del segment.live[name]
            if segment.needs_compaction:
                self._to_compact.add(home)
        return home

    def _compact(self) -> list[int]:
        """Move what is kept in worn segments, and the deletions that they state, to what is written next.

        A deletion must be stated for as long as any older segment holds the name, those included that are about to be deleted:
        the process may end between the two. Stated later, it would also delete an entry kept in between, so that moves too.
        """
        over, self._to_compact = sorted(self._to_compact), set()
        stored = set(self._segments)
        for number in over:
            segment = self._segments.pop(number)
            for name, entry in segment.live.items():
                del self._home[name]
                self._new.setdefault(name, entry)
            for name, homes in segment.gone.items():
                self._gone[name] = self._gone.get(name, frozenset()) | homes
        gone = {name: left for name, homes in self._gone.items() if (left := homes & stored)}
        for name in gone.keys() & self._home.keys():
            home = self._home[name]
            self._new.setdefault(name, self._segments[home].live[name])
            self._remove(name)
            gone[name] |= {home}
        self._gone = {name: homes & self._segments.keys() for name, homes in gone.items()}
        return over

    def _write(self, rows: MutableMapping[str, bytes], entries: list[tuple[Name, Entry]], gone: Gone) -> int:
        if not entries and not gone:
            return 0
        value = pack((entry for _, entry in entries), gone)
        if len(value) > MAX_BYTES and len(entries) > 1:
            half = len(entries) // 2
            return self._write(rows, entries[:half], gone) + self._write(rows, entries[half:], {})
        number, self._next = self._next, self._next + 1
        live = dict(entries)
        self._segments[number] = _Segment(len(entries) + len(gone), live, gone)
        self._home.update(dict.fromkeys(live, number))
        rows[_key(number)] = value
        return 1


class UnwrittenLog(SightingLog):
    """A log for state that is never stored. It keeps nothing."""

    def add(self, row: str, group: str, sighting: Sighting) -> None:
        """Do nothing."""

    def drop(self, row: str, sighting: Sighting) -> None:
        """Do nothing."""


def _key(number: int) -> str:
    return f"{PREFIX}{number:012d}"
