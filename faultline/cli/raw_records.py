"""Reads single records of the raw topics again, by their coordinates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.why.raw_lines import line_of
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, started
from streams.model.signal import Evidence

_POLL_MS = 2000


async def read_lines(settings: KafkaSettings, wanted: Mapping[str, Evidence]) -> dict[str, str]:
    """The raw lines of these evidences by coordinates, of those that Kafka still has.

    Raises:
        Unreachable: when no broker answers.
    """
    found: dict[str, str] = {}
    if not wanted:
        return found
    client = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        await started(client, settings)
        for tp, mine in _by_partition(settings, wanted.values()).items():
            found |= await _read(client, tp, mine)
    finally:
        await client.stop()
    return found


def _by_partition(
    settings: KafkaSettings, wanted: Iterable[Evidence]
) -> dict[TopicPartition, dict[int, Evidence]]:
    found: dict[TopicPartition, dict[int, Evidence]] = defaultdict(dict)
    for evidence in wanted:
        found[TopicPartition(f"{settings.topic_prefix}{evidence.topic}", evidence.partition)][
            evidence.offset
        ] = evidence
    return found


async def _read(
    client: AIOKafkaConsumer, tp: TopicPartition, wanted: Mapping[int, Evidence]
) -> dict[str, str]:
    """The lines of one partition. Offsets that were deleted, or never held a record, are left out."""
    found: dict[str, str] = {}
    client.assign([tp])
    begin, end = (await client.beginning_offsets([tp]))[tp], (await client.end_offsets([tp]))[tp]
    for offset in sorted(offset for offset in wanted if begin <= offset < end):
        client.seek(tp, offset)
        batch = await client.getmany(tp, timeout_ms=_POLL_MS, max_records=1)
        for record in batch.get(tp, ()):
            if record.offset == offset and record.value is not None:
                found[wanted[offset].coordinates] = line_of(record.value, wanted[offset].text)
    return found
