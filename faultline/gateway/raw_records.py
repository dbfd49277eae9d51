"""Writes what hooks take to the raw topics, before they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from streams.config.settings import KafkaSettings
from streams.kafka.durable_writer import DurableWriter
from streams.kafka.topics import RAW_ALERTS, Topic

AT_ONCE = 500
"""Records of one delivery that are handed to the producer together."""


class RawValue(NamedTuple):
    """A record's value. Records of the same key stay in order, and repetitions among them are seen."""

    value: bytes
    key: bytes | None = None


class RawRecords:
    """Writes raw records. `start` before the first, `close` after the last."""

    def __init__(self, settings: KafkaSettings, *, timeout_s: float = 5.0) -> None:
        self._writer = DurableWriter(settings, timeout_s=timeout_s)

    async def start(self) -> None:
        """Connect. Raises Unreachable when no broker answers."""
        await self._writer.start()

    async def close(self) -> None:
        """Close the connection."""
        await self._writer.close()

    async def write(self, values: Sequence[RawValue], topic: Topic = RAW_ALERTS) -> None:
        """Write the values. All of them are durable when this returns.

        Raises:
            Temporary: when Kafka does not confirm all of them in time; some may be written. Whoever sends them again repeats
                those, which the detector takes as what they are: repetitions.
        """
        for begin in range(0, len(values), AT_ONCE):
            await asyncio.gather(
                *(
                    self._writer.write(topic, one.value, key=one.key)
                    for one in values[begin : begin + AT_ONCE]
                )
            )
