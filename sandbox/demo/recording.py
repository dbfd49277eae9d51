"""A capture of the demo, so that its decisions can be replayed and explained after its end."""

from __future__ import annotations

from pathlib import Path

import yaml
from aiokafka import TopicPartition

from faultline.replay import capture
from sandbox.demo.cluster_layout import CLUSTER
from sandbox.demo.spectator import following
from streams.config.settings import KafkaSettings
from streams.kafka.clients import raw_record
from streams.kafka.topics import ALL, INSTALLATION, TICKS, Topic
from streams.model.record import RawRecord

TOPICS: tuple[Topic, ...] = tuple(topic for topic in ALL if topic not in (TICKS, INSTALLATION))
"""The pipeline's input, and for comparison its output, which a replay decides again."""

SETTINGS = "faultline.yaml"
KEPT = ("cluster", "correlator", "responder")
"""The settings that a decision depends on; the others name servers that are gone."""


async def record(settings: KafkaSettings, settings_file: Path, directory: Path) -> None:
    """Write the capture, and the settings to replay it with. Replaces whatever an earlier demo has left there."""
    records: dict[str, list[RawRecord]] = {}
    async with following(settings, TOPICS) as client:
        ends = await client.end_offsets(client.assignment())
        left: dict[TopicPartition, int] = {tp: end for tp, end in ends.items() if end > 0}
        while left:
            for tp, batch in (await client.getmany(*left, timeout_ms=500)).items():
                topic = tp.topic.removeprefix(settings.topic_prefix)
                records.setdefault(topic, []).extend(
                    raw_record(one, topic) for one in batch if one.offset < ends[tp]
                )
            for tp in list(left):
                if await client.position(tp) >= left[tp]:
                    del left[tp]
    times = [one.timestamp for batch in records.values() for one in batch]
    meta = capture.Meta(CLUSTER, min(times), max(times))
    held = {topic: tuple(batch) for topic, batch in records.items()}
    _write(directory, capture.Capture(meta, held), settings_file)


def _write(directory: Path, held: capture.Capture, settings_file: Path) -> None:
    for old in directory.glob("*.jsonl"):
        old.unlink()
    capture.write(directory, held)
    values = yaml.safe_load(settings_file.read_text(encoding="utf-8"))
    kept = {key: values[key] for key in KEPT}
    (directory / SETTINGS).write_text(yaml.safe_dump(kept, sort_keys=False))
