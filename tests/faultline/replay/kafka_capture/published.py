"""Puts a capture on a broker, with its times, as shippers and processes had written it."""

from __future__ import annotations

from collections.abc import Iterable

from faultline.replay.capture import Capture
from faultline.replay.replay import facts_of
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INVENTORY, partition_of
from streams.model.clock import to_millis
from streams.model.codec import encode
from streams.model.facts import FactRecord
from streams.model.record import RawRecord


def with_facts(capture: Capture) -> Iterable[RawRecord]:
    """Its raw records, and its inventory as the process `inventory` would have published it."""
    for records in capture.records.values():
        yield from sorted(records, key=lambda record: (record.partition, record.offset))
    for number, (at, key, fact) in enumerate(sorted(facts_of(capture), key=lambda entry: entry[0])):
        value = encode(FactRecord(fact)) if fact is not None else None
        yield RawRecord(INVENTORY.name, 0, number, at, key.encode(), value)


async def publish(settings: KafkaSettings, records: Iterable[RawRecord], cluster: str) -> None:
    """Send records to their partitions, those of internal topics to that of their cluster."""
    producer = await clients.started(clients.producer(settings), settings)
    try:
        for record in records:
            is_raw = record.topic.startswith("raw.")
            partition = (
                record.partition % settings.raw_partitions
                if is_raw
                else partition_of(cluster, settings.cluster_partitions)
            )
            await producer.send(
                settings.topic_prefix + record.topic,
                record.value,
                key=record.key,
                partition=partition,
                timestamp_ms=to_millis(record.timestamp),
                headers=list(record.headers),
            )
        await producer.flush()
    finally:
        await producer.stop()
