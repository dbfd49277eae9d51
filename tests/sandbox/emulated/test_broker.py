from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from sandbox.emulated import broker as embedded
from sandbox.emulated.child_processes import Child
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, producer, started, subscribe
from streams.kafka.topics import ALL, CHANGELOG, INCIDENTS, RAW_NODE_LOGS, RUNS
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.machinery, pytest.mark.embedded]

PRODUCE = 0
NOT_ENOUGH_REPLICAS = 19


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[embedded.Broker]:
    async with embedded.running(log=tmp_path / "broker.log") as running:
        yield running


async def read(settings: KafkaSettings, topic: str, partition: int, count: int) -> list[bytes]:
    client = await started(consumer(settings, group=None, fetch_max_wait_ms=50), settings)
    try:
        client.assign([TopicPartition(topic, partition)])
        await client.seek_to_beginning()
        values: list[bytes] = []
        while len(values) < count:
            for records in (await client.getmany(timeout_ms=200)).values():
                values += [record.value for record in records]
        return values
    finally:
        await client.stop()


async def test_it_has_every_topic_with_the_partition_counts_of_the_table(tmp_path: Path) -> None:
    base = KafkaSettings(raw_partitions=3, cluster_partitions=2, topic_prefix="x.")
    async with embedded.running(base, log=tmp_path / "broker.log") as broker:
        client = await started(producer(broker.settings), broker.settings)
        try:
            names = [f"x.{topic.name}" for topic in (*ALL, CHANGELOG)]
            counts = {name: len(await client.partitions_for(name)) for name in names}
        finally:
            await client.stop()
    assert counts == {f"x.{topic.name}": 3 if topic.partitions == "raw" else 2 for topic in (*ALL, CHANGELOG)}


async def test_a_group_goes_on_where_its_last_member_committed(broker: embedded.Broker) -> None:
    # Long enough for a process that gets no CPU for some seconds; this broker lets the next member wait for as long.
    settings = broker.settings.model_copy(update={"session_timeout_ms": 15_000})
    writer = await started(producer(settings), settings)
    topic = RAW_NODE_LOGS.name
    for number in range(10):
        await writer.send_and_wait(topic, b"%d" % number, partition=0)
    await writer.stop()

    async def some(count: int) -> list[bytes]:
        client = consumer(settings, group="detector", fetch_max_wait_ms=50)
        subscribe(client, [topic])
        await started(client, settings)
        values: list[bytes] = []
        try:
            while len(values) < count:
                for tp, records in (
                    await client.getmany(timeout_ms=200, max_records=count - len(values))
                ).items():
                    values += [record.value for record in records]
                    await client.commit({tp: records[-1].offset + 1})
            return values
        finally:
            await client.stop()

    assert await some(4) == [b"0", b"1", b"2", b"3"]
    assert await some(6) == [b"4", b"5", b"6", b"7", b"8", b"9"]


async def test_what_a_transaction_wrote_is_there_once_it_is_committed(broker: embedded.Broker) -> None:
    settings = broker.settings
    writer = await started(producer(settings, transactional_id="responder-0"), settings)
    async with writer.transaction():
        await writer.send_and_wait(RUNS.name, b"one", partition=0)
        await writer.send_and_wait(INCIDENTS.name, b"two", partition=0)
    async with writer.transaction():
        await writer.send_and_wait(RUNS.name, b"three", partition=0)
    await writer.stop()
    assert await read(settings, RUNS.name, 0, 2) == [b"one", b"three"]
    assert await read(settings, INCIDENTS.name, 0, 1) == [b"two"]


async def test_an_error_that_was_ordered_meets_the_next_request_and_is_retried(
    broker: embedded.Broker,
) -> None:
    settings = broker.settings
    writer = await started(producer(settings), settings)
    await broker.fail_next(PRODUCE, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS)
    await writer.send_and_wait(RAW_NODE_LOGS.name, b"late but there", partition=1)
    await writer.stop()
    assert await read(settings, RAW_NODE_LOGS.name, 1, 1) == [b"late but there"]


async def test_what_was_sent_while_it_was_down_arrives_when_it_is_up(broker: embedded.Broker) -> None:
    settings = broker.settings
    writer = await started(producer(settings), settings)
    await writer.send_and_wait(RAW_NODE_LOGS.name, b"first", partition=0)
    await broker.down()
    sent = await writer.send(RAW_NODE_LOGS.name, b"patience", partition=0)
    assert not sent.done()
    await broker.up()
    await sent
    await writer.stop()
    assert await read(settings, RAW_NODE_LOGS.name, 0, 2) == [b"first", b"patience"]


async def test_it_ends_when_its_standard_input_does(tmp_path: Path) -> None:
    async with embedded.running(log=tmp_path / "broker.log") as broker:
        stdin = broker.child._process.stdin
        assert stdin is not None
        stdin.close()
        assert await broker.child.wait() == 0


async def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from sandbox.emulated import broker\n"
        "async def main():\n"
        f"    async with broker.running(log=pathlib.Path({str(tmp_path / 'inner.log')!r})) as b:\n"
        "        print(b.child.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    parent = await Child.start("parent", (sys.executable, "-c", script), log=tmp_path / "p.log", talks=True)
    pid = int(await parent.line())
    os.kill(pid, 0)
    parent.signal(signal.SIGKILL)
    await parent.wait()

    async def gone() -> bool:
        return ended(pid)

    await eventually(gone, "the broker's end")


def ended(pid: int) -> bool:
    """Gone, or a zombie that nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
