"""Snapshots of what the detector remembers, on the topic `detector-state`, and the pointers by which they are found.

A snapshot of a source partition is a run of records on one partition of `detector-state`. The pointer to it travels in the
metadata of the source partition's offset commit: so offset and state change together or not at all, and whoever may not commit
any more (a process that was frozen, and replaced) cannot make anybody read what it has written. Two slots take turns as keys,
so that compaction never takes a snapshot away before the next one counts.
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
"""Going from one partition to the next waits for the fetch that is under way."""
_POLL_MS = 200
_SILENT_POLLS = 25
"""Polls without a record after which a snapshot counts as gone: five seconds of a broker that answers."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a snapshot lies and what it is of. `as_of` is the offset of the first source record that it does not know,
    `at_ms` the time of the last one that it does.

    `blocks` records between the offsets `first` and `last` of partition `partition` carry `id`; `digest` is over their values.
    With no blocks there was nothing to remember.
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
            raise BadInput(f"no pointer to a snapshot: {text[:100]!r}") from error
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
    """Write a snapshot and wait until all of it is there. Nobody finds it before its pointer is committed.

    Raises:
        KafkaError: when a block was not taken.
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
        await asyncio.sleep(
            0
        )  # heartbeats go on; nothing is read meanwhile, so all blocks are as of one offset
    if not sent:
        return Pointer(as_of, at_ms, slot=slot)
    offsets = [taken.offset for taken in await asyncio.gather(*sent)]
    return Pointer(
        as_of,
        at_ms,
        pointer_id,
        partition,
        min(offsets),
        max(offsets),
        len(offsets),
        digest.hexdigest(),
        slot,
    )


class Reader:
    """Reads snapshots by their pointers. `started` before the first, and `stop` after the last."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._consumer: AIOKafkaConsumer | None = None

    async def read(self, source: str, pointer: Pointer) -> Snapshot:
        """The snapshot that a pointer leads to.

        Raises:
            BadInput: when it is not there whole, or is not what the pointer says.
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
            snapshot.take(block)
            await asyncio.sleep(0)
        return snapshot

    async def stop(self) -> None:
        """Leave Kafka."""
        if self._consumer is not None:
            await self._consumer.stop()

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
            # A broker that stands still says nothing either, and must not cost us what we remember: it has to answer this.
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
