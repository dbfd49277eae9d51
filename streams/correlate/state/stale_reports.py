"""Counts reports that were old when Kafka got them, by source, so that none is dropped silently.

A shipper that lost its place reads a whole log again; a host with a wrong clock or time zone reports everything late. Each
source gets one timeline entry every few minutes with the numbers since, however many lines there were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.sightings import PAST
from streams.model.clock import FUTURE, rfc3339
from streams.model.conversation import TimelineEntry
from streams.model.signal import Attribute, Signal

EVENT = "reports.late"

EVERY = timedelta(minutes=5)
"""The least time between two entries about one source."""

MAX_SOURCES = 64
"""Sources that are counted separately; the rest is counted together. Their names come from logs, so their number has no bound."""

REST = ("", "further sources")

_EARLIEST = -FUTURE

ZONE_STEP = timedelta(minutes=30)
ZONE_SLACK = timedelta(seconds=60)

Source = tuple[str, str]
"""The raw topic, and the place that the reports are about."""


@dataclass(slots=True)
class _Tally:
    """What came from one source since the last entry about it."""

    since: datetime
    oldest: datetime
    least: timedelta
    most: timedelta
    count: int = 0
    left_out: int = 0
    ahead: int = 0


class StaleReports:
    """The tallies of one cluster. They are not stored: a restart counts from zero."""

    def __init__(self, cluster: str, late: timedelta) -> None:
        self._cluster = cluster
        self._late = late
        self._tallies: dict[Source, _Tally] = {}
        self._last_entry: dict[Source, datetime] = {}

    def count_report(self, signal: Signal) -> None:
        """Count a report, if its time is far from when Kafka got it."""
        lag = signal.observed_at - signal.occurred_at
        if _EARLIEST <= lag <= self._late:
            return
        source = _source(signal)
        if source not in self._tallies and len(self._tallies) >= MAX_SOURCES:
            source = REST
        tally = self._tallies.get(source)
        if tally is None:
            tally = self._tallies[source] = _Tally(signal.observed_at, signal.occurred_at, lag, lag)
        # The detector folds what is repeated within a second into one signal.
        many = signal.attributes.get("count", 1)
        many = many if isinstance(many, int) and many > 0 else 1
        tally.count += many
        tally.left_out += many * (lag > PAST)
        tally.ahead += many * (lag < timedelta())
        tally.oldest = min(tally.oldest, signal.occurred_at)
        tally.least, tally.most = min(tally.least, lag), max(tally.most, lag)

    def entries(self, now: datetime) -> tuple[TimelineEntry, ...]:
        """An entry for each source that is due."""
        if not self._tallies:
            return ()
        self._last_entry = {source: at for source, at in self._last_entry.items() if now - at < EVERY}
        due = [source for source in sorted(self._tallies) if source not in self._last_entry]
        self._last_entry |= dict.fromkeys(due, now)
        return tuple(self._entry(source, self._tallies.pop(source), now) for source in due)

    def _entry(self, source: Source, tally: _Tally, now: datetime) -> TimelineEntry:
        topic, place = source
        text = f"{f'{topic} of {place}' if topic else place}: {'; '.join(_parts(tally, self._late))}"
        numbers: dict[str, Attribute] = {
            "topic": topic,
            "place": place,
            "reports": tally.count,
            "left_out": tally.left_out,
            "ahead": tally.ahead,
            "oldest": rfc3339(tally.oldest),
        }
        return TimelineEntry("", self._cluster, now, "correlator", EVENT, text, numbers)


def _source(signal: Signal) -> Source:
    entity = signal.entity
    place = entity.node or entity.switch or (entity.pod.key if entity.pod else "") or "the cluster"
    return (signal.evidence[0].topic if signal.evidence else "signals", place)


def _parts(tally: _Tally, late: timedelta) -> Iterable[str]:
    """The parts of an entry: how many reports, how old, what was done with them, and the likely reason."""
    if behind := tally.count - tally.ahead:
        minutes = late.total_seconds() / 60
        yield (
            f"{behind} reports were older than {minutes:.0f} min when Kafka got them, the oldest of {rfc3339(tally.oldest)}"
        )
    if tally.left_out:
        hours = PAST.total_seconds() / 3600
        yield f"{tally.left_out} of them were older than {hours:.0f} h and are left out: no incident is made of them"
    if tally.ahead:
        yield f"{tally.ahead} reports claimed to be of the future and are taken as of when Kafka got them"
    yield _suspected(tally)


def _suspected(tally: _Tally) -> str:
    steps = round(tally.most / ZONE_STEP)
    off = [abs(lag - steps * ZONE_STEP) for lag in (tally.least, tally.most)]
    if steps and tally.count > 1 and max(off) <= ZONE_SLACK:
        return f"all are off by {steps * ZONE_STEP.total_seconds() / 3600:+g} h: the time zone in its logs is probably wrong"
    if tally.ahead == tally.count:
        return "its clock or its time zone is off"
    return "its shipper reads an old log again or is far behind, or its clock is slow"
