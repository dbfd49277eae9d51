"""Hardware errors that a program met, and the metrics of its node that say the same of one GPU at that time.

Each alone opens nothing: a program may print what it likes and does not know its GPU, and DCGM's gauge holds a code long after.
Together they are two witnesses of one error, where the kernel's log, which would say it all, is not shipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from streams.correlate.policy.families import families, is_gauge
from streams.correlate.sightings import Sighting
from streams.model.clock import from_millis
from streams.model.kinds import SignalKind
from streams.model.signal import SINCE

_CLOCKS = timedelta(minutes=2)
"""How far the clock of a pod's line and that of a metric's sample may be apart, with the time between two readings of the GPU."""
_FOLLOWS = timedelta(minutes=20)
"""How long after the error a state that follows from it is first read: exporters are scraped up to a quarter of an hour apart."""


def confirming(seen: Iterable[Sighting], errors: Sequence[Sighting]) -> frozenset[str]:
    """The ids of what a node's metrics say that confirms an error of a program there, and names its GPU. `seen` is of GPUs.

    A code that DCGM's gauge changed to at that time says most; only where there is none what follows from an error counts.
    Where the device's own fault of that family is told as well, it needs no confirmation.
    """
    found: set[str] = set()
    seen = [s for s in seen if s.firing]
    for error in errors:
        same = [s for s in seen if families().family_of(s) == families().family_of(error)]
        if any(_is_told(s) and abs(s.at - error.at) <= _CLOCKS + _FOLLOWS for s in same):
            continue
        same = [s for s in same if s.entity.gpu is not None and SINCE in s.attributes]
        codes = {s.id for s in same if _is_code(s) and _spans(s, error, timedelta())}
        found |= codes or {s.id for s in same if _follows(s) and _spans(s, error, _FOLLOWS)}
    return frozenset(found)


def _is_told(s: Sighting) -> bool:
    """Whether it is a fault of a device by itself: a line of the kernel, a count that grew."""
    return families().role(s) == "cause" and not is_gauge(s)


def _is_code(s: Sighting) -> bool:
    return s.kind == SignalKind.GPU_XID and is_gauge(s)


def _follows(s: Sighting) -> bool:
    rule = families().rule(s)
    return rule is not None and rule.confirms


def _spans(s: Sighting, error: Sighting, follows: timedelta) -> bool:
    """Whether what a metric says came to be when the program met its error: between two readings, or soon after it."""
    since = from_millis(s.number(SINCE) or 0)
    return min(since, s.at) - _CLOCKS - follows <= error.at <= s.at + _CLOCKS
