"""The real correlator process under measurement: started by its command, fed and followed through a broker."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from bench.brokered import ROOT, environment
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import CHANGELOG, CORRELATOR_APP, INCIDENTS, INVENTORY, SIGNALS, TICKS, Topic
from streams.model.codec import decode, encode
from streams.model.facts import Fact, FactRecord
from streams.model.incident import Incident
from streams.model.signal import Signal, SignalBatch
from tests.testbed.waiting import eventually

_LOOK_EVERY_S = 0.02
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


async def start(settings: KafkaSettings) -> asyncio.subprocess.Process:
    """One correlator, by its command."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "faultline", "run", "correlator"),
        cwd=ROOT,
        env=environment(settings) | {"FAULTLINE_LOG_LEVEL": "error"},
    )


async def kill(process: asyncio.subprocess.Process) -> None:
    """SIGKILL."""
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast one process read what lay there."""

    facts_per_s: float
    signals_per_s: float
    records: int


async def rate(settings: KafkaSettings, facts: Sequence[Fact], batches: Sequence[Sequence[Signal]]) -> Rate:
    """One process: an inventory first, then all the signals; from the first one written until the last state is stored."""
    async with feed(settings) as told:
        await told.tell(facts)
        process = await start(settings)
        try:
            await _changed(told, process, 0)
            began, before = time.monotonic(), await told.end(CHANGELOG)
            while await told.committed(INVENTORY) < len(facts):
                await _alive(process)
            facts_s = time.monotonic() - began
            stored = await told.end(CHANGELOG)
            began = done = time.monotonic()
            await told.see(batches)
            while await told.committed(SIGNALS) < len(batches):
                await _alive(process)
                now = await told.end(CHANGELOG)
                if now > stored:
                    stored, done = now, time.monotonic()
        finally:
            await kill(process)
    count = sum(len(batch) for batch in batches)
    return Rate((len(facts) - before) / facts_s, count / (done - began), len(batches))


async def _changed(told: Feed, process: asyncio.subprocess.Process, since: int) -> None:
    while await told.end(CHANGELOG) <= since:
        await _alive(process)


async def _alive(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        raise RuntimeError(f"the correlator ended with {process.returncode}")
    await asyncio.sleep(_LOOK_EVERY_S)


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
