"""Which nodes share which part, as far as labels, the topology file and names tell, and how many did at a time."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from streams.correlate.state.rows import NodeRow
from streams.model.entity import Part
from streams.model.hostnames import folded, short

_WORD = re.compile(r"[a-z0-9]+")
_MAX_WORDS = 8
_ALWAYS = datetime.min.replace(tzinfo=UTC)


class _Stay(NamedTuple):
    """From when to when a node is there, and what it shares."""

    since: datetime
    until: datetime | None
    parts: frozenset[Part]


class _Times:
    """When the nodes of one group came and went."""

    __slots__ = ("_came", "_went")

    def __init__(self) -> None:
        self._came: list[datetime] = []
        self._went: list[datetime] = []

    def __bool__(self) -> bool:
        return bool(self._came)

    def add(self, stay: _Stay) -> None:
        insort(self._came, stay.since)
        if stay.until is not None:
            insort(self._went, stay.until)

    def remove(self, stay: _Stay) -> None:
        del self._came[bisect_left(self._came, stay.since)]
        if stay.until is not None:
            del self._went[bisect_left(self._went, stay.until)]

    def count(self, at: datetime | None) -> int:
        """How many are there at that time; with None those that nobody has seen go."""
        if at is None:
            return len(self._came) - len(self._went)
        return bisect_right(self._came, at) - bisect_left(self._went, at)


class PartIndex:
    """The nodes of each part. `version` changes whenever any node enters or leaves one, or comes or goes."""

    def __init__(self) -> None:
        self._of: dict[Part, _Times] = defaultdict(_Times)
        self._all = _Times()
        self._at: dict[str, _Stay] = {}
        self._named: dict[str, set[Part]] = defaultdict(set)
        self.version = 0
        self.renamed: set[str] = set()
        """Names that have begun or ceased to mean a part; whoever reads it, empties it."""

    def put(self, node: str, row: NodeRow | None) -> None:
        """Enter a node under the parts that its fact tells, and no others, for the time that it is there."""
        self._enter(node, _stay(row))

    def _enter(self, node: str, new: _Stay | None) -> None:
        old = self._at.pop(node, None)
        if new is not None:
            self._at[node] = new
        if old == new:
            return
        self.version += 1
        before, after = old.parts if old else frozenset[Part](), new.parts if new else frozenset[Part]()
        if old is not None:
            self._all.remove(old)
            for part in before:
                self._of[part].remove(old)
        if new is not None:
            self._all.add(new)
            for part in after:
                self._rename(part, after - before)
                self._of[part].add(new)
        for part in before - after:
            if not self._of[part]:
                del self._of[part]
                self._named[folded(part.name)].discard(part)
                self.renamed.add(folded(part.name))

    def guess(self, node: str, parts: Iterable[Part]) -> None:
        """Enter a node of which no fact tells under what its name tells; under nothing, where that is not there any more.

        Entered by its short name: what reports such a node may or may not write its domain.
        """
        mine = frozenset(parts)
        self._enter(short(node), _Stay(_ALWAYS, None, mine) if mine else None)

    def _rename(self, part: Part, entered: Iterable[Part]) -> None:
        if part in entered and not self._of[part]:
            self._named[folded(part.name)].add(part)
            self.renamed.add(folded(part.name))

    def named(self, name: str) -> Part | None:
        """The part with this name, as a device may call itself (a PDU, a coolant unit); None if several have it."""
        short = folded(name)
        found = self._named.get(short) or self._named.get(short.partition(".")[0]) or set()
        return next(iter(found)) if len(found) == 1 else None

    def named_as(self, name: str) -> frozenset[Part]:
        """All parts with this name."""
        return frozenset(self._named.get(folded(name), ()))

    def named_in(self, device: str) -> set[Part]:
        """The parts whose names stand within a device's, `R02` in `r02-nvsw4`. A number alone may as well be the device's own."""
        words = list(islice(_WORD.finditer(folded(device)), _MAX_WORDS))
        return {
            part
            for i, first in enumerate(words)
            for last in words[i:]
            if not (name := first.string[first.start() : last.end()]).isdigit()
            for part in self._named.get(name, ())
        }

    def at(self, node: str) -> frozenset[Part]:
        """What a node shares with others."""
        stay = self._at.get(node) or self._at.get(short(node))
        return stay.parts if stay is not None else frozenset()

    def size(self, part: Part, at: datetime | None = None) -> int:
        """How many nodes shared it at that time; with None how many do now. A node that came later was no part of it."""
        times = self._of.get(part)
        return times.count(at) if times is not None else 0

    def known(self, at: datetime | None = None) -> int:
        """How many nodes there were at that time, whatever they share."""
        return self._all.count(at)


def _stay(row: NodeRow | None) -> _Stay | None:
    if row is None or row.fact is None:
        return None
    # One that was deleted and is there again was there before, and nobody knows since when.
    since = row.fact.created_at if row.gone_at is None else None
    return _Stay(since or _ALWAYS, row.left_at, frozenset(row.fact.shared_parts))
