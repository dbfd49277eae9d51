"""Compares topics on the broker with the table in `topics.py`, for `faultline topics apply|diff` and at every start.

Comparing is pure; reading and changing go through aiokafka's admin client. Nothing is ever deleted, and topic settings that
an operator made beyond our table are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAuthorizationFailedError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from streams.config.settings import KafkaSettings
from streams.kafka.clients import admin, started, topic_name
from streams.kafka.plain_errors import plain
from streams.kafka.topics import ALL, CHANGELOG
from streams.model.errors import ConfigError, Unreachable

_DYNAMIC_TOPIC_CONFIG = 1
"""Kafka's ConfigSource for a value that was set on the topic itself, not a default."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic as it should be on this broker."""

    name: str
    partitions: int
    may_have_more: bool
    replication: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Actual:
    """A topic as the broker shows it; `config` holds only what was set on the topic itself."""

    partitions: int
    replication: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One difference. A `conflict` cannot be fixed in place; an `advice` does not keep a process from starting."""

    topic: str
    kind: Literal["create", "config", "partitions", "conflict", "advice"]
    detail: str
    wanted: Wanted

    def __str__(self) -> str:
        return f"{self.topic}: {self.detail}"


def wanted_topics(settings: KafkaSettings) -> list[Wanted]:
    """The table of `streams.kafka.topics` with this installation's partition counts, replicas and prefix."""
    min_insync_replicas = min(settings.min_insync_replicas, settings.replication_factor)
    return [
        Wanted(
            topic_name(settings, topic),
            settings.cluster_partitions if topic.partitions == "cluster" else settings.raw_partitions,
            topic.partitions == "raw",
            settings.replication_factor,
            topic.config(min_insync_replicas=min_insync_replicas),
        )
        for topic in (*ALL, CHANGELOG)
    ]


def differences(wanted: Sequence[Wanted], actual: Mapping[str, Actual]) -> list[TopicChange]:
    """All differences, in the order of the table."""
    return [change for topic in wanted for change in _compare(topic, actual.get(topic.name))]


def _compare(topic: Wanted, actual: Actual | None) -> list[TopicChange]:
    if actual is None:
        return [TopicChange(topic.name, "create", f"missing ({topic.partitions} partitions)", topic)]
    changes = []
    count = f"{actual.partitions} partitions instead of {topic.partitions}"
    if actual.partitions != topic.partitions and not topic.may_have_more:
        why = "records of one cluster would land on two partitions; create a new topic_prefix or delete the topic"
        changes.append(TopicChange(topic.name, "conflict", f"{count}: {why}", topic))
    elif actual.partitions < topic.partitions:
        changes.append(TopicChange(topic.name, "partitions", count, topic))
    off = [
        f"{key}={actual.config.get(key, 'default')} instead of {value}"
        for key, value in sorted(topic.config.items())
        if actual.config.get(key) != value
    ]
    if off:
        changes.append(TopicChange(topic.name, "config", ", ".join(off), topic))
    if actual.replication < topic.replication:
        detail = f"{actual.replication} replicas instead of {topic.replication}; reassign its partitions to add replicas"
        changes.append(TopicChange(topic.name, "advice", detail, topic))
    return changes


async def read_actual(client: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, Actual]:
    """The topics that exist, by name.

    Raises:
        TopicAuthorizationFailedError: when this user may not know whether some of them do.
    """
    told = await _described(client, names)
    if hidden := [t["topic"] for t in told if for_code(t["error_code"]) is TopicAuthorizationFailedError]:
        raise TopicAuthorizationFailedError(hidden)
    described = [topic for topic in told if topic["error_code"] == 0]
    if not described:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic["topic"]) for topic in described]
    config: dict[str, dict[str, str]] = {}
    for response in await client.describe_configs(resources):
        for _, _, _, name, entries in response.resources:
            config[name] = {entry[0]: entry[1] for entry in entries if entry[3] == _DYNAMIC_TOPIC_CONFIG}
    return {
        topic["topic"]: Actual(
            len(topic["partitions"]),
            min((len(partition["replicas"]) for partition in topic["partitions"]), default=0),
            config.get(topic["topic"], {}),
        )
        for topic in described
    }


async def _described(client: AIOKafkaAdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """As aiokafka's own `describe_topics`, which has the broker make each topic that is missing, if it makes topics by itself."""
    answer = await client._send_request(MetadataRequest(list(names), allow_auto_topic_creation=False))
    told: list[dict[str, Any]] = answer.to_object()["topics"]
    return told


async def diff(settings: KafkaSettings, *, besides: Collection[str] = ()) -> list[TopicChange]:
    """All differences on the broker now, `besides` those of some topics.

    Raises:
        Unreachable: when no broker answers.
        TopicAuthorizationFailedError: when this user may not see all of them.
    """
    async with _admin(settings) as client:
        return await _differences(client, [t for t in wanted_topics(settings) if t.name not in besides])


async def apply(settings: KafkaSettings) -> list[TopicChange]:
    """Create and alter topics, wait until the brokers show it, and return the differences that there were.

    Raises:
        ConfigError: when something cannot be fixed in place; then nothing is touched.
        Unreachable: when no broker answers.
    """
    async with _admin(settings) as client:
        wanted = wanted_topics(settings)
        changes = await _differences(client, wanted)
        conflicts = [change for change in changes if change.kind == "conflict"]
        if conflicts:
            raise ConfigError(
                "topics that cannot be changed in place:\n" + "\n".join(f"  {c}" for c in conflicts)
            )
        await _create(client, [c.wanted for c in changes if c.kind == "create"])
        await _grow(client, [c.wanted for c in changes if c.kind == "partitions"])
        await _alter(client, [c.wanted for c in changes if c.kind == "config"])
        await _settled(client, wanted)
        return changes


async def verify(settings: KafkaSettings) -> None:
    """Refuse to start when topics differ; does nothing where `kafka.managed_topics` is off.

    Raises:
        ConfigError: naming each difference and the command that fixes it.
    """
    if not settings.managed_topics:
        return
    blocking = [change for change in await diff(settings) if change.kind != "advice"]
    if blocking:
        lines = "\n".join(f"  {change}" for change in blocking)
        raise ConfigError(f"topics differ from what Faultline needs; run `faultline topics apply`:\n{lines}")


async def _differences(client: AIOKafkaAdminClient, wanted: Sequence[Wanted]) -> list[TopicChange]:
    return differences(wanted, await read_actual(client, [topic.name for topic in wanted]))


async def _create(client: AIOKafkaAdminClient, topics: Sequence[Wanted]) -> None:
    if not topics:
        return
    new = [NewTopic(t.name, t.partitions, t.replication, topic_configs=dict(t.config)) for t in topics]
    response = await client.create_topics(new)
    for name, code, *message in response.topic_errors:
        _raise_for(code, f"cannot create topic {name}", message)


async def _grow(client: AIOKafkaAdminClient, topics: Sequence[Wanted]) -> None:
    if not topics:
        return
    response = await client.create_partitions({t.name: NewPartitions(t.partitions) for t in topics})
    for name, code, *message in response.topic_errors:
        _raise_for(code, f"cannot add partitions to topic {name}", message)


async def _alter(client: AIOKafkaAdminClient, topics: Sequence[Wanted]) -> None:
    """Kafka's AlterConfigs replaces all settings of a topic, so the present ones are sent along."""
    if not topics:
        return
    actual = await read_actual(client, [t.name for t in topics])
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, t.name, configs={**actual[t.name].config, **t.config})
        for t in topics
    ]
    for response in await client.alter_configs(resources):
        for code, message, _, name in response.resources:
            _raise_for(code, f"cannot alter topic {name}", [message])


async def _settled(client: AIOKafkaAdminClient, wanted: Sequence[Wanted]) -> None:
    """Wait until the brokers show the change, which the controller confirms before they know of it.

    Otherwise the first producer would fail on a topic without leaders.
    """
    names = [topic.name for topic in wanted]
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        described = await _described(client, names)
        led = {
            t["topic"]
            for t in described
            if t["error_code"] == 0 and all(p["leader"] >= 0 for p in t["partitions"])
        }
        left = [c for c in await _differences(client, wanted) if c.kind != "advice"]
        if len(led) == len(names) and not left:
            return
        if asyncio.get_running_loop().time() > deadline:
            waiting = sorted({change.topic for change in left} | (set(names) - led))
            raise Unreachable(f"Kafka has not applied the change after 30 s for topics {', '.join(waiting)}")
        await asyncio.sleep(0.1)


def _raise_for(code: int, what: str, message: Sequence[object]) -> None:
    if code:
        more = " ".join(str(m) for m in message if m)
        raise ConfigError(f"{what}: {plain(for_code(code)())}" + (f": {more}" if more else ""))


@asynccontextmanager
async def _admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    client = admin(settings)
    try:
        yield await started(client, settings)
    finally:
        await client.close()
