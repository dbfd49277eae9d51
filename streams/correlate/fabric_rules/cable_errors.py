"""Cables between switches that work with errors: which of them does worse than the fabric's cables do anyway.

Fabric managers, switches and diagnostics warn of some cable all day: a threshold of symbol errors, one bad interval, one run.
On a large fabric that is several an hour, each time of another cable, and no job is harmed. One that goes on stands out, unless
others do just as badly: then the threshold is low, or what they have in common is at fault, and no cable by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from streams.correlate.fabric_rules.links import LinkFault
from streams.correlate.fabric_rules.nic_timeline import LinkEvent
from streams.correlate.hypothesis import ERROR_COUNTERS, Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import parts

_SAME_REPORT = timedelta(seconds=30)
"""A switch and its manager report one interval within this."""
_REPORTS = 3
"""So many reports of one cable in a row are no chance."""
_BEYOND = 3
"""It stands out by so many times as much as the others."""
_AS_BAD = 0.1
"""This share of the others may do about as badly, one at least: two cables may fail in one hour."""


@dataclass(frozen=True, slots=True)
class CableErrors:
    """The errors of one cable: reports of a log, each a moment, and stretches of what says when it is over."""

    cable: str
    reports: tuple[LinkEvent, ...]
    stretches: tuple[LinkEvent, ...]

    @classmethod
    def of(cls, cable: str, faults: Iterable[LinkFault]) -> CableErrors | None:
        """Those of all its faults; None where there are none."""
        events = sorted((m for f in faults for m in f.events if m.part == "errors"), key=lambda m: m.at)
        logged = [m for m in events if parts().is_endless(m.sighting)]
        reports = logged[:1] + [m for before, m in pairwise(logged) if m.at - before.at > _SAME_REPORT]
        stretches = tuple(m for m in events if not parts().is_endless(m.sighting))
        return cls(cable, tuple(reports), stretches) if events else None

    def within(self, since: datetime, until: datetime) -> int:
        """How many reports there are after `since`, up to `until`."""
        return sum(since < m.at <= until for m in self.reports)

    def rate(self, counter: str, at: datetime) -> float:
        """The rate of a counter at that moment, per minute, as it was first reported; 0 where it does not count errors then."""
        now = (
            m for m in self.stretches
            if _counter(m) == counter and m.start <= at and (m.end is None or m.end >= at)
        )  # fmt: skip
        return max(map(_rate, now), default=0)


def weighed(fault: LinkFault, h: Hypothesis, others: Sequence[CableErrors], config: Config) -> Hypothesis:
    """The fault of a cable; where it only makes errors, an incident by itself as soon as it goes on for long and stands out.

    `others` are the errors of the fabric's other cables.
    """
    if h.facts.get("link") != ERROR_COUNTERS or h.alone:
        return h
    mine = CableErrors.of("", [fault])
    if mine is None:
        return h
    if (third := _persists(mine, others, config)) is not None:
        return replace(h, alone=True, ready_at=max(h.ready_at, third))
    lasting = [m for m in mine.stretches if _lasts_beyond(m, mine, others, config)]
    if not lasting:
        return h
    first = min(lasting, key=lambda m: m.start)
    until = max(first.sighting.seen_at, first.start) + config.spine_alone
    return replace(
        h, alone=True, ready_at=max(h.ready_at, first.sighting.seen_at), brief_until=until,
        was_brief=all(_is_over(m, config) for m in lasting),
    )  # fmt: skip


def _persists(mine: CableErrors, others: Sequence[CableErrors], config: Config) -> datetime | None:
    """When the report was read with which a cable stood out for the first time."""
    for number, m in enumerate(mine.reports):
        since = m.at - config.link_again
        recent = [r for r in mine.reports[: number + 1] if r.at > since]
        if len(recent) < _REPORTS or m.at - recent[0].at < config.spine_alone:
            continue
        beside = [n for other in others if (n := other.within(since, m.at))]
        if _stands_out(len(recent), beside):
            return m.sighting.seen_at
    return None


def _lasts_beyond(m: LinkEvent, mine: CableErrors, others: Sequence[CableErrors], config: Config) -> bool:
    at = m.start + config.spine_alone
    counter = _counter(m)
    beside = [rate for other in others if (rate := other.rate(counter, at))]
    return _stands_out(mine.rate(counter, m.start), beside)


def _is_over(m: LinkEvent, config: Config) -> bool:
    return m.end is not None and m.end - m.start < config.spine_alone


def _stands_out(mine: float, beside: Sequence[float]) -> bool:
    as_bad = sum(_BEYOND * one > mine for one in beside)
    return as_bad <= max(1, _AS_BAD * len(beside))


def _rate(m: LinkEvent) -> float:
    """What a counter's row says of it (`count_per_minute` in the detector's catalog); alerts and conditions have no figure."""
    found = m.sighting.attributes.get("count_per_minute")
    return found if isinstance(found, int | float) else 1


def _counter(m: LinkEvent) -> str:
    s = m.sighting
    return s.text("counter") or s.text("subtype")
