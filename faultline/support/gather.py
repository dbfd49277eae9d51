"""What goes into a bundle: read from Kafka, from files that are named and from `/metrics`, each bounded, and none of it needed.

What cannot be had is said in the manifest: a bundle is asked for when something is broken.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from connectors.http import http_client
from faultline.checks.group_probe import read_lags
from faultline.replay.kafka_capture.surroundings import plain_settings
from faultline.replay.redaction.redaction import Learning
from faultline.runtime.processes import PROCESSES
from faultline.runtime.settings import Settings
from faultline.support.bundle import MAX_PART_BYTES, Gathered
from streams.kafka import clients
from streams.kafka.offsets_by_time import first_since
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic, partition_of
from streams.model.clock import from_millis
from streams.model.codec import decode, encode_plain
from streams.model.errors import BadInput, ConfigError, Unreachable
from streams.model.incident import Incident
from streams.model.run import Run

READ_S = 60.0
"""How long one topic may be read for."""

PACKAGES = ("faultline", "aiokafka", "faust-streaming", "kubernetes", "pydantic", "structlog")


def add_versions(gathered: Gathered) -> None:
    """The program, and what it stands on."""
    found: dict[str, str] = {"python": sys.version.split()[0], "platform": platform.system()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    gathered.add_rows("versions.jsonl", [found])


def add_settings(gathered: Gathered, settings: Settings, config_version: str) -> None:
    """What decides, from a list of settings that hold no secret and no address; and the version of all files."""
    gathered.add_rows("settings.jsonl", [{"version": config_version, "settings": plain_settings(settings)}])


def learn_settings(learning: Learning, settings: Settings) -> None:
    """Names that only the settings know: findings and logs tell them."""
    for address in settings.kafka.bootstrap.split(","):
        learning.learn_host(address.rpartition(":")[0].strip())
    urls = (settings.slack.base_url, settings.jira.base_url, settings.console.public_url)
    for url in filter(None, urls):
        if host := urlsplit(str(url)).hostname:
            learning.learn_host(host)
    if settings.kafka.sasl_username:
        learning.learn_document({"user": settings.kafka.sasl_username})


async def add_topics(gathered: Gathered, settings: Settings, learning: Learning, count: int) -> None:
    """The last incidents with their runs and timeline, the controls, and lags; names are learned from the inventory, too."""
    try:
        lags = await read_lags(settings, tuple(PROCESSES))
        rows = [
            {"process": process, "state": state.state, "members": [name for name, _ in state.members],
             "partitions": [{"topic": one.place.topic, "partition": one.place.partition, **_numbers(one)} for one in found]}
            for process, (state, found) in lags.items()
        ]  # fmt: skip
        gathered.add_rows("lags.jsonl", rows)
    except (Unreachable, KafkaError) as error:
        gathered.miss("lags.jsonl", _plain(error))
    client = clients.consumer(settings.kafka, group=None, fetch_max_wait_ms=100)
    try:
        await clients.started(client, settings.kafka)
        for record in await _latest(client, settings, INVENTORY):
            learning.learn(clients.raw_record(record, INVENTORY.name))
        incidents = await _incidents(client, settings, learning, count)
        runs = await _runs(client, settings, learning, {incident.id for incident in incidents})
        gathered.add_rows("incidents.jsonl", [encode_plain(one) for one in incidents])
        gathered.add_rows("runs.jsonl", [encode_plain(one) for one in runs])
        controls = await _latest(client, settings, CONTROLS)
        gathered.add("controls.jsonl", b"".join((r.value or b"") + b"\n" for r in controls))
        await _timeline(client, gathered, settings, learning, incidents)
    except (Unreachable, ConfigError, KafkaError, TimeoutError) as error:
        gathered.miss("incidents.jsonl, runs.jsonl, timeline.jsonl, controls.jsonl", _plain(error))
    finally:
        await client.stop()


def _numbers(lag: Any) -> dict[str, Any]:
    found = asdict(lag)
    del found["place"]
    return found | {"records": lag.records}


def _plain(error: Exception) -> str:
    return f"could not be read: {type(error).__name__}"


def _place(settings: Settings, topic: Topic) -> TopicPartition:
    number = partition_of(settings.cluster, settings.kafka.cluster_partitions)
    return TopicPartition(clients.topic_name(settings.kafka, topic), number)


async def _latest(
    client: AIOKafkaConsumer, settings: Settings, topic: Topic
) -> Iterable[ConsumerRecord[bytes, bytes]]:
    """The latest record of each key in the cluster's partition of a compacted topic."""
    latest: dict[bytes, ConsumerRecord[bytes, bytes]] = {}
    async with asyncio.timeout(READ_S):
        async for batch in clients.batches_to_end(client, _place(settings, topic)):
            for record in batch:
                latest[record.key or b""] = record
    return [record for record in latest.values() if record.value is not None]


async def _incidents(
    client: AIOKafkaConsumer, settings: Settings, learning: Learning, count: int
) -> list[Incident]:
    records = sorted(await _latest(client, settings, INCIDENTS), key=lambda record: record.timestamp)
    return [one for r in records[-count:] if (one := _decoded(Incident, r, INCIDENTS, learning)) is not None]


async def _runs(
    client: AIOKafkaConsumer, settings: Settings, learning: Learning, incidents: set[str]
) -> list[Run]:
    found = []
    for record in await _latest(client, settings, RUNS):
        # A cheap filter first: most runs are of other incidents.
        if not any(name.encode() in (record.value or b"") for name in incidents):
            continue
        if (run := _decoded(Run, record, RUNS, learning)) is not None and run.incident in incidents:
            found.append(run)
    return sorted(found, key=lambda run: (run.created_at, run.id))


def _decoded(kind: Any, record: ConsumerRecord[bytes, bytes], topic: Topic, learning: Learning) -> Any:
    learning.learn(clients.raw_record(record, topic.name))
    try:
        return decode(kind, record.value or b"")
    except BadInput:
        return None  # doctor and `faultline incidents` tell of records that cannot be read


async def _timeline(
    client: AIOKafkaConsumer, gathered: Gathered, settings: Settings, learning: Learning, incidents: list[Incident]
) -> None:  # fmt: skip
    """What happened to these incidents and to the cluster since the first of them began."""
    if not incidents:
        gathered.miss("timeline.jsonl", "no incident")
        return
    place, keys = _place(settings, TIMELINE), {one.id.encode() for one in incidents}
    began = min(one.opened_at for one in incidents)
    start = (await first_since(client, [place], began))[place].offset
    client.assign([place])
    client.seek(place, start)
    end = (await client.end_offsets([place]))[place]
    lines: list[bytes] = []
    size = 0
    async with asyncio.timeout(READ_S):
        while await client.position(place) < end and size < MAX_PART_BYTES:
            for record in (await client.getmany(place, timeout_ms=200)).get(place, []):
                if record.value is not None and record.key in keys | {settings.cluster.encode()}:
                    learning.learn(clients.raw_record(record, TIMELINE.name))
                    lines.append(record.value)
                    size += len(record.value)
                    began = from_millis(record.timestamp)
    if size >= MAX_PART_BYTES:
        gathered.miss("timeline.jsonl", f"it ends at {began:%Y-%m-%dT%H:%M:%SZ}: there is more than fits")
    gathered.add("timeline.jsonl", b"".join(line + b"\n" for line in lines))


def add_logs(gathered: Gathered, files: Iterable[Path]) -> None:
    """The ends of log files, numbered: their own names are not used, which may be of hosts, or paths out of the archive."""
    for number, file in enumerate(files, 1):
        try:
            with file.open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(max(0, size - MAX_PART_BYTES))
                content = stream.read(MAX_PART_BYTES)
        except OSError as error:
            gathered.miss(f"logs/{number}.log", f"could not be read: {error.strerror}")
            continue
        gathered.add(f"logs/{number}.log", content if size <= MAX_PART_BYTES else content.partition(b"\n")[2])


async def add_metrics(gathered: Gathered, urls: Iterable[str]) -> None:
    """What each process says at `/metrics`, if it can be reached."""
    for number, url in enumerate(urls, 1):
        name = f"metrics/{number}.txt"
        base, _, path = url.rstrip("/").partition("://")
        host, _, rest = path.partition("/")
        async with http_client(f"{base}://{host}", timeout_s=5.0) as client:
            try:
                response = await client.get(rest or "metrics")
            except httpx.RequestError as error:
                gathered.miss(name, _plain(error))
                continue
        if response.status_code != 200:
            gathered.miss(name, f"answered {response.status_code}")
        else:
            gathered.add(name, response.content)


def counted(parts: Mapping[str, bytes]) -> list[tuple[str, int]]:
    """The parts and their lines, for people."""
    return [(name, content.count(b"\n")) for name, content in sorted(parts.items())]
