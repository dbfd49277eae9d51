"""The real responder process under measurement, with connectors that only take their time; fed through a broker.

python -m bench.responder_process '{"bootstrap": …, "topic_prefix": …}' tells each thing worth timing in a line of JSON:
`{"at": CLOCK_MONOTONIC in s, "cpu": CPU time of the process in s, "what": …, …}`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import orjson
import structlog
from aiokafka import AIOKafkaProducer

from bench.breakdowns import ACTIONS, POLICY, runbooks
from bench.brokered import ROOT
from bench.transactions import Watch
from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Waiting
from runbooks.engine.process import Responder
from runbooks.language.loader import load
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import Topic

PARTITION = 0
Line = dict[str, Any]

TAKES_S = {
    "open_ticket": 0.3,
    "cordon_node": 0.012,
    "suspend_job": 0.015,
    "drain_node": 0.04,
    "resume_job": 0.015,
    "verify_job": 0.01,
    "lookup": 0.008,
}
"""Medians of a call: an API server nearby answers in 10 ms or so, a ticket system in 300."""

DRAIN_S = 2.0
"""How long pods take to go: a drain is called again after that."""


class Counting:
    """Connectors of a world that takes its time and lets everything succeed; each call is told as it starts."""

    actions = ACTIONS

    def __init__(self) -> None:
        self._there: set[str] = set()
        self._draining: set[str] = set()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Succeed, a drain only the second time."""
        lease.check()
        tell("apply", incident=effect.incident, action=effect.action, key=effect.key)
        await _takes(effect.action, effect.key)
        if effect.action == "drain_node" and effect.key not in self._draining:
            self._draining.add(effect.key)
            return Waiting(DRAIN_S, "2 pods are going")
        there = effect.key in self._there
        self._there.add(effect.key)
        return AlreadyDone() if there else Done({"prior": "schedulable"}, "done")

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether it was made in the life of this process."""
        tell("lookup", incident=effect.incident, action=effect.action, key=effect.key)
        await _takes("lookup", effect.key)
        return AlreadyDone() if effect.key in self._there else Absent()

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Succeed."""
        lease.check()
        tell("undo", incident=effect.incident, action=effect.action, key=effect.key)
        return Done()

    async def close(self) -> None:
        """Nothing is held."""


async def _takes(what: str, key: str) -> None:
    await asyncio.sleep(TAKES_S.get(what, 0.015) * random.Random(key).lognormvariate(0, 0.5))


def tell(what: str, **more: object) -> None:
    """One line to whoever measures."""
    line = {"at": time.monotonic(), "cpu": time.process_time(), "what": what, **more}
    sys.stdout.buffer.write(orjson.dumps(line, default=str) + b"\n")
    sys.stdout.buffer.flush()


def _log(_: object, level: str, event: MutableMapping[str, Any]) -> str:
    """Log lines become lines of the measurement, but for the one of each call, which is told when it starts."""
    if event["event"] != "call":
        tell(str(event.pop("event")), level=level, **event)
    raise structlog.DropEvent


async def main(options: Line) -> None:
    """Act until killed."""
    structlog.configure(processors=[_log])
    Watch(tell).begin()
    await Responder(KafkaSettings(**options), POLICY, [Counting()], runbooks(load())).run()


class Process:
    """The process as whoever measures sees it."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def until(self, enough: Callable[[Line], bool], *, timeout_s: float) -> list[Line]:
        """What it tells from now on, up to the line after which `enough` says so.

        Raises:
            RuntimeError: it has ended, or has told of an error.
            TimeoutError: there was not enough in time.
        """
        lines: list[Line] = []
        assert self._child.stdout is not None
        async with asyncio.timeout(timeout_s):
            while raw := await self._child.stdout.readline():
                line: Line = orjson.loads(raw)
                lines.append(line)
                if line.get("level") in ("error", "critical"):
                    raise RuntimeError(f"the responder says: {line}")
                if enough(line):
                    return lines
        raise RuntimeError(f"the responder ended with {await self._child.wait()}")


@asynccontextmanager
async def started(settings: KafkaSettings) -> AsyncIterator[Process]:
    """One responder; killed at the end."""
    options = settings.model_dump(mode="json", exclude_defaults=True)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.responder_process", orjson.dumps(options).decode()),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(child)
    finally:
        child.kill()
        await child.wait()


class Writer:
    """What the other processes would write."""

    def __init__(self, settings: KafkaSettings, producer: AIOKafkaProducer) -> None:
        self._settings = settings
        self._producer = producer

    async def write(self, topic: Topic, records: Iterable[tuple[str, bytes]]) -> None:
        """Write records and wait until all are committed."""
        name = clients.topic_name(self._settings, topic)
        sent = [
            await self._producer.send(name, value, key=key.encode(), partition=PARTITION)
            for key, value in records
        ]
        await asyncio.gather(*sent)


@asynccontextmanager
async def writer(settings: KafkaSettings) -> AsyncIterator[Writer]:
    """A producer on these topics."""
    # A history is written with few requests; one incident still goes out as soon as it is handed over.
    producer = await clients.started(clients.producer(settings, max_batch_size=512 * 1024), settings)
    try:
        yield Writer(settings, producer)
    finally:
        await producer.stop()


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


if __name__ == "__main__":
    asyncio.run(main(orjson.loads(sys.argv[1])))
