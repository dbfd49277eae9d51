"""The prefilter on raw bytes, before anything is decoded: it drops 99.9 % of a cluster's records.

One RE2 pattern runs over a whole batch, because a call costs more than matching a kilobyte. A record is kept when a family's hint
matches, or when it is visibly broken and so a dead letter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import re2

from streams.ingest import compression

_JSON_ENDS = b"}] \t\r\n"
_WORTH_A_LOOK = compression.BEGINNINGS | {b"{"}
_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_OPTIONS.never_capture = True
_OPTIONS.log_errors = True
_OPTIONS.max_mem = 64 * 1024 * 1024
"""Enough for the automaton of a thousand hints. One that outgrows its memory is discarded and rebuilt over and over, and matching
falls back to something fifty times slower. Only what is used is allocated: a few megabytes."""
_ANYWHERE = re2._Anchor.UNANCHORED
_MAX_NAMES = 20_000
_MAX_NAME = 256


class Prefilter:
    """Matches the families' hints: RE2 patterns over bytes, none of which matches a line feed."""

    def __init__(self, hints: Iterable[bytes]) -> None:
        wanted = _compiled(b"|".join(b"(?:%b)" % hint for hint in dict.fromkeys(hints)))
        self._match = wanted._regexp.Match  # the wrapper around it costs as much as the matching
        self.instructions: int = wanted._regexp.ProgramSize()
        """Length of RE2's program: each state of the automaton is built from all of it, and counted repeats are written out."""

    def wants(self, value: bytes) -> bool:
        """True when one of the hints matches."""
        return bool(self._match(_ANYWHERE, value, 0, len(value))[0][0] >= 0)

    def keeps(self, value: bytes) -> bool:
        """True when the value must be read: a hint matches, it is broken, or it is compressed."""
        return self.wants(value) or broken_json(value) or compression.is_packed(value)

    def select(self, values: Sequence[bytes]) -> list[int]:
        """Indexes of the values that must be read, in order."""
        kept = {
            index
            for index, value in enumerate(values)
            if (first := value[:1]) in _WORTH_A_LOOK
            and (value[-1] not in _JSON_ENDS if first == b"{" else compression.is_packed(value))
        }
        joined = b"\n".join(values)
        ends = list(accumulate(map((1).__add__, map(len, values))))
        position, length = 0, len(joined)
        while position < length:
            found: int = self._match(_ANYWHERE, joined, position, length)[0][0]
            if found < 0:
                break
            index = bisect_right(ends, found)
            kept.add(index)
            position = ends[index]
        return sorted(kept)


@cache
def _compiled(pattern: bytes) -> Any:
    """The compiled pattern. Cached, so that all users share the automaton it builds."""
    return re2.compile(pattern, _OPTIONS)


class RuleInterest:
    """Which parts of a batched record to open: those the prefilter would keep, and samples of metrics that a rule reads.

    Hints for samples are matched against the metric's name alone.
    """

    def __init__(self, prefilter: Prefilter, metric_hints: Iterable[bytes]) -> None:
        self._prefilter = prefilter
        self._metrics = Prefilter(metric_hints)
        self._known: dict[str, bool] = {}

    def metric(self, name: str) -> bool:
        """True when a rule reads the metric."""
        wanted = self._known.get(name)
        if wanted is None:
            wanted = self._metrics.wants(name.encode("utf-8", "replace"))
            if len(self._known) < _MAX_NAMES and len(name) < _MAX_NAME:
                self._known[name] = wanted
        return wanted

    def parts(self, parts: Sequence[bytes]) -> Sequence[int]:
        """Indexes of the parts to open, in order."""
        return self._prefilter.select(parts)


def broken_json(value: bytes) -> bool:
    """True for a JSON object without its end: a shipper's buffer was cut."""
    return value[:1] == b"{" and value[-1] not in _JSON_ENDS
