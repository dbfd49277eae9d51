"""One installation, one cluster: the name of the cluster is bound to the topics, and who says another one does not start.

Two installations with one prefix share topics and consumer groups. With different clusters in their settings each would be given
half of the other's records, and leave half of all faults alone without a word.

The newcomer asks before it joins any group, so a slip in its settings cannot take anything from those that work. They go on, and
say that somebody was turned away; they end only when a person has given the cluster another name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from streams.config.setting_types import suggestion
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.clients import KafkaError
from streams.kafka.topics import INSTALLATION
from streams.model.claim import Claim, holder
from streams.model.clock import Clock, rfc3339, utc_now
from streams.model.codec import decode, encode
from streams.model.errors import BadInput, ConfigError, Unreachable

log = structlog.get_logger(__name__)

AGAIN_S = 3600.0
"""A process that is started over and over leaves one record of it an hour."""

_LISTEN_MS = 10_000
"""How long the broker holds an idle fetch: nothing comes here for months."""


async def claim(settings: KafkaSettings, cluster: str, by: str, *, clock: Clock = utc_now) -> None:
    """Bind the topics to the cluster, or see that they are bound to it. `by` says who asks, for people.

    Raises:
        ConfigError: they are another cluster's.
        Unreachable: when no broker answers.
    """
    claims = await _read(settings)
    held = holder(claims)
    if held is None:
        await _write(settings, Claim(cluster, by, clock()))
        # Another one may have been first in the same moment: the log knows.
        held = holder(await _read(settings))
    assert held is not None
    if held.cluster != cluster:
        since = clock() - timedelta(seconds=AGAIN_S)
        if not any(one.cluster == cluster and one.at > since for one in claims):
            await _write(settings, Claim(cluster, by, clock()))
        raise ConfigError(refusal(held, cluster, settings.topic_prefix))


async def refuse_others(settings: KafkaSettings, cluster: str) -> None:
    """See that nobody else holds the topics, where there are any. Writes nothing.

    Raises:
        ConfigError: they are another cluster's.
    """
    try:
        held = holder(await _read(settings))
    except _NoTopic:
        return
    if held is not None and held.cluster != cluster:
        raise ConfigError(refusal(held, cluster, settings.topic_prefix))


async def rename(settings: KafkaSettings, old: str, new: str, by: str, *, clock: Clock = utc_now) -> None:
    """Bind the topics to another name of the cluster. Processes that still run under the old one end.

    Raises:
        ConfigError: `old` does not hold them.
    """
    held = holder(await _read(settings))
    if held is not None and held.cluster == new:
        return
    if held is None or held.cluster != old:
        whose = f"of cluster {held.cluster}{suggestion(old, [held.cluster])}" if held else "of no cluster yet"
        raise ConfigError(f"--rename-from {old}: these topics are {whose}")
    await _write(settings, Claim(new, by, clock(), replaces=old))
    held = holder(await _read(settings))
    if held is None or held.cluster != new:
        raise ConfigError(
            f"--rename-from {old}: somebody else has renamed it in this moment, to {held and held.cluster}"
        )


async def watch(settings: KafkaSettings, cluster: str) -> NoReturn:
    """Look on while a process works: tell of who was turned away, and end when the cluster has been given another name.

    Raises:
        ConfigError: the topics are another cluster's by now.
    """
    consumer = clients.consumer(settings, group=None, fetch_max_wait_ms=_LISTEN_MS)
    where = TopicPartition(clients.topic_name(settings, INSTALLATION), 0)
    claims: list[Claim] = []
    try:
        await clients.started(consumer, settings)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        past = (await consumer.end_offsets([where]))[where]
        while True:
            records = (await consumer.getmany(where, timeout_ms=_LISTEN_MS)).get(where, [])
            claims += [one for record in records for one in _claims(record)]
            if await consumer.position(where) < past:
                continue  # how it stood at an earlier time
            held = holder(claims)
            if held is not None and held.cluster != cluster:
                raise ConfigError(refusal(held, cluster, settings.topic_prefix))
            _tell_of_others([one for r in records if r.offset >= past for one in _claims(r)], cluster)
    finally:
        await consumer.stop()


def _tell_of_others(claims: Sequence[Claim], cluster: str) -> None:
    for one in claims:
        if one.cluster != cluster:
            log.error(
                "somebody with another cluster in its settings wanted to work with these topics, and was turned away",
                theirs=one.cluster,
                by=one.by,
                ours=cluster,
            )


def refusal(held: Claim, cluster: str, prefix: str) -> str:
    """Why somebody of another cluster is turned away, and the ways out."""
    return (
        f"cluster: these settings say {cluster}, and the topics with the prefix {prefix!r} are of cluster {held.cluster} "
        f"(since {rfc3339(held.at)}, by {held.by}){suggestion(cluster, [held.cluster])}\n"
        "  Two clusters would share consumer groups here, and each would leave faults of the other alone. Give this\n"
        f"  installation a kafka.topic_prefix of its own, or set cluster: {held.cluster}. If the cluster is called {cluster}\n"
        f"  from now on: stop all processes, then `faultline topics apply --rename-from {held.cluster}`"
    )


class _NoTopic(ConfigError):
    """There is no topic `installation` yet."""


async def _read(settings: KafkaSettings) -> list[Claim]:
    """Every claim, in the order of the log.

    Raises:
        Unreachable: when no broker answers.
        ConfigError: there is no such topic.
    """
    consumer = clients.consumer(settings, group=None, fetch_max_wait_ms=100)
    name = clients.topic_name(settings, INSTALLATION)
    where, claims = TopicPartition(name, 0), list[Claim]()
    try:
        await clients.started(consumer, settings)
        await _require_topic(consumer, name)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        end = (await consumer.end_offsets([where]))[where]
        while await consumer.position(where) < end:
            for record in (await consumer.getmany(where, timeout_ms=200)).get(where, []):
                claims += _claims(record)
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap} does not answer: {error!r}") from error
    finally:
        await consumer.stop()
    clients.honour_cancellation()
    return claims


async def _require_topic(consumer: AIOKafkaConsumer, name: str) -> None:
    metadata = await consumer._client.fetch_all_metadata()
    if not metadata.partitions_for_topic(name):
        raise _NoTopic(f"topic {name} does not exist; run `faultline topics apply`")


def _claims(record: ConsumerRecord[bytes, bytes]) -> list[Claim]:
    """The claim in a record. One that cannot be read is of a later release, or no claim: it holds nothing."""
    try:
        return [decode(Claim, record.value or b"")]
    except BadInput as error:
        log.warning("no claim", place=clients.coordinates(record), reason=str(error))
        return []


async def _write(settings: KafkaSettings, made: Claim) -> None:
    producer = clients.producer(settings)
    name = clients.topic_name(settings, INSTALLATION)
    try:
        await clients.started(producer, settings)
        await producer.send_and_wait(name, encode(made), key=made.cluster.encode(), partition=0)
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap} does not take a claim: {error!r}") from error
    finally:
        await producer.stop()


async def hold(settings: KafkaSettings, cluster: str, by: str) -> bool:
    """`claim` for a process. Where topics are not ours to manage and there is none for claims, it goes on without; False then.

    Raises:
        ConfigError: the topics are another cluster's.
    """
    try:
        await claim(settings, cluster, by)
    except _NoTopic as error:
        if settings.managed_topics:
            raise
        log.warning("nobody sees to it that one cluster alone uses these topics", reason=str(error))
        return False
    return True


async def watch_on(settings: KafkaSettings, cluster: str) -> NoReturn:
    """`watch` for ever: a broker that fails is waited for.

    Raises:
        ConfigError: the topics are another cluster's by now.
    """
    while True:
        try:
            await watch(settings, cluster)
        except (Unreachable, KafkaError) as error:
            log.debug("cannot look at the topic of claims, trying on", reason=repr(error))
            await asyncio.sleep(_LISTEN_MS / 1000)
