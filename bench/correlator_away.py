"""The real correlator after it was away: how fast it catches up, and how long nobody decides anything.

Every figure is taken from outside: what is written to the broker, and what is read from it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from bench.brokered import ROOT, environment
from bench.figures import Figure, progress
from bench.trouble import Cluster
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import CHANGELOG, CORRELATOR_APP, INCIDENTS, INVENTORY, SIGNALS, Topic, partition_of
from streams.model.codec import decode, encode
from streams.model.entity import Entity, PodRef
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Incident
from streams.model.signal import Evidence, Severity, Signal, SignalBatch
from streams.model.signal import signal as make_signal

_DEADLINE_S = 600
_LOOK_EVERY_S = 0.2
_IN_FLIGHT = 2_000

PER_BATCH = 36
"""Signals of a record, as the detector writes them for jobs that train well."""


class Site:
    """A broker's topics, and a cluster in every partition."""

    def __init__(self, settings: KafkaSettings, writer: AIOKafkaProducer, reader: AIOKafkaConsumer) -> None:
        self.settings = settings
        self._writer = writer
        self._reader = reader
        self._nodes = count()
        self._told: list[Incident] = []
        wanted = range(settings.cluster_partitions)
        names = {partition_of(f"c{i}", settings.cluster_partitions): f"c{i}" for i in range(200)}
        self.clusters = [names[partition] for partition in wanted]

    async def write(self, topic: Topic, records: Iterator[tuple[int, bytes, bytes, int | None]]) -> int:
        """Write (partition, key, value, time in ms) records; returns how many."""
        name, sent, written = clients.topic_name(self.settings, topic), [], 0
        for partition, key, value, at_ms in records:
            sent.append(
                await self._writer.send(name, value, key=key, partition=partition, timestamp_ms=at_ms)
            )
            written += 1
            if len(sent) >= _IN_FLIGHT:
                await asyncio.gather(*sent)
                sent.clear()
        await asyncio.gather(*sent)
        return written

    async def fault(self, clusters: Sequence[str]) -> str:
        """A GPU is lost in each of these clusters, on a node that was never heard of; returns the node's name."""
        node, now = f"node-{next(self._nodes):04d}", datetime.now(UTC)

        def facts() -> Iterator[tuple[int, bytes, bytes, None]]:
            for name in clusters:
                fact = NodeFact(name, node, f"uid-{node}", now, ready_since=now - timedelta(hours=1), gpus=8)
                yield self._partition(name), fact.key.encode(), encode(FactRecord(fact)), None

        def signals() -> Iterator[tuple[int, bytes, bytes, None]]:
            lost = Cluster(1, 0, 0).xid(node, 0, 79, 0)
            for name in clusters:
                one = replace(
                    lost, entity=replace(lost.entity, cluster=name), occurred_at=now, observed_at=now
                )
                yield self._partition(name), name.encode(), encode(SignalBatch(name, (one,))), None

        await self.write(INVENTORY, facts())
        await self.write(SIGNALS, signals())
        return node

    async def decided(self, node: str, clusters: Sequence[str], alive: Callable[[], None]) -> None:
        """Until an incident is told of the node in each of these clusters."""
        waiting, until = set(clusters), time.monotonic() + _DEADLINE_S
        while waiting:
            alive()
            for records in (await self._reader.getmany(timeout_ms=20)).values():
                told = (decode(Incident, record.value) for record in records if record.value)
                waiting -= {i.cluster for i in told if i.root.node == node}
            if time.monotonic() > until:
                raise TimeoutError(f"{node} is not decided in {sorted(waiting)}")

    async def end(self, topic: Topic) -> int:
        """The sum of all partitions' ends."""
        name = clients.topic_name(self.settings, topic)
        where = [TopicPartition(name, p) for p in range(self.settings.cluster_partitions)]
        return sum((await self._reader.end_offsets(where)).values())

    async def changelog(self) -> list[tuple[int, bytes, bytes]]:
        """Every row that is there."""
        reader = clients.consumer(self.settings, group=None)
        name = clients.topic_name(self.settings, CHANGELOG)
        where = [TopicPartition(name, p) for p in range(self.settings.cluster_partitions)]
        reader.assign(where)
        await clients.started(reader, self.settings)
        await reader.seek_to_beginning()
        rows: dict[tuple[int, bytes], bytes | None] = {}
        try:
            while found := await reader.getmany(timeout_ms=500):
                rows |= {(r.partition, r.key): r.value for records in found.values() for r in records}
        finally:
            await reader.stop()
        return [(partition, key, value) for (partition, key), value in rows.items() if value is not None]

    async def members(self) -> int:
        """How many correlators the group has; 0 while it rebalances."""
        group = self.settings.topic_prefix + CORRELATOR_APP
        admin = await clients.started(clients.admin(self.settings), self.settings)
        try:
            (answer,) = await admin.describe_consumer_groups([group])
        except KafkaError:
            return 0  # nobody has joined yet, and the group has no coordinator
        finally:
            await admin.close()
        state, members = answer.groups[0][2], answer.groups[0][5]
        return len(members) if state == "Stable" else 0

    def _partition(self, cluster: str) -> int:
        return partition_of(cluster, self.settings.cluster_partitions)


@asynccontextmanager
async def site(settings: KafkaSettings) -> AsyncIterator[Site]:
    """A writer and a reader on these topics."""
    writer = await clients.started(clients.producer(settings, linger_ms=5, max_batch_size=262144), settings)
    reader = clients.consumer(settings, group=None, fetch_max_wait_ms=20)
    name = clients.topic_name(settings, INCIDENTS)
    reader.assign([TopicPartition(name, p) for p in range(settings.cluster_partitions)])
    await clients.started(reader, settings)
    await reader.seek_to_end()
    try:
        yield Site(settings, writer, reader)
    finally:
        await reader.stop()
        await writer.stop()


async def start(settings: KafkaSettings, log: Path) -> asyncio.subprocess.Process:
    """One correlator, by its command; what it logs is added to the file."""
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "faultline", "run", "correlator"),
            cwd=ROOT,
            env=environment(settings),
            stderr=out,
        )


async def end(process: asyncio.subprocess.Process, number: signal.Signals = signal.SIGKILL) -> None:
    """Signal it and wait for its end."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
    await process.wait()


def backlog(
    cluster: str, records: int, pods: int, per_s: float
) -> Iterator[tuple[datetime, tuple[Signal, ...]]]:
    """Progress of as many pods, a line each in turn, that ends now."""
    begin = datetime.now(UTC) - timedelta(seconds=records * PER_BATCH / per_s)
    number = count()
    for _ in range(records):
        batch = tuple(_progress(cluster, next(number), pods, begin, per_s) for _ in range(PER_BATCH))
        yield batch[-1].observed_at, batch


def _progress(cluster: str, number: int, pods: int, begin: datetime, per_s: float) -> Signal:
    at = begin + timedelta(seconds=number / per_s)
    pod, step = number % pods, 10_000 + number // pods
    evidence = Evidence(
        "raw.job-logs", number % 12, number, f"iteration {step:8d}/ 500000 | lm loss: 2.1E+00"
    )
    return make_signal(
        "job.progress",
        Entity(cluster, pod=PodRef("train", f"train-{pod:05d}-worker-0")),
        severity=Severity.INFO,
        occurred_at=at,
        observed_at=at,
        attributes={"step": step},
        evidence=(evidence,),
    )


async def catch_up(settings: KafkaSettings, log: Path, *, records: int, pods: int) -> dict[str, Figure]:
    """Records wait in one partition; meanwhile a GPU is lost in the cluster of another."""
    async with site(settings) as found:
        busy, *others = found.clusters
        partition = partition_of(busy, settings.cluster_partitions)

        def written() -> Iterator[tuple[int, bytes, bytes, int]]:
            for at, batch in backlog(busy, records, pods, 2_270):
                yield partition, busy.encode(), encode(SignalBatch(busy, batch)), int(at.timestamp() * 1000)

        await found.write(SIGNALS, written())
        progress(f"catch_up: {records:,} records lie there")
        return await _caught_up(found, log, busy, others[0], records)


async def _caught_up(found: Site, log: Path, busy: str, idle: str, records: int) -> dict[str, Figure]:
    process, deaths, rss = await start(found.settings, log), 0, 0.0
    where = TopicPartition(
        clients.topic_name(found.settings, SIGNALS), partition_of(busy, found.settings.cluster_partitions)
    )
    times: list[tuple[float, int]] = []
    waited: asyncio.Task[float] | None = None
    try:
        while True:
            committed = await clients.committed(found.settings, "correlator", [where])
            done = committed[where].offset if where in committed else 0
            times.append((time.monotonic(), done))
            if done and waited is None:
                waited = asyncio.create_task(_decision(found, idle))
            if done >= records:
                break
            if process.returncode is not None:
                deaths += 1
                progress(f"catch_up: ended with {process.returncode} at {done:,} records")
                process = await start(found.settings, log)
            rss = max(rss, peak_rss_mb(process.pid))
            if times[-1][0] - times[0][0] > _DEADLINE_S:
                raise TimeoutError(f"{done:,} of {records:,} records after {_DEADLINE_S} s")
            await asyncio.sleep(_LOOK_EVERY_S)
        rss = max(rss, peak_rss_mb(process.pid))
        idle_s = await waited if waited else None
    finally:
        await end(process)
    first_at, before = next((at, done) for at, done in times if done)
    rate = (records - before) / (times[-1][0] - first_at)
    return {
        "catch_up_records_per_s": rate,
        "catch_up_signals_per_s": rate * PER_BATCH,
        "catch_up_rss_mb": rss,
        "catch_up_deaths": deaths,
        "catch_up_idle_s": idle_s,
    }


async def _decision(found: Site, cluster: str) -> float:
    began = time.monotonic()
    await found.decided(await found.fault([cluster]), [cluster], lambda: None)
    return time.monotonic() - began


def peak_rss_mb(pid: int) -> float:
    """The most memory that a process ever had resident (Linux); 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (OSError, ProcessLookupError):
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


async def blind_s(
    found: Site, log: Path, *, number: signal.Signals, standby: bool, rounds: int
) -> list[float]:
    """How long until faults in every partition are decided, from the signal to the correlator on.

    They happen at that moment. Without a standby the next correlator is started when the last one has ended.
    """
    times: list[float] = []
    running = await start(found.settings, log)
    other = None
    try:
        await _works(found, running)
        for _ in range(rounds):
            if standby:
                other = await start(found.settings, log)
                await _works(found, running, other)
            began = time.monotonic()
            ending = asyncio.create_task(end(running, number))
            node = await found.fault(found.clusters)
            await ending
            running, other = other or await start(found.settings, log), None
            await found.decided(node, found.clusters, _alive(running))
            times.append(time.monotonic() - began)
    finally:
        await end(running)
        if other is not None:
            await end(other)
    return times


async def _works(found: Site, *running: asyncio.subprocess.Process) -> None:
    """Until every process has its place in the group, and faults in all partitions are decided."""
    until = time.monotonic() + _DEADLINE_S
    while await found.members() != len(running):
        if time.monotonic() > until:
            raise TimeoutError(f"not all of {len(running)} correlators have joined")
        for process in running:
            _alive(process)()
        await asyncio.sleep(_LOOK_EVERY_S)
    await found.decided(await found.fault(found.clusters), found.clusters, _alive(running[0]))


def _alive(process: asyncio.subprocess.Process) -> Callable[[], None]:
    def look() -> None:
        if process.returncode is not None:
            raise RuntimeError(f"the correlator ended with {process.returncode}")

    return look


async def lengthen(found: Site, records: int) -> int:
    """Write the rows that are there again and again: the same state in a changelog of so many records."""
    rows = await found.changelog()
    missing = max(0, records - await found.end(CHANGELOG))

    def again() -> Iterator[tuple[int, bytes, bytes, None]]:
        for number in range(missing):
            partition, key, value = rows[number % len(rows)]
            yield partition, key, value, None

    await found.write(CHANGELOG, again())
    return await found.end(CHANGELOG)


async def interpreter_s() -> float:
    """How long the interpreter and the imports of a correlator take, before any of it runs."""
    began = time.monotonic()
    imports = "import faultline.runtime.wiring, streams.correlate.process, streams.correlate, aiohttp.web"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", imports, cwd=ROOT)
    await process.wait()
    return time.monotonic() - began
