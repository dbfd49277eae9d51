"""Topics as they are against topics as they have to be: what `faultline topics apply|diff` and every start look at.

Comparing is pure; reading and changing go through aiokafka's admin client. Nothing is ever deleted, and what a person has set
on a topic beyond our table is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError, for_code

from streams.config.settings import KafkaSettings
from streams.kafka.clients import admin, topic_name
from streams.kafka.topics import ALL, CHANGELOG, Topic
from streams.model.errors import ConfigError, Unreachable

_DYNAMIC_TOPIC_CONFIG = 1
"""Kafka's ConfigSource for a value that was set on the topic itself, not a default."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A topic as it has to be on this broker."""

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
    """One difference. `conflict` cannot be mended in place, `advice` does not keep a process from starting."""

    topic: str
    kind: Literal["create", "config", "partitions", "conflict", "advice"]
    detail: str
    wanted: Wanted

    def __str__(self) -> str:
        return f"{self.topic}: {self.detail}"


def wanted_topics(settings: KafkaSettings, topics: Iterable[Topic] = (*ALL, CHANGELOG)) -> list[Wanted]:
    """The table of `streams.kafka.topics` with this installation's counts, copies and prefix."""
    config_of = {"min_insync_replicas": min(settings.min_insync_replicas, settings.replication_factor)}
    return [
        Wanted(
            topic_name(settings, topic),
            settings.cluster_partitions if topic.partitions == "cluster" else settings.raw_partitions,
            topic.partitions == "raw",
            settings.replication_factor,
            topic.config(**config_of),
        )
        for topic in topics
    ]


def differences(wanted: Sequence[Wanted], actual: Mapping[str, Actual]) -> list[TopicChange]:
    """Everything that differs, in the order of the table. Empty when all is as it has to be."""
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
    off = {key: value for key, value in topic.config.items() if actual.config.get(key) != value}
    if off:
        parts = [
            f"{key}={actual.config.get(key, 'default')} instead of {value}"
            for key, value in sorted(off.items())
        ]
        changes.append(TopicChange(topic.name, "config", ", ".join(parts), topic))
    if actual.replication < topic.replication:
        detail = f"{actual.replication} copies instead of {topic.replication}; reassign its partitions to add copies"
        changes.append(TopicChange(topic.name, "advice", detail, topic))
    return changes


async def read_actual(client: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, Actual]:
    """What the broker has of `names`; those it lacks are left out."""
    described = [topic for topic in await client.describe_topics(list(names)) if topic["error_code"] == 0]
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


async def diff(settings: KafkaSettings) -> list[TopicChange]:
    """Connect, compare, disconnect.

    Raises:
        Unreachable: when no broker answers.
    """
    async with _Admin(settings) as client:
        wanted = wanted_topics(settings)
        return differences(wanted, await read_actual(client, [topic.name for topic in wanted]))


async def apply(settings: KafkaSettings) -> list[TopicChange]:
    """Create and alter what differs and wait until the brokers show it. Returns what was found to differ.

    Raises:
        ConfigError: when something cannot be mended in place; then nothing is touched.
        Unreachable: when no broker answers.
    """
    async with _Admin(settings) as client:
        wanted = wanted_topics(settings)
        changes = differences(wanted, await read_actual(client, [topic.name for topic in wanted]))
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
    """Refuse to go on when topics differ; does nothing where `kafka.managed_topics` is off.

    Raises:
        ConfigError: naming each difference and the command that mends it.
    """
    if not settings.managed_topics:
        return
    blocking = [change for change in await diff(settings) if change.kind != "advice"]
    if blocking:
        lines = "\n".join(f"  {change}" for change in blocking)
        raise ConfigError(f"topics are not as they have to be; run `faultline topics apply`:\n{lines}")


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
    """Kafka's AlterConfigs replaces everything set on a topic, so what is there already is sent along."""
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
    """Wait until the broker shows the change: the controller answers before the brokers have heard of it.

    Without that the first producer would stumble over a topic without leaders.
    """
    names = [topic.name for topic in wanted]
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        described = await client.describe_topics(names)
        led = {
            t["topic"]
            for t in described
            if t["error_code"] == 0 and all(p["leader"] >= 0 for p in t["partitions"])
        }
        left = [c for c in differences(wanted, await read_actual(client, names)) if c.kind != "advice"]
        if len(led) == len(names) and not left:
            return
        if asyncio.get_running_loop().time() > deadline:
            waiting = sorted({change.topic for change in left} | (set(names) - led))
            raise Unreachable(
                f"Kafka has not carried out the change after 30 s for topics {', '.join(waiting)}"
            )
        await asyncio.sleep(0.1)


def _raise_for(code: int, what: str, message: Sequence[object]) -> None:
    if code:
        error = for_code(code)
        raise ConfigError(f"{what}: {error.__name__} {' '.join(str(m) for m in message if m)}".rstrip())


class _Admin:
    """An admin client that is closed again, with an error that names the address."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._client = admin(settings)

    async def __aenter__(self) -> AIOKafkaAdminClient:
        try:
            await self._client.start()
        except KafkaConnectionError as error:
            await self._client.close()
            raise Unreachable(
                f"Kafka does not answer at {self._settings.bootstrap} (kafka.bootstrap): {error}"
            ) from error
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()
