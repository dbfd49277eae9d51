"""Writes for those who wait for an answer: confirmed in time, or refused for now.

A producer keeps trying for as long as its requests may take, and what it holds meanwhile stays in memory. Whoever waits at the
other end of an HTTP request does not wait that long, and sends again. So while a write that was given up on has no outcome yet,
further ones are refused at once: it is the probe that tells when Kafka is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.config.settings import KafkaSettings
from streams.kafka.clients import producer, started, topic_name
from streams.kafka.topics import Topic
from streams.model.errors import Temporary, Unreachable

log = structlog.get_logger(__name__)

RETRY_S = 5.0
"""When to try again while Kafka takes nothing."""

CLOSE_S = 5.0
"""How long closing may take: a producer waits for what it holds, and Kafka may be away."""

Partition = Callable[[int], int]
"""The partition of a record, given how many there are."""


class DurableWriter:
    """Writes records. `start` before the first, `close` after the last."""

    def __init__(self, settings: KafkaSettings, *, timeout_s: float = 5.0) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._client: AIOKafkaProducer | None = None
        self._broken = False
        self._replacing = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._given_up: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect. Raises Unreachable when no broker answers."""
        self._client = await started(producer(self._settings), self._settings)

    async def close(self) -> None:
        """Close the connection. What has no outcome by `CLOSE_S` is given up: its sender was told so before."""
        for task in (*self._running, *self._closing):
            task.cancel()
        if self._client is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self._client.stop()
            except TimeoutError:
                log.warning("the producer was closed with records that Kafka has not confirmed")

    async def write(
        self, topic: Topic, value: bytes, *, key: bytes | None = None, partition: Partition | None = None
    ) -> None:
        """Write a record. It is durable when this returns.

        Raises:
            Temporary: when Kafka does not confirm it in time. It may be written nevertheless.
        """
        if self._given_up:
            raise Temporary(f"Kafka does not answer at {self._settings.bootstrap}", retry_after_s=RETRY_S)
        task = asyncio.ensure_future(self._write(topic, value, key, partition))
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._timeout_s):
                # Cut off half-way its outcome would not be known either, and the producer keeps the record all the same.
                await asyncio.shield(task)
        except TimeoutError as error:
            if not task.done():
                if not self._given_up:
                    log.warning(
                        "Kafka does not confirm a write; further ones are refused until it does",
                        topic=topic.name,
                    )
                self._given_up.add(task)
            raise Temporary(
                f"Kafka has not confirmed a record of {topic.name} within {self._timeout_s:g} s",
                retry_after_s=RETRY_S,
            ) from error
        except (KafkaError, Unreachable) as error:
            raise Temporary(
                f"Kafka does not take records of {topic.name}: {error!r}", retry_after_s=RETRY_S
            ) from error

    async def _write(
        self, topic: Topic, value: bytes, key: bytes | None, partition: Partition | None
    ) -> None:
        client = await self._usable()
        name = topic_name(self._settings, topic)
        place = partition(len(await client.partitions_for(name))) if partition is not None else None
        try:
            await client.send_and_wait(name, value, key=key, partition=place)
        except KafkaError:
            # After a batch was lost, an idempotent producer's next numbers do not follow the broker's.
            self._broken = self._broken or client is self._client
            raise

    async def _usable(self) -> AIOKafkaProducer:
        async with self._replacing:
            if self._client is None:
                raise RuntimeError("a record is written before `start`")
            if self._broken:
                log.warning("replacing the producer after a failed write")
                fresh = await started(producer(self._settings), self._settings)
                old, self._client, self._broken = self._client, fresh, False
                closing = asyncio.ensure_future(old.stop())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            return self._client

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task not in self._given_up:
            return
        self._given_up.discard(task)
        failed = None if task.cancelled() else task.exception()
        if not self._given_up:
            log.info(
                "Kafka answers again, writes are taken",
                **({"error": repr(failed)} if failed is not None else {}),
            )
