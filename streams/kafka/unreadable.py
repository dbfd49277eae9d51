"""A record of our own topics that cannot be read, on its way to `dead-letters` in the same transaction as everything else."""

from __future__ import annotations

from aiokafka import ConsumerRecord

from streams.kafka.dead_letters import dead_letter
from streams.kafka.fenced_store import Outgoing
from streams.kafka.topics import DEAD_LETTERS
from streams.model.clock import from_millis
from streams.model.record import RawRecord


def buried(record: ConsumerRecord[bytes, bytes], *, topic: str, stage: str, reason: str) -> Outgoing:
    """The dead letter of `record`, which was read from `topic` (without this installation's prefix)."""
    raw = RawRecord(
        topic,
        record.partition,
        record.offset,
        from_millis(record.timestamp),
        record.key,
        record.value,
        tuple(record.headers),
    )
    key, value, headers = dead_letter(raw, stage=stage, reasons=[reason])
    return Outgoing(DEAD_LETTERS, 0, key.decode(), value, tuple(headers))
