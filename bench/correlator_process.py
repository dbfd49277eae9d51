"""The real correlator process under measurement: fed and followed through a broker.

It is started by its command; where its rate is measured as `python -m bench.correlator_process`, which tells in a line of JSON
how far it is after each step. Offsets say that no sooner than a second later, and the end of the changelog grows by ticks, too.
"""

from __future__ import annotations

import asyncio
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.brokered import ROOT, environment
from faultline.runtime import logging_setup
from faultline.runtime.settings import Settings
from streams.config.settings import KafkaSettings
from streams.correlate import Changes, Config, Engine
from streams.correlate.process import Correlator
from streams.kafka import clients
from streams.kafka.topics import CORRELATOR_APP, INCIDENTS, INVENTORY, SIGNALS, TICKS, Topic
from streams.model import crash_points
from streams.model.codec import decode, encode
from streams.model.facts import Fact, FactRecord
from streams.model.incident import Incident
from streams.model.signal import Signal, SignalBatch
from tests.testbed.waiting import eventually

PARTITION = 0


class Feed:
    """What the other processes would write, and what they would read; one partition for all clusters."""

    def __init__(
        self, settings: KafkaSettings, writer: AIOKafkaProducer, reader: AIOKafkaConsumer, admin: Any
    ) -> None:
        self.settings = settings
        self._writer = writer
        self._reader = reader
        self._admin = admin
        self.published: list[Incident] = []

    async def tell(self, facts: Iterable[Fact]) -> None:
        """Write an inventory."""
        await self._write(INVENTORY, ((fact.key, encode(FactRecord(fact))) for fact in facts))

    async def see(self, batches: Iterable[Sequence[Signal]]) -> None:
        """Write batches of signals."""
        values = (SignalBatch(batch[0].entity.cluster, tuple(batch)) for batch in batches)
        await self._write(SIGNALS, ((value.cluster, encode(value)) for value in values))

    async def end(self, topic: Topic) -> int:
        """The offset after the last record."""
        where = TopicPartition(clients.topic_name(self.settings, topic), PARTITION)
        return int((await self._reader.end_offsets([where]))[where])

    async def committed(self, topic: Topic) -> int:
        """How far the correlators have acknowledged."""
        name = clients.topic_name(self.settings, topic)
        offsets = await self._admin.list_consumer_group_offsets(self.settings.topic_prefix + CORRELATOR_APP)
        return max((int(at.offset) for where, at in offsets.items() if where.topic == name), default=0)

    async def has_read(self, topic: Topic, records: int) -> bool:
        """Whether the correlators have acknowledged so many."""
        return await self.committed(topic) >= records

    async def read(self) -> None:
        """Take in what was published since."""
        while records := await self._reader.getmany(timeout_ms=50):
            self.published += (decode(Incident, r.value) for batch in records.values() for r in batch)

    async def _write(self, topic: Topic, records: Iterable[tuple[str, bytes]]) -> None:
        name = clients.topic_name(self.settings, topic)
        sent = []
        for key, value in records:
            sent.append(await self._writer.send(name, value, key=key.encode(), partition=PARTITION))
        await asyncio.gather(*sent)


@asynccontextmanager
async def feed(settings: KafkaSettings) -> AsyncIterator[Feed]:
    """A writer and readers on these topics."""
    writer = await clients.started(clients.producer(settings, linger_ms=5), settings)
    admin = await clients.started(clients.admin(settings), settings)
    reader = clients.consumer(settings, group=None)
    reader.assign([TopicPartition(clients.topic_name(settings, INCIDENTS), PARTITION)])
    await clients.started(reader, settings)
    try:
        await reader.seek_to_beginning()
        yield Feed(settings, writer, reader, admin)
    finally:
        await reader.stop()
        await admin.close()
        await writer.stop()


async def start(
    settings: KafkaSettings, *program: str, stdout: int | None = None
) -> asyncio.subprocess.Process:
    """One correlator, by its command or another `program`."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", *(program or ("faultline", "run", "correlator"))),
        cwd=ROOT,
        env=environment(settings) | {"FAULTLINE_LOG_LEVEL": "error"},
        stdout=stdout,
    )


async def kill(process: asyncio.subprocess.Process) -> None:
    """SIGKILL."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the process was when a step was published: `at` by CLOCK_MONOTONIC, `cpu` the computing time of the process."""

    at: float
    cpu: float
    facts: int
    signals: int
    ticks: int
    rss_mb: float


class Marking(Engine):
    """An engine that counts what it is given."""

    given: ClassVar[Counter[str]] = Counter()

    def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
        """Count them."""
        self.given["signals"] += len(signals)
        return super().on_signals(signals, now)

    def on_facts(self, facts: Sequence[tuple[str, Fact | None, datetime]]) -> Changes:
        """Count them."""
        self.given["facts"] += len(facts)
        return super().on_facts(facts)

    def on_tick(self, now: datetime) -> Changes:
        """Count it."""
        self.given["ticks"] += 1
        return super().on_tick(now)


def mark(label: str) -> None:
    """Called at each crash point: a line to whoever measures, when everything that follows from a step is written."""
    if label == crash_points.CORRELATOR_AFTER_PUBLISH:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        line = {
            "at": time.monotonic(),
            "cpu": time.process_time(),
            "rss_mb": pages * resource.getpagesize() / 1e6,
            **{name: Marking.given[name] for name in ("facts", "signals", "ticks")},
        }
        sys.stdout.buffer.write(orjson.dumps(line) + b"\n")
        sys.stdout.buffer.flush()


async def main() -> None:
    """Correlate until killed, as `faultline run correlator` does, and tell of every step."""
    logging_setup.configure("correlator", level="error")
    settings = Settings()
    config = Config.of(settings.correlator)
    await Correlator(
        settings.kafka, settings.correlator, lambda cluster, rows: Marking(cluster, rows, config), at=mark
    ).run()


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast one process read what lay there, and the computing time that each took it."""

    facts_per_s: float
    us_per_fact: float
    signals_per_s: float
    us_per_signal: float
    rss_mb: float
    records: int


async def rate(settings: KafkaSettings, facts: Sequence[Fact], batches: Sequence[Sequence[Signal]]) -> Rate:
    """One process: an inventory first, from the first step on, then all the signals, from the first one written on."""
    count = sum(len(batch) for batch in batches)
    async with feed(settings) as told:
        await told.tell(facts)
        process = await start(settings, "bench.correlator_process", stdout=asyncio.subprocess.PIPE)
        try:
            first = await _marked(process, lambda reached: reached.facts > 0)
            read = await _marked(process, lambda reached: reached.facts >= len(facts))
            # Time passes only when all that was there at the start is read.
            ready = await _marked(process, lambda reached: reached.ticks > 0)
            began = time.monotonic()
            await told.see(batches)
            done = await _marked(process, lambda reached: reached.signals >= count)
        finally:
            await kill(process)
    learnt = read.facts - first.facts
    return Rate(
        learnt / (read.at - first.at),
        (read.cpu - first.cpu) / learnt * 1e6,
        count / (done.at - began),
        (done.cpu - ready.cpu) / count * 1e6,
        done.rss_mb,
        len(batches),
    )


async def _marked(process: asyncio.subprocess.Process, enough: Callable[[Mark], bool]) -> Mark:
    """The next mark that is enough."""
    assert process.stdout is not None
    async with asyncio.timeout(300):
        while line := await process.stdout.readline():
            if enough(reached := Mark(**orjson.loads(line))):
                return reached
    raise RuntimeError(f"the correlator ended with {await process.wait()}")


@dataclass(slots=True)
class Campaign:
    """What came of a campaign through correlators that were killed."""

    published: list[Incident]
    takeovers_s: list[float] = field(default_factory=list)


async def killed(
    settings: KafkaSettings,
    facts: Sequence[Fact],
    batches: Sequence[Sequence[Signal]],
    *,
    kills: int,
    settle_s: float,
    seed: int,
) -> Campaign:
    """Signals flow, and the elder of two correlators is killed every few seconds; a new one is started in its place."""
    chance = random.Random(seed)
    campaign = Campaign([])
    async with feed(settings) as told:
        await told.tell(facts)
        elder = await start(settings)
        await _works(told)
        other = await start(settings)
        share = -(-len(batches) // kills)
        try:
            for number in range(kills):
                await told.see(batches[number * share : number * share + share // 2])
                await asyncio.sleep(chance.uniform(1, 4))
                await kill(elder)
                began = time.monotonic()
                elder, other = other, await start(settings)
                await told.see(batches[number * share + share // 2 : (number + 1) * share])
                await _works(told)
                campaign.takeovers_s.append(time.monotonic() - began)
            await eventually(
                lambda: told.has_read(SIGNALS, len(batches)), "all signals are read", timeout_s=120
            )
            await asyncio.sleep(settle_s)
            await told.read()
        finally:
            await kill(elder)
            await kill(other)
    campaign.published = told.published
    return campaign


async def _works(told: Feed) -> None:
    """Until some correlator tells the time: it does so only while it works."""
    before = await told.end(TICKS)

    async def ticked() -> bool:
        return await told.end(TICKS) > before

    await eventually(ticked, "a correlator works", timeout_s=120)


def recent(signals: Iterable[Signal], by: timedelta) -> list[Signal]:
    """The same signals at other times: a living correlator forgets what is long ago."""
    return [replace(s, occurred_at=s.occurred_at + by, observed_at=s.observed_at + by) for s in signals]


if __name__ == "__main__":
    asyncio.run(main())
