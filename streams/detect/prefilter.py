"""The first look at bytes, before anything is decoded: 99.9 % of what a cluster says is dropped here.

One RE2 pattern is run over a whole batch at once, because a call costs more than a kilobyte of matching. A record is kept
when it holds what any family could want, or when it is visibly broken and so belongs to the dead letters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

import re2

_JSON_ENDS = b"}] \t\r\n"


class Prefilter:
    """Built from the families' hints: RE2 patterns over bytes, none of which matches a line feed."""

    def __init__(self, hints: Iterable[bytes]) -> None:
        self._wanted = re2.compile(b"|".join(b"(?:%b)" % hint for hint in dict.fromkeys(hints)))

    def wants(self, value: bytes) -> bool:
        """True when the value holds what one of the hints looks for."""
        return self._wanted.search(value) is not None

    def keeps(self, value: bytes) -> bool:
        """True when the value must be read: it is wanted, or broken."""
        return self.wants(value) or broken_json(value)

    def select(self, values: Sequence[bytes]) -> list[int]:
        """Indexes of the values that must be read, in order."""
        joined = b"\n".join(values)
        ends = list(accumulate(len(value) + 1 for value in values))
        kept = {index for index, value in enumerate(values) if value[:1] == b"{" and broken_json(value)}
        position = 0
        while position < len(joined) and (match := self._wanted.search(joined, position)) is not None:
            index = bisect_right(ends, match.start())
            kept.add(index)
            position = ends[index]
        return sorted(kept)


def broken_json(value: bytes) -> bool:
    """True for an object that was begun and not ended: a shipper's buffer was cut."""
    return value[:1] == b"{" and value[-1] not in _JSON_ENDS
