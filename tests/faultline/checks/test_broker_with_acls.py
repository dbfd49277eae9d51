"""`doctor` on a real broker with an authorizer: what a user may not do is said before a process fails on it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from pydantic import SecretStr

from faultline.checks.finding import CheckFinding
from faultline.checks.kafka_acls import acls_of
from faultline.checks.kafka_probe import probe_kafka
from faultline.checks.kafka_rights import RIGHTS, Operation
from streams.config.settings import KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.topics import ALL, CHANGELOG, SIGNALS, TICKS, Topic, partition_of
from streams.model.clock import to_millis, utc_now
from streams.model.errors import Denied
from tests.testbed.kafka import Kafka

pytestmark = pytest.mark.kafka

ADMIN, LIMITED, PASSWORD = "admin", "limited", "testbed"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{ADMIN}" password="{PASSWORD}" user_{ADMIN}="{PASSWORD}" user_{LIMITED}="{PASSWORD}";'
)
AUTHORIZING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The controller is this same process, without a login.
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
}
PREFIX = "checked."


class Broker:
    """The broker, with the settings of both users, and what the limited one is given."""

    def __init__(self, kafka: Kafka) -> None:
        base = KafkaSettings(
            bootstrap=kafka.bootstrap, topic_prefix=PREFIX, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
            sasl_username=ADMIN, sasl_password=SecretStr(PASSWORD), replication_factor=1, min_insync_replicas=1,
            raw_partitions=1, cluster_partitions=2,
        )  # fmt: skip
        self.admin = base
        self.limited = base.model_copy(update={"sasl_username": LIMITED})
        self._client = AdminClient({
            "bootstrap.servers": kafka.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN, "sasl.password": PASSWORD,
        })  # fmt: skip

    def give(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        how = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        allow = AclPermissionType.ALLOW
        rows = [AclBinding(kind, name, how, f"User:{LIMITED}", "*", op, allow) for op in operations]
        for future in self._client.create_acls(rows).values():
            future.result()

    def take_all(self) -> None:
        anything: Any = None
        every = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            f"User:{LIMITED}",
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for future in self._client.delete_acls([every]).values():
            future.result()

    def give_all(self, process: str, *, without: tuple[Topic, Operation] | None = None) -> None:
        """What the table says that the process needs, but for one right."""
        kinds = {
            "topic": ResourceType.TOPIC,
            "group": ResourceType.GROUP,
            "transactional-id": ResourceType.TRANSACTIONAL_ID,
        }
        for acl in acls_of(process, self.limited):
            left = set(acl.operations)
            if without is not None and acl.name == clients.topic_name(self.limited, without[0]):
                left.discard(without[1])
            self.give(
                kinds[acl.kind],
                acl.name,
                *(AclOperation[operation.name] for operation in left),
                prefixed=acl.prefixed,
            )


@pytest.fixture(scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Kafka.running(tmp_path_factory.mktemp("acls"), properties=AUTHORIZING) as kafka:
        yield Broker(kafka)


@pytest.fixture
async def broker(_running: Broker) -> Broker:
    """The broker with all topics, and a limited user without any right."""
    await provisioning.apply(_running.admin)
    _running.take_all()
    return _running


async def found(broker: Broker, process: str) -> list[CheckFinding]:
    return await probe_kafka(broker.limited, "west", (process,))


async def soon(broker: Broker, process: str, count: int) -> list[CheckFinding]:
    """The findings, once there are so many: the broker hears of an ACL some moments after it was made."""
    from tests.testbed.waiting import eventually

    async def settled() -> list[CheckFinding] | None:
        told = await found(broker, process)
        return told or [NOTHING] if len(told) == count else None

    told = await eventually(settled, f"{count} findings")
    return [one for one in told if one is not NOTHING]


NOTHING = CheckFinding("warning", "", "", "")


@pytest.mark.parametrize("process", sorted(RIGHTS))
async def test_a_process_with_exactly_the_rights_of_the_table_has_nothing_to_find(
    broker: Broker, process: str
) -> None:
    broker.give_all(process)
    assert await soon(broker, process, 0) == []


async def test_a_right_that_is_missing_is_named_with_the_command_that_gives_it(broker: Broker) -> None:
    broker.give_all("detector", without=(SIGNALS, Operation.WRITE))
    (finding,) = await soon(broker, "detector", 1)
    assert (finding.level, finding.where) == ("fault", f"topic {PREFIX}signals")
    assert finding.what == "limited may not WRITE it, which detector must"
    assert finding.command == (
        f'kafka-acls.sh --bootstrap-server {broker.limited.bootstrap} --command-config "$ADMIN" '
        f"--add --allow-principal User:limited --operation Write --topic {PREFIX}signals"
    )


async def test_a_user_without_any_right_lacks_group_and_transactions_too(broker: Broker) -> None:
    told = await found(broker, "responder")
    places = {finding.where for finding in told}
    assert f"group {PREFIX}faultline-responder" in places
    (transact,) = (finding for finding in told if finding.where.startswith("transactional-id"))
    assert transact.where == f"transactional-id {PREFIX}faultline-responder-…"
    assert transact.command.endswith(
        f"--operation Write --transactional-id {PREFIX}faultline-responder- --resource-pattern-type prefixed"
    )
    assert f"topic {PREFIX}runs" in places
    assert all(finding.level == "fault" for finding in told)


async def test_who_may_not_is_told_so_by_commands_and_not_that_kafka_is_away(broker: Broker) -> None:
    broker.give_all("viewer")
    assert await soon(broker, "viewer", 0) == []
    looked = await commanded(broker, "guard", "status")
    assert looked.returncode == 0, looked.stderr
    killed = await commanded(broker, "guard", "kill", "--reason", "a trial")
    assert killed.returncode == 1
    assert "user limited may not write to any topic (CLUSTER_AUTHORIZATION_FAILED)" in killed.stderr
    assert "`faultline topics acls`" in killed.stderr
    broker.take_all()
    refused = await commanded(broker, "incidents")
    assert refused.returncode == 1
    assert f"user limited may not Read topic {PREFIX}" in refused.stderr


async def test_a_wrong_password_is_no_outage(broker: Broker) -> None:
    wrong = broker.limited.model_copy(update={"sasl_password": SecretStr("rotated")})
    with pytest.raises(Denied, match=f"refuses the login of {LIMITED}"):
        await clients.started(clients.admin(wrong), wrong)


async def test_topics_that_a_user_may_not_see_are_not_told_as_missing(broker: Broker) -> None:
    with pytest.raises(TopicAuthorizationFailedError):
        await provisioning.diff(broker.limited)


async def commanded(broker: Broker, *words: str) -> subprocess.CompletedProcess[str]:
    own = broker.limited
    assert own.sasl_password is not None
    environment = {
        "PATH": "",
        "FAULTLINE_CLUSTER": "west",
        "FAULTLINE_KAFKA__BOOTSTRAP": own.bootstrap,
        "FAULTLINE_KAFKA__TOPIC_PREFIX": own.topic_prefix,
        "FAULTLINE_KAFKA__SECURITY_PROTOCOL": own.security_protocol,
        "FAULTLINE_KAFKA__SASL_MECHANISM": own.sasl_mechanism,
        "FAULTLINE_KAFKA__SASL_USERNAME": LIMITED,
        "FAULTLINE_KAFKA__SASL_PASSWORD": PASSWORD,
    }
    command = [sys.executable, "-m", "faultline", *words]
    return await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


async def test_a_topic_that_is_missing_is_the_work_of_topics_apply(broker: Broker) -> None:
    elsewhere = broker.admin.model_copy(update={"topic_prefix": "nothing-there."})
    told = await probe_kafka(elsewhere, "west", ("detector",))
    assert len(told) == len((*ALL, CHANGELOG))
    assert {finding.remedy for finding in told} == {"run `faultline topics apply`"}


async def test_a_tick_from_the_future_shows_that_clocks_differ(broker: Broker) -> None:
    producer = await clients.started(clients.producer(broker.admin), broker.admin)
    try:
        await producer.send_and_wait(
            clients.topic_name(broker.admin, TICKS),
            b"tick",
            partition=partition_of("west", 2),
            timestamp_ms=to_millis(utc_now()) + 60_000,
        )
    finally:
        await producer.stop()
    told = await probe_kafka(broker.admin, "west", ("correlator",))
    assert [finding.where for finding in told] == ["clock of the correlator"]
