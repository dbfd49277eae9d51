"""A capture of what went into the pipeline, so that the same decisions can be replayed and explained without the demo."""

from __future__ import annotations

from pathlib import Path

from aiokafka import TopicPartition

from faultline import capture
from faultline.demo.following import following
from faultline.demo.site import CLUSTER
from streams.model.clock import from_millis
from streams.model.record import RawRecord
from streams.model.settings import KafkaSettings
from streams.topics import COMMANDS, INVENTORY, RAW, Topic

TOPICS: tuple[Topic, ...] = (*RAW, INVENTORY, COMMANDS)
"""What the pipeline was told. Everything else it says itself, and a replay says it again."""


async def record(settings: KafkaSettings, directory: Path) -> int:
    """Write the capture; returns how many records it holds."""
    records: dict[str, list[RawRecord]] = {}
    async with following(settings, TOPICS) as client:
        ends = await client.end_offsets(client.assignment())
        left: dict[TopicPartition, int] = {tp: end for tp, end in ends.items() if end > 0}
        while left:
            for tp, batch in (await client.getmany(*left, timeout_ms=500)).items():
                topic = tp.topic.removeprefix(settings.topic_prefix)
                records.setdefault(topic, []).extend(
                    RawRecord(
                        topic,
                        tp.partition,
                        one.offset,
                        from_millis(one.timestamp),
                        one.key,
                        one.value,
                        tuple(one.headers),
                    )
                    for one in batch
                    if one.offset < ends[tp]
                )
            for tp in list(left):
                if await client.position(tp) >= left[tp]:
                    del left[tp]
    times = [one.timestamp for batch in records.values() for one in batch]
    meta = capture.Meta(CLUSTER, min(times), max(times))
    held = {topic: tuple(batch) for topic, batch in records.items()}
    capture.write(directory, capture.Capture(meta, held))
    return len(times)
