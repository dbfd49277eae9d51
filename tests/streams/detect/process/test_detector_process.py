"""The detector on a real broker: nothing is lost when it dies, nothing that is sent to it ends it."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cramjam
import orjson
import pytest
import zstandard
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.process import DetectorProcess
from streams.kafka import clients, provisioning
from streams.kafka.dead_letters import KEY_HEADER, MAX_BYTES, why_buried
from streams.kafka.topics import (
    DEAD_LETTERS,
    RAW,
    RAW_JOB_LOGS,
    RAW_METRICS,
    RAW_NODE_LOGS,
    SIGNALS,
    Topic,
    partition_of,
)
from streams.model.clock import rfc3339
from streams.model.codec import decode
from streams.model.errors import Unreachable
from streams.model.signal import Signal, SignalBatch, SignalState
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import PATIENCE_S, eventually, patience
from tests.tiers import sample

pytestmark = pytest.mark.kafka
PARTITIONS = 3
PATIENT_MS, HASTY_MS = 30_000, 2_000
"""Sessions of detectors in this process, and of those that are killed. Whoever gets no CPU for so long is put out of the
group, reads again and counts again, which must not happen where records are counted. But after a kill others wait for it.
"""


@pytest.fixture
async def settings(kafka: Kafka) -> KafkaSettings:
    """The broker with topics under a prefix of this test's own."""
    return await with_topics(kafka)


async def with_topics(kafka: Kafka) -> KafkaSettings:
    mine = kafka.settings("detector", raw_partitions=PARTITIONS, session_timeout_ms=PATIENT_MS)
    await provisioning.apply(mine)
    return mine


@asynccontextmanager
async def producing(settings: KafkaSettings) -> AsyncIterator[AIOKafkaProducer]:
    producer = await clients.started(clients.producer(settings, linger_ms=5), settings)
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def detecting(settings: KafkaSettings) -> AsyncIterator[DetectorProcess]:
    """A detector in this process, cancelled in order at the end."""
    process = DetectorProcess(settings, DetectorSettings(), cluster="c1")
    task = asyncio.create_task(process.run())
    try:
        yield process
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def everything(settings: KafkaSettings, topic: Topic) -> list[Any]:
    """All records of a topic that a read-committed reader sees now."""
    name = clients.topic_name(settings, topic)
    consumer: AIOKafkaConsumer = await clients.started(clients.consumer(settings, group=None), settings)
    try:
        count = settings.cluster_partitions if topic.partitions == "cluster" else settings.raw_partitions
        partitions = [TopicPartition(name, number) for number in range(count)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        records: list[Any] = []
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for batch in (await consumer.getmany(timeout_ms=200)).values():
                records += batch
        return records
    finally:
        await consumer.stop()


async def signals(settings: KafkaSettings) -> list[Signal]:
    records = await everything(settings, SIGNALS)
    for record in records:
        assert record.partition == partition_of(record.key.decode(), settings.cluster_partitions)
    return [signal for record in records for signal in decode(SignalBatch, record.value).signals]


def xid(pid: int) -> bytes:
    """A line; one of another node each time is no repeat."""
    return f"[ 12.3] NVRM: Xid (PCI:0000:3b:00): 43, pid={pid}, name=python, Ch 00000008".encode()


def pids(found: Sequence[Signal]) -> set[Any]:
    return {signal.attributes["pid"] for signal in found}


async def produce(
    settings: KafkaSettings, wanted: range, *, chatter: int, topic: Topic = RAW_NODE_LOGS
) -> None:
    """Write an Xid line for each number, and `chatter` lines that mean nothing after each."""
    name = clients.topic_name(settings, topic)
    async with producing(settings) as producer:
        for pid in wanted:
            await producer.send(name, xid(pid), key=b"gpu-%d" % pid)
            for _ in range(chatter):
                await producer.send(name, b"Nov 21 07:13:13 gpu-1 kubelet[1]: all is well", key=b"gpu-1")
        await producer.flush()


async def test_every_line_of_a_topic_becomes_a_signal_or_is_counted(settings: KafkaSettings) -> None:
    await produce(settings, range(1, 301), chatter=9)
    async with detecting(settings) as process:
        counts = process.counts[RAW_NODE_LOGS.name]

        async def all_read() -> bool:
            return counts.records == 3000

        await eventually(all_read, "all records are read")
    assert (counts.signalling, counts.ignored, counts.dead_letters, counts.signals) == (300, 2700, 0, 300)
    found = await signals(settings)
    assert sorted(pids(found)) == list(range(1, 301))
    assert len(found) == 300
    assert all(signal.evidence[0].text for signal in found)


async def test_what_a_producer_or_a_shipper_compressed_is_read(settings: KafkaSettings) -> None:
    name = clients.topic_name(settings, RAW_NODE_LOGS)
    values = [xid(1), gzip.compress(xid(2)), zstandard.compress(xid(3)), bytes(cramjam.lz4.compress(xid(4)))]
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        producer = clients.producer(settings, linger_ms=5, compression_type=codec)
        await clients.started(producer, settings)
        try:
            for number, value in enumerate(values, 1):
                await producer.send_and_wait(name, value, key=f"{codec}-{number}".encode())
        finally:
            await producer.stop()
    async with detecting(settings) as process:
        counts = process.counts[RAW_NODE_LOGS.name]

        async def all_read() -> bool:
            return counts.records == 16

        await eventually(all_read, "all records are read")
    assert (counts.signalling, counts.dead_letters) == (16, 0)
    assert {(signal.entity.node, signal.attributes["pid"]) for signal in await signals(settings)} == {
        (f"{codec}-{pid}", pid) for codec in ("gzip", "lz4", "snappy", "zstd") for pid in (1, 2, 3, 4)
    }


GARBAGE = [
    None,
    b"",
    b"\x00\xff\xfe" * 50,
    b'{"log": "cut in the mid',
    xid(1)[:30] + b"\xff\xff",
    b'{"a": "NVRM: Xid (PCI:0000:3b:00): 79"}',
    b'{"log": "\xff NVRM: Xid (PCI:0000:3b:00): 79"}',
    b'{"x":' * 3000 + b'"NVRM: Xid (PCI:0000:3b:00): 79"' + b"}" * 3000,
    b'{"log": "' + b"x" * 5_000_000 + b'NVRM: Xid (PCI:0000:3b:00): 79"}',
    b"[" * 200_000,
]


async def test_garbage_on_every_raw_topic_is_accounted_for_and_ends_nothing(settings: KafkaSettings) -> None:
    async with producing(settings) as producer:
        for topic in RAW:
            for value in [*GARBAGE, xid(7)]:
                await producer.send_and_wait(clients.topic_name(settings, topic), value, key=b"gpu-1")
    async with detecting(settings) as process:

        async def all_read() -> bool:
            return sum(counts.records for counts in process.counts.values()) == len(RAW) * (len(GARBAGE) + 1)

        await eventually(all_read, "all records are read")
    for topic in RAW:
        counts = process.counts[topic.name]
        assert (counts.records, counts.signalling, counts.ignored, counts.dead_letters) == (11, 1, 6, 4), (
            topic.name
        )
    assert len(await signals(settings)) == len(RAW)
    letters = await everything(settings, DEAD_LETTERS)
    assert len(letters) == 4 * len(RAW)
    for letter in letters:
        headers = dict(letter.headers)
        why = why_buried(letter.headers)
        assert letter.key.decode() == why.topic
        assert headers[KEY_HEADER] == b"gpu-1"
        assert why.reason
        assert (why.truncated, len(letter.value)) == (
            why.size_bytes > MAX_BYTES,
            min(why.size_bytes, MAX_BYTES),
        )
    assert {why_buried(letter.headers).topic for letter in letters} == {t.name for t in RAW}


def child(settings: KafkaSettings, folder: Path, *until: str) -> Child:
    """A detector process; `until` is a label and a count, where it kills itself."""
    hasty = settings.model_copy(update={"session_timeout_ms": HASTY_MS})
    arguments = [sys.executable, "-m", "tests.streams.detect.process.child", hasty.model_dump_json(), *until]
    return Child("detector", arguments, log=folder / "detector.log", cwd=Path(__file__).parents[4])


async def none_is_missing(settings: KafkaSettings, wanted: range, folder: Path) -> None:
    """Run a last detector until every line has its signal, and see that repeated ones are the same."""
    last = child(settings, folder)
    # One more line, which nobody else can have told: so the last one is at work when it is asked to end.
    await produce(settings, range(wanted.stop, wanted.stop + 1), chatter=0)
    try:

        async def all_there() -> bool:
            return pids(await signals(settings)) == {*wanted, wanted.stop}

        await eventually(all_there, "every line has its signal")
        assert last.stop(grace_s=60) == 0
    finally:
        last.kill()
    assert len({signal.id for signal in await signals(settings)}) == len(wanted) + 1


@pytest.mark.parametrize(
    "label",
    sample(
        ["detector:before_produce", "detector:after_produce", "detector:after_commit"],
        "detector:after_produce",
    ),
)
async def test_a_detector_that_dies_at_any_point_of_a_batch_loses_no_signal(
    settings: KafkaSettings, tmp_path: Path, label: str
) -> None:
    wanted = range(1, 2001)
    await produce(settings, wanted, chatter=0)
    for times in ("1", "2"):
        assert child(settings, tmp_path, label, times).wait(patience(PATIENCE_S)) == -9
    await none_is_missing(settings, wanted, tmp_path)


async def test_a_detector_killed_again_and_again_under_load_loses_no_signal(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    share = 2500
    for kill in range(3):
        before = len(await signals(settings))
        # Each has a load of its own: the one before may have read everything by the time at which it was killed.
        mine = range(1 + kill * share, 1 + (kill + 1) * share)
        load = asyncio.create_task(produce(settings, mine, chatter=4))
        running = child(settings, tmp_path)

        async def is_at_work(before: int = before) -> bool:
            return len(await signals(settings)) > before

        await eventually(is_at_work, f"signals come before kill {kill}")
        running.kill()
        await load
    await none_is_missing(settings, range(1, 1 + 3 * share), tmp_path)


async def test_partitions_move_to_a_second_detector_without_a_loss(settings: KafkaSettings) -> None:
    written = 0

    async def write_until(process: DetectorProcess, what: str) -> None:
        async def reads() -> bool:
            nonlocal written
            await produce(settings, range(written + 1, written + 201), chatter=0)
            written += 200
            return process.counts[RAW_NODE_LOGS.name].records > 0

        await eventually(reads, what)

    async with detecting(settings) as first:
        await write_until(first, "the first reads")
        async with detecting(settings) as second:
            await write_until(second, "the second reads too")

        async def none_missing() -> bool:
            return pids(await signals(settings)) == set(range(1, written + 1))

        await eventually(none_missing, "every line has its signal")


async def test_a_detector_that_ends_during_a_delivery_leaves_nothing_to_read_again(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, write = asyncio.Event(), DetectorProcess._write

    async def write_late(self: DetectorProcess, *args: Any) -> None:
        await may_write.wait()
        await write(self, *args)

    monkeypatch.setattr(DetectorProcess, "_write", write_late)
    process = DetectorProcess(settings, DetectorSettings(batch_records=100, snapshot_s=3600), cluster="c1")
    await produce(settings, range(1, 1001), chatter=0)
    running = asyncio.create_task(process.run())

    async def more_is_gathered() -> bool:
        return bool(process._delivery.gathered)

    await eventually(more_is_gathered, "more is read while the first is delivered")
    running.cancel()
    may_write.set()
    await asyncio.gather(running, return_exceptions=True)
    await produce(settings, range(1001, 1002), chatter=0)
    async with detecting(settings) as process:

        async def last_is_told() -> bool:
            return 1001 in pids(await signals(settings))

        await eventually(last_is_told, "the next goes on")
    assert len(await signals(settings)) == 1001
    assert process.counts[RAW_NODE_LOGS.name].read_again == 0


async def send_pauses(settings: KafkaSettings, scrapes: dict[int, int]) -> None:
    """A pause counter's seconds, by the seconds at which it was scraped."""
    start = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
    async with producing(settings) as producer:
        for second, paused_s in scrapes.items():
            sample = {
                "timestamp": rfc3339(start + timedelta(seconds=second)),
                "value": str(paused_s * 1_000_000),
                "name": "node_ethtool_transmitted_prio3_pause_duration",
                "labels": {"device": "eth2", "node": "gpu-1"},
            }
            name = clients.topic_name(settings, RAW_METRICS)
            await producer.send_and_wait(name, orjson.dumps(sample), key=b"gpu-1")


async def states(settings: KafkaSettings) -> list[SignalState]:
    return [signal.state for signal in await signals(settings)]


async def test_a_storm_that_began_before_a_crash_is_still_told_to_be_over(settings: KafkaSettings) -> None:
    await send_pauses(settings, {0: 0, 15: 15, 30: 30})
    async with detecting(settings):

        async def fires() -> bool:
            return await states(settings) == [SignalState.FIRING]

        await eventually(fires, "the storm is told")
    await send_pauses(settings, {45: 30})
    async with detecting(settings) as process:

        async def is_over() -> bool:
            return await states(settings) == [SignalState.FIRING, SignalState.CLEARED]

        await eventually(is_over, "its end is told, and its begin not again")
    assert process.counts[RAW_METRICS.name].records == 1, "what was read before is not counted again"
    assert process.counts[RAW_METRICS.name].read_again == 0, "the first has left a snapshot"


async def test_of_a_pods_progress_the_first_and_the_newest_are_told(settings: KafkaSettings) -> None:
    at = int(datetime.now(UTC).timestamp())
    pod = {"pod_name": "llm-0", "namespace_name": "ml", "host": "gpu-1"}
    name = clients.topic_name(settings, RAW_JOB_LOGS)
    async with producing(settings) as producer:
        for step in range(1, 101):
            line = {"@timestamp": at + step / 1000, "log": f"step: {step} loss: 2.5", "kubernetes": pod}
            await producer.send(name, orjson.dumps(line), key=b"llm-0", timestamp_ms=at * 1000 + step)
    async with detecting(settings):

        async def newest_is_told() -> bool:
            return [s.attributes["step"] for s in await signals(settings)][-1:] == [100]

        await eventually(newest_is_told, "the newest is told")
    found = await signals(settings)
    assert found[0].attributes["step"] == 1
    assert len(found) < 5
    assert sum(signal.count for signal in found) == 100


async def test_a_shipper_whose_clock_is_ahead_was_heard_when_it_was_heard(settings: KafkaSettings) -> None:
    name = clients.topic_name(settings, RAW_NODE_LOGS)
    ahead = int((datetime.now(UTC) + timedelta(minutes=50)).timestamp() * 1000)
    async with producing(settings) as producer:
        await producer.send_and_wait(name, xid(1), key=b"gpu-1", timestamp_ms=ahead)
    async with detecting(settings):

        async def told() -> list[Signal]:
            return await signals(settings)

        (signal,) = await eventually(told, "the line is a signal")
    assert signal.observed_at <= datetime.now(UTC)


async def test_a_node_that_floods_is_counted_and_not_repeated(settings: KafkaSettings) -> None:
    name = clients.topic_name(settings, RAW_NODE_LOGS)
    at_ms = round(datetime.now(UTC).timestamp() * 1000)
    async with producing(settings) as producer:
        for pid in range(1, 5001):
            # Half a second by their own times, however long it takes to write them.
            await producer.send(name, xid(pid), key=b"gpu-1", timestamp_ms=at_ms + pid // 10)
    async with detecting(settings) as process:

        async def all_told() -> bool:
            return sum(signal.count for signal in await signals(settings)) == 5000

        await eventually(all_told, "the counts make up what was said")
    counts = process.counts[RAW_NODE_LOGS.name]
    assert (counts.records, counts.signalling) == (5000, 5000)
    assert counts.signals < 20
    assert counts.signals == len(await signals(settings))


@pytest.mark.nightly
async def test_a_restart_of_the_broker_ends_nothing_and_loses_nothing(tmp_path: Path) -> None:
    with Kafka.running(tmp_path) as broker:
        settings = await with_topics(broker)
        await produce(settings, range(1, 301), chatter=0)
        async with detecting(settings) as process:

            async def all_read() -> bool:
                return process.counts[RAW_NODE_LOGS.name].records == 300

            await eventually(all_read, "all are read before")
            await asyncio.to_thread(broker.stop)
            broker.start()
            await produce(settings, range(301, 601), chatter=0)

            async def all_told() -> bool:
                return pids(await signals(settings)) == set(range(1, 601))

            await eventually(all_told, "all are told after")


async def test_without_a_broker_it_says_which_address_does_not_answer() -> None:
    nowhere = KafkaSettings(bootstrap="127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await DetectorProcess(nowhere, DetectorSettings(), cluster="c1").run()
