"""What the broker says: topics, the rights of this user by topic, group and transactional id, and the newest tick's time.

Nothing is written and no group is joined. A broker tells its own clock to nobody who does not write, so the correlator's ticks
stand for it: they are a second apart, and one from the future shows that the clocks differ.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    TransactionalIdAuthorizationFailed,
)

from faultline.checks.finding import CheckFinding
from faultline.checks.kafka_acls import AS_ADMIN
from faultline.checks.kafka_protocol import group_rights, topic_rights
from faultline.checks.kafka_rights import (
    Operation,
    group_of,
    operations_on,
    transaction_prefix,
    transactional_ids,
)
from streams.config.settings import KafkaSettings
from streams.kafka import clients, installation, provisioning
from streams.kafka.plain_errors import plain
from streams.kafka.topics import ALL, CHANGELOG, INSTALLATION, TICKS, partition_of
from streams.model.clock import from_millis, utc_now
from streams.model.errors import ConfigError, Unreachable

T = TypeVar("T")

_TRIES, _PAUSE_S = 20, 0.2

MAX_SKEW_S = 2.0
"""Clocks that differ by more are a finding: leases reserve about as much (`streams.kafka.lease`)."""


async def probe_kafka(
    settings: KafkaSettings, cluster: str, processes: tuple[str, ...]
) -> list[CheckFinding]:
    """Every finding about the broker, for the user of these settings and these processes.

    Raises:
        Unreachable: when no broker answers.
    """
    client = clients.admin(settings)
    try:
        await clients.started(client, settings)
        return await _findings(client, settings, cluster, processes)
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap}: {plain(error)}") from error
    finally:
        await client.close()


async def _findings(
    client: Any, settings: KafkaSettings, cluster: str, processes: tuple[str, ...]
) -> list[CheckFinding]:
    names = {clients.topic_name(settings, topic): topic for topic in (*ALL, CHANGELOG)}
    try:
        rights = await topic_rights(client, list(names))
    except NotImplementedError:
        # What aiokafka raises where a broker knows no such version of a request: that of Kafka 2.3 (KIP-430).
        what = "it is older than Kafka 2.3: it does not tell what a user may do"
        old = CheckFinding("warning", "version of the broker", what, "upgrade it")
        return [old, *[one async for one in _topic_findings(settings, set())]]
    found = []
    for name, topic in names.items():
        allowed = rights.get(name)
        if allowed is None:
            continue  # it does not exist: the comparison of topics tells that
        needed = operations_on(topic, processes)
        found += [_lacks(settings, "topic", name, op, who) for op, who in needed.items() if op not in allowed]
    found += await _group_findings(client, settings, processes)
    found += await _transaction_findings(client, settings, processes)
    hidden = {
        name
        for name, allowed in rights.items()
        if allowed is not None and Operation.DESCRIBE_CONFIGS not in allowed
    }
    found += [one async for one in _topic_findings(settings, hidden)]
    found += await _claim_findings(settings, cluster, rights)
    if Operation.READ in (rights.get(clients.topic_name(settings, TICKS)) or ()):
        found += await _clock_findings(settings, cluster)
    return found


def _lacks(
    settings: KafkaSettings,
    kind: str,
    name: str,
    operation: Operation,
    who: list[str],
    *,
    prefixed: bool = False,
) -> CheckFinding:
    user = settings.sasl_username or "its certificate's name"
    what = f"{user} may not {operation.name} it, which {', '.join(who)} must"
    verb = operation.name.title().replace("_", "")
    principal = shlex.quote(f"User:{user}")
    command = (
        f"kafka-acls.sh --bootstrap-server {settings.bootstrap} {AS_ADMIN} --add --allow-principal {principal} "
        f"--operation {verb} --{kind} {name}{' --resource-pattern-type prefixed' if prefixed else ''}"
    )
    remedy = "give it that right, with the client file ($ADMIN) of a user who may alter ACLs"
    return CheckFinding("fault", f"{kind} {name}{'…' if prefixed else ''}", what, remedy, command)


async def _group_findings(
    client: Any, settings: KafkaSettings, processes: tuple[str, ...]
) -> list[CheckFinding]:
    async def of(process: str, group: str) -> CheckFinding | None:
        try:
            allowed = await patient(partial(group_rights, client, group))
        except GroupAuthorizationFailedError:
            allowed = frozenset()
        return (
            None if Operation.READ in allowed else _lacks(settings, "group", group, Operation.READ, [process])
        )

    groups = [(process, group) for process in processes if (group := group_of(process, settings))]
    return [one for one in await asyncio.gather(*(of(*pair) for pair in groups)) if one is not None]


async def _transaction_findings(
    client: Any, settings: KafkaSettings, processes: tuple[str, ...]
) -> list[CheckFinding]:
    """Who may not even describe a transactional id may not write with it. Nothing else can be asked without fencing its owner."""

    async def of(process: str, name: str) -> CheckFinding | None:
        try:
            await patient(partial(client.find_coordinator, name, 1))
        except TransactionalIdAuthorizationFailed:
            prefix = transaction_prefix(process, settings)
            return _lacks(settings, "transactional-id", prefix, Operation.WRITE, [process], prefixed=True)
        return None

    # One of each process: they differ in the number of the partition, and are given by prefix.
    first = [(process, ids[0]) for process in processes if (ids := transactional_ids(process, settings))]
    return [one for one in await asyncio.gather(*(of(*pair) for pair in first)) if one is not None]


async def patient(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer once there is one: a coordinator that moves, or is needed for the first time, asks for a moment."""
    for _ in range(_TRIES):
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable:
                raise
        await asyncio.sleep(_PAUSE_S)
    return await ask()


async def _topic_findings(settings: KafkaSettings, hidden: set[str]) -> AsyncIterator[CheckFinding]:
    """As `faultline topics diff`; topics whose settings this user may not read are left out."""
    if not settings.managed_topics:
        return
    for change in await provisioning.diff(settings, besides=hidden):
        remedy = {
            "conflict": "use a new kafka.topic_prefix, or delete the topic",
            "advice": "reassign its partitions",
        }
        yield CheckFinding(
            "warning" if change.kind == "advice" else "fault",
            f"topic {change.topic}",
            change.detail,
            remedy.get(change.kind, "run `faultline topics apply`"),
            "" if change.kind in remedy else "faultline topics apply",
        )


async def _claim_findings(
    settings: KafkaSettings, cluster: str, rights: Mapping[str, frozenset[int] | None]
) -> list[CheckFinding]:
    name = clients.topic_name(settings, INSTALLATION)
    if Operation.READ not in (rights.get(name) or ()):
        return []
    try:
        await installation.refuse_others(settings, cluster)
    except ConfigError as error:
        told = str(error).splitlines()[0]
        copied = told.startswith("kafka.bootstrap")
        remedy = (
            "correct kafka.bootstrap; a copy is adopted as in docs/disaster-recovery.md"
            if copied
            else "set `cluster`, or a topic_prefix of its own"
        )
        return [CheckFinding("fault", f"topic {name}", told, remedy)]
    return []


async def _clock_findings(settings: KafkaSettings, cluster: str) -> list[CheckFinding]:
    place = TopicPartition(
        clients.topic_name(settings, TICKS), partition_of(cluster, settings.cluster_partitions)
    )
    reader = clients.consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        await clients.started(reader, settings)
        reader.assign([place])
        begin, end = (
            (await reader.beginning_offsets([place]))[place],
            (await reader.end_offsets([place]))[place],
        )
        if begin == end:
            return []
        reader.seek(place, end - 1)
        (newest,) = (await reader.getmany(place, timeout_ms=1000, max_records=1)).get(place, [])[:1] or [None]
    finally:
        await reader.stop()
    return list(_ahead(newest))


def _ahead(newest: Any) -> Iterator[CheckFinding]:
    if newest is None:
        return
    ahead_s = (from_millis(newest.timestamp) - utc_now()).total_seconds()
    if ahead_s > MAX_SKEW_S:
        what = f"the newest tick is {ahead_s:.1f} s ahead of this machine's clock"
        yield CheckFinding(
            "fault", "clock of the correlator", what, "synchronise both machines (chrony, NTP)"
        )
