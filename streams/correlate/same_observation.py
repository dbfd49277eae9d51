"""One observation that was read several times: shipped by two pipelines, seen by several partitions' rules, told by many pods.

Two pipelines ship one line with other names and clocks: the host with its domain and without, microseconds and whole seconds.
A metric's samples are spread over the partitions of a topic without keys, and rules see each partition by itself: an increase is
known by its series and the value reached, a state by its series and since when it lasts. What is kept does not depend on the
order in which the copies come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.sightings import EACH_MINUTE, Sighting, added
from streams.model.clock import to_millis
from streams.model.signal import REACHED, SERIES, SINCE

_CLOCKS_APART = timedelta(seconds=2)
"""Two readers of one line date it this far apart: one may know whole seconds only, and syslog dates it when it is written."""
_ARRIVALS_APART = timedelta(seconds=15)
"""The same where one of them has no clock but the time of its arrival."""


def added_once(kept: tuple[Sighting, ...], new: Sighting) -> tuple[Sighting, ...]:
    """`kept` with `new` in it (`sightings.added`), and each observation once. The same tuple when nothing changed.

    The best dated copy stays, with the time at which the first of them was seen.
    """
    if not kept:
        return (new,)
    is_same = _is_same_step if REACHED in new.attributes else _is_same_line
    if EACH_MINUTE in new.attributes:
        is_same = _is_same_minute
    copies = [known for known in kept if is_same(known, new)]
    if not copies or any(known.id == new.id for known in kept):
        return added(kept, new)
    best = min(*copies, new, key=_preference)
    first_seen = min(new.seen_at, *(copy.seen_at for copy in copies))
    if first_seen < best.seen_at:
        best = replace(best, seen_at=first_seen)
    if best in kept:
        return kept
    dropped = {best.id} if best.id != new.id else {copy.id for copy in copies}
    return added(tuple(s for s in kept if s.id not in dropped), best)


def without_echoes(stream: Iterable[Sighting]) -> Iterator[Sighting]:
    """The sightings of one place in order, without those by which other partitions report a state that is known already.

    A state that began before its series was seen to be well again is an echo, too: that partition sees less of the series.
    """
    lasting: set[str] = set()
    over: dict[str, datetime] = {}
    for s in stream:
        if SERIES not in s.attributes or REACHED in s.attributes:
            yield s
            continue
        series = f"{s.entity.key}|{s.text(SERIES)}"
        if not s.firing:
            lasting.discard(series)
            over[series] = s.at
            yield s
        elif series not in lasting and not (series in over and _began_before(s, over[series])):
            lasting.add(series)
            yield s


def _is_same_line(one: Sighting, other: Sighting) -> bool:
    """Whether two pipelines shipped the same line."""
    apart = abs(one.at - other.at)
    if apart > _ARRIVALS_APART or not one.evidence or not other.evidence or one.firing is not other.firing:
        return False
    if apart > _CLOCKS_APART and _clock(one) != _ARRIVAL and _clock(other) != _ARRIVAL:
        return False
    return (
        one.attributes == other.attributes
        and _came_otherwise(one, other)
        and one.entity.key == other.entity.key
    )


def _is_same_step(one: Sighting, other: Sighting) -> bool:
    """Whether two partitions saw the same step of a counter.

    A value is reached once, unless the counter was set back; whoever saw it begin again knows since when.
    """
    earlier, later = sorted((one, other), key=lambda s: s.at)
    return (
        one.attributes.get(REACHED) == other.attributes.get(REACHED)
        and one.text(SERIES) == other.text(SERIES)
        and (earlier.at == later.at or _began_before(later, earlier.at))
        and one.entity.key == other.entity.key
    )


def _is_same_minute(one: Sighting, other: Sighting) -> bool:
    """Whether both are of the same minute: a dozen retries within it would leave no room for whether it goes on."""
    if one.attributes.get(EACH_MINUTE) != other.attributes[EACH_MINUTE]:
        return False  # a line of the node's own, or another job's retry
    return to_millis(one.at) // 60_000 == to_millis(other.at) // 60_000


def _began_before(s: Sighting, at: datetime) -> bool:
    since = s.number(SINCE)
    return since is not None and since < to_millis(at)


_FINE, _WHOLE_SECONDS, _ARRIVAL = range(3)


def _clock(s: Sighting) -> int:
    """How well a line is dated, the best first."""
    if s.at == s.seen_at:
        return _ARRIVAL
    return _FINE if s.at.microsecond else _WHOLE_SECONDS


def _called(s: Sighting) -> str:
    return s.said or s.entity.node or ""


def _came_otherwise(one: Sighting, other: Sighting) -> bool:
    """Whether two copies came by different pipelines: one pipeline has one clock, one name for a host and one shape of a line.

    So a line that is really printed twice is still two.
    """
    if (_clock(one), _called(one)) != (_clock(other), _called(other)):
        return True
    first, second = one.evidence[0], other.evidence[0]
    if first.topic != second.topic:
        return True
    short, long = sorted((first.text, second.text), key=len)
    return len(short) < len(long) and long.endswith(short)


def _preference(s: Sighting) -> tuple[int, bool, str, str, int, datetime, str]:
    """Which copy stays: the better clock, the inventory's own name; of a counter's step, or of a minute, the earliest."""
    if REACHED in s.attributes or EACH_MINUTE in s.attributes:
        return (0, False, "", "", 0, s.at, s.id)
    evidence = s.evidence[0]
    return (_clock(s), s.said is not None, _called(s), evidence.topic, len(evidence.text), s.at, s.id)
