"""Rates that Prometheus' recording rules made of counters: `node_device:roce_adp_retrans:rate5m`.

Prometheus' practices name such a series `level:metric:operations`: what it is aggregated to, the counter without its `_total`,
and what was done to it, the newest first. A series whose operations hold a rate or an increase is the counter's own increase over
a time. A ratio, a quantile or a gauge says something else, and none of them is read as a counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from streams.detect.matching import re2_patterns

_OPERATIONS = re2_patterns.compile(
    r"^(?:(?:sum|max|min|avg)_)*(?P<operation>i?rate|increase)_?(?P<window>\d{1,4}[smhd])?(?:_(?:sum|max|min|avg))*$"
)
_AGGREGATED = re2_patterns.compile(r"^(?:sum|max|min|avg)(?:_(?:sum|max|min|avg))*$")
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_USUAL_MS = 300_000
"""The window of a rate whose name does not tell it."""
_MAX_LENGTH = 300


@dataclass(frozen=True, slots=True)
class RecordedRate:
    """The counter a series was made of, the factor from its value to an increase a second, and the time it is taken over (ms)."""

    metric: str
    per_second: float
    over_ms: int


@lru_cache(4_096)
def recorded_rate(name: str) -> RecordedRate | None:
    """What a series of this name was made of; None where the name tells of no rate of a counter."""
    if ":" not in name or len(name) > _MAX_LENGTH:
        return None
    parts = name.split(":")
    operations = [part.lower() for part in parts]
    # Some write each operation as a part of its own: `instance:ifInErrors:rate5m:sum`.
    while len(operations) > 2 and _AGGREGATED.search(operations[-1]) is not None:
        operations.pop()
    match = _OPERATIONS.search(operations[-1])
    metric = parts[len(operations) - 2]
    if match is None or not metric:
        return None
    window = match["window"]
    over_ms = int(window[:-1]) * _UNITS_MS[window[-1]] if window else 0
    if match["operation"] == "increase":
        # Without its time an increase is no rate.
        return RecordedRate(metric, 1_000 / over_ms, over_ms) if over_ms else None
    return RecordedRate(metric, 1.0, over_ms or _USUAL_MS)
