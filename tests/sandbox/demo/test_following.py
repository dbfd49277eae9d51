"""What the demo counts while it follows the topics."""

from __future__ import annotations

from datetime import UTC, datetime

from aiokafka import ConsumerRecord

from sandbox.demo.spectator import Spectator
from sandbox.fake_services.slack import SlackStandin
from streams.config.settings import KafkaSettings
from streams.kafka.dead_letters import HEADER
from streams.kafka.topics import DEAD_LETTERS
from streams.model.codec import encode
from streams.model.conversation import DeadLetter


def buried(offset: int) -> ConsumerRecord[bytes, bytes]:
    letter = DeadLetter(
        "detector", "cut off", "raw.node-logs", 0, offset, datetime(2026, 5, 4, tzinfo=UTC), size_bytes=3
    )
    return ConsumerRecord(
        topic=DEAD_LETTERS.name,
        partition=0,
        offset=0,
        timestamp=0,
        timestamp_type=0,
        key=None,
        value=b'{"x',
        checksum=None,
        serialized_key_size=-1,
        serialized_value_size=3,
        headers=[(HEADER, encode(letter))],
    )


def test_a_record_that_is_buried_twice_is_one_that_nobody_can_read() -> None:
    spectator = Spectator(KafkaSettings(), SlackStandin(), lambda moment: None)
    for offset in (7, 7, 8):
        assert list(spectator._moments(DEAD_LETTERS.name, buried(offset))) == []
    assert spectator.seen.dead_letters == 2
