"""What a replay saw until a time: signals, pods, revisions of incidents, people's commands; and what came soon after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from faultline.replay.capture import Capture
from faultline.replay.pipeline import Happened
from faultline.replay.recorded_inputs import CommandNews, FactNews, decoded
from faultline.replay.replay import replay_capture
from faultline.replay.replayed import Replayed, Standing
from faultline.replay.topic_records import in_time_order
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.correlate import Config
from streams.kafka.topics import RUNS
from streams.model.conversation import Command, TimelineEntry
from streams.model.facts import PodFact
from streams.model.incident import Incident
from streams.model.record import RawRecord
from streams.model.run import Run
from streams.model.signal import Signal

AFTER = timedelta(minutes=15)
"""How far past the time asked about is looked: a decision may have come a little later."""


@dataclass(slots=True)
class Observed:
    """Everything until `at`, and the incidents that opened within `AFTER` of it."""

    at: datetime
    replayed: Replayed
    standing: Standing
    reviews: ReviewLog
    signals: list[Signal] = field(default_factory=list)
    pods: dict[str, PodFact] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    entries: list[TimelineEntry] = field(default_factory=list)
    later: list[Incident] = field(default_factory=list)
    recorded: list[Run] = field(default_factory=list)
    """Runs as production had them by then, where the source holds any; oldest first."""

    def runs_of(self, incident: str) -> list[Run]:
        """What was done about an incident: by production where that is recorded, else what the replay would have done."""
        mine = [run for run in self.recorded if run.incident == incident]
        return mine or [run for run in self.replayed.runs if run.incident == incident]


class _Watch:
    """Collects what happens in a replay."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []
        self.pods: dict[str, PodFact] = {}
        self.commands: list[Command] = []
        self.entries: list[TimelineEntry] = []

    def passes(self, now: datetime) -> None:
        """Time alone is of no interest."""

    def sees(self, happened: Happened) -> None:
        """Keep what came in."""
        for one in happened.came:
            match one:
                case Signal():
                    self.signals.append(one)
                case FactNews(_, _, PodFact() as pod):
                    self.pods[pod.key] = pod
                case CommandNews(_, command):
                    self.commands.append(command)
        self.entries += happened.entries


def observed(
    capture: Capture,
    at: datetime,
    *,
    responder: ResponderSettings,
    config: Config,
    runbooks: Sequence[Runbook] | None = None,
) -> Observed:
    """Replay a capture until a time, and once more a little further, for what came soon after.

    Raises:
        BadInput: when the capture is invalid.
    """
    watch, reviews = _Watch(), ReviewLog()
    decided = replay_capture(
        capture,
        responder=responder,
        config=config,
        runbooks=runbooks,
        until=at,
        watcher=watch,
        reviews=reviews,
    )
    assert decided.standing is not None
    pods = {
        **{pod.key: pod for pod in decided.standing.responder.view(capture.meta.cluster).pods.values()},
        **watch.pods,
    }
    found = Observed(
        at, decided, decided.standing, reviews, watch.signals, pods, watch.commands, watch.entries
    )
    found.recorded = _recorded(capture, at)
    if at < capture.meta.end:
        further = replay_capture(
            capture, responder=responder, config=config, runbooks=runbooks, until=at + AFTER
        )
        known = decided.incidents.keys()
        found.later = [one for name, one in sorted(further.incidents.items()) if name not in known]
    return found


def _recorded(capture: Capture, at: datetime) -> list[Run]:
    """The last document of each run until a time."""
    latest: dict[bytes, RawRecord] = {}
    for records in (capture.state.get(RUNS.name, ()), capture.records.get(RUNS.name, ())):
        for record in in_time_order(records):
            if record.key is not None and record.timestamp <= at:
                latest[record.key] = record
    found = [run for one in latest.values() if (run := decoded(capture, Run, one)) is not None]
    return sorted(found, key=lambda run: (run.created_at, run.id))
