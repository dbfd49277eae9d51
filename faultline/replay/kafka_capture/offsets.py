"""Which offsets of a topic lie between two times, and what the broker does not have any more.

A partition's times need not ascend: a shipper's clock may be wrong. So the first offset is that of the first record that is late
enough, and the end is the end of the partition: where reading may stop is seen in the records (`PartitionWriter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka.clients import topic_name
from streams.kafka.offsets_by_time import first_since
from streams.kafka.topics import Topic
from streams.model.clock import from_millis


@dataclass(frozen=True, slots=True)
class Range:
    """The offsets of one partition: from `begin`, the first since a time, to before `end`.

    `complete_from` is the time of the first one where others before it have been deleted, which may have been since that time.
    """

    begin: int
    end: int
    complete_from: datetime | None = None


@dataclass(slots=True)
class Ranges:
    """The ranges of each topic by partition, and the topics that the broker does not have."""

    topics: dict[str, dict[int, Range]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


async def ranges_since(
    client: AIOKafkaConsumer, settings: KafkaSettings, topics: Sequence[Topic], since: datetime
) -> Ranges:
    """Where the records since a time lie, up to the last one that is committed now. The consumer must be started."""
    # Only a full metadata request returns the partitions of a topic this client does not subscribe to.
    metadata = await client._client.fetch_all_metadata()
    found = Ranges()
    for topic in topics:
        name = topic_name(settings, topic)
        partitions = [TopicPartition(name, n) for n in sorted(metadata.partitions_for_topic(name) or ())]
        if partitions:
            found.topics[topic.name] = await _of_topic(client, topic, partitions, since)
        else:
            found.missing.append(topic.name)
    return found


async def _of_topic(
    client: AIOKafkaConsumer, topic: Topic, partitions: Sequence[TopicPartition], since: datetime
) -> dict[int, Range]:
    firsts = await first_since(client, partitions, since)
    oldest = await client.beginning_offsets(partitions)
    ends = await client.end_offsets(partitions)  # of a read-committed consumer: the last stable offset
    ranges: dict[int, Range] = {}
    for place in partitions:
        low, end, first = oldest[place], ends[place], firsts[place]
        at = None
        if topic.cleanup == "delete" and 0 < low == first.offset and first.timestamp is not None:
            at = from_millis(first.timestamp)
        ranges[place.partition] = Range(min(first.offset, end), end, at)
    return ranges
