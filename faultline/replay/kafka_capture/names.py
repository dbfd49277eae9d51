"""Reads what will be taken once before, for the names in it: a name may be told of long after it was first used."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.replay.bar import Bar
from faultline.replay.kafka_capture.partitions import batches_between
from faultline.replay.kafka_capture.surroundings import plain_settings, topology_of
from faultline.replay.manifest import Manifest
from faultline.replay.partition_writer import AHEAD_IN_A_ROW
from faultline.replay.redaction.redaction import Learning
from faultline.runtime.settings import Settings
from streams.inventory.topology_file import read_topology
from streams.kafka.clients import raw_record
from streams.kafka.topics import ALL
from streams.model.clock import to_millis


async def learn_names(
    client: AIOKafkaConsumer, settings: Settings, manifest: Manifest, learning: Learning, bar: Bar
) -> None:
    """Learn the names in all records of a planned capture, in the settings and in the topology."""
    learning.learn_document(plain_settings(settings))
    cabling = read_topology(settings.cluster, topology_of(settings), manifest.begin)
    for link in cabling.links:
        for name in (link.switch, link.node, link.peer_switch):
            if name:
                learning.learn_host(name)
    for name, place in cabling.places.items():
        learning.learn_host(name)
        for leaf in (place.leaf, *(place.rails or {}).values()):
            if leaf:
                learning.learn_host(leaf)
    compacted = {topic.name for topic in ALL if topic.cleanup == "compact"}
    for topic, part in manifest.topics.items():
        places = {
            TopicPartition(settings.kafka.topic_prefix + topic, n): p for n, p in part.partitions.items()
        }
        oldest = await client.beginning_offsets(list(places)) if topic in compacted else {}
        for place, one in places.items():
            begin = oldest.get(place, one.begin)
            await _learn(
                client, topic, place, begin, one.begin, one.end, to_millis(manifest.end), learning, bar
            )


async def _learn(
    client: AIOKafkaConsumer,
    topic: str,
    place: TopicPartition,
    begin: int,
    counted_from: int,
    end: int,
    end_ms: int,
    learning: Learning,
    bar: Bar,
) -> None:
    ahead, passed = 0, counted_from
    async for batch in batches_between(client, place, begin, end):
        for record in batch:
            ahead = ahead + 1 if record.timestamp >= end_ms else 0
            if not ahead:
                learning.learn(raw_record(record, topic))
        if batch and batch[-1].offset >= passed:  # compaction and the marks of transactions leave gaps
            bar.advance(batch[-1].offset + 1 - passed)
            passed = batch[-1].offset + 1
        if ahead >= AHEAD_IN_A_ROW:
            break
    bar.advance(end - passed)
