"""One cluster's engine with its rows: what a step changes is stored whole or not at all.

Rows go to the changelog one by one, and the process may end between two of them. Its successor would find signals without the
incidents that follow from them; read again, those signals would be known already and change nothing. So all that a step
changes and publishes goes to the changelog first, as one record in pieces of a size that the broker accepts. A successor that
finds the record complete carries it out: it writes the rows again and publishes again, with the same ids and revisions. Of an
incomplete record no row was written and nothing published, and the input of that step is read again. The next step that is
stored, a tick at the latest, deletes the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Protocol

from streams.correlate.changes import Changes
from streams.correlate.state.store import Rows
from streams.model.codec import decode, encode
from streams.model.facts import Fact
from streams.model.incident import Incident
from streams.model.signal import Signal

RECORD = "step/"
"""Rows named `step/NUMBER` are the pieces of a record."""

PIECE = 500_000
"""Bytes of a piece; a broker takes more in one record."""


Records = list[tuple[bytes, bytes | None]]
"""Records for the changelog, in the order in which they have to be there; None where a row is gone."""


class StepEngine(Protocol):
    """The pure engine, for one cluster."""

    def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
        """Record observations, read at that time; None while it is not known how late it is."""

    def on_facts(self, facts: Sequence[tuple[str, Fact | None, datetime]]) -> Changes:
        """Record what is where; None when it is gone."""

    def on_tick(self, now: datetime) -> Changes:
        """Let time pass."""

    def standing(self) -> Sequence[Incident]:
        """The incidents that are not over."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a record: the rows' names and sizes (None: the row is deleted), and what is to be published."""

    rows: tuple[tuple[str, int | None], ...]
    again: Changes


class TableRows(MutableMapping[str, bytes]):
    """The rows of one cluster among those of its partition. Writes wait for `store`."""

    def __init__(self, stored: MutableMapping[bytes, bytes], cluster: str) -> None:
        self._stored = stored
        self._prefix = cluster.encode() + b"\0"
        self._waiting: dict[str, bytes | None] = {}

    def waiting(self) -> list[tuple[str, bytes | None]]:
        """What the next `store` changes; None where a row goes."""
        return [
            (key, value)
            for key, value in self._waiting.items()
            if value is not None or self._name(key) in self._stored
        ]

    def store(self) -> Records:
        """Apply what was written; returns the records that the changelog must hold before it counts."""
        changed = [(self._name(key), value) for key, value in self.waiting()]
        for name, value in changed:
            if value is not None:
                self._stored[name] = value
            else:
                del self._stored[name]
        self._waiting.clear()
        return changed

    def _name(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def __getitem__(self, key: str) -> bytes:
        waiting = self._waiting.get(key)
        value: bytes | None = waiting if key in self._waiting else self._stored.get(self._name(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: bytes) -> None:
        self._waiting[key] = value

    def put_first(self, rows: Mapping[str, bytes]) -> None:
        """Write rows that have to be in the changelog before all others that wait."""
        others = {key: value for key, value in self._waiting.items() if key not in rows}
        self._waiting = {**rows, **others}

    def __delitem__(self, key: str) -> None:
        self._waiting[key] = None

    def __iter__(self) -> Iterator[str]:
        stored = {
            key[len(self._prefix) :].decode() for key in list(self._stored) if key.startswith(self._prefix)
        }
        return iter(
            sorted((stored | self._waiting.keys()) - {k for k, v in self._waiting.items() if v is None})
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ClusterEngine:
    """An engine with the rows under it. `make_engine(rows)` is called once the rows of a predecessor's record are written."""

    def __init__(self, rows: TableRows, make_engine: Callable[[Rows], StepEngine]) -> None:
        self.rows = rows
        self._left = _read(rows)
        if self._left is not None:
            for key, value in self._left[1]:
                if value is not None:
                    rows[key] = value
                elif key in rows:
                    del rows[key]
        self.engine = make_engine(rows)

    def recover(self) -> tuple[Records, Changes]:
        """What must be written and published first, because a predecessor may have died before it did."""
        rows = self.rows.store()
        self.clear()  # or a successor would write this record's rows over those of the next step, if that leaves no record
        return rows, self._left[0].again if self._left is not None else Changes()

    def store(self, changes: Changes) -> tuple[Records, Records]:
        """Apply what a step changed. Returns the record and the rows for the changelog; the record must be written first."""
        changed = [(key, value) for key, value in self.rows.waiting() if not key.startswith(RECORD)]
        pieces: dict[str, bytes] = {}
        # A single row is stored whole anyway.
        if len(changed) > 1 or changes.incidents or changes.timeline:
            pieces = _written(changed, changes)
            self.rows.put_first(pieces)
        records = self.rows.store()
        return records[: len(pieces)], records[len(pieces) :]

    def clear(self) -> None:
        """Delete the record with the next step that is stored: all of it is done."""
        for number in range(_pieces(self.rows)):
            del self.rows[f"{RECORD}{number}"]


def _written(changed: Sequence[tuple[str, bytes | None]], changes: Changes) -> dict[str, bytes]:
    """A record in pieces. The first begins with the digest of the whole, so that pieces of two records never make one."""
    sizes = tuple((key, None if value is None else len(value)) for key, value in changed)
    head = encode(_Head(sizes, changes))
    whole = b"".join([b"%d\n" % len(head), head, *(value for _, value in changed if value)])
    count = -(-len(whole) // PIECE)
    parts = [whole[start : start + PIECE] for start in range(0, len(whole), PIECE)]
    parts[0] = b"%d %s\n" % (count, _digest(whole)) + parts[0]
    return {f"{RECORD}{number}": part for number, part in enumerate(parts)}


def _read(rows: TableRows) -> tuple[_Head, Sequence[tuple[str, bytes | None]]] | None:
    """The record, when it is complete."""
    count = _pieces(rows)
    parts = [rows.get(f"{RECORD}{number}") for number in range(count)]
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
    """How many pieces the record has; 0 when there is none."""
    first = rows.get(f"{RECORD}0")
    return int(first.partition(b" ")[0]) if first else 0


def _digest(whole: bytes) -> bytes:
    return blake2b(whole, digest_size=16).hexdigest().encode()
