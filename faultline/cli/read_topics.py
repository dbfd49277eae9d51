"""Reads topics for the command line: without a consumer group or commits, from the beginning to the current end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import click
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from faultline.cli.names import picked
from faultline.cli.progress import progress
from runbooks.engine.cluster_controls import unreadable_control
from runbooks.engine.run_summaries import IncidentSummary
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, coordinates, partitions_of, started, topic_name
from streams.kafka.plain_errors import named_refusals
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic, partition_of
from streams.model.clock import from_millis
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput
from streams.model.facts import Fact, FactRecord
from streams.model.incident import Incident
from streams.model.run import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Revision:
    """One partially decoded record of an incident: enough to tell which is the latest, and whether to decode it fully."""

    summary: IncidentSummary
    record: ConsumerRecord


Revisions = Mapping[str, Sequence[Revision]]
"""The records of each incident by its id, the latest revision last. Most are never decoded."""


async def read_revisions(settings: KafkaSettings) -> Revisions:
    """Every incident, partially decoded."""
    return revisions_of((await read_raw(settings, INCIDENTS))[INCIDENTS.name])


def revisions_of(records: Iterable[ConsumerRecord]) -> Revisions:
    """The records of the `incidents` topic by incident. An unreadable one is reported on stderr and skipped."""
    found: dict[str, list[Revision]] = {}
    for record in records:
        if (summary := readable(IncidentSummary, record)) is not None:
            found.setdefault(summary.id, []).append(Revision(summary, record))
    for revisions in found.values():
        # After a takeover a correlator may publish an older revision again.
        revisions.sort(key=lambda revision: revision.summary.revision)
    return found


def latest(revisions: Sequence[Revision]) -> Incident | None:
    """The latest readable revision; unreadable ones are reported on stderr."""
    whole = (readable(Incident, revision.record) for revision in reversed(revisions))
    return next((incident for incident in whole if incident is not None), None)


async def read_incidents(settings: KafkaSettings) -> dict[str, Incident]:
    """The latest revision of every incident, by id."""
    latest_of = {name: latest(found) for name, found in (await read_revisions(settings)).items()}
    return {name: incident for name, incident in latest_of.items() if incident is not None}


async def read_incident(settings: KafkaSettings, prefix: str) -> Incident:
    """The one incident whose id begins with `prefix`.

    Raises:
        BadInput: when there is none, or more than one, or it cannot be read.
    """
    found = pick(await read_revisions(settings), prefix)
    incident = latest(found)
    if incident is None:
        raise BadInput(f"{found[-1].summary.id}: no readable revision")
    return incident


async def read_runs(settings: KafkaSettings, incident: Incident) -> list[Run]:
    """The runs of one incident, oldest first."""
    records = (await read_raw(settings, RUNS, cluster=incident.cluster))[RUNS.name]
    # A cheap filter first: only records that contain the id are decoded.
    name = incident.id.encode()
    mine = {key: found for key, found in _by_key(records).items() if name in (found[-1].value or b"")}
    return _oldest_first(run for run in _last_readable(Run, mine) if run.incident == incident.id)


async def read_facts(settings: KafkaSettings, cluster: str) -> dict[str, Fact]:
    """The current inventory of a cluster, by record key."""
    records = (await read_raw(settings, INVENTORY, cluster=cluster))[INVENTORY.name]
    mine = {k: found for k, found in _by_key(records).items() if k.startswith(f"{cluster}/".encode())}
    return {published.fact.key: published.fact for published in _last_readable(FactRecord, mine)}


async def read_runs_of(settings: KafkaSettings, cluster: str) -> list[Run]:
    """Every run of a cluster, oldest first."""
    records = (await read_raw(settings, RUNS, cluster=cluster))[RUNS.name]
    return _oldest_first(run for run in _last_readable(Run, _by_key(records)) if run.cluster == cluster)


def _by_key(records: Iterable[ConsumerRecord]) -> dict[bytes, list[ConsumerRecord]]:
    """The records under each key since its last tombstone, in their order."""
    found: dict[bytes, list[ConsumerRecord]] = {}
    for record in records:
        key = record.key or b""
        if record.value is None:
            found.pop(key, None)
        else:
            found.setdefault(key, []).append(record)
    return found


def _last_readable(kind: type[T], records: Mapping[bytes, Sequence[ConsumerRecord]]) -> Iterator[T]:
    """The last document under each key that can be read. Those before it are not decoded."""
    for found in records.values():
        whole = (readable(kind, record) for record in reversed(found))
        if (document := next((one for one in whole if one is not None), None)) is not None:
            yield document


def _oldest_first(runs: Iterable[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.created_at, run.id))


async def read_control(settings: KafkaSettings, cluster: str) -> Control:
    """The safety controls of a cluster; the defaults when the topic has none."""
    control = Control(cluster)
    async with _reader(settings) as client:
        async for record in _records(client, settings, [CONTROLS], cluster):
            if record.key == cluster.encode():
                control = control_after(control, record)
    return control


def control_after(control: Control, record: ConsumerRecord) -> Control:
    """The controls after this record. An unreadable one engages the kill switch, as in the responder, until a readable
    one follows."""
    if record.value is None:
        return control
    try:
        found = decode(Control, record.value)
    except BadInput as error:
        place = coordinates(record)
        return unreadable_control(control, f"{place}: {error}", from_millis(record.timestamp)).control
    return found if found.revision >= control.revision else control


async def read_timeline(settings: KafkaSettings, incident: Incident) -> list[TimelineEntry]:
    """The timeline of one incident in time order, without duplicates."""
    key = incident.id.encode()
    return await _entries(settings, incident.cluster, lambda record: bool(record.key == key))


async def read_timeline_of(settings: KafkaSettings, cluster: str) -> list[TimelineEntry]:
    """The timeline of a cluster in time order, without duplicates."""
    entries = await _entries(settings, cluster, lambda record: True)
    return [entry for entry in entries if entry.cluster == cluster]


async def _entries(
    settings: KafkaSettings, cluster: str, fits: Callable[[ConsumerRecord], bool]
) -> list[TimelineEntry]:
    entries: dict[bytes, TimelineEntry] = {}
    async with _reader(settings) as client:
        async for record in _records(client, settings, [TIMELINE], cluster):
            if fits(record) and (entry := readable(TimelineEntry, record)) is not None:
                entries[record.value] = entry
    return sorted(entries.values(), key=lambda entry: entry.at)


def readable(kind: type[T], record: ConsumerRecord) -> T | None:
    """The record's value; None for a tombstone, and for an unreadable record, which is reported on stderr."""
    if record.value is None:
        return None
    try:
        return decode(kind, record.value)
    except BadInput as error:
        where = coordinates(record)
        click.echo(f"faultline: skipping unreadable record {where}: {error}", err=True)
        return None


def pick(
    incidents: Mapping[str, T], prefix: str, *, see: str = "`faultline incidents list --all` lists them"
) -> T:
    """The one incident whose id begins with `prefix` (with or without `inc-`). `see` says what others there are.

    Raises:
        BadInput: when there is none, or more than one.
    """
    return picked(incidents, prefix, what="incident", prefix="inc-", see=see)


async def read_raw(
    settings: KafkaSettings, *topics: Topic, cluster: str | None = None
) -> dict[str, list[ConsumerRecord]]:
    """Every record of several topics (of one cluster, when named), by topic without the prefix, each partition in its order."""
    found: dict[str, list[ConsumerRecord]] = {topic_name(settings, topic): [] for topic in topics}
    async with _reader(settings) as client:
        async for record in _records(client, settings, topics, cluster):
            found[record.topic].append(record)
    return {topic.name: found[topic_name(settings, topic)] for topic in topics}


@asynccontextmanager
async def _reader(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    client = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        with named_refusals(settings, "Read"):
            yield await started(client, settings)
    finally:
        await client.stop()


async def _records(
    client: AIOKafkaConsumer, settings: KafkaSettings, topics: Sequence[Topic], cluster: str | None = None
) -> AsyncIterator[ConsumerRecord]:
    """Every record of the topics (of one cluster's partitions, when named) up to the end at the time of the call.

    Records of one partition come in their order; topics are read at the same time.
    """
    partitions: list[TopicPartition] = []
    for topic in topics:
        name = topic_name(settings, topic)
        numbers = await partitions_of(client, name)
        wanted = numbers if cluster is None else [partition_of(cluster, len(numbers))]
        partitions += [TopicPartition(name, number) for number in sorted(wanted)]
    client.assign(partitions)
    await client.seek_to_beginning(*partitions)
    ends = {tp: end for tp, end in (await client.end_offsets(partitions)).items() if end > 0}
    begins = await client.beginning_offsets(list(ends))
    # Compacted and transactional topics have fewer records than offsets: the bar is right at its begin and its end.
    with progress("reading topics", sum(ends[tp] - begins[tp] for tp in ends), "offsets") as bar:
        reached = dict(begins)
        while ends:
            for tp, records in (await client.getmany(*ends, timeout_ms=500)).items():
                for record in records:
                    if record.offset < ends[tp]:
                        yield record
            for tp in list(ends):
                position = await client.position(tp)
                bar.advance(min(position, ends[tp]) - reached[tp])
                reached[tp] = min(position, ends[tp])
                if position >= ends[tp]:
                    del ends[tp]
