"""Repeats become counts: the first report is told at once, what repeats it within the window is told as one with a count.

All decisions follow the records' own times and order, never the reader's clock, so that a partition gives the same first
reports and the same changes whoever reads it, in whatever batches, however often. Only how the repeats in between are cut
into counts depends on when `due` is asked; in sum the counts are always those of the lines.

A window that was read again after a crash may have told some of its counts before: it tells them again rather than not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from streams.detect.noise import DedupRule, dedup_rule
from streams.detect.report import Report
from streams.detect.rule_state import Scalar
from streams.model.clock import from_millis, to_millis
from streams.model.signal import Attribute, Signal, SignalState

_Part = Scalar | tuple[str, ...] | tuple[int, ...]
Key = tuple[_Part, ...]

MAX_WINDOWS = 20_000
"""Different reports that may be under way at once in one partition; the oldest gives way, after telling its count."""

COLLAPSED = "collapsed"
"""The attribute of a count that stands for different reports of one kind from one place: there were too many to tell apart."""

_COLLAPSED: Key = (COLLAPSED,)


@dataclass(slots=True)
class Window:
    """What is known of one report since it was last told.

    `start_ms` is the time of the record it was told for, `clock_ms` the partition's latest time then. `seen` repeats have come
    since, `told` of them are in counts already; `last` is the newest of the rest, `first_ms` the time of the oldest.
    """

    start_ms: int
    clock_ms: int
    change: int
    seen: int = 0
    told: int = 0
    first_ms: int = 0
    last: Report | Signal | None = None
    since_s: float | None = None

    @property
    def pending(self) -> int:
        """Repeats that were not told yet."""
        return self.seen - self.told

    def newest(self) -> Signal | None:
        """The newest repeat that was not told yet; None when there is none."""
        return self.last.signal() if isinstance(self.last, Report) else self.last

    def tell(self) -> Signal:
        """The repeats that were not told yet, as the newest of them with their count."""
        newest = self.newest()
        assert newest is not None, "told only while something is pending"
        rolled = newest.rolled_up(self.pending, from_millis(self.first_ms))
        self.told, self.last, self.since_s = self.seen, None, None
        return rolled


@dataclass(slots=True)
class LastReport:
    """The state last told of something, and the number of the change that brought it."""

    state: SignalState
    change: int


Crowd = OrderedDict[Key, Window]
"""The windows of one kind and one place, those told longest ago first."""


@dataclass(slots=True)
class RollUp:
    """The roll-up of one source partition."""

    crowds: OrderedDict[Key, Crowd] = field(default_factory=OrderedDict)
    conditions: OrderedDict[Key, LastReport] = field(default_factory=OrderedDict)
    clock_ms: int = 0
    changes: int = 0
    _size: int = 0
    _pending: dict[tuple[Key, Key], Window] = field(default_factory=dict)

    def take(self, report: Report) -> list[Signal]:
        """What is to be told now that this report has come; nothing for a mere repeat."""
        finding, entity = report.finding, report.entity
        rule = dedup_rule(finding.kind)
        at_ms = to_millis(report.record.timestamp)
        self.clock_ms = max(self.clock_ms, at_ms)
        attributes = finding.attributes
        place: Key = (finding.kind, entity.cluster, entity.switch or entity.node or entity.key)
        crowd = self.crowds.get(place)
        if crowd is None:
            crowd = self.crowds[place] = OrderedDict()
        named = entity.key
        matter: Key = (*place[:2], named, *_values(attributes, rule.condition))
        condition = self.conditions.get(matter)
        changed = condition is not None and condition.state is not finding.state
        key: Key = (named, finding.state, finding.severity, *_values(attributes, rule.distinct_by))
        window = crowd.get(key)
        if window is None and not changed:
            told = self._make_room(place, crowd, rule)
            if len(crowd) >= rule.variants:
                return told + self._repeat(place, crowd, _COLLAPSED, report, at_ms, rule)
        else:
            told = []
        if changed or condition is None:
            self.changes += 1
            condition = self.conditions[matter] = LastReport(finding.state, self.changes)
            if len(self.conditions) > MAX_WINDOWS:
                self.conditions.popitem(last=False)
        if window is not None and window.change != condition.change:
            told += self._end(place, crowd, key)
        told += self._repeat(place, crowd, key, report, at_ms, rule, condition.change)
        if told:
            self.conditions.move_to_end(matter)
        return told

    def due(self, clock_ms: int, now_s: float) -> list[Signal]:
        """Counts that no further report has taken along for two windows, by the records' time or by the reader's own.

        Args:
            clock_ms: The latest time of any record of the partition.
            now_s: Seconds on a clock that never goes back, for a partition in which nothing more comes.
        """
        told: list[Signal] = []
        for (place, key), window in list(self._pending.items()):
            rule = dedup_rule(str(place[0]))
            if window.since_s is None:
                window.since_s = now_s
            if (
                clock_ms - window.clock_ms >= 2 * rule.window_ms
                or now_s - window.since_s >= 2 * rule.window_s
            ):
                del self._pending[place, key]
                told.append(_marked(window.tell(), key))
        self._forget()
        return told

    @property
    def waiting(self) -> bool:
        """True while there are repeats that were not told yet."""
        return bool(self._pending)

    def windows(self) -> Iterator[tuple[Key, Key, Window]]:
        """Every window that still matters, with its place and its key."""
        for place, crowd in self.crowds.items():
            over = 2 * dedup_rule(str(place[0])).window_ms
            for key, window in crowd.items():
                if window.pending or self.clock_ms - window.clock_ms < over:
                    yield place, key, window

    def put(self, place: Key, key: Key, window: Window) -> None:
        """Take up a window that was written down."""
        self.crowds.setdefault(place, OrderedDict())[key] = window
        self._size += 1
        if window.pending:
            self._pending[place, key] = window

    def _repeat(
        self,
        place: Key,
        crowd: Crowd,
        key: Key,
        report: Report,
        at_ms: int,
        rule: DedupRule,
        change: int = 0,
    ) -> list[Signal]:
        """Count the report in its window, or tell it and begin the window anew."""
        window = crowd.get(key)
        width = rule.window_ms
        if window is None:
            told = self._open(place, crowd, key, Window(at_ms, self.clock_ms, change))
            return [*told, _marked(report.signal(), key)]
        apart = max(abs(at_ms - window.start_ms), self.clock_ms - window.clock_ms)
        if apart >= 2 * width:
            told = self._end(place, crowd, key)
            told += self._open(place, crowd, key, Window(at_ms, self.clock_ms, change))
            return [*told, _marked(report.signal(), key)]
        first = window.seen == 0
        window.seen += 1
        if window.pending == 1:
            window.first_ms = to_millis(report.occurred_at)
        window.last = report
        if abs(at_ms - window.start_ms) < width:
            if window.pending == 1:
                self._pending[place, key] = window
            return []
        # Once more after the window, and again within the next: the second of a slow series, or a series that goes on.
        self._pending.pop((place, key), None)
        signal = report.signal() if first else window.tell()
        crowd[key] = Window(at_ms, self.clock_ms, change)
        crowd.move_to_end(key)
        self.crowds.move_to_end(place)
        return [_marked(signal, key)]

    def _open(self, place: Key, crowd: Crowd, key: Key, window: Window) -> list[Signal]:
        """Begin a window where there is none; the oldest ones give way when there are too many."""
        crowd[key] = window
        self.crowds.move_to_end(place)
        self._size += 1
        told: list[Signal] = []
        while self._size > MAX_WINDOWS:
            oldest = next(iter(self.crowds))
            told += self._end(oldest, self.crowds[oldest], next(iter(self.crowds[oldest])))
            if not self.crowds[oldest]:
                del self.crowds[oldest]
        return told

    def _end(self, place: Key, crowd: Crowd, key: Key) -> list[Signal]:
        """Forget a window, and tell what it still has to tell."""
        window = crowd.pop(key)
        self._size -= 1
        self._pending.pop((place, key), None)
        return [_marked(window.tell(), key)] if window.pending else []

    def _make_room(self, place: Key, crowd: Crowd, rule: DedupRule) -> list[Signal]:
        """Forget what is over in a crowd that is full."""
        told: list[Signal] = []
        if len(crowd) >= rule.variants:
            over = self.clock_ms - 2 * rule.window_ms
            for key in [key for key, window in crowd.items() if window.clock_ms <= over]:
                told += self._end(place, crowd, key)
        return told

    def _forget(self) -> None:
        """Forget the crowds in which nothing happens any more; a report after so long is told at once anyway."""
        while self.crowds:
            place, crowd = next(iter(self.crowds.items()))
            over = self.clock_ms - 2 * dedup_rule(str(place[0])).window_ms
            if any(window.pending or window.clock_ms > over for window in crowd.values()):
                return
            self._size -= len(crowd)
            del self.crowds[place]


def _values(attributes: Mapping[str, Attribute], names: tuple[str, ...]) -> Key:
    return tuple([attributes.get(name) for name in names])


def _marked(signal: Signal, key: Key) -> Signal:
    """The signal; one that stands for different reports says so."""
    if key != _COLLAPSED:
        return signal
    return replace(signal, attributes={**signal.attributes, COLLAPSED: True})
