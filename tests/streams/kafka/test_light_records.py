"""Light records are those that aiokafka returns, from the same offsets to the same offsets, whatever a broker's log holds."""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.consumer.fetcher import FetchResult, PartitionRecords
from aiokafka.errors import CommitFailedError

from streams.config.settings import KafkaSettings
from streams.kafka import clients, light_records
from streams.kafka.light_records import lighten
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

Told = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def told(record: Any) -> Told:
    """What a light record has."""
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


async def topic(
    settings: KafkaSettings, *, partitions: int = 1, config: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A topic of this test's own."""
    name = f"{settings.topic_prefix}raw"
    admin = await clients.started(clients.admin(settings), settings)
    try:
        await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dict(config))])
    finally:
        await admin.close()
    return name


@asynccontextmanager
async def producing(settings: KafkaSettings, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    producer = await clients.started(clients.producer(settings, linger_ms=20, **options), settings)
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def reading(
    settings: KafkaSettings, place: TopicPartition, *, light: bool, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = clients.consumer(settings, group=None, **options)
    consumer.assign([place])
    await clients.started(consumer, settings)
    if light:
        lighten(consumer)
    try:
        yield consumer
    finally:
        await consumer.stop()


async def all_of(
    settings: KafkaSettings, place: TopicPartition, *, light: bool, begin: int = 0, most: int = 7, **more: Any
) -> tuple[list[Told], list[int]]:
    """The records from `begin` on, in polls of `most`, and the position after each poll that gave any."""
    found: list[Told] = []
    positions: list[int] = []
    async with reading(settings, place, light=light, **more) as consumer:
        end = (await consumer.end_offsets([place]))[place]
        consumer.seek(place, begin)
        while await consumer.position(place) < end:
            records: Sequence[Any] = (await consumer.getmany(timeout_ms=200, max_records=most)).get(place, [])
            assert all(isinstance(record, ConsumerRecord) is not light for record in records)
            found += map(told, records)
            if records:
                positions.append(await consumer.position(place))
    return found, positions


async def are_the_same(settings: KafkaSettings, place: TopicPartition, **options: Any) -> list[Told]:
    """Both ways give the same; returns what they give."""
    light = await all_of(settings, place, light=True, **options)
    assert light == await all_of(settings, place, light=False, **options)
    return light[0]


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    return kafka.settings("light")


@pytest.mark.kafka
async def test_keys_values_headers_and_times_are_the_same(settings: KafkaSettings) -> None:
    place = TopicPartition(await topic(settings), 0)
    async with producing(settings) as producer:
        for number in range(50):
            await producer.send(
                place.topic,
                None if number % 10 == 5 else b"v%d" % number,
                key=b"k%d" % number if number % 2 else None,
                headers=[("host", b"gpu-1"), ("none", None)] if number % 3 else [],
                timestamp_ms=1_700_000_000_000 + number,
            )
        await producer.flush()
    found = await are_the_same(settings, place)
    assert [offset for offset, *_ in found] == list(range(50))
    assert found[1][1:] == (1_700_000_000_001, b"k1", b"v1", (("host", b"gpu-1"), ("none", None)))


@pytest.mark.kafka
async def test_the_brokers_own_time_is_the_same(settings: KafkaSettings) -> None:
    place = TopicPartition(await topic(settings, config={"message.timestamp.type": "LogAppendTime"}), 0)
    async with producing(settings) as producer:
        await asyncio.gather(*[await producer.send(place.topic, b"v", timestamp_ms=1) for _ in range(5)])
    assert all(at > 1 for _, at, *_ in await are_the_same(settings, place))


@pytest.mark.kafka
async def test_a_read_may_begin_within_a_batch_of_any_compression(settings: KafkaSettings) -> None:
    place = TopicPartition(await topic(settings), 0)
    for codec in (None, "gzip", "snappy", "lz4", "zstd"):
        async with producing(settings, compression_type=codec) as producer:
            batch = producer.create_batch()
            for number in range(20):
                batch.append(key=None, value=b"%a %d" % (codec, number), timestamp=number)
            await (await producer.send_batch(batch, place.topic, partition=0))
    for begin in (0, 1, 19, 20, 33, 99):
        for most in (1, 20, 1000):
            found = await are_the_same(settings, place, begin=begin, most=most)
            assert [offset for offset, *_ in found] == list(range(begin, 100))


@pytest.mark.kafka
async def test_aborted_transactions_are_left_out(settings: KafkaSettings) -> None:
    place = TopicPartition(await topic(settings), 0)
    async with (
        producing(settings) as plain,
        producing(settings, transactional_id="a") as first,
        producing(settings, transactional_id="b") as second,
    ):
        for number in range(4):
            # Two transactions overlap, and one that is in none lies between them.
            await first.begin_transaction()
            await second.begin_transaction()
            await first.send_and_wait(place.topic, b"first %d" % number)
            await second.send_and_wait(place.topic, b"second %d" % number)
            await plain.send_and_wait(place.topic, b"plain %d" % number)
            await first.send_and_wait(place.topic, b"first again %d" % number)
            await (first.abort_transaction() if number % 2 else first.commit_transaction())
            await (second.commit_transaction() if number % 2 else second.abort_transaction())
    for most in (1, 2, 1000):
        found = await are_the_same(settings, place, most=most)
        assert [value for *_, value, _ in found] == [
            *(b"first 0", b"plain 0", b"first again 0"),
            *(b"second 1", b"plain 1"),
            *(b"first 2", b"plain 2", b"first again 2"),
            *(b"second 3", b"plain 3"),
        ]
    whole = settings.model_copy()
    assert len(await are_the_same(whole, place, read_committed=False)) == 16


@pytest.mark.kafka
async def test_what_compaction_left_is_the_same_and_never_fetched_twice(tmp_path: Path) -> None:
    with Kafka.running(tmp_path, properties={"log.cleaner.backoff.ms": "50"}) as broker:
        settings = broker.settings("light")
        config = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.0",
            "segment.ms": "1",
            "max.compaction.lag.ms": "1",
        }
        place = TopicPartition(await topic(settings, config=config), 0)
        async with producing(settings) as producer:
            for number in range(30):
                batch = producer.create_batch()
                for key in range(10):
                    # The last record of each batch is the one that goes, and some batches are left empty.
                    batch.append(
                        key=b"%d" % (key if key == 9 else key + number // 3 * 10),
                        value=b"%d" % number,
                        timestamp=None,
                    )
                await (await producer.send_batch(batch, place.topic, partition=0))

            async def compacted() -> bool:
                # Only what is not in the newest segment is compacted; a record rolls it.
                await producer.send_and_wait(place.topic, b"roll", key=b"roll")
                return len((await all_of(settings, place, light=False, most=1000))[0]) < 150

            await eventually(compacted, "the log is compacted")
        for most in (1, 4, 1000):

            async def is_the_same(most: int = most) -> bool:
                before = await all_of(settings, place, light=False, most=most)
                light = await all_of(settings, place, light=True, most=most)
                after = await all_of(settings, place, light=False, most=most)
                if before != after:  # a round of compaction came in between
                    return False
                assert light == before
                return True

            await eventually(is_the_same, f"the log stays as it is, read by {most}")


@pytest.mark.kafka
async def test_a_paused_partition_gives_nothing_and_a_seek_drops_what_was_fetched(
    settings: KafkaSettings,
) -> None:
    place = TopicPartition(await topic(settings), 0)
    async with producing(settings) as producer:
        await asyncio.gather(*[await producer.send(place.topic, b"%d" % number) for number in range(100)])
    async with reading(settings, place, light=True) as consumer:

        async def values(most: int) -> list[bytes]:
            return [
                r.value for r in (await consumer.getmany(timeout_ms=5000, max_records=most)).get(place, [])
            ]

        assert await values(10) == [b"%d" % number for number in range(10)]
        consumer.pause(place)
        assert await consumer.getmany(timeout_ms=0) == {}
        consumer.resume(place)
        assert await values(5) == [b"%d" % number for number in range(10, 15)]
        consumer.seek(place, 90)
        assert await values(3) == [b"90", b"91", b"92"]
        assert await consumer.position(place) == 93


@pytest.mark.kafka
@pytest.mark.parametrize("most", [7, 50, 1000])
async def test_what_was_read_or_dropped_is_freed_without_garbage_collection(
    settings: KafkaSettings, most: int
) -> None:
    place = TopicPartition(await topic(settings), 0)

    async def read(consumer: AIOKafkaConsumer, to: int) -> None:
        while await consumer.position(place) < to:
            await consumer.getmany(timeout_ms=5000, max_records=most)

    async with reading(settings, place, light=True) as consumer, producing(settings) as producer:
        gc.collect()
        gc.disable()
        try:
            await asyncio.gather(*[await producer.send(place.topic, b"%d" % number) for number in range(100)])
            await consumer.getmany(timeout_ms=5000, max_records=1)
            consumer.seek(place, 50)  # what else was fetched is dropped
            await read(consumer, 100)
            await consumer.getmany(timeout_ms=0)
            assert [kept for kept in gc.get_objects() if isinstance(kept, PartitionRecords)] == []
        finally:
            gc.enable()


@pytest.mark.kafka
async def test_through_rebalances_every_record_is_read_from_the_last_commit(settings: KafkaSettings) -> None:
    name = await topic(settings, partitions=2)
    async with producing(settings) as producer:
        for number in range(200):
            await producer.send(name, b"%d" % number, partition=number % 2)
        await producer.flush()
    seen: list[bytes] = []

    async def read(consumer: AIOKafkaConsumer) -> None:
        polled = await consumer.getmany(timeout_ms=200, max_records=10)
        try:
            await consumer.commit()
        except CommitFailedError:  # a rebalance came in between: the next owner reads them again
            return
        seen.extend(record.value for records in polled.values() for record in records)

    def member() -> AIOKafkaConsumer:
        consumer = clients.consumer(settings, group="light")
        clients.subscribe(consumer, [name])
        return consumer

    first, second = member(), member()
    await clients.started(first, settings)
    lighten(first)
    try:
        await read(first)
        await clients.started(second, settings)
        lighten(second)

        async def shared() -> bool:
            await asyncio.gather(read(first), read(second))
            return len(first.assignment()) == len(second.assignment()) == 1

        await eventually(shared, "each has a partition")
        await second.stop()

        async def all_seen() -> bool:
            await read(first)
            return len(set(seen)) == 200

        await eventually(all_seen, "all are read")
    finally:
        await first.stop()
        await second.stop()


def test_the_installed_version_is_known() -> None:
    assert aiokafka.__version__ in light_records.KNOWN_VERSIONS


@pytest.mark.parametrize("what", ["version", "getall", "_records"])
async def test_with_an_unknown_aiokafka_records_come_in_the_ordinary_way_and_a_warning_says_so(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stand:
        def __init__(self) -> None:
            self._records: Any = OrderedDict()

    consumer, ordinary = clients.consumer(KafkaSettings(), group=None), Stand()
    consumer._fetcher = ordinary
    match what:
        case "version":
            monkeypatch.setattr(aiokafka, "__version__", "0.14.1")
        case "_records":
            ordinary._records = {}
        case name:
            monkeypatch.delattr(FetchResult, name)
    before = ordinary._records
    lighten(consumer)
    assert ordinary._records is before
    assert capsys.readouterr().out.count("this version of aiokafka is not known") == 1
