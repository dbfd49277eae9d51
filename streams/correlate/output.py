"""What the correlator writes: changelog rows, incidents, timeline entries, ticks and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import structlog

from streams.config.settings import KafkaSettings
from streams.correlate.changes import Changes
from streams.correlate.write_ahead import Records
from streams.kafka import clients
from streams.kafka.dead_letters import dead_letter
from streams.kafka.topics import CHANGELOG, DEAD_LETTERS, INCIDENTS, TICKS, TIMELINE, Topic
from streams.model.clock import from_millis, rfc3339
from streams.model.codec import encode
from streams.model.pulse import Pulse
from streams.model.record import RawRecord
from streams.telemetry.tracing import Headers, incident_headers

log = structlog.get_logger(__name__)

_Record = tuple[Topic, bytes, bytes | None, Headers]
"""Where to, key, value and headers."""


class Output:
    """The correlator's producer. Every method returns when the broker has confirmed what it wrote."""

    def __init__(self, settings: KafkaSettings, pulse: Pulse, on_dead_letter: Callable[[str], None]) -> None:
        """`on_dead_letter` is called with the topic of each record that cannot be read, once the broker has it."""
        self._on_dead_letter = on_dead_letter
        self._settings = settings
        self._pulse = pulse

    async def start(self) -> None:
        """Connect.

        Raises:
            Unreachable: when no broker answers.
        """
        self._producer = clients.producer(self._settings, linger_ms=2)
        await clients.started(self._producer, self._settings)

    async def stop(self) -> None:
        """Send what is waiting, and disconnect."""
        await self._producer.stop()

    async def store(self, rows: Records, partition: int) -> list[int]:
        """Write rows to the changelog; returns their offsets."""
        return await self._send([(CHANGELOG, *row, ()) for row in rows], partition)

    async def publish(self, changes: Changes, partition: int) -> None:
        """Write incidents and timeline entries."""
        self._pulse.count("incidents", len(changes.incidents))
        out: list[_Record] = [
            (INCIDENTS, incident.id.encode(), encode(incident), incident_headers(incident.id))
            for incident in changes.incidents
        ]
        for entry in changes.timeline:
            if not entry.incident:
                log.warning(entry.event, cluster=entry.cluster, text=entry.text, **entry.attributes)
            out.append((TIMELINE, (entry.incident or entry.cluster).encode(), encode(entry), ()))
        await self._send(out, partition)

    async def tick(self, partition: int, at: datetime) -> None:
        """Write one tick."""
        name = clients.topic_name(self._settings, TICKS)
        await self._producer.send_and_wait(name, rfc3339(at).encode(), partition=partition)

    async def dead_letter(self, event: Any, reason: str) -> None:
        """Write a record that cannot be read to `dead-letters`."""
        message = event.message
        self._pulse.count("dead_letters")
        log.warning("record cannot be read", topic=message.topic, offset=message.offset, reason=reason)
        topic = message.topic.removeprefix(self._settings.topic_prefix)
        record = RawRecord(
            topic, message.partition, message.offset, written_at(message), message.key, event.value
        )
        key, value, headers = dead_letter(record, stage="correlator", reasons=[reason])
        name = clients.topic_name(self._settings, DEAD_LETTERS)
        await self._producer.send_and_wait(name, value, key=key, headers=headers)
        self._on_dead_letter(topic)

    async def _send(self, records: Sequence[_Record], partition: int) -> list[int]:
        sent = [
            await self._producer.send(
                clients.topic_name(self._settings, topic),
                value,
                key=key,
                partition=partition,
                headers=list(headers),
            )
            for topic, key, value, headers in records
        ]
        return [written.offset for written in await asyncio.gather(*sent)]


def written_at(message: Any) -> datetime:
    """When a record was written. Kafka counts milliseconds, but Faust hands them out as seconds with a fraction."""
    return from_millis(round(message.timestamp * 1000))
