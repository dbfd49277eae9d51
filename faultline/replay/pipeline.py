"""Correlator and responder in memory, fed with what a capture holds at the time of its records, each with the other's output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from faultline.replay.detection import TICK, Clock, Found, Moment
from faultline.replay.recorded_inputs import CommandNews, ControlNews, FactNews, News, RunReports
from faultline.replay.replayed import Replayed, Standing
from faultline.replay.threads import RecordedThreads
from runbooks.engine.dry_run import ShadowResponder
from streams.correlate import Changes, Config, Engine
from streams.correlate.hypothesis import Hypothesis
from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import Signal


@dataclass(slots=True)
class Happened:
    """What one input, or a second in which time alone decided something, led to. `came` is empty for such a second."""

    at: datetime
    came: tuple[Signal | News, ...] = ()
    incidents: list[Incident] = field(default_factory=list)
    """Revisions, in order."""
    entries: list[TimelineEntry] = field(default_factory=list)
    """What correlator and responder put on the timelines."""
    runs: tuple[Run, ...] = ()
    """Those of the incidents that `entries` are about, as they stand then."""
    hypotheses: dict[str, Hypothesis] = field(default_factory=dict)
    """Explanations that were weighed, opened or not, by the id of the incident that each is or would be."""


class Watcher(Protocol):
    """Follows a replay."""

    def passes(self, now: datetime) -> None:
        """Time has come to a second of the replay, before anything is decided in it."""

    def sees(self, happened: Happened) -> None:
        """Something came in and was handled, or time alone has changed something."""


class Pipeline:
    """One replay. Give it what was found in order of time, then `finish`.

    `news` is in the order of `recorded_inputs.news_of`. `reports` says whose reports of runs count. `passed` is
    called for each second of the replay's time.
    """

    def __init__(
        self,
        clock: Clock,
        news: Sequence[News],
        responder: ShadowResponder,
        config: Config,
        *,
        reports: RunReports | None = None,
        threads: RecordedThreads | None = None,
        watcher: Watcher | None = None,
        passed: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._news = deque(news)
        self._engines: dict[str, Engine] = {}
        self._responder = responder
        self._config = config
        self._reports = reports or RunReports()
        self._threads = threads
        self._watcher = watcher
        self._passed = passed
        self._now = clock.begin
        self._result = Replayed()
        self._happened = Happened(self._now)
        self._entries_seen = 0

    def begin_with(self, state: Iterable[FactNews | ControlNews | Incident]) -> None:
        """What was known when the capture begins. No time passes, and a change by others is none."""
        for one in state:
            if isinstance(one, Incident):
                self._engine(one.cluster).remember(one)
                continue
            if isinstance(one, ControlNews):
                self._responder.take_control(one.control)
                continue
            self._responder.take_fact(one.key, one.fact)
            if self._threads is not None:
                self._threads.take_fact(one.key, one.fact)
            self._publish(self._engine(one.key.partition("/")[0]).on_fact(one.key, one.fact, one.at), one.at)

    def take(self, found: Found) -> None:
        """Signals, at their time. Counts of repeats are taken before the rest of their tick."""
        self._advance(found.due - (datetime.resolution if found.moment is Moment.TICK else timedelta()))
        self._result.signals += len(found.signals)
        self._take_signals(found.signals, found.at)
        self._tell(found.due, found.signals)

    def finish(self) -> Replayed:
        """Advance time to the end and return what was decided."""
        self._advance(self._clock.end)
        self._result.runs = self._responder.runs
        self._result.actions = self._responder.actions()
        self._result.timeline = tuple(self._responder.timeline)
        self._result.standing = Standing(self._now, self._engines, self._responder)
        return self._result

    def _advance(self, to: datetime) -> None:
        """Take the news and ticks up to `to`, in time order."""
        while self._news and self._news[0].at <= to:
            one = self._news.popleft()
            self._tick_to(one.at)
            self._take_news(one)
            self._tell(one.at, (one,))
        self._tick_to(to)

    def _take_news(self, one: News) -> None:
        match one:
            case FactNews(at, key, fact):
                self._responder.take_fact(key, fact, at)
                if self._threads is not None:
                    self._threads.take_fact(key, fact)
                self._publish(self._engine(key.partition("/")[0]).on_fact(key, fact, at), at)
            case CommandNews(at, command):
                self._take_reports(self._responder.take_command(command, at), at)
            case ControlNews(at, control):
                self._responder.take_control(control)
                self._take_reports(self._responder.tick(at), at)

    def _tick_to(self, to: datetime) -> None:
        while self._now + TICK <= to:
            self._now += TICK
            self._passed()
            if self._watcher is not None:
                self._watcher.passes(self._now)
            for name in sorted(self._engines):
                self._publish(self._engines[name].on_tick(self._now), self._now)
            self._take_reports(self._responder.tick(self._now), self._now)
            if self._threads is not None:
                self._threads.advance(self._now)
            self._tell(self._now)

    def _publish(self, changes: Changes, now: datetime) -> None:
        for entry in changes.timeline:
            (self._result.revisions if entry.incident else self._result.late).append(entry)
        if self._watcher is not None:
            self._happened.incidents += changes.incidents
            self._happened.entries += changes.timeline
        if self._threads is not None:
            self._threads.take_changes(changes)
        for incident in changes.incidents:
            self._result.incidents[incident.id] = incident
            self._result.publications[incident.id].add(incident, now)
            self._take_reports(self._responder.take_incident(incident, now), now)

    def _take_reports(self, signals: Iterable[Signal], now: datetime) -> None:
        """What the replay's responder tells the correlator, as far as it counts."""
        self._take_signals([one for one in signals if self._reports.counts_own(one)], now)

    def _take_signals(self, signals: Iterable[Signal], now: datetime) -> None:
        by_cluster: dict[str, list[Signal]] = {}
        for signal in signals:
            by_cluster.setdefault(signal.entity.cluster, []).append(signal)
        for cluster, mine in by_cluster.items():
            self._publish(self._engine(cluster).on_signals(mine, now), now)

    def _tell(self, at: datetime, came: tuple[Signal | News, ...] = ()) -> None:
        """Hand what has happened since the last call to the watcher."""
        if self._watcher is None:
            return
        entries = self._responder.timeline[self._entries_seen :]
        self._entries_seen += len(entries)
        happened, self._happened = self._happened, Happened(at)
        happened.at, happened.came = at, came
        happened.entries += entries
        about = dict.fromkeys(entry.incident for entry in entries if entry.incident)
        happened.runs = tuple(run for incident in about for run in self._responder.runs_of(incident))
        if came or happened.incidents or happened.entries:
            self._watcher.sees(happened)

    def _engine(self, cluster: str) -> Engine:
        if cluster not in self._engines:
            weighed = self._note_hypotheses if self._watcher is not None else None
            self._engines[cluster] = Engine(cluster, None, self._config, weighed=weighed)
        return self._engines[cluster]

    def _note_hypotheses(self, found: Iterable[Hypothesis]) -> None:
        self._happened.hypotheses.update((one.id, one) for one in found)
