"""What the broker says of the topics that letters come from: what they still hold, and whether a late record is safe there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IncompatibleBrokerVersion

from faultline.dead_letters.letter import Letter
from faultline.dead_letters.outlook import Outlook
from streams.config.settings import KafkaSettings
from streams.kafka import clients

MARGIN = timedelta(hours=1)
"""What a detector that is behind may need until it has read a record that would soon expire."""


@dataclass(frozen=True, slots=True)
class SourceTopics:
    """The topics of letters at one moment. `begins` are the oldest offsets, `ends` the next ones; `config` by topic.

    `config` is None where the broker does not tell settings of topics.
    """

    prefix: str
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    config: Mapping[str, Mapping[str, str]] | None

    def place(self, letter: Letter) -> TopicPartition:
        """The partition that the record came from."""
        return TopicPartition(self.prefix + letter.why.topic, letter.why.partition)

    def holds(self, letter: Letter) -> bool:
        """Whether the topic still has the record."""
        place = self.place(letter)
        return self.begins.get(place, 0) <= letter.why.offset < self.ends.get(place, 0)

    def judged(self, letter: Letter, outlook: Outlook, now: datetime) -> Outlook:
        """The outlook, with what the broker adds: where a record that was cut is whole, and what must not be written there."""
        if letter.why.truncated or letter.why.cut_short:
            where = "and is still there" if self.holds(letter) else "and is gone from there"
            return Outlook("left", f"{outlook.why} {where}")
        if outlook.verdict != "retry":
            return outlook
        topic = self.place(letter).topic
        if self.place(letter) not in self.begins:
            return Outlook("left", f"{topic} has no partition {letter.why.partition} any more")
        if self.config is None:
            return Outlook(
                "left",
                f"{outlook.why}; not written back: how {topic} takes a late record is not known, because this broker does not "
                "tell settings of topics (DescribeConfigs)",
            )
        config = self.config.get(topic, {})
        if config.get("message.timestamp.type") == "LogAppendTime":
            # Lines without a time of their own would be taken for new, and acted on.
            return Outlook(
                "left", f"{topic} gives records the time of the broker (LogAppendTime): it would look new"
            )
        kept_ms = int(config.get("retention.ms", "-1"))
        if kept_ms >= 0 and letter.why.timestamp + timedelta(milliseconds=kept_ms) < now + MARGIN:
            return Outlook(
                "left", f"it is older than {topic} keeps records: it would be deleted before it is read"
            )
        return outlook


async def source_topics(client: AIOKafkaConsumer, settings: KafkaSettings, topics: list[str]) -> SourceTopics:
    """What the broker says of these topics (names without the prefix); those that do not exist are left out."""
    metadata = await client._client.fetch_all_metadata()
    names = [settings.topic_prefix + topic for topic in topics]
    places = [
        TopicPartition(name, number)
        for name in names
        for number in sorted(metadata.partitions_for_topic(name) or ())
    ]
    begins = await client.beginning_offsets(places) if places else {}
    ends = await client.end_offsets(places) if places else {}
    there = sorted({place.topic for place in places})
    return SourceTopics(settings.topic_prefix, begins, ends, await _config(settings, there))


async def _config(settings: KafkaSettings, names: list[str]) -> dict[str, dict[str, str]] | None:
    if not names:
        return {}
    admin = clients.admin(settings)
    try:
        await clients.started(admin, settings)
        found = {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        for response in await admin.describe_configs(resources):
            for _, _, _, name, entries in response.resources:
                found[name] = {entry[0]: entry[1] for entry in entries}
        return found
    except IncompatibleBrokerVersion:
        # It has no such request: an embedded broker, or a service that speaks a part of the protocol.
        return None
    finally:
        await admin.close()
