"""Writes what hooks take to the raw topics, before they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.config.settings import KafkaSettings
from streams.kafka.clients import producer, started, topic_name
from streams.kafka.topics import RAW_ALERTS, Topic
from streams.model.errors import Temporary


class RawRecords:
    """Writes raw records. `start` before the first, `close` after the last."""

    def __init__(self, settings: KafkaSettings, *, timeout_s: float = 5.0) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect. Raises Unreachable when no broker answers."""
        self._producer = await started(producer(self._settings), self._settings)

    async def close(self) -> None:
        """Close the connection."""
        if self._producer is not None:
            await self._producer.stop()

    async def write(self, values: Sequence[bytes], topic: Topic = RAW_ALERTS) -> None:
        """Write the values. They are durable when this returns.

        Raises:
            Temporary: when Kafka does not confirm all of them in time; some of them may be written nevertheless.
        """
        if self._producer is None:
            raise RuntimeError("records are written before `start`")
        name = topic_name(self._settings, topic)
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.gather(*(self._producer.send_and_wait(name, value) for value in values))
        except (TimeoutError, KafkaError) as error:
            raise Temporary(f"Kafka does not take records of {name}: {error!r}") from error
