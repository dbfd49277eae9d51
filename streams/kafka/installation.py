"""Binds a topic prefix to one cluster name; a process configured with a different cluster refuses to start.

Two installations with one prefix share topics and consumer groups. With different clusters in their settings each would get half
of the other's records, and silently miss half of all faults.

A process checks before it joins any group, so a wrong setting takes nothing from those that run. They go on, and log that a
process was rejected; they stop only when an operator has renamed the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from pydantic import AwareDatetime

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.plain_errors import plain
from streams.kafka.topics import INSTALLATION
from streams.model.clock import Clock, rfc3339, utc_now
from streams.model.codec import decode, encode
from streams.model.errors import BadInput, ConfigError, Unreachable
from streams.model.similar import suggestion

log = structlog.get_logger(__name__)

AGAIN_S = 3600.0
"""A rejected process that keeps restarting writes one claim an hour."""

_LISTEN_MS = 10_000
"""How long the broker holds an idle fetch: this topic sees no record for months."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A process with this `cluster` in its settings wants to use these topics.

    `replaces` is the previous name when an operator has renamed the cluster. `kafka` is the id of the Kafka cluster that it was
    written to, empty in claims of earlier releases; `adopts` is the id before, where an operator has moved the topics.
    """

    cluster: str
    by: str
    at: AwareDatetime
    replaces: str = ""
    kafka: str = ""
    adopts: str | None = None
    schema: int = 1


def holder(claims: Iterable[Claim]) -> Claim | None:
    """The claim that holds the topics. It depends on the order of the log alone, so all readers agree.

    The first claim holds; a later one takes over only where it names the cluster that it replaces, or the Kafka that it left.
    """
    held: Claim | None = None
    for claim in claims:
        renamed = held is not None and claim.cluster != held.cluster and claim.replaces == held.cluster
        moved = held is not None and claim.cluster == held.cluster and claim.adopts == held.kafka
        if held is None or renamed or moved:
            held = claim
    return held


async def claim(settings: KafkaSettings, cluster: str, by: str, *, clock: Clock = utc_now) -> None:
    """Bind the topics to the cluster, or check that they are. `by` says in messages which process asked.

    Raises:
        ConfigError: they belong to another cluster, or are a copy of those that do.
        Unreachable: when no broker answers.
    """
    claims, kafka = await read_claims(settings), await kafka_id(settings)
    held = holder(claims)
    if held is None:
        try:
            await _write(settings, Claim(cluster, by, clock(), kafka=kafka))
        except _MayNotWrite as error:
            raise ConfigError(
                f"the topics with the prefix {settings.topic_prefix!r} are bound to no cluster yet, and this process may not "
                "bind them; run `faultline topics apply`"
            ) from error
        # Another process may have claimed at the same time: the order of the log decides.
        held = holder(await read_claims(settings))
    assert held is not None
    if held.cluster != cluster:
        since = clock() - timedelta(seconds=AGAIN_S)
        if not any(one.cluster == cluster and one.at > since for one in claims):
            with suppress(_MayNotWrite):  # with ACLs a process only reads: then the others do not hear of it
                await _write(settings, Claim(cluster, by, clock()))
        raise ConfigError(refusal(held, cluster, settings.topic_prefix))
    if held.kafka and kafka and held.kafka != kafka:
        raise ConfigError(copy_refusal(held, kafka, settings))


async def kafka_id(settings: KafkaSettings) -> str:
    """The id that a Kafka cluster gave itself when it was made; empty for a broker that tells none.

    Raises:
        Unreachable: when no broker answers.
    """
    client = clients.admin(settings)
    try:
        await clients.started(client, settings)
        about = await client.describe_cluster()
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap}: {plain(error)}") from error
    finally:
        await client.close()
    return str(about.get("cluster_id") or "")


async def adopt_kafka(
    settings: KafkaSettings, cluster: str, by: str, *, clock: Clock = utc_now
) -> tuple[str, str] | None:
    """Bind the topics to the Kafka cluster on which they are now. For an operator who knows that nothing acts by the topics of
    the former one any more. Returns the ids of the former and of this one; None where they are bound to it, or to none yet.

    Raises:
        ConfigError: they belong to another cluster.
    """
    held, kafka = holder(await read_claims(settings)), await kafka_id(settings)
    if held is None or held.kafka == kafka:
        return None
    if held.cluster != cluster:
        raise ConfigError(refusal(held, cluster, settings.topic_prefix))
    await _write(settings, Claim(cluster, by, clock(), kafka=kafka, adopts=held.kafka))
    return held.kafka, kafka


async def refuse_others(settings: KafkaSettings, cluster: str) -> None:
    """Check that no other cluster holds the topics, where they exist, and that they are no copy. Writes nothing.

    Raises:
        ConfigError: they belong to another cluster, or to another Kafka.
    """
    try:
        held = holder(await read_claims(settings))
    except _NoTopic:
        return
    if held is not None and held.cluster != cluster:
        raise ConfigError(refusal(held, cluster, settings.topic_prefix))
    if held is not None and held.kafka and (kafka := await kafka_id(settings)) not in ("", held.kafka):
        raise ConfigError(copy_refusal(held, kafka, settings))


async def rename(settings: KafkaSettings, old: str, new: str, by: str, *, clock: Clock = utc_now) -> None:
    """Bind the topics to a new name of the cluster. Processes that still run under the old one stop.

    Raises:
        ConfigError: `old` does not hold them.
    """
    held = holder(await read_claims(settings))
    if held is not None and held.cluster == new:
        return
    if held is None or held.cluster != old:
        whose = f"cluster {held.cluster}{suggestion(old, [held.cluster])}" if held else "no cluster yet"
        raise ConfigError(f"--rename-from {old}: these topics belong to {whose}")
    await _write(settings, Claim(new, by, clock(), replaces=old))
    held = holder(await read_claims(settings))
    if held is None or held.cluster != new:
        raise ConfigError(f"--rename-from {old}: it was renamed at the same time, to {held and held.cluster}")


async def _watch(settings: KafkaSettings, cluster: str) -> NoReturn:
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
                continue  # claims from before this process started
            held = holder(claims)
            if held is not None and held.cluster != cluster:
                raise ConfigError(refusal(held, cluster, settings.topic_prefix))
            _log_rejected([one for r in records if r.offset >= past for one in _claims(r)], cluster)
    finally:
        await clients.stopped(consumer)


def _log_rejected(claims: Sequence[Claim], cluster: str) -> None:
    for one in claims:
        if one.cluster != cluster:
            log.error(
                "rejected a process configured for a different cluster on these topics",
                theirs=one.cluster,
                by=one.by,
                ours=cluster,
            )


def refusal(held: Claim, cluster: str, prefix: str) -> str:
    """Why a process of another cluster is rejected, and the ways out."""
    return (
        f"cluster: these settings say {cluster}, and the topics with the prefix {prefix!r} belong to cluster {held.cluster} "
        f"(since {rfc3339(held.at)}, by {held.by}){suggestion(cluster, [held.cluster])}\n"
        "  Two clusters would share consumer groups here, and each would miss faults of the other. Give this\n"
        f"  installation a kafka.topic_prefix of its own, or set cluster: {held.cluster}. If the cluster is called {cluster}\n"
        f"  from now on: stop all processes, then `faultline topics apply --rename-from {held.cluster}`"
    )


def copy_refusal(held: Claim, kafka: str, settings: KafkaSettings) -> str:
    """Why a process is rejected by a copy of its topics, and the ways out."""
    return (
        f"kafka.bootstrap: the topics were bound to cluster {held.cluster} on the Kafka cluster {held.kafka}, and "
        f"{settings.bootstrap} is the Kafka cluster {kafka}: this is a copy of them, or the wrong broker\n"
        "  Two pipelines on copies of the same topics would both act. Point kafka.bootstrap at the former one. If that is gone\n"
        "  for good, or nothing works with it any more: `faultline topics apply --adopt-kafka`, then start the processes"
    )


class _NoTopic(ConfigError):
    """There is no topic `installation` yet."""


class _MayNotWrite(Unreachable):
    """This user may not write to `installation`."""


async def read_claims(settings: KafkaSettings) -> list[Claim]:
    """Every claim, in the order of the log.

    Raises:
        Unreachable: when no broker answers.
        ConfigError: there is no such topic.
    """
    consumer = clients.consumer(settings, group=None, fetch_max_wait_ms=100)
    name, claims = clients.topic_name(settings, INSTALLATION), list[Claim]()
    try:
        await clients.started(consumer, settings)
        await _require_topic(consumer, name)
        async for batch in clients.batches_to_end(consumer, TopicPartition(name, 0)):
            claims += [one for record in batch for one in _claims(record)]
    except KafkaError as error:
        why = plain(error, user=settings.sasl_username or "", operation="Read")
        raise Unreachable(f"Kafka at {settings.bootstrap}: {why}") from error
    finally:
        await clients.stopped(consumer)
    clients.honour_cancellation()
    return claims


async def _require_topic(consumer: AIOKafkaConsumer, name: str) -> None:
    metadata = await consumer._client.fetch_all_metadata()
    if not metadata.partitions_for_topic(name):
        raise _NoTopic(f"topic {name} does not exist; run `faultline topics apply`")


def _claims(record: ConsumerRecord[bytes, bytes]) -> list[Claim]:
    """The claim in a record. An unreadable one is of a later release, or not a claim: it binds nothing."""
    try:
        return [decode(Claim, record.value or b"")]
    except BadInput as error:
        log.warning(
            "ignoring an unreadable record on the installation topic",
            place=clients.coordinates(record),
            reason=str(error),
        )
        return []


async def _write(settings: KafkaSettings, made: Claim) -> None:
    producer = clients.producer(settings)
    name = clients.topic_name(settings, INSTALLATION)
    try:
        await clients.started(producer, settings)
        await producer.send_and_wait(name, encode(made), key=made.cluster.encode(), partition=0)
    except TopicAuthorizationFailedError as error:
        why = plain(error, user=settings.sasl_username or "", operation="Write")
        raise _MayNotWrite(f"Kafka at {settings.bootstrap} does not take a claim: {why}") from error
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap} does not take a claim: {plain(error)}") from error
    finally:
        await producer.stop()


async def hold(settings: KafkaSettings, cluster: str, by: str) -> bool:
    """`claim` for a process. False where topics are not managed by Faultline and the one for claims does not exist.

    Raises:
        ConfigError: the topics belong to another cluster.
    """
    try:
        await claim(settings, cluster, by)
    except _NoTopic as error:
        if settings.managed_topics:
            raise
        log.warning(
            "installation topic not available: cluster ownership of topics is NOT enforced", reason=str(error)
        )
        return False
    return True


async def watch_on(settings: KafkaSettings, cluster: str) -> NoReturn:
    """While a process runs: log which processes are rejected, and stop it when the cluster is renamed. Outages are waited out.

    Raises:
        ConfigError: the topics belong to another cluster now.
    """
    while True:
        try:
            await _watch(settings, cluster)
        except (Unreachable, KafkaError) as error:
            log.debug("cannot read the installation topic, retrying", reason=repr(error))
            await asyncio.sleep(_LISTEN_MS / 1000)
