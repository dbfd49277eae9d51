"""Reads the topics into a `LiveView`, from the beginning and then as they are written: no group, no commits, no state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from faultline.live_view.view import KEPT_FOR, LiveView
from runbooks.engine.cluster_controls import unreadable_control
from runbooks.engine.run_summaries import IncidentSummary
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, coordinates, partitions_of, started, stopped, topic_name
from streams.kafka.consumer_lag import ConsumerLag
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic
from streams.model.clock import Clock, from_millis, to_millis, utc_now
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

_COMPACTED = (CONTROLS, INVENTORY, INCIDENTS, RUNS)
_FORGET_EVERY_S = 600.0
_TAIL = 5_000
"""Lines of the timeline that are read where none is found by its time."""


async def follow(
    settings: KafkaSettings,
    view: LiveView,
    *,
    pulse: Pulse,
    metrics: Metrics | None = None,
    clock: Clock = utc_now,
) -> NoReturn:
    """Keep the view up to date until cancelled. `view.ready` is set once everything written before the start is in it.

    Raises:
        Unreachable: when no broker answers.
        ConfigError: when a topic does not exist.
    """
    client = consumer(settings, group=None, fetch_max_wait_ms=100)
    written_ms: dict[TopicPartition, int] = {}
    metrics = metrics or Metrics("")
    for topic in (*_COMPACTED, TIMELINE):
        metrics.begin(shown.RECORDS, topic.name)
    lag = ConsumerLag(settings, metrics, pulse, written_ms=written_ms.get, waits=lambda place: not view.ready)
    try:
        await started(client, settings)
        ends = await _assign(client, settings, clock)
        lag.consumer = client
        forgotten = clock()
        while True:
            batches = await client.getmany(timeout_ms=500)
            for place, records in batches.items():
                name = place.topic.removeprefix(settings.topic_prefix)
                _take(view, name, records, clock)
                if records:
                    written_ms[place] = records[-1].timestamp
                    metrics.add(shown.RECORDS, len(records), name, "handled")
            if not view.ready:
                ends = {place: end for place, end in ends.items() if await client.position(place) < end}
                if not any(_is_inventory(place, settings) for place in ends):
                    client.resume(*client.paused())
                view.ready = not ends
            if (clock() - forgotten).total_seconds() > _FORGET_EVERY_S:
                forgotten = clock()
                view.forget(forgotten)
            pulse.beat()
            pulse.ready(view.ready)
    finally:
        await stopped(client)


async def _assign(
    client: AIOKafkaConsumer, settings: KafkaSettings, clock: Clock
) -> dict[TopicPartition, int]:
    """Assign every partition of what is shown, and return where each ends now. The timeline begins `KEPT_FOR` ago."""
    places = {topic.name: await _places(client, settings, topic) for topic in (*_COMPACTED, TIMELINE)}
    everything = [place for found in places.values() for place in found]
    client.assign(everything)
    await client.seek_to_beginning(*everything)
    since = to_millis(clock() - KEPT_FOR)
    begins = await client.offsets_for_times(dict.fromkeys(places[TIMELINE.name], since))
    ends: dict[TopicPartition, int] = await client.end_offsets(everything)
    firsts: dict[TopicPartition, int] = await client.beginning_offsets(places[TIMELINE.name])
    for place, begin in begins.items():
        # None means that nothing is that young; or that the broker keeps no times, as the embedded one.
        tail = max(firsts[place], ends[place] - _TAIL)
        client.seek(place, begin.offset if begin is not None else tail)
    # Which nodes are held comes first: an incident that was over long ago is taken if it still holds one.
    client.pause(*(place for place in everything if not _is_inventory(place, settings)))
    return ends


def _is_inventory(place: TopicPartition, settings: KafkaSettings) -> bool:
    return bool(place.topic == topic_name(settings, INVENTORY))


async def _places(client: AIOKafkaConsumer, settings: KafkaSettings, topic: Topic) -> list[TopicPartition]:
    name = topic_name(settings, topic)
    return [TopicPartition(name, number) for number in await partitions_of(client, name)]


def _take(view: LiveView, topic: str, records: Sequence[ConsumerRecord], clock: Clock) -> None:
    if topic == TIMELINE.name:
        wanted: Iterable[ConsumerRecord] = records
    else:
        # Of a compacted topic the last record of a key is enough; while catching up that is one in hundreds.
        wanted = {record.key: record for record in records}.values()
    for record in wanted:
        try:
            _take_one(view, topic, record, clock)
        except BadInput as error:
            # Those who act on these documents stop or dead-letter it; a page goes on showing the last readable one.
            log.error("unreadable record", at=coordinates(record), reason=str(error))


def _take_one(view: LiveView, topic: str, record: ConsumerRecord, clock: Clock) -> None:
    key = (record.key or b"").decode(errors="backslashreplace")
    match topic:
        case INCIDENTS.name if record.value is not None:
            if not view.ready and not view.holds_node(key) and _is_long_over(record, clock):
                return
            view.take_incident(decode(Incident, record.value))
        case RUNS.name:
            view.take_run(key, None if record.value is None else decode(Run, record.value))
        case TIMELINE.name if record.value is not None:
            view.take_entry(decode(TimelineEntry, record.value), record.offset)
        case INVENTORY.name if key.split("/", 2)[1:2] in (["node"], ["job"]):
            view.take_fact(key, None if record.value is None else decode(FactRecord, record.value).fact)
        case CONTROLS.name if record.value is not None:
            view.take_control(_control(view, key, record))


def _is_long_over(record: ConsumerRecord, clock: Clock) -> bool:
    """Whether an incident ended before anything shown, told from a few fields and the record's own time."""
    if clock() - from_millis(record.timestamp) <= KEPT_FOR or record.value is None:
        return False
    return decode(IncidentSummary, record.value).state.is_over


def _control(view: LiveView, cluster: str, record: ConsumerRecord) -> Control:
    """The controls in a record; an unreadable one shows the kill switch as engaged, as the responder takes it."""
    known = view.control(cluster)
    try:
        found = decode(Control, record.value or b"")
    except BadInput as error:
        place = coordinates(record)
        return unreadable_control(known, f"{place}: {error}", from_millis(record.timestamp)).control
    return found if found.revision >= known.revision else known
