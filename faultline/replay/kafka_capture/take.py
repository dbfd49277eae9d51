"""Takes a capture: plans which offsets, writes what there is, and goes on where an earlier process left it.

The plan is in the manifest before the first record is read, so that whoever goes on reads to the same ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.replay.bar import Bar
from faultline.replay.integrity import STATE, record_files
from faultline.replay.kafka_capture.names import learn_names
from faultline.replay.kafka_capture.offsets import Range, ranges_since
from faultline.replay.kafka_capture.partitions import reader, write_partitions
from faultline.replay.kafka_capture.proof import prove
from faultline.replay.kafka_capture.state import write_state
from faultline.replay.kafka_capture.surroundings import versions, write_surroundings
from faultline.replay.manifest import (
    MANIFEST,
    Lineage,
    Manifest,
    PartitionPart,
    StatePart,
    TopicPart,
    read_manifest,
    write_manifest,
)
from faultline.replay.partition_writer import NOTES, Change, PartitionWriter, as_it_is
from faultline.replay.redaction.redaction import Learning, Redaction
from faultline.runtime.settings import Settings
from streams.kafka.clients import started
from streams.kafka.topics import ALL, DETECTOR_STATE, INSTALLATION, TICKS, Topic
from streams.model.clock import rfc3339, to_millis, utc_now
from streams.model.codec import decode, encode
from streams.model.errors import BadInput

CAPTURED = tuple(topic for topic in ALL if topic not in (TICKS, DETECTOR_STATE, INSTALLATION))
"""What a capture holds unless other topics are named: all that is not the processes' own bookkeeping."""
SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Order:
    """What a capture is to hold: what is from `begin` to before `end`, and the records from `lead` on.

    `record` says what is written instead of a record. With `learning`, names are learned from all that is taken, and replaced.
    `asked` is how the times were given: who asks in the same words goes on with a capture that was begun, whatever time it is.
    """

    begin: datetime
    end: datetime
    lead: datetime
    topics: tuple[Topic, ...] = CAPTURED
    record: Change = as_it_is
    learning: Learning | None = None
    incident: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)


def begun(directory: Path, order: Order, cluster: str) -> Manifest | None:
    """The manifest of a capture of this order that was begun there, or is complete; None when nothing is there yet.

    Raises:
        BadInput: when the directory holds anything else.
    """
    if not (directory / MANIFEST).exists():
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise BadInput(f"{directory} is not empty and holds no capture that was begun")
        return None
    found = read_manifest(directory / MANIFEST)
    wanted = _planned(order, cluster)
    same_words = bool(order.asked) and dict(found.lineage.asked) == dict(order.asked)
    if found.complete and found.redaction:  # the incident's own id is a pseudonym by now
        wanted = replace(wanted, lineage=found.lineage)
    if same_words:
        wanted = replace(wanted, begin=found.begin, end=found.end, lead=found.lead)
    topics = sorted([*found.topics, *found.missing])
    told = (
        ("cluster", found.cluster, wanted.cluster),
        ("begin", rfc3339(found.begin), rfc3339(wanted.begin)),
        ("end", rfc3339(found.end), rfc3339(wanted.end)),
        ("lead", rfc3339(found.lead), rfc3339(wanted.lead)),
        ("incident", found.lineage.incident, wanted.lineage.incident),
        ("redaction", found.redaction, wanted.redaction),
        ("list of topics", ", ".join(topics), ", ".join(sorted(wanted.missing))),
    )
    differ = [
        f"its {what} is {ours or 'none'}, not {theirs or 'none'}"
        for what, ours, theirs in told
        if ours != theirs
    ]
    if differ:
        raise BadInput(f"{directory} holds another capture: {'; '.join(differ)}")
    return found


async def take(settings: Settings, directory: Path, order: Order, bar: Bar) -> Manifest:
    """Take a capture, or what is missing of one that was begun; returns its manifest.

    Raises:
        BadInput: when the directory holds something else, or another process writes to it.
        Unreachable: when no broker answers.
        NamesLeft: when a name is left that was to be replaced; the capture is not complete then.
    """
    with _alone(directory):
        manifest = begun(directory, order, settings.cluster)
        if manifest is not None and manifest.complete:
            return manifest
        async with _client(settings) as client:
            if manifest is None:
                manifest = await _plan(client, settings, order)
                write_manifest(directory / MANIFEST, manifest)
            offsets = sum(
                p.end - p.begin for topic in manifest.topics.values() for p in topic.partitions.values()
            )
            bar.total = offsets * (2 if order.learning else 1)
            redaction = None
            if order.learning is not None:
                await learn_names(client, settings, manifest, order.learning, bar)
                redaction = order.learning.learned()
            write_surroundings(directory, settings, redaction.text if redaction else str)
            taking = _Taking(client, settings, directory, manifest, _changed(order.record, redaction), bar)
            return _complete(directory, await taking.all(), redaction)


def _changed(first: Change, redaction: Redaction | None) -> Change:
    """What is written instead of a record: what `first` makes of it, with pseudonyms."""
    if redaction is None:
        return first
    then = redaction.record
    return lambda record: None if (kept := first(record)) is None else then(kept)


class _Taking:
    """One process at work on a capture."""

    def __init__(
        self,
        client: AIOKafkaConsumer,
        settings: Settings,
        directory: Path,
        manifest: Manifest,
        change: Change,
        bar: Bar,
    ) -> None:
        self._client, self._settings = client, settings
        self._directory, self._manifest = directory, manifest
        self._change, self._bar = change, bar

    async def all(self) -> Manifest:
        """Take every topic; returns the manifest with what is in the files."""
        state: dict[str, StatePart] = {}
        topics: dict[str, TopicPart] = {}
        compacted = {topic.name for topic in ALL if topic.cleanup == "compact"}
        for topic, part in self._manifest.topics.items():
            if topic in compacted:
                state[topic] = await self._state(topic, part)
            topics[topic] = await self._records(topic, part)
        return replace(self._manifest, topics=topics, state=state)

    async def _records(self, topic: str, part: TopicPart) -> TopicPart:
        lead_ms, end_ms = to_millis(self._manifest.lead), to_millis(self._manifest.end)
        writers = {
            self._place(topic, partition): PartitionWriter(
                self._directory,
                topic,
                partition,
                one,
                lead_ms=lead_ms,
                end_ms=end_ms,
                change=self._change,
            )
            for partition, one in part.partitions.items()
        }
        try:
            await write_partitions(self._client, topic, writers, self._bar)
        except BaseException:
            for writer in writers.values():
                writer.close()
            raise
        return replace(
            part, partitions={place.partition: writer.finish() for place, writer in writers.items()}
        )

    async def _state(self, topic: str, part: TopicPart) -> StatePart:
        note = self._directory / NOTES / STATE / f"{topic}.json"
        if note.exists():
            return decode(StatePart, note.read_bytes())
        ends = {self._place(topic, partition): one.end for partition, one in part.partitions.items()}
        path = self._directory / STATE / f"{topic}.jsonl.zst"
        lead_ms = to_millis(self._manifest.lead)
        found = await write_state(self._client, topic, ends, lead_ms, path, self._change)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_bytes(encode(found))
        return found

    def _place(self, topic: str, partition: int) -> TopicPartition:
        return TopicPartition(self._settings.kafka.topic_prefix + topic, partition)


async def _plan(client: AIOKafkaConsumer, settings: Settings, order: Order) -> Manifest:
    """Which offsets are read, and what decided then."""
    found = await ranges_since(client, settings.kafka, order.topics, order.lead)
    return replace(
        _planned(order, settings.cluster),
        topics={topic: _topic_part(ranges) for topic, ranges in found.topics.items()},
        missing=tuple(found.missing),
        versions=versions(settings.responder),
    )


def _topic_part(ranges: Mapping[int, Range]) -> TopicPart:
    since = [found.complete_from for found in ranges.values() if found.complete_from is not None]
    return TopicPart(
        {partition: PartitionPart(found.begin, found.end) for partition, found in ranges.items()},
        max(since, default=None),
    )


def _planned(order: Order, cluster: str) -> Manifest:
    return Manifest(
        cluster,
        order.begin,
        order.end,
        order.lead,
        {},
        missing=tuple(topic.name for topic in order.topics),
        lineage=Lineage(utc_now(), order.incident, order.asked),
        redaction=order.learning.id if order.learning else "",
    )


def _complete(directory: Path, taken: Manifest, redaction: Redaction | None) -> Manifest:
    """Say that all is there: until the manifest does, the capture is not read."""
    manifest = replace(taken, complete=True)
    if redaction is not None:
        prove(directory, redaction)
        incident = redaction.text(taken.lineage.incident)
        manifest = replace(manifest, lineage=replace(taken.lineage, incident=incident))
    shutil.rmtree(directory / NOTES, ignore_errors=True)
    sums = [
        f"{part.sha256}  {path.relative_to(directory)}" for path, part in record_files(directory, manifest)
    ]
    (directory / SUMS).write_text("\n".join(sums) + "\n")
    write_manifest(directory / MANIFEST, manifest)
    return manifest


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """The directory, which nobody else writes to meanwhile. The lock ends with the process, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    held = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise BadInput(f"{directory}: another process is taking this capture") from error
    finally:
        os.close(held)


@asynccontextmanager
async def _client(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    client = reader(settings.kafka)
    try:
        yield await started(client, settings.kafka)
    finally:
        await client.stop()
