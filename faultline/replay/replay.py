"""Replays a capture: detector, inventory, correlator and responder in memory, in shadow mode, with the time of its records.

Records of all topics are taken in one order that depends on their times and coordinates only, so the same capture gives the
same decisions however its files interleave partitions. What the pipeline wrote itself (signals, incidents, runs …) is
decided again. A capture without raw records, of an archive for one, is replayed from its signals. What people and the cluster
answered is taken as it was recorded (`recorded_inputs`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from faultline.replay.bar import Bar, no_bar
from faultline.replay.capture import TOPOLOGY, Capture, read
from faultline.replay.detect_processes import DetectProcesses, detection_of
from faultline.replay.detection import TICK, Clock, Detection, Found, order
from faultline.replay.pipeline import Pipeline, Watcher
from faultline.replay.recorded_inputs import FactNews, RunReports, fact_news, news_of, state_of
from faultline.replay.recorded_signals import RecordedSignals
from faultline.replay.replayed import Publication, Replayed
from faultline.replay.threads import RecordedThreads
from faultline.replay.topic_records import (
    HeldRecords,
    StoredTopic,
    Survey,
    TopicRecords,
    from_micros,
    in_time_order,
)
from runbooks.engine.dry_run import ACTIONS, ShadowResponder
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.language.loader import load
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.correlate import Config
from streams.inventory.recorded_watch import facts
from streams.inventory.topology_file import read_topology
from streams.kafka.topics import INVENTORY, RAW, SIGNALS
from streams.model.errors import BadInput
from streams.model.garbage import collected_seldom
from streams.model.record import RawRecord

__all__ = ["AFTERMATH", "From", "Publication", "Replayed", "facts_of", "replay", "replay_capture"]

AFTERMATH = timedelta(minutes=3)
"""Time advances this far past the last record, so that decisions that wait for more evidence are made."""


class From(StrEnum):
    """What a replay decides from."""

    RAW = "raw"
    SIGNALS = "signals"


def replay(
    directory: Path,
    *,
    responder: ResponderSettings | None = None,
    config: Config | None = None,
    threads: RecordedThreads | None = None,
) -> Replayed:
    """Read a capture and replay it. `threads` records what the chat would have posted.

    Raises:
        BadInput: when the capture is invalid; names file and line.
    """
    return replay_capture(read(directory), responder=responder, config=config, threads=threads)


def replay_capture(
    capture: Capture,
    *,
    responder: ResponderSettings | None = None,
    config: Config | None = None,
    runbooks: Sequence[Runbook] | None = None,
    actions: frozenset[str] = frozenset(ACTIONS),
    threads: RecordedThreads | None = None,
    processes: int | None = None,
    source: From | None = None,
    until: datetime | None = None,
    watcher: Watcher | None = None,
    reviews: ReviewLog | None = None,
    bar: Callable[[], AbstractContextManager[Bar]] = no_bar,
) -> Replayed:
    """Replay an opened capture, or one in memory.

    Args:
        capture: What was recorded.
        responder: The responder's settings; its mode is shadow, whatever they say.
        config: The correlator's settings.
        runbooks: Those of the settings, if they are loaded already.
        actions: What the installation has connectors for.
        threads: Records what the chat would have posted.
        processes: How many detect, by default one, and all cores for big files.
        source: Raw records or signals, by default raw records where the capture has any.
        until: When to stop, by default `AFTERMATH` after the last record.
        watcher: Is told what happens.
        reviews: Keeps what every guardrail says of each step.
        bar: Shows how far it is, in seconds of its own time; by default nothing does.

    Raises:
        BadInput: naming what is invalid in the capture, or missing.
    """
    settings = responder or ResponderSettings()
    books = load(settings.runbook_dirs) if runbooks is None else runbooks
    if capture.records.get(INVENTORY.name) and capture.kube_changes:
        raise BadInput("the capture holds inventory.jsonl and kube-objects.jsonl: leave one out")
    observe = threads.take_commit if threads else None
    shadow = ShadowResponder(books, settings, actions=actions, observe=observe, reviews=reviews)
    reports = RunReports.of(capture)
    facts = sorted(facts_of(capture), key=lambda entry: entry.at)
    inputs = _Inputs(capture, reports, source)
    clock = _clock(capture, inputs.surveys(), facts, until)
    with collected_seldom(), bar() as shown:
        shown.total = int((clock.end - clock.begin) / TICK)
        pipeline = Pipeline(
            clock, news_of(capture, facts), shadow, config or Config(),
            reports=reports, threads=threads, watcher=watcher, passed=shown.advance,
        )  # fmt: skip
        pipeline.begin_with(state_of(capture))
        for found in inputs.found(clock, processes):
            if found.due > clock.end:
                break
            pipeline.take(found)
        decided = pipeline.finish()
    decided.records = sum(survey.records for survey in inputs.surveys())
    decided.dead_letters = inputs.dead_letters + len(capture.unread)
    return decided


class _Inputs:
    """Where a replay's signals come from: detection in raw records, recorded signals, or both where runs were carried out."""

    def __init__(self, capture: Capture, reports: RunReports, source: From | None) -> None:
        held = capture.records
        raw = {topic.name: _held(records) for topic in RAW if (records := held.get(topic.name))}
        has_signals = bool(held.get(SIGNALS.name))
        chosen = source or (From.SIGNALS if has_signals and not raw else From.RAW)
        if source is not None and not (raw if source is From.RAW else has_signals):
            raise BadInput(f"the capture holds no {'raw records' if source is From.RAW else 'signals'}")
        self._cluster = capture.meta.cluster
        self._raw: Mapping[str, TopicRecords] = raw if chosen is From.RAW else {}
        self._recorded: RecordedSignals | None = None
        if chosen is From.SIGNALS:
            self._recorded = RecordedSignals(_held(held[SIGNALS.name]), reports.counts_recorded)
        elif has_signals and reports.must_be_read:
            self._recorded = RecordedSignals(_held(held[SIGNALS.name]), reports.counts_recorded_report)
        self._detection: Detection | DetectProcesses | None = None

    def surveys(self) -> list[Survey]:
        """Of the records that the replay decides from."""
        if self._raw or self._recorded is None:
            return [topic.survey for topic in self._raw.values()]
        return [self._recorded.survey]

    def found(self, clock: Clock, processes: int | None) -> Iterator[Found]:
        """All signals, in the order in which the replay takes them."""
        self._detection = detection_of(self._cluster, clock, self._raw, processes)
        if self._recorded is None:
            return self._detection.found()
        return heapq.merge(self._detection.found(), self._recorded.found(), key=order)

    @property
    def dead_letters(self) -> int:
        """Records that could not be read, once all is found."""
        return sum(one.dead_letters for one in (self._detection, self._recorded) if one is not None)


def _held(records: Collection[RawRecord]) -> TopicRecords:
    return records if isinstance(records, StoredTopic) else HeldRecords(records)


def _clock(
    capture: Capture, surveys: Collection[Survey], facts: Sequence[FactNews], until: datetime | None
) -> Clock:
    """Time begins with the first fact or record, and goes on for a while after the last record."""
    firsts = [from_micros(survey.first) for survey in surveys if survey.first is not None]
    lasts = [from_micros(survey.last) for survey in surveys if survey.last is not None]
    end = max([capture.meta.end, *lasts]) + AFTERMATH
    begins = [*firsts, *(fact.at for fact in facts[:1])]
    last = max(lasts, default=end)
    end = min(end, until) if until is not None else end
    return Clock(min([end, *begins]), last, end)


def facts_of(capture: Capture) -> Iterator[FactNews]:
    """Inventory facts with their times and keys, from whichever of the two files the capture has; None for a deletion."""
    if capture.kube_changes or (capture.topology and INVENTORY.name not in capture.records):
        changes = sorted(capture.kube_changes, key=lambda change: change.at)
        try:
            cabling = read_topology(capture.meta.cluster, capture.topology, capture.meta.begin)
        except BadInput as error:
            raise BadInput(f"{TOPOLOGY}: {error}") from error
        told = facts(capture.meta.cluster, changes, cabling.links, cabling.places, capture.meta.begin)
        for at, (key, record) in told:
            yield FactNews(at, key, record.fact if record else None)
        return
    for published in in_time_order(capture.records.get(INVENTORY.name, ())):
        if (news := fact_news(capture, published)) is not None:
            yield news
