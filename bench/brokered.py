"""What benches with a broker share: topics that are filled faster than anybody reads them, and compared programs."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streams.config.settings import KafkaSettings

ROOT = Path(__file__).resolve().parents[1]

Timed = tuple[int, bytes]
"""A record to write: its time in ms since 1970 and its value."""

Progress = Sequence[tuple[float, int]]
"""How many records had been done at which time in s."""

_BATCH_BYTES = 512 * 1024
_IN_FLIGHT = 16


def installation(bootstrap: str, name: str, partitions: int) -> KafkaSettings:
    """Settings of an installation with topics of its own on the one broker of a bench."""
    return KafkaSettings(
        bootstrap=bootstrap,
        topic_prefix=f"{name}.",
        replication_factor=1,
        min_insync_replicas=1,
        raw_partitions=partitions,
        cluster_partitions=1,
    )


def environment(settings: KafkaSettings) -> dict[str, str]:
    """The same settings for a process that is started by its command."""
    wanted = settings.model_dump(mode="json", exclude_defaults=True)
    return dict(os.environ) | {
        f"FAULTLINE_KAFKA__{name.upper()}": str(value) for name, value in wanted.items()
    }


async def fill(bootstrap: str, topic: str, partitions: int, records: Iterable[Timed]) -> int:
    """Write `records` over the topic's partitions in large batches; returns how many bytes their values have."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks=1, max_batch_size=_BATCH_BYTES, max_request_size=8 * _BATCH_BYTES
    )
    await producer.start()
    sending: set[asyncio.Future[Any]] = set()
    written, number, batch = 0, 0, producer.create_batch()

    async def send() -> None:
        nonlocal sending, number
        batch.close()
        sending.add(await producer.send_batch(batch, topic, partition=number % partitions))
        number += 1
        if len(sending) >= _IN_FLIGHT:
            done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()

    try:
        for at_ms, value in records:
            if batch.append(key=None, value=value, timestamp=at_ms) is None:
                await send()
                batch = producer.create_batch()
                batch.append(key=None, value=value, timestamp=at_ms)
            written += len(value)
        await send()
        await asyncio.gather(*sending)
    finally:
        await producer.stop()
    return written


async def begin_again(bootstrap: str, group: str, topic: str, partitions: int) -> None:
    """Put a group that has no members back to the topic's beginning."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(wanted)
        await consumer.commit(dict.fromkeys(wanted, 0))
    finally:
        await consumer.stop()


def rate_per_s(done: Progress, total: int) -> float:
    """Records a second from the first sight of any until `total` were done; a program's start is not part of its speed."""
    first_at, before = next((at, count) for at, count in done if count)
    last_at = next(at for at, count in done if count >= total)
    return (total - before) / (last_at - first_at)


class Rival:
    """A compared program: started once, then told of one pass after the other in JSON lines, which it answers with figures.

    It runs in a folder of its own, gone at its end: Faust and Quix Streams leave their data where they run.
    """

    def __init__(self, python: Path | str, module: str) -> None:
        self._command = (str(python), "-m", module)
        self._folder = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, **request: object) -> dict[str, Any]:
        """Have it do one pass.

        Raises:
            RuntimeError: when it ends before it has answered.
        """
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._folder.name,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(request) + b"\n")
        await self._process.stdin.drain()
        while line := await self._process.stdout.readline():
            if line.startswith(b"{"):
                answer: dict[str, Any] = orjson.loads(line)
                return answer
        raise RuntimeError(f"{' '.join(self._command)} ended with {await self._process.wait()}")

    async def end(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        self._folder.cleanup()
