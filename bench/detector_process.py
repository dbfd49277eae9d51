"""The real detector process under measurement: started by its command, followed from outside."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.brokered import ROOT, begin_again, environment, rate_per_s
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import SIGNALS, Topic

_LOOK_EVERY_S = 0.02
_GROUP = "detector"


@dataclass(frozen=True, slots=True)
class Pass:
    """What one process did with one topic. `cpu_us` is a record's share of its CPU time after the start."""

    per_s: float
    start_s: float
    rss_mb: float
    peak_rss_mb: float
    cpu_us: float
    signals: int


async def one_pass(settings: KafkaSettings, topic: Topic, records: int) -> Pass:
    """Have a new process read `topic` from its beginning until it has committed all `records`.

    Raises:
        RuntimeError: when the process ends before that.
    """
    name, group = clients.topic_name(settings, topic), clients.group_name(settings, _GROUP)
    await begin_again(settings.bootstrap, group, name, settings.raw_partitions)
    async with _reader(settings, SIGNALS) as signals:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "faultline", "run", "detector"),
            cwd=ROOT,
            env=environment(settings) | {"FAULTLINE_LOG_LEVEL": "error"},
        )
        try:
            first = asyncio.ensure_future(_first(signals))
            done, cpu_s = await _followed(settings, group, name, records, process)
            first_at, counted = await first
            return Pass(
                rate_per_s(done, records),
                first_at - began,
                _status_mb(process.pid, "VmRSS"),
                _status_mb(process.pid, "VmHWM"),
                cpu_s / records * 1e6,
                counted + await _rest(signals),
            )
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _followed(
    settings: KafkaSettings, group: str, topic: str, records: int, process: asyncio.subprocess.Process
) -> tuple[list[tuple[float, int]], float]:
    """What the group had committed at which time, until it is all, and the CPU time of that in s, without the start's."""
    admin = await clients.started(clients.admin(settings), settings)
    seen = [(time.monotonic(), 0)]
    before: tuple[int, float] | None = None
    try:
        while seen[-1][1] < records:
            if process.returncode is not None:
                raise RuntimeError(f"the detector ended with {process.returncode}")
            offsets = await admin.list_consumer_group_offsets(group)
            done = sum(max(0, at.offset) for partition, at in offsets.items() if partition.topic == topic)
            seen.append((time.monotonic(), done))
            if before is None and done:
                before = done, spent_cpu_s(process.pid)
            await asyncio.sleep(_LOOK_EVERY_S)
    finally:
        await admin.close()
    first, cpu_s = before or (0, 0.0)
    return seen, (spent_cpu_s(process.pid) - cpu_s) * records / max(1, records - first)


@asynccontextmanager
async def _reader(settings: KafkaSettings, topic: Topic) -> AsyncIterator[AIOKafkaConsumer]:
    """A reader of what is written from now on."""
    consumer = clients.consumer(settings, group=None)
    partitions = [
        TopicPartition(clients.topic_name(settings, topic), number)
        for number in range(settings.cluster_partitions)
    ]
    consumer.assign(partitions)
    await consumer.start()
    try:
        await consumer.seek_to_end(*partitions)
        for partition in partitions:
            await consumer.position(partition)
        yield consumer
    finally:
        await consumer.stop()


async def _first(signals: AIOKafkaConsumer) -> tuple[float, int]:
    """When the first record came, and how many signals it holds."""
    record = await signals.getone()
    return time.monotonic(), _count(record.value)


async def _rest(signals: AIOKafkaConsumer) -> int:
    """How many signals more there are."""
    count = 0
    while polled := await signals.getmany(timeout_ms=500):
        count += sum(_count(record.value) for batch in polled.values() for record in batch)
    return count


def _count(batch: bytes) -> int:
    return len(orjson.loads(batch)["signals"])


def _status_mb(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def spent_cpu_s(pid: int) -> float:
    """CPU time of a process so far in s."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
