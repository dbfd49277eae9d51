"""What only a real broker shows: transactions that were aborted or are open, searches by time, and records that were deleted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete

from faultline.replay.capture import read
from faultline.replay.kafka_capture.take import Order, take
from faultline.runtime.settings import Settings
from streams.kafka import clients, provisioning
from streams.kafka.topics import INVENTORY, RAW_NODE_LOGS, Topic
from streams.model.clock import to_millis
from tests.faultline.replay.kafka_capture.test_take_embedded import Bar
from tests.testbed.kafka import Kafka

pytestmark = pytest.mark.kafka

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPICS = (RAW_NODE_LOGS, INVENTORY)


async def send(
    producer: AIOKafkaProducer,
    settings: Settings,
    second: float,
    value: bytes | None,
    topic: Topic,
    key: bytes,
) -> None:
    await producer.send_and_wait(
        clients.topic_name(settings.kafka, topic),
        value,
        key=key,
        partition=0,
        timestamp_ms=to_millis(NOON + timedelta(seconds=second)),
    )


async def test_only_what_was_committed_and_is_still_there_is_taken(kafka: Kafka, tmp_path: Path) -> None:
    settings = Settings(cluster="c1", kafka=kafka.settings("capture"))
    await provisioning.apply(settings.kafka)
    producer = await clients.started(
        clients.producer(settings.kafka, transactional_id="shipper"), settings.kafka
    )
    still_open = await clients.started(
        clients.producer(settings.kafka, transactional_id="other"), settings.kafka
    )
    try:
        for second, values, is_committed in (
            (-7200, (b"old 1", b"old 2"), True),
            (10, (b"first", b"second"), True),
            (20, (b"aborted", b"aborted too"), False),
            (30, (b"third",), True),
            (-60, (b"of a slow clock",), True),
            (5000, (b"of a fast clock",), True),
            (40, (b"last",), True),
        ):
            await producer.begin_transaction()
            for value in values:
                await send(producer, settings, second, value, RAW_NODE_LOGS, b"n1")
            for name in values:
                await send(producer, settings, second, name, INVENTORY, b"c1/node/n1")
            await (producer.commit_transaction() if is_committed else producer.abort_transaction())
        await still_open.begin_transaction()
        await send(still_open, settings, 50, b"not yet committed", RAW_NODE_LOGS, b"n1")
        order = Order(NOON, NOON + timedelta(minutes=10), NOON - timedelta(minutes=10), TOPICS)
        whole = await take(settings, tmp_path / "whole", order, Bar())
        assert values_of(tmp_path / "whole") == [b"first", b"second", b"third", b"of a slow clock", b"last"]
        (part,) = whole.topics[RAW_NODE_LOGS.name].partitions.values()
        assert (part.late, part.ahead, part.lost) == (0, 1, 0), "the slow clock is within the lead"
        assert part.begin == 2, "behind two old records; the mark of their transaction has the time of today"
        assert whole.topics[RAW_NODE_LOGS.name].complete_from is None
        state = list(read(tmp_path / "whole").state[INVENTORY.name])
        assert [record.value for record in state] == [b"old 2"]

        place = TopicPartition(clients.topic_name(settings.kafka, RAW_NODE_LOGS), 0)
        admin = await clients.started(clients.admin(settings.kafka), settings.kafka)
        await admin.delete_records({place: RecordsToDelete(before_offset=4)})
        await admin.close()
        rest = await take(settings, tmp_path / "rest", order, Bar())
        assert values_of(tmp_path / "rest") == [b"second", b"third", b"of a slow clock", b"last"]
        assert rest.topics[RAW_NODE_LOGS.name].complete_from == NOON + timedelta(seconds=10)
    finally:
        await still_open.abort_transaction()
        await still_open.stop()
        await producer.stop()


def values_of(directory: Path) -> list[bytes | None]:
    return [record.value for record in read(directory).records[RAW_NODE_LOGS.name]]
