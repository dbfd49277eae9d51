"""One cluster's core with its rows: what a step changes is stored whole or not at all.

Rows go to the changelog one by one, and the process may end between two of them. Whoever takes over would find what was seen
without what followed from it, and what is read again would be known already and change nothing any more. So everything that a
step changes, and has to say, goes to the changelog first as one note, in pieces of a size that the broker takes. A note that
is there in full is carried out by whoever takes over: its rows are written once more and what it says is said once more, with
the same ids and revisions. Of a note that is not there in full nothing was written and nothing said, and what led to it is
read again. With the next step that is stored, a tick at the latest, the note is gone.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Protocol

from streams.correlate.cluster_rows import Records, TableRows
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.facts import Fact
from streams.model.incident import Incident
from streams.model.signal import Signal

Rows = MutableMapping[str, bytes]
"""The core's state as rows; what is written here is in the changelog before the event's offset is committed."""

NOTE = "step/"
"""Rows named `step/NUMBER` are the pieces of a note."""

PIECE = 500_000
"""Bytes of a piece; a broker takes more in one record."""


class Changes(Protocol):
    """What one step of the core brought about."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """New revisions, in order."""

    @property
    def timeline(self) -> tuple[TimelineEntry, ...]:
        """What to tell about them."""


class Core(Protocol):
    """The pure core, for one cluster."""

    def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
        """Take in observations, read at that time; None while it is not known how late it is."""

    def on_facts(self, facts: Sequence[tuple[str, Fact | None, datetime]]) -> Changes:
        """Take in what is where; None when it is gone."""

    def on_tick(self, now: datetime) -> Changes:
        """Let time pass."""


@dataclass(frozen=True, slots=True)
class Again:
    """What a predecessor may have died before saying."""

    incidents: tuple[Incident, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a note: the rows' names and sizes (None: the row is gone), and what is to be said."""

    rows: tuple[tuple[str, int | None], ...]
    again: Again


class Held:
    """A core with the rows under it.

    `make_core(rows)` is called when what a predecessor left undone is done.
    """

    def __init__(self, rows: TableRows, make_core: Callable[[Rows], Core]) -> None:
        self.rows = rows
        self._left = _read(rows)
        if self._left is not None:
            for key, value in self._left[1]:
                if value is not None:
                    rows[key] = value
                elif key in rows:
                    del rows[key]
        self.core = make_core(rows)

    def taken_over(self) -> tuple[Records, Again]:
        """What has to be written and said before anything else: a predecessor may have died before."""
        rows = self.rows.store()
        self.strike()  # or the next step, if it leaves no note, would be undone by this one once more
        return rows, self._left[0].again if self._left is not None else Again()

    def store(self, changes: Changes) -> tuple[Records, Records]:
        """Keep what a step changed; returns the note and the rows, for the changelog. The rows only when the note is there."""
        changed = [(key, value) for key, value in self.rows.waiting() if not key.startswith(NOTE)]
        pieces: dict[str, bytes] = {}
        if len(changed) > 1 or changes.incidents or changes.timeline:
            pieces = _written(changed, changes)
            self.rows.put_first(pieces)
        records = self.rows.store()
        return records[: len(pieces)], records[len(pieces) :]

    def strike(self) -> None:
        """Take the note out with the next step that is stored: all of it is done."""
        for number in range(_pieces(self.rows)):
            del self.rows[f"{NOTE}{number}"]


def _written(changed: Sequence[tuple[str, bytes | None]], changes: Changes) -> dict[str, bytes]:
    """A note in pieces. The first begins with the digest of the whole, so that pieces of two notes never make one."""
    sizes = tuple((key, None if value is None else len(value)) for key, value in changed)
    head = encode(_Head(sizes, Again(tuple(changes.incidents), tuple(changes.timeline))))
    whole = b"".join([b"%d\n" % len(head), head, *(value for _, value in changed if value)])
    count = -(-len(whole) // PIECE)
    parts = [whole[start : start + PIECE] for start in range(0, len(whole), PIECE)]
    parts[0] = b"%d %s\n" % (count, _digest(whole)) + parts[0]
    return {f"{NOTE}{number}": part for number, part in enumerate(parts)}


def _read(rows: TableRows) -> tuple[_Head, Sequence[tuple[str, bytes | None]]] | None:
    """The note, when it is there in full."""
    count = _pieces(rows)
    parts = [rows.get(f"{NOTE}{number}") for number in range(count)]
    found = [part for part in parts if part is not None]
    if not count or len(found) < count:
        return None
    line, _, found[0] = found[0].partition(b"\n")
    whole = b"".join(found)
    if line.split()[1] != _digest(whole):
        return None
    size, _, rest = whole.partition(b"\n")
    head, at = decode(_Head, rest[: int(size)]), int(size)
    changed: list[tuple[str, bytes | None]] = []
    for key, length in head.rows:
        changed.append((key, None if length is None else rest[at : at + length]))
        at += length or 0
    return head, changed


def _pieces(rows: TableRows) -> int:
    """Of how many pieces the note is; 0 when there is none."""
    first = rows.get(f"{NOTE}0")
    return int(first.partition(b" ")[0]) if first else 0


def _digest(whole: bytes) -> bytes:
    return blake2b(whole, digest_size=16).hexdigest().encode()
