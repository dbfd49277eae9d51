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
from streams.kafka.clients import consumer, coordinates, started, topic_name
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic
from streams.model.clock import Clock, from_millis, to_millis, utc_now
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput, ConfigError
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run

log = structlog.get_logger(__name__)

_COMPACTED = (CONTROLS, INVENTORY, INCIDENTS, RUNS)
_FORGET_EVERY_S = 600.0


async def follow(
    settings: KafkaSettings, view: LiveView, *, pulse: Pulse, clock: Clock = utc_now
) -> NoReturn:
    """Keep the view up to date until cancelled. `view.ready` is set once everything written before the start is in it.

    Raises:
        Unreachable: when no broker answers.
        ConfigError: when a topic does not exist.
    """
    client = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        await started(client, settings)
        ends = await _assign(client, settings, clock)
        forgotten = clock()
        while True:
            batches = await client.getmany(timeout_ms=500)
            for place, records in batches.items():
                _take(view, place.topic.removeprefix(settings.topic_prefix), records, clock)
            if not view.ready:
                ends = {place: end for place, end in ends.items() if await client.position(place) < end}
                view.ready = not ends
            if (clock() - forgotten).total_seconds() > _FORGET_EVERY_S:
                forgotten = clock()
                view.forget(forgotten)
            pulse.beat()
            pulse.ready(view.ready)
    finally:
        await client.stop()


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
    for place, begin in begins.items():
        client.seek(place, begin.offset if begin is not None else ends[place])
    return ends


async def _places(client: AIOKafkaConsumer, settings: KafkaSettings, topic: Topic) -> list[TopicPartition]:
    name = topic_name(settings, topic)
    # Only a full metadata request returns the partitions of a topic this client is not subscribed to.
    numbers = (await client._client.fetch_all_metadata()).partitions_for_topic(name)
    if not numbers:
        raise ConfigError(f"topic {name} does not exist; run `faultline topics apply`")
    return [TopicPartition(name, number) for number in sorted(numbers)]


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
            if not view.ready and _is_long_over(record, clock):
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
