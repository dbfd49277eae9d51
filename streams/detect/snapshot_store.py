"""Snapshots of the detector's state on the topic `detector-state`, and the pointers to them.

A snapshot of a source partition is a run of records on one partition of `detector-state`. Its pointer is in the metadata of the
source partition's offset commit: offset and state change together or not at all, and nobody reads the snapshot of a process that
was fenced and may no longer commit. Two slots take turns as keys, so compaction never removes a snapshot before the next counts.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from pydantic import TypeAdapter, ValidationError

from streams.config.settings import KafkaSettings
from streams.detect.snapshot import Snapshot
from streams.kafka import clients
from streams.kafka.topics import DETECTOR_STATE, partition_of
from streams.model.errors import BadInput

_ID_HEADER = "faultline-snapshot"
_FETCH_WAIT_MS = 20
"""Short, because changing partitions waits for the fetch in flight."""
_POLL_MS = 200
_SILENT_POLLS = 25
"""Polls without a record after which a snapshot counts as lost: five seconds of a broker that answers."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a snapshot is and what it covers: source records before the offset `as_of`, the last of them of time `at_ms`.

    `blocks` records between the offsets `first` and `last` of partition `partition` carry `id`; `digest` is over their values.
    Without blocks there was nothing to save.
    """

    as_of: int
    at_ms: int = 0
    id: str = ""
    partition: int = 0
    first: int = 0
    last: int = 0
    blocks: int = 0
    digest: str = ""
    slot: int = 0
    version: int = 1

    def text(self) -> str:
        """The metadata of a commit."""
        return orjson.dumps(self).decode()

    @staticmethod
    def parse(text: str) -> Pointer | None:
        """The pointer in a commit's metadata; None when it holds none.

        Raises:
            BadInput: when it holds something else.
        """
        if not text:
            return None
        try:
            pointer = _POINTER.validate_json(text)
        except ValidationError as error:
            raise BadInput(f"not a pointer to a snapshot: {text[:100]!r}") from error
        if pointer.version != Pointer(0).version:
            raise BadInput(f"a pointer of version {pointer.version}")
        return pointer


_POINTER = TypeAdapter(Pointer)


async def write(
    producer: AIOKafkaProducer,
    settings: KafkaSettings,
    snapshot: Snapshot,
    *,
    as_of: int,
    at_ms: int,
    slot: int,
) -> Pointer:
    """Write a snapshot and wait for every acknowledgement. It counts once its pointer is committed.

    Raises:
        KafkaError: when a block was refused.
    """
    topic = clients.topic_name(settings, DETECTOR_STATE)
    partition = partition_of(snapshot.source, settings.raw_partitions)
    pointer_id = uuid.uuid4().hex[:16]
    headers = [(_ID_HEADER, pointer_id.encode())]
    digest = hashlib.blake2b(digest_size=16)
    sent = []
    for number, block in enumerate(snapshot.blocks()):
        digest.update(block)
        key = f"{snapshot.source}/{slot}/{number}".encode()
        sent.append(await producer.send(topic, block, key=key, partition=partition, headers=headers))
        # Lets heartbeats go out. Nothing is read meanwhile, so all blocks are as of one offset.
        await asyncio.sleep(0)
    if not sent:
        return Pointer(as_of, at_ms, slot=slot)
    offsets = [taken.offset for taken in await asyncio.gather(*sent)]
    span = min(offsets), max(offsets), len(offsets)
    return Pointer(as_of, at_ms, pointer_id, partition, *span, digest.hexdigest(), slot)


class Reader:
    """Reads snapshots by their pointers; `stop` after the last one."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: AIOKafkaConsumer | None = None

    async def read(self, source: str, pointer: Pointer) -> Snapshot:
        """The snapshot of a pointer.

        Raises:
            BadInput: when blocks are missing or differ from the digest.
            KafkaError: when Kafka fails.
        """
        snapshot = Snapshot(source)
        if not pointer.blocks:
            return snapshot
        blocks = await self._blocks(pointer)
        found = hashlib.blake2b(b"".join(blocks), digest_size=16).hexdigest()
        if len(blocks) != pointer.blocks or found != pointer.digest:
            raise BadInput(
                f"of {pointer.blocks} blocks at {pointer.first} to {pointer.last} of partition "
                f"{pointer.partition} there are {len(blocks)}, or they are not the same"
            )
        for block in blocks:
            snapshot.load(block)
            await asyncio.sleep(0)
        return snapshot

    async def stop(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            await clients.stopped(self._consumer)

    async def _blocks(self, pointer: Pointer) -> list[bytes]:
        if self._consumer is None:
            client = clients.consumer(self._settings, group=None, fetch_max_wait_ms=_FETCH_WAIT_MS)
            self._consumer = await clients.started(client, self._settings)
        place = TopicPartition(clients.topic_name(self._settings, DETECTOR_STATE), pointer.partition)
        self._consumer.assign([place])
        (end,) = (await self._consumer.end_offsets([place])).values()
        if pointer.last >= end:
            return []
        self._consumer.seek(place, pointer.first)
        blocks: list[bytes] = []
        silent = 0
        while len(blocks) < pointer.blocks and await self._consumer.position(place) <= pointer.last:
            polled = await self._consumer.getmany(place, timeout_ms=_POLL_MS)
            records = polled.get(place, [])
            blocks += _own(records, pointer)
            if records:
                silent = 0
                continue
            # Silence may also be a stalled broker, which must not cost us the state: it has to answer this call.
            await self._consumer.end_offsets([place])
            silent += 1
            if silent > _SILENT_POLLS:
                break
        return blocks


def _own(records: Iterable[Any], pointer: Pointer) -> list[bytes]:
    wanted = (_ID_HEADER, pointer.id.encode())
    return [
        record.value
        for record in records
        if record.offset <= pointer.last and record.value is not None and wanted in record.headers
    ]
