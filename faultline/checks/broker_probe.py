"""How well the broker keeps what it is given: leaders and copies of partitions, and who else wants the topics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from aiokafka.errors import KafkaError

from faultline.checks.finding import CheckFinding
from faultline.checks.kafka_acls import AS_ADMIN
from faultline.checks.kafka_protocol import BrokerState, PartitionCopies, broker_state
from streams.config.settings import KafkaSettings
from streams.kafka import clients, installation
from streams.kafka.plain_errors import plain
from streams.kafka.topics import ALL, CHANGELOG
from streams.model.clock import moment, utc_now
from streams.model.errors import ConfigError, Unreachable

RECENT = timedelta(hours=2)
"""A process that was rejected claims again every hour."""

SHOWN = 5


async def probe_broker(settings: KafkaSettings, cluster: str) -> list[CheckFinding]:
    """Every finding about partitions, replicas, and claims of other clusters.

    Raises:
        Unreachable: when no broker answers.
    """
    client = clients.admin(settings)
    names = [clients.topic_name(settings, topic) for topic in (*ALL, CHANGELOG)]
    try:
        await clients.started(client, settings)
        try:
            state = await broker_state(client, names)
        except NotImplementedError:
            return []  # the probe of rights tells that the broker is too old
        found = list(replication(state, settings))
        return [*found, *await _rejected(settings, cluster)]
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap}: {plain(error)}") from error
    finally:
        await client.close()


def replication(state: BrokerState, settings: KafkaSettings) -> Iterator[CheckFinding]:
    """What is wrong with the copies of our partitions."""
    wanted = min(settings.min_insync_replicas, settings.replication_factor)
    login = "" if settings.security_protocol == "PLAINTEXT" else f" {AS_ADMIN}"
    command = (
        f"kafka-topics.sh --bootstrap-server {settings.bootstrap}{login} --describe --unavailable-partitions"
    )
    if lost := [one for one in state.partitions if one.leader < 0]:
        what = f"{len(lost)} partitions have no leader, so nothing in them can be read or written: {_named(lost)}"
        yield CheckFinding("fault", "broker", what, "bring back a broker that holds a copy", command)
    closed = [one for one in state.partitions if one.leader >= 0 and len(one.in_sync) < wanted]
    if closed:
        what = (
            f"{len(closed)} partitions have fewer than {wanted} copies in sync (min.insync.replicas), so every write to them is "
            f"refused: {_named(closed)}"
        )
        under = command.replace("--unavailable-partitions", "--under-min-isr-partitions")
        yield CheckFinding("fault", "broker", what, "bring back the brokers that are missing", under)
    behind = [
        one for one in state.partitions if one not in closed and 0 < len(one.in_sync) < len(one.replicas)
    ]
    if behind:
        missing = sorted({node for one in behind for node in one.replicas} - set(state.brokers))
        gone = f"; brokers {', '.join(map(str, missing))} are not there" if missing else ""
        what = f"{len(behind)} partitions have copies that are not in sync: {_named(behind)}{gone}"
        under = command.replace("--unavailable-partitions", "--under-replicated-partitions")
        yield CheckFinding("warning", "broker", what, "one more failure stops writes: look after it", under)
    if settings.replication_factor > len(state.brokers) > 0:
        what = (
            f"{len(state.brokers)} brokers are there, and kafka.replication_factor is {settings.replication_factor}: "
            "no topic can be created"
        )
        yield CheckFinding(
            "warning", "kafka.replication_factor", what, "start the other brokers, or lower it on a test system",
            "faultline topics diff",
        )  # fmt: skip


def _named(partitions: list[PartitionCopies]) -> str:
    names = [f"{one.topic}/{one.number}" for one in partitions]
    return ", ".join(names[:SHOWN]) + (" …" if names[SHOWN:] else "")


async def _rejected(settings: KafkaSettings, cluster: str) -> list[CheckFinding]:
    """Processes with another cluster in their settings that tried to use these topics lately: a second installation."""
    try:
        claims = await installation.read_claims(settings)
    except ConfigError:
        return []  # no such topic: the comparison of topics tells that
    since = utc_now() - RECENT
    found: dict[tuple[str, str], CheckFinding] = {}
    for one in claims:
        if one.cluster != cluster and one.at > since and not one.replaces:
            what = f"{one.by} is configured for cluster {one.cluster} on these topics, and was rejected at {moment(one.at)}"
            found[one.cluster, one.by] = CheckFinding(
                "warning", "installation", what, "give that installation a kafka.topic_prefix of its own",
                "faultline topics diff",
            )  # fmt: skip
    return list(found.values())
