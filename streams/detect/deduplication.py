"""Deduplication: the first report is sent at once, its repeats within the window as one signal with a count.

Decisions follow the records' own times and order, never the reader's clock, so a partition gives the same first reports and
changes whoever reads it, in whatever batches, however often. Only how the repeats are split into counts depends on when `due`
is called; their sum is always the number of lines.

A window replayed after a crash may have sent some of its counts before. It sends them again rather than losing them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from streams.detect.noise import DedupRule, dedup_rule
from streams.detect.report import Report
from streams.detect.rule_state import Scalar
from streams.model.clock import from_millis, to_millis
from streams.model.kinds import SignalKind
from streams.model.signal import BY_SUBJECT, Attribute, Signal, SignalState

_Part = Scalar | tuple[str, ...] | tuple[int, ...]
Key = tuple[_Part, ...]

MAX_WINDOWS = 20_000
"""Open windows of one partition at once; beyond it the oldest is closed, and its count sent."""

COLLAPSED = "collapsed"
"""Set on a count of different reports of one kind and place, of which there were too many to keep apart."""

_COLLAPSED: Key = (COLLAPSED,)


@dataclass(slots=True)
class Window:
    """The repeats of one report since it was last sent.

    `start_ms` is the time of the record that was sent, `clock_ms` the partition's latest time then. `seen` repeats have come
    since, `sent` of them in counts; `last` is the newest of the others, `first_ms` the time of the oldest.
    """

    start_ms: int
    clock_ms: int
    change: int
    seen: int = 0
    sent: int = 0
    first_ms: int = 0
    last: Report | Signal | None = None
    since_s: float | None = None

    @property
    def pending(self) -> int:
        """Repeats not sent yet."""
        return self.seen - self.sent

    def newest(self) -> Signal | None:
        """The newest repeat not sent yet; None when there is none."""
        return self.last.signal() if isinstance(self.last, Report) else self.last

    def flush(self) -> Signal:
        """The pending repeats as one signal: the newest with their count. Only to be called while some are pending."""
        newest = self.newest()
        assert newest is not None, "flushed only while something is pending"
        rolled = newest.rolled_up(self.pending, from_millis(self.first_ms))
        self.sent, self.last, self.since_s = self.seen, None, None
        return rolled


@dataclass(slots=True)
class LastReport:
    """The state last sent of a condition, and the number of the change that led to it."""

    state: SignalState
    change: int


Windows = dict[Key, Window]
"""The windows of one kind and place, those sent longest ago first. Most places have one, and there are many places."""


@dataclass(slots=True)
class RollUp:
    """Deduplicates the reports of one source partition."""

    places: OrderedDict[Key, Windows] = field(default_factory=OrderedDict)
    conditions: OrderedDict[Key, LastReport] = field(default_factory=OrderedDict)
    clock_ms: int = 0
    changes: int = 0
    _size: int = 0
    _pending: dict[tuple[Key, Key], Window] = field(default_factory=dict)

    def take(self, report: Report) -> list[Signal]:
        """The signals to send now that this report has come; none for a mere repeat."""
        finding, entity = report.finding, report.entity
        # What only its subject names has windows of its own: it must not fill those of the signals that rows know.
        by_subject = BY_SUBJECT in finding.attributes
        kind = SignalKind.UNKNOWN if by_subject else finding.kind
        rule = dedup_rule(kind)
        at_ms = to_millis(report.record.timestamp)
        self.clock_ms = max(self.clock_ms, at_ms)
        attributes = finding.attributes
        place: Key = (kind, entity.cluster, entity.switch or entity.node or entity.key)
        windows = self.places.get(place)
        if windows is None:
            windows = self.places[place] = {}
        named = entity.key
        matter: Key = (*place[:2], named, *_values(attributes, rule.condition))
        condition = self.conditions.get(matter)
        changed = condition is not None and condition.state is not finding.state
        key: Key = (named, finding.state, finding.severity, *_values(attributes, rule.distinct_by))
        if by_subject:
            key = (*key, finding.kind, str(attributes.get("subtype")))
        window = windows.get(key)
        if window is None and not changed:
            signals = self._make_room(place, windows, rule)
            if len(windows) >= rule.variants:
                return signals + self._repeat(place, windows, _COLLAPSED, report, at_ms, rule)
        else:
            signals = []
        if changed or condition is None:
            self.changes += 1
            condition = self.conditions[matter] = LastReport(finding.state, self.changes)
            if len(self.conditions) > MAX_WINDOWS:
                self.conditions.popitem(last=False)
        if window is not None and window.change != condition.change:
            signals += self._end(place, windows, key)
        signals += self._repeat(place, windows, key, report, at_ms, rule, condition.change)
        if signals:
            self.conditions.move_to_end(matter)
        return signals

    def due(self, clock_ms: int, now_s: float) -> list[Signal]:
        """Counts of windows without a further report for two windows' time, by the records' clock or the reader's.

        Args:
            clock_ms: The latest time of any record of the partition.
            now_s: Monotonic seconds, for a partition that gets no more records.
        """
        signals: list[Signal] = []
        for (place, key), window in list(self._pending.items()):
            rule = dedup_rule(str(place[0]))
            if window.since_s is None:
                window.since_s = now_s
            if (
                clock_ms - window.clock_ms >= 2 * rule.window_ms
                or now_s - window.since_s >= 2 * rule.window_s
            ):
                del self._pending[place, key]
                signals.append(_marked(window.flush(), key))
        self._forget()
        return signals

    @property
    def waiting(self) -> bool:
        """True while some repeats are not sent yet."""
        return bool(self._pending)

    def open_windows(self) -> Iterator[tuple[Key, Key, Window]]:
        """Every window that is still open, with its place and key."""
        for place, windows in self.places.items():
            over = 2 * dedup_rule(str(place[0])).window_ms
            for key, window in windows.items():
                if window.pending or self.clock_ms - window.clock_ms < over:
                    yield place, key, window

    def put(self, place: Key, key: Key, window: Window) -> None:
        """Restore a window from a snapshot."""
        self.places.setdefault(place, {})[key] = window
        self._size += 1
        if window.pending:
            self._pending[place, key] = window

    def _repeat(
        self,
        place: Key,
        windows: Windows,
        key: Key,
        report: Report,
        at_ms: int,
        rule: DedupRule,
        change: int = 0,
    ) -> list[Signal]:
        """Count the report in its window, or send it and start a new one."""
        window, signals = windows.get(key), []
        if window is not None:
            apart = max(abs(at_ms - window.start_ms), self.clock_ms - window.clock_ms)
            if apart >= 2 * rule.window_ms:
                window, signals = None, self._end(place, windows, key)
        if window is None:
            signals += self._open(place, windows, key, Window(at_ms, self.clock_ms, change))
            return [*signals, _marked(report.signal(), key)]
        first = window.seen == 0
        window.seen += 1
        if window.pending == 1:
            window.first_ms = to_millis(report.occurred_at)
        window.last = report
        if abs(at_ms - window.start_ms) < rule.window_ms:
            if window.pending == 1:
                self._pending[place, key] = window
            return []
        # Between one and two windows after the last signal: a slow series goes on. A first repeat is sent as itself.
        self._pending.pop((place, key), None)
        signal = report.signal() if first else window.flush()
        del windows[key]
        windows[key] = Window(at_ms, self.clock_ms, change)
        self.places.move_to_end(place)
        return [_marked(signal, key)]

    def _open(self, place: Key, windows: Windows, key: Key, window: Window) -> list[Signal]:
        """Open a window where there is none; closes the oldest when there are too many, and returns their counts."""
        windows[key] = window
        self.places.move_to_end(place)
        self._size += 1
        signals: list[Signal] = []
        while self._size > MAX_WINDOWS:
            oldest = next(iter(self.places))
            signals += self._end(oldest, self.places[oldest], next(iter(self.places[oldest])))
            if not self.places[oldest]:
                del self.places[oldest]
        return signals

    def _end(self, place: Key, windows: Windows, key: Key) -> list[Signal]:
        """Close a window; returns its pending count."""
        window = windows.pop(key)
        self._size -= 1
        self._pending.pop((place, key), None)
        return [_marked(window.flush(), key)] if window.pending else []

    def _make_room(self, place: Key, windows: Windows, rule: DedupRule) -> list[Signal]:
        """Close what has expired among the windows of a place that is full; returns their counts."""
        signals: list[Signal] = []
        if len(windows) >= rule.variants:
            over = self.clock_ms - 2 * rule.window_ms
            for key in [key for key, window in windows.items() if window.clock_ms <= over]:
                signals += self._end(place, windows, key)
        return signals

    def _forget(self) -> None:
        """Forget places without recent reports: the next one there is sent at once anyway."""
        while self.places:
            place, windows = next(iter(self.places.items()))
            over = self.clock_ms - 2 * dedup_rule(str(place[0])).window_ms
            if any(window.pending or window.clock_ms > over for window in windows.values()):
                return
            self._size -= len(windows)
            del self.places[place]


def _values(attributes: Mapping[str, Attribute], names: tuple[str, ...]) -> Key:
    return tuple([attributes.get(name) for name in names])


def _marked(signal: Signal, key: Key) -> Signal:
    """The signal, marked when it stands for different reports."""
    if key != _COLLAPSED:
        return signal
    return replace(signal, attributes={**signal.attributes, COLLAPSED: True})
