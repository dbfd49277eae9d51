"""What a cluster says in ordinary times, at a steady rate, by a program of its own until SIGTERM: `python -m … JSON` or `@FILE`.

Half are lines of nodes, a quarter progress of training pods, most of the rest DCGM samples, and a few events and switches'
lines. Some reports that can be counted and some broken records are among them. What was written is in the file `report`.
A broker that is away is waited for; what was due meanwhile is written when it is back, as shippers do from their buffers.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

import orjson
from aiokafka import AIOKafkaProducer
from pydantic import TypeAdapter

from bench.chatter import ordinary, samples
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic
from tests.end_to_end import shippers

EVERY_S = 0.05
HARMLESS = (13, 43, 45)
"""Codes of applications' own faults and of teardown: counted, and no reason to close a node."""

_SHARES = (
    (RAW_NODE_LOGS, 0.5),
    (RAW_JOB_LOGS, 0.25),
    (RAW_METRICS, 0.23),
    (RAW_K8S_EVENTS, 0.01),
    (RAW_FABRIC, 0.01),
)
_POOL = 20_000
_REPORTS_PER_S = 20
_BROKEN_EVERY_S = 5.0
_GIVES_UP_MS = 600_000


@dataclass(slots=True)
class Wanted:
    """What to write. `pods` is a file with a JSON list of (namespace, pod, node), which may change at any time."""

    bootstrap: str
    topic_prefix: str
    partitions: int
    lines_per_s: float
    nodes: list[str]
    pods: str
    report: str
    metrics_nodes: int = 64


@dataclass(slots=True)
class Report:
    """What was written so far: records by topic, countable reports by `node code`, broken records, deliveries that failed."""

    records: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    failed: list[str] = field(default_factory=list)
    over: bool = False


class Load:
    """The writer. `write` until `stop` is set."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.report = Report()
        self.stop = asyncio.Event()
        self._r = random.Random(5)
        now = datetime.now(UTC)
        self._lines = cycle(list(islice(ordinary(11, now), _POOL)))
        self._samples = samples(3, 10**12, begin=now, changing=0, nodes=wanted.metrics_nodes)
        self._step = 1000
        self._broken_at = 0.0
        self._owed = 0.0
        self._reports_owed = 0.0
        self._sending: set[asyncio.Future[object]] = set()

    async def write(self) -> None:
        """Write at the wanted rate."""
        producer = AIOKafkaProducer(
            bootstrap_servers=self._wanted.bootstrap,
            enable_idempotence=True,
            request_timeout_ms=_GIVES_UP_MS,
            max_batch_size=1024 * 1024,
            max_request_size=8 * 1024 * 1024,
        )
        await producer.start()
        loop = asyncio.get_running_loop()
        begun, turn, told_at = loop.time(), 0, 0.0
        try:
            while not self.stop.is_set():
                await self._turn(producer, turn)
                turn += 1
                if loop.time() > told_at + 1:
                    told_at = loop.time()
                    self._tell()
                await asyncio.sleep(max(0.0, begun + turn * EVERY_S - loop.time()))
            while self._sending:
                await asyncio.wait(self._sending)
            self.report.over = True
            self._tell()
        finally:
            await producer.stop()

    async def _turn(self, producer: AIOKafkaProducer, turn: int) -> None:
        self._owed += self._wanted.lines_per_s * EVERY_S
        count, self._owed = int(self._owed), self._owed % 1
        for topic, share in _SHARES:
            many = int(count * share + self._r.random())
            lines = list(islice(self._of(topic), many))
            if topic is RAW_NODE_LOGS:
                lines += self._reports()
            if not lines:
                continue
            batch = producer.create_batch()
            for line in lines:
                batch.append(key=None, value=line, timestamp=int(time.time() * 1000))
            batch.close()
            name = self._wanted.topic_prefix + topic.name
            sent = await producer.send_batch(batch, name, partition=turn % self._wanted.partitions)
            self._sending.add(sent)
            sent.add_done_callback(self._arrived)
            self.report.records[topic.name] += len(lines)

    def _arrived(self, sent: asyncio.Future[object]) -> None:
        self._sending.discard(sent)
        if error := sent.exception():
            self.report.failed.append(repr(error))

    def _of(self, topic: Topic) -> Iterator[bytes]:
        if topic is RAW_NODE_LOGS:
            return self._lines
        if topic is RAW_METRICS:
            return self._samples
        if topic is RAW_JOB_LOGS:
            return self._progress()
        return self._events() if topic is RAW_K8S_EVENTS else self._switches()

    def _progress(self) -> Iterator[bytes]:
        pods = orjson.loads(Path(self._wanted.pods).read_bytes())
        if not pods:
            return iter(self._lines)
        return self._iterations(pods)

    def _iterations(self, pods: list[tuple[str, str, str]]) -> Iterator[bytes]:
        while True:
            self._step += 1
            for namespace, pod, node in pods:
                yield orjson.dumps(shippers.iteration(namespace, pod, node, self._step))

    def _events(self) -> Iterator[bytes]:
        while True:
            pod = f"web-{self._r.randrange(10**6)}"
            yield orjson.dumps(
                {
                    "metadata": {"name": f"{pod}.{time.time_ns()}", "namespace": "web"},
                    "involvedObject": {"kind": "Pod", "name": pod, "namespace": "web"},
                    "reason": "Pulled",
                    "message": "Container image already present on machine",
                    "type": "Normal",
                    "lastTimestamp": datetime.now(UTC).isoformat(),
                    "source": {"component": "kubelet", "host": self._r.choice(self._wanted.nodes)},
                }
            )

    def _switches(self) -> Iterator[bytes]:
        while True:
            at = datetime.now(UTC)
            yield f"{at:%b %d %H:%M:%S}.{at.microsecond:06} leaf-{self._r.randrange(4)} INFO bgp#bgpd: keepalive sent".encode()

    def _reports(self) -> list[bytes]:
        """Some lines that say something, of which every one has to be accounted for; and now and then a record cut in half."""
        self._reports_owed += _REPORTS_PER_S * EVERY_S
        many, self._reports_owed = int(self._reports_owed), self._reports_owed % 1
        lines = []
        for _ in range(many):
            node, code = self._r.choice(self._wanted.nodes), self._r.choice(HARMLESS)
            self.report.said[f"{node} {code}"] += 1
            pid = self._r.randrange(1000, 100_000)
            text = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name=python, Ch 0000000{pid % 8}"
            lines.append(orjson.dumps(shippers.kernel(node, text)))
        if time.monotonic() > self._broken_at:
            self._broken_at = time.monotonic() + _BROKEN_EVERY_S
            self.report.broken += 1
            lines.append(b'{"log": "cut in the mid')
        return lines

    def _tell(self) -> None:
        fresh = Path(f"{self._wanted.report}.new")
        fresh.write_bytes(orjson.dumps(self.report))
        fresh.replace(self._wanted.report)


def read_report(path: Path) -> Report:
    """What a writer has told last; nothing yet is an empty one."""
    return TypeAdapter(Report).validate_json(path.read_bytes()) if path.exists() else Report()


async def main(wanted: Wanted) -> None:
    """Write until SIGTERM, then until all of it is acknowledged."""
    load = Load(wanted)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.stop.set)
    await load.write()


if __name__ == "__main__":
    told = sys.argv[1]
    wanted = Path(told[1:]).read_text() if told.startswith("@") else told
    asyncio.run(main(Wanted(**orjson.loads(wanted))))
