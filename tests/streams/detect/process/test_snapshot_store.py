"""What the detector remembers outlives it: written down, taken over by another process, and refused when it is not whole."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect import snapshot_store
from streams.detect.process import DetectorProcess
from streams.detect.snapshot import Snapshot
from streams.detect.snapshot_store import Pointer, Reader, write
from streams.kafka import clients
from streams.kafka.topics import DETECTOR_STATE, RAW_METRICS, RAW_NODE_LOGS, partition_of
from streams.model.errors import BadInput
from streams.model.signal import Signal, SignalState
from tests.streams.detect.process.test_detector_process import (
    HASTY_MS,
    everything,
    producing,
    send_pauses,
    settings,
    signals,
    states,
    with_topics,
    xid,
)
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import PATIENCE_S, eventually, patience

__all__ = ["settings"]
pytestmark = pytest.mark.kafka

FIRING, CLEARED = SignalState.FIRING, SignalState.CLEARED
BEFORE, AFTER = {0: 0, 15: 15, 30: 30}, {45: 30}
"""Scrapes of a counter: a storm begins, and is over."""


@asynccontextmanager
async def detecting(
    settings: KafkaSettings, *, snapshot_s: float = 15.0, at: Callable[[str], None] = lambda label: None
) -> AsyncIterator[DetectorProcess]:
    process = DetectorProcess(settings, DetectorSettings(snapshot_s=snapshot_s), cluster="c1", at=at)
    task = asyncio.create_task(process.run())
    try:
        yield process
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def source(settings: KafkaSettings) -> TopicPartition:
    """Where `send_pauses` writes: everything has one key."""
    name = clients.topic_name(settings, RAW_METRICS)
    return TopicPartition(name, partition_of("gpu-1", settings.raw_partitions))


async def pointer(settings: KafkaSettings) -> Pointer | None:
    """What the last commit of that partition says of the snapshot."""
    commits = await clients.committed(settings, "detector", [source(settings)])
    return Pointer.parse(commits[source(settings)].metadata) if commits else None


async def commit(settings: KafkaSettings, metadata: Callable[[Pointer], str]) -> None:
    """Change what the commit says, while nobody is in the group."""
    found = await pointer(settings)
    assert found is not None
    consumer = clients.consumer(settings, group="detector")
    consumer.assign([source(settings)])
    await clients.started(consumer, settings)
    try:
        (entry,) = (await clients.committed(settings, "detector", [source(settings)])).values()
        await consumer.commit({source(settings): (entry.offset, metadata(found))})
    finally:
        await consumer.stop()


async def storm_told(settings: KafkaSettings, *wanted: SignalState) -> None:
    async def told() -> bool:
        return await states(settings) == list(wanted)

    await eventually(told, f"told: {wanted}")


async def test_a_clean_end_leaves_a_snapshot_and_nothing_is_read_again(settings: KafkaSettings) -> None:
    await send_pauses(settings, BEFORE)
    async with detecting(settings):
        await storm_told(settings, FIRING)
    found = await pointer(settings)
    assert found is not None
    assert found.blocks > 0
    await send_pauses(settings, AFTER)
    async with detecting(settings) as process:
        await storm_told(settings, FIRING, CLEARED)
    assert process.counts[RAW_METRICS.name].read_again == 0
    assert process.counts[RAW_METRICS.name].records == len(AFTER)


async def test_what_is_fetched_while_another_partition_is_still_restored_is_not_lost(
    settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = clients.topic_name(settings, RAW_NODE_LOGS)
    everywhere = range(settings.raw_partitions)

    async def print_everywhere(pid: int) -> None:
        async with producing(settings) as producer:
            for number in everywhere:
                await producer.send_and_wait(
                    name, xid(pid + number), key=b"gpu-%d" % number, partition=number
                )

    async def told(wanted: int) -> bool:
        return len(await signals(settings)) >= wanted

    await print_everywhere(100)
    async with detecting(settings):
        await eventually(lambda: told(len(everywhere)), "the first life has read all")
    await print_everywhere(200)

    fetched = asyncio.Event()
    getmany, read = AIOKafkaConsumer.getmany, Reader.read

    async def getmany_and_tell(self: AIOKafkaConsumer, *args: Any, **more: Any) -> Any:
        records = await getmany(self, *args, **more)
        if records:
            fetched.set()
        return records

    async def read_after_a_fetch(self: Reader, *args: Any) -> Snapshot:
        fetched.clear()
        with suppress(TimeoutError):  # nothing was to be fetched, which is well too
            async with asyncio.timeout(2):
                await fetched.wait()
        return await read(self, *args)

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", getmany_and_tell)
    monkeypatch.setattr(Reader, "read", read_after_a_fetch)
    async with detecting(settings):
        await eventually(lambda: told(2 * len(everywhere)), "the second life has read all")


def child(settings: KafkaSettings, folder: Path, label: str, times: int) -> Child:
    wanted = DetectorSettings(batch_records=500, snapshot_s=0.05)
    hasty = settings.model_copy(update={"session_timeout_ms": HASTY_MS})
    arguments = [hasty.model_dump_json(), label, str(times), wanted.model_dump_json()]
    command = [sys.executable, "-m", "tests.streams.detect.process.child", *arguments]
    return Child("detector", command, log=folder / "detector.log", cwd=Path(__file__).parents[4])


@pytest.mark.parametrize("label", ["detector:snapshot_written", "detector:snapshot_committed"])
async def test_after_a_crash_at_a_snapshot_the_storm_is_still_told_to_be_over(
    settings: KafkaSettings, tmp_path: Path, label: str
) -> None:
    await send_pauses(settings, BEFORE)
    running = child(settings, tmp_path, label, 2)

    async def first_is_committed() -> bool:
        found = await pointer(settings)
        return found is not None and found.blocks > 0

    async def told(*wanted: SignalState) -> None:
        # Whoever is put out of its group before it commits is read again by the next: a signal may come twice, with one id.
        async def they_are() -> bool:
            return list({one.id: one.state for one in await signals(settings)}.values()) == list(wanted)

        await eventually(they_are, f"told: {wanted}")

    await eventually(first_is_committed, "the first snapshot counts")
    await told(FIRING)
    await send_pauses(settings, {40: 40})
    assert await asyncio.to_thread(running.wait, patience(PATIENCE_S)) == -9
    found = await pointer(settings)
    assert found is not None
    assert found.blocks > 0
    await send_pauses(settings, {55: 40})
    async with detecting(settings) as process:
        await told(FIRING, CLEARED)
    assert process.counts[RAW_METRICS.name].read_again <= 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda pointer: "",
        lambda pointer: "of another program",
        lambda pointer: replace(pointer, digest="0" * 32).text(),
        lambda pointer: replace(pointer, id="0" * 16).text(),
        lambda pointer: replace(pointer, first=pointer.first + 10_000, last=pointer.last + 10_000).text(),
        lambda pointer: replace(pointer, as_of=pointer.as_of + 1000).text(),
        lambda pointer: replace(pointer, version=99).text(),
    ],
    ids=["none", "foreign", "digest", "other", "gone", "ahead", "newer"],
)
async def test_without_a_good_snapshot_the_last_records_are_read_again(
    settings: KafkaSettings, damage: Callable[[Pointer], str], capsys: pytest.CaptureFixture[str]
) -> None:
    await send_pauses(settings, BEFORE)
    async with detecting(settings):
        await storm_told(settings, FIRING)
    await commit(settings, damage)
    await send_pauses(settings, AFTER)
    async with detecting(settings) as process:
        await storm_told(settings, FIRING, CLEARED)
    assert process.counts[RAW_METRICS.name].read_again == len(BEFORE)
    assert process.counts[RAW_METRICS.name].records == len(AFTER)
    assert "no usable snapshot" in capsys.readouterr().out


async def test_what_a_replaced_process_still_writes_misleads_nobody(settings: KafkaSettings) -> None:
    """A frozen process wakes and writes a snapshot under the keys of the one that counts; it may not commit any more."""
    await send_pauses(settings, BEFORE)
    async with detecting(settings):
        await storm_told(settings, FIRING)
    found = await pointer(settings)
    assert found is not None
    async with producing(settings) as producer:
        stale = Snapshot(f"{RAW_METRICS.name}/{source(settings).partition}")
        stale.rule_state.table("pauses", 10)["nonsense",] = (1,)
        await write(producer, settings, stale, as_of=0, at_ms=0, slot=found.slot)
    await send_pauses(settings, AFTER)
    async with detecting(settings) as process:
        await storm_told(settings, FIRING, CLEARED)
    assert process.counts[RAW_METRICS.name].read_again == 0


async def test_counts_that_were_under_way_are_told_by_the_next_process(settings: KafkaSettings) -> None:
    name = clients.topic_name(settings, RAW_NODE_LOGS)

    async def flood(lines: int) -> None:
        async with producing(settings) as producer:
            at_ms = round(datetime.now(UTC).timestamp() * 1000)
            for pid in range(lines):
                await producer.send(name, xid(pid), key=b"gpu-1", timestamp_ms=at_ms)

    async def read(process: DetectorProcess, records: int) -> None:
        async def all_read() -> bool:
            return process.counts[RAW_NODE_LOGS.name].records >= records

        await eventually(all_read, "all are read")

    await flood(500)
    async with detecting(settings) as process:
        await read(process, 500)

    async def told() -> list[Signal]:
        found = await signals(settings)
        return found if sum(signal.count for signal in found) >= 600 else []

    async with detecting(settings) as process:
        await flood(100)
        found = await eventually(told, "all are counted")
    assert sum({signal.id: signal.count for signal in found}.values()) == 600
    assert len(found) < 10


async def test_snapshots_take_turns_in_two_slots_and_are_found_by_their_blocks(
    settings: KafkaSettings,
) -> None:
    async with detecting(settings, snapshot_s=0.05):
        for least in (1, 2):
            # One after the other: a detector that joined late would read all at once, and write one snapshot.
            start = 60 * least
            await send_pauses(settings, {start + second: start for second in (0, 15, 30, 45)})
            found = await eventually(partial(written, settings, least), f"{least} snapshots are written")
    slots = {record.key.decode().split("/")[2] for record in found}
    assert slots == {"0", "1"}


async def written(settings: KafkaSettings, least: int) -> list[Any]:
    records = await everything(settings, DETECTOR_STATE)
    return records if len(records) >= least else []


async def test_a_big_snapshot_is_read_back_as_it_was(kafka: Kafka) -> None:
    settings = await with_topics(kafka)
    big = Snapshot("raw.metrics/0")
    rows = {
        ("c1", f"gpu-{n}", "mlx5_0", "sent", 3, "duration"): (float(n), n, 0, False) for n in range(50_000)
    }
    table = big.rule_state.table("pauses", 200_000)
    for key, row in rows.items():
        table[key] = row
    reader = Reader(settings)
    try:
        async with producing(settings) as producer:
            pointer = await write(producer, settings, big, as_of=7, at_ms=9, slot=1)
        assert pointer.blocks == 10
        read = await reader.read("raw.metrics/0", Pointer.parse(pointer.text()) or Pointer(0))
        assert dict(read.rule_state.table("pauses", 200_000)) == rows
        with pytest.raises(BadInput, match=r"raw\.metrics/0 instead of raw\.metrics/1"):
            await reader.read("raw.metrics/1", pointer)
    finally:
        await reader.stop()


@pytest.mark.nightly
async def test_a_snapshot_is_not_given_up_while_the_broker_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seek = AIOKafkaConsumer.seek
    with Kafka.running(tmp_path) as broker:
        settings = await with_topics(broker)
        small = Snapshot("raw.metrics/0")
        small.rule_state.table("pauses", 10)["eth2",] = (1,)
        async with producing(settings) as producer:
            pointer = await write(producer, settings, small, as_of=7, at_ms=9, slot=0)

        def seek_and_freeze(self: AIOKafkaConsumer, *args: Any) -> None:
            seek(self, *args)
            broker.pause()
            asyncio.get_running_loop().call_later(1, broker.resume)

        monkeypatch.setattr(snapshot_store, "_SILENT_POLLS", 2)
        monkeypatch.setattr(AIOKafkaConsumer, "seek", seek_and_freeze)
        reader = Reader(settings)
        try:
            read = await reader.read("raw.metrics/0", pointer)
        finally:
            await reader.stop()
    assert dict(read.rule_state.table("pauses", 10)) == {("eth2",): (1,)}


def test_a_pointer_fits_into_a_commit() -> None:
    """Kafka takes 4096 bytes of metadata by default."""
    longest = Pointer(2**62, 2**62, uuid.uuid4().hex, 10_000, 2**62, 2**62, 10_000, "f" * 64, 1)
    assert len(longest.text()) < 1000
    assert orjson.loads(longest.text())["as_of"] == 2**62
