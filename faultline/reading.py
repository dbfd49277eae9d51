"""Reading what is on the topics from the command line: no group, no commits, from the beginning to the end as it is now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import click
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from runbooks.controls import unreadable
from streams.kafka import consumer, coordinates, started, topic_name
from streams.model.clock import from_millis
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput, ConfigError
from streams.model.incident import Incident
from streams.model.inventory import Fact, FactRecord
from streams.model.run import Run
from streams.model.settings import KafkaSettings
from streams.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic, partition_of

T = TypeVar("T")


async def read_incidents(settings: KafkaSettings) -> dict[str, Incident]:
    """The latest revision of every incident, by id."""
    latest: dict[str, Incident] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, INCIDENTS):
            if (incident := readable(Incident, record)) is not None:
                known = latest.get(incident.id)
                if known is None or known.revision <= incident.revision:
                    latest[incident.id] = incident
    return latest


async def read_runs(settings: KafkaSettings, incident: Incident) -> list[Run]:
    """The runs of one incident, oldest first."""
    latest: dict[str, Run] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, RUNS, incident.cluster):
            if (run := readable(Run, record)) is not None:
                latest[run.id] = run
    return sorted(
        (r for r in latest.values() if r.incident == incident.id), key=lambda r: (r.created_at, r.id)
    )


async def read_facts(settings: KafkaSettings, cluster: str) -> dict[str, Fact]:
    """What inventory knows of a cluster now, by record key."""
    latest: dict[str, Fact] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, INVENTORY, cluster):
            key = (record.key or b"").decode(errors="replace")
            if not key.startswith(f"{cluster}/"):
                continue
            if record.value is None:
                latest.pop(key, None)
            elif (told := readable(FactRecord, record)) is not None:
                latest[key] = told.fact
    return latest


async def read_runs_of(settings: KafkaSettings, cluster: str) -> list[Run]:
    """Every run of a cluster, oldest first."""
    latest: dict[str, Run] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, RUNS, cluster):
            run_id = (record.key or b"").decode(errors="replace")
            if record.value is None:
                latest.pop(run_id, None)
            elif (run := readable(Run, record)) is not None:
                latest[run_id] = run
    found = [run for run in latest.values() if run.cluster == cluster]
    return sorted(found, key=lambda run: (run.created_at, run.id))


async def read_control(settings: KafkaSettings, cluster: str) -> Control:
    """What holds for a cluster as a whole; as nobody has ever touched it when the topic says nothing."""
    control = Control(cluster)
    async with _reader(settings) as client:
        async for record in _records(client, settings, CONTROLS, cluster):
            if record.key == cluster.encode():
                control = control_after(control, record)
    return control


def control_after(control: Control, record: ConsumerRecord) -> Control:
    """What holds once a record of the control has been written. One that cannot be read throws the kill switch, as it does for
    the responder, until a later one takes its place."""
    if record.value is None:
        return control
    try:
        found = decode(Control, record.value)
    except BadInput as error:
        place = coordinates(record)
        return unreadable(control, f"{place}: {error}", from_millis(record.timestamp)).control
    return found if found.revision >= control.revision else control


async def read_timeline(settings: KafkaSettings, incident: Incident) -> list[TimelineEntry]:
    """Everything said about one incident, in time order, each line once."""
    entries: dict[bytes, TimelineEntry] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, TIMELINE, incident.cluster):
            if record.key == incident.id.encode() and (entry := readable(TimelineEntry, record)) is not None:
                entries[record.value] = entry
    return sorted(entries.values(), key=lambda entry: entry.at)


async def read_timeline_of(settings: KafkaSettings, cluster: str) -> list[TimelineEntry]:
    """Everything said in a cluster, in time order, each line once."""
    entries: dict[bytes, TimelineEntry] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, TIMELINE, cluster):
            entry = readable(TimelineEntry, record)
            if entry is not None and entry.cluster == cluster:
                entries[record.value] = entry
    return sorted(entries.values(), key=lambda entry: entry.at)


def readable(kind: type[T], record: ConsumerRecord) -> T | None:
    """The record's value; None for a tombstone, and for what cannot be read: that is said, and keeps nobody from the rest."""
    if record.value is None:
        return None
    try:
        return decode(kind, record.value)
    except BadInput as error:
        where = coordinates(record)
        click.echo(f"faultline: {where} is left out, it cannot be read: {error}", err=True)
        return None


def pick(incidents: dict[str, Incident], prefix: str) -> Incident:
    """The one incident whose id begins with `prefix` (with or without `inc-`).

    Raises:
        BadInput: when there is none, or more than one.
    """
    wanted = prefix if prefix.startswith("inc-") else f"inc-{prefix}"
    found = [incident for incident in incidents.values() if incident.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"{prefix} fits {len(found)} incidents: {', '.join(sorted(i.id for i in found)[:5])}")
    raise BadInput(f"no incident {prefix}; `faultline incidents list --all` shows them")


@asynccontextmanager
async def _reader(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    client = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        yield await started(client, settings)
    finally:
        await client.stop()


async def _records(
    client: AIOKafkaConsumer, settings: KafkaSettings, topic: Topic, cluster: str | None = None
) -> AsyncIterator[ConsumerRecord]:
    """Every record of the topic (of one cluster's partition, when named) up to the end as it is when called."""
    name = topic_name(settings, topic)
    numbers = await partitions_of(client, name)
    wanted = numbers if cluster is None else {partition_of(cluster, len(numbers))}
    partitions = [TopicPartition(name, number) for number in sorted(wanted)]
    client.assign(partitions)
    await client.seek_to_beginning(*partitions)
    ends = {tp: end for tp, end in (await client.end_offsets(partitions)).items() if end > 0}
    while ends:
        for tp, records in (await client.getmany(*ends, timeout_ms=500)).items():
            for record in records:
                if record.offset < ends[tp]:
                    yield record
        for tp in list(ends):
            if await client.position(tp) >= ends[tp]:
                del ends[tp]


async def partitions_of(client: AIOKafkaConsumer, name: str) -> set[int]:
    """The partitions of a topic. Raises ConfigError when there is no such topic."""
    # Only a full metadata request tells the partitions of a topic that this client does not follow, and the consumer's
    # own cache is not filled by it on every broker.
    metadata = await client._client.fetch_all_metadata()
    numbers = metadata.partitions_for_topic(name)
    if not numbers:
        raise ConfigError(f"topic {name} does not exist; run `faultline topics apply`")
    return set(numbers)
