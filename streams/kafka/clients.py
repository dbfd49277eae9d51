"""The one place that builds Kafka clients, so that every process has the same guarantees and the same security settings.

Producers are idempotent and wait for all in-sync replicas. Consumers never commit by themselves: an offset is committed
only after everything derived from the records before it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any

import structlog
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    ConsumerRecord,
    TopicPartition,
)
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    GroupLoadInProgressError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.producer import sender
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import OffsetAndMetadata

from streams.config.settings import KafkaSettings
from streams.kafka.login import security
from streams.kafka.plain_errors import LOGIN_REFUSED, refusals
from streams.kafka.topics import MAX_RECORD_BYTES, Topic
from streams.model.clock import from_millis
from streams.model.errors import ConfigError, Denied, Unreachable
from streams.model.record import RawRecord

log = structlog.get_logger(__name__)

RETRY_TRANSACTION_S = 0.002
"""The broker writes a transaction's markers a moment after the commit and refuses the next one until then. aiokafka retries
after 20 ms, longer than a whole transaction takes, and has no setting for it."""

sender.BACKOFF_OVERRIDE = RETRY_TRANSACTION_S


CLIENT = "faultline-"
"""How the names of our clients begin; the release follows. A broker shows them for each member of a group."""


def client_name() -> str:
    """The name that this program's clients tell the broker."""
    return f"{CLIENT}{version('faultline')}"


def topic_name(settings: KafkaSettings, topic: Topic) -> str:
    """The topic's name on this broker, prefix included."""
    return settings.topic_prefix + topic.name


def coordinates(record: ConsumerRecord[bytes, bytes]) -> str:
    """Where a record lies: `topic:partition:offset`."""
    return f"{record.topic}:{record.partition}:{record.offset}"


def raw_record(record: ConsumerRecord[bytes, bytes], topic: str) -> RawRecord:
    """`record` as a value; `topic` is the name without this installation's prefix."""
    return RawRecord(
        topic,
        record.partition,
        record.offset,
        from_millis(record.timestamp),
        record.key,
        record.value,
        tuple(record.headers),
    )


async def read_to_end(
    settings: KafkaSettings, topic: Topic, partition: int, progress: Callable[[], None] = lambda: None
) -> dict[str, ConsumerRecord[bytes, bytes]]:
    """The latest committed record of each key, in the order of the records; deleted keys are left out.

    `progress` is called after each batch.
    """
    client = consumer(settings, group=None, fetch_max_wait_ms=100)
    latest: dict[str, ConsumerRecord[bytes, bytes]] = {}
    try:
        await started(client, settings)
        async for batch in batches_to_end(client, TopicPartition(topic_name(settings, topic), partition)):
            for record in batch:
                key = (record.key or b"").decode(errors="backslashreplace")
                latest.pop(key, None)
                if record.value is not None:
                    latest[key] = record
            progress()
    finally:
        await stopped(client)
    return latest


async def batches_to_end(
    client: AIOKafkaConsumer, place: TopicPartition
) -> AsyncIterator[list[ConsumerRecord[bytes, bytes]]]:
    """Assign one partition to a started consumer and read it from the beginning to its end at the time of the call."""
    client.assign([place])
    await client.seek_to_beginning(place)
    end = (await client.end_offsets([place]))[place]
    while await client.position(place) < end:
        yield (await client.getmany(place, timeout_ms=200)).get(place, [])


def group_name(settings: KafkaSettings, process: str) -> str:
    """The consumer group of a process on this broker, prefix included."""
    return f"{settings.topic_prefix}faultline-{process}"


def consumer(
    settings: KafkaSettings, *, group: str | None, read_committed: bool = True, **extra: Any
) -> AIOKafkaConsumer:
    """A consumer without topics; call `subscribe` or `assign` on it, then `started`.

    `group` is a process name (None for a reader outside any group). New groups begin at the earliest record. `extra` goes before
    what is usual here.
    """
    usual = {
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": MAX_RECORD_BYTES,
        "client_id": client_name(),
    }
    return AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap,
        group_id=group_name(settings, group) if group else None,
        enable_auto_commit=False,
        isolation_level="read_committed" if read_committed else "read_uncommitted",
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        check_crcs=settings.check_crcs,
        **security(settings),
        **(usual | extra),
    )


def producer(
    settings: KafkaSettings, *, transactional_id: str | None = None, **extra: Any
) -> AIOKafkaProducer:
    """An idempotent producer; with `transactional_id` (prefix added here) it fences every earlier one of the same id."""
    return AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap,
        acks="all",
        enable_idempotence=True,
        max_request_size=MAX_RECORD_BYTES,
        transactional_id=f"{settings.topic_prefix}{transactional_id}" if transactional_id else None,
        **security(settings),
        **extra,
    )


def admin(settings: KafkaSettings) -> AIOKafkaAdminClient:
    """An admin client, for `faultline topics` and the check at start."""
    return AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap, **security(settings))


async def committed(
    settings: KafkaSettings, process: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offset and metadata text of each of `partitions` that has one, for the group of `process`.

    Raises:
        KafkaError: when the broker refuses, or still does not answer after all retries.
    """
    client = await started(admin(settings), settings)
    try:
        for pause_s in _COORDINATOR_PAUSES_S:
            try:
                return await _committed(client, group_name(settings, process), partitions)
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(pause_s)
        return await _committed(client, group_name(settings, process), partitions)
    finally:
        await client.close()


async def _committed(
    client: AIOKafkaAdminClient, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    found = await client.list_consumer_group_offsets(group, partitions=list(partitions))
    if not found.keys() >= set(partitions):
        # An error for the whole group shows as missing partitions; a partition without a commit is present with offset -1.
        raise GroupLoadInProgressError(f"no offsets of group {group} yet")
    return {tp: entry for tp, entry in found.items() if entry.offset >= 0}


_COORDINATOR_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""A group's coordinator refuses requests while it moves to another broker."""


async def started(client: Any, settings: KafkaSettings) -> Any:
    """Start a client of this module and return it.

    Raises:
        Unreachable: naming the bootstrap address and why, when no broker answers.
        Denied: when the login is refused.
    """
    with refusals() as why:
        try:
            await client.start()
        except KafkaConnectionError as error:
            if why and set(why.values()) == {LOGIN_REFUSED}:
                name = settings.sasl_username
                whose = f"login of {name} (kafka.sasl_password)" if name else "token (kafka.oauth)"
                raise Denied(f"Kafka at {settings.bootstrap} refuses the {whose}") from error
            reasons = "; ".join(f"{place}: {reason}" for place, reason in why.items())
            raise Unreachable(
                f"Kafka does not answer at {settings.bootstrap} (kafka.bootstrap)"
                + (f": {reasons}" if reasons else "")
            ) from error
    try:
        honour_cancellation()
    except asyncio.CancelledError:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())
        raise
    return client


async def stopped(client: AIOKafkaConsumer) -> None:
    """Stop a consumer; only a cancellation of the caller itself comes out of it.

    A fetch that failed waits a moment before the next one. aiokafka cancels that wait when it stops, and lets the cancellation
    out: a process that begins anew because the broker is away would end as if somebody had asked it to.
    """
    try:
        await client.stop()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        await client._client.close()  # what was left of stopping


def honour_cancellation() -> None:
    """Raise a cancellation of the current task that aiokafka swallowed.

    aiokafka awaits with `asyncio.wait_for`, which up to Python 3.11 returns normally when the cancellation arrives in the
    same iteration of the loop as the result. A process would then run on and ignore its only SIGTERM.

    Raises:
        CancelledError: when the task has been asked to end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def partitions_of(client: AIOKafkaConsumer, name: str) -> list[int]:
    """The partitions of a topic, `name` with the prefix, whether or not the client reads it.

    Raises:
        ConfigError: when there is no such topic.
        TopicAuthorizationFailedError: when this user may not know whether there is.
    """
    # Only a full metadata request returns the partitions of a topic that a client is not subscribed to, and not every
    # broker version fills the consumer's own cache from it.
    numbers = (await client._client.fetch_all_metadata()).partitions_for_topic(name)
    if numbers:
        return sorted(numbers)
    # It leaves out what the user may not see; asked for by name, the broker says so. It must not make the topic then.
    asked = MetadataRequest([name], allow_auto_topic_creation=False)
    answer = await client._client.send(client._client.get_random_node(), asked)
    if any(for_code(code) is TopicAuthorizationFailedError for code, *_ in answer.topics):
        raise TopicAuthorizationFailedError(name)
    raise ConfigError(f"topic {name} does not exist; run `faultline topics apply`")


def subscribe(
    client: AIOKafkaConsumer, names: Iterable[str], listener: ConsumerRebalanceListener | None = None
) -> None:
    """Subscribe by exact names; `listener` is called at every rebalance, before records of new partitions arrive."""
    wanted = sorted(names)
    log.info("joining the group", group=client._group_id, topics=wanted)
    client.subscribe(wanted, listener=_RebalanceLog(listener))


class _RebalanceLog(ConsumerRebalanceListener):  # type: ignore[misc]
    """Logs the partitions that are assigned, then calls the process's own listener."""

    def __init__(self, listener: ConsumerRebalanceListener | None) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        if self._listener is not None:
            await self._listener.on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        log_assigned(assigned)
        if self._listener is not None:
            await self._listener.on_partitions_assigned(assigned)


def log_assigned(assigned: Iterable[TopicPartition]) -> None:
    """Log one line with the partitions of each topic."""
    by_topic: dict[str, list[int]] = {}
    for place in sorted(assigned):
        by_topic.setdefault(place.topic, []).append(place.partition)
    log.info("partitions assigned", partitions=by_topic)


async def lag(client: AIOKafkaConsumer) -> int | None:
    """How many records of its partitions a consumer has not read yet; None when a rebalance interferes."""
    left = 0
    try:
        for place in client.assignment():
            end = client.highwater(place)
            left += max(0, end - await client.position(place)) if end is not None else 0
    except KafkaError:
        return None
    return left
