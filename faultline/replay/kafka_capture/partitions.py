"""Reads partitions between offsets that do not change: a few at a time, so that little of what Kafka sends waits in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from itertools import islice

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from faultline.replay.bar import Bar
from faultline.replay.partition_writer import PartitionWriter
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, raw_record

AT_ONCE = 8
"""Partitions that are read side by side."""
_FETCH_BYTES = 1024 * 1024
"""What Kafka sends of one partition at once; a larger record comes alone."""
_POLL_MS = 200


def reader(settings: KafkaSettings) -> AIOKafkaConsumer:
    """A consumer of committed records that says so when what it wants to read has been deleted."""
    return consumer(
        settings,
        group=None,
        auto_offset_reset="none",
        max_partition_fetch_bytes=_FETCH_BYTES,
        fetch_max_wait_ms=100,
    )


async def write_partitions(
    client: AIOKafkaConsumer,
    topic: str,
    writers: Mapping[TopicPartition, PartitionWriter],
    bar: Bar,
) -> None:
    """Read each partition on to its end, and write what is read. `bar` is told how many offsets were passed."""
    bar.advance(sum(writer.offsets_passed for writer in writers.values()))
    waiting = iter([place for place, writer in writers.items() if not writer.is_done])
    while at_once := list(islice(waiting, AT_ONCE)):
        await _write(client, topic, {place: writers[place] for place in at_once}, bar)


async def _write(
    client: AIOKafkaConsumer,
    topic: str,
    writers: dict[TopicPartition, PartitionWriter],
    bar: Bar,
) -> None:
    _finish_those_with_all(writers, bar)
    # Only for something to read: a client that is stopped while it asks for the leaders of what was just assigned may wait for
    # the next time it asks, minutes later (aiokafka loses the cancellation).
    if writers:
        client.assign(list(writers))
    for place, writer in writers.items():
        client.seek(place, writer.next_offset)
    while writers:
        try:
            found = await client.getmany(*writers, timeout_ms=_POLL_MS)
        except OffsetOutOfRangeError as error:
            await _skip_deleted(client, writers, error, bar)
            continue
        for place, writer in writers.items():
            before = writer.offsets_left
            writer.add(raw_record(record, topic) for record in found.get(place, ()))
            writer.reach(await client.position(place))
            bar.advance(before - writer.offsets_left)
        _finish_those_with_all(writers, bar)


def _finish_those_with_all(writers: dict[TopicPartition, PartitionWriter], bar: Bar) -> None:
    for place in [place for place, writer in writers.items() if writer.has_all]:
        bar.advance(writers[place].offsets_left)
        writers.pop(place).finish()


async def _skip_deleted(
    client: AIOKafkaConsumer,
    writers: Mapping[TopicPartition, PartitionWriter],
    error: OffsetOutOfRangeError,
    bar: Bar,
) -> None:
    gone = list(error.args[0])
    for place, oldest in (await client.beginning_offsets(gone)).items():
        before = writers[place].offsets_left
        writers[place].lose(oldest)
        bar.advance(before - writers[place].offsets_left)
        client.seek(place, oldest)


async def batches_between(
    client: AIOKafkaConsumer, place: TopicPartition, begin: int, end: int
) -> AsyncIterator[list[ConsumerRecord[bytes, bytes]]]:
    """The records of one partition from one offset to before another, some at a time. What was deleted meanwhile is left out."""
    if begin >= end:
        return
    client.assign([place])
    client.seek(place, begin)
    while await client.position(place) < end:
        try:
            records = (await client.getmany(place, timeout_ms=_POLL_MS)).get(place, [])
        except OffsetOutOfRangeError:
            client.seek(place, (await client.beginning_offsets([place]))[place])
            continue
        yield [record for record in records if record.offset < end]
