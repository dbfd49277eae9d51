"""The printed ACLs on a real broker: everybody may do what the table says, and is refused everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from faultline.checks.kafka_acls import acls_of
from faultline.checks.kafka_protocol import group_rights, topic_rights
from faultline.checks.kafka_rights import (
    EVERYBODY,
    Operation,
    group_of,
    topic_operations,
    transaction_prefix,
)
from streams.config.settings import KafkaSettings
from streams.kafka import clients, installation, provisioning
from streams.kafka.login import security
from streams.kafka.topics import ALL, CHANGELOG, COMMANDS, RAW, RAW_JOB_LOGS, Topic
from streams.model.errors import ConfigError, Unreachable
from tests.testbed.secured_kafka import SecuredKafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

TOPICS = (*ALL, CHANGELOG)
IMPLIED = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
"""What Kafka's authorizer allows along with an operation."""
OTHERS = "somebody-else"
T = TypeVar("T")


async def patient(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, once the coordinator is there: it is made when it is first asked for."""

    # A group that nobody has joined yet has a coordinator all the same, whose topic the broker makes first.
    async def answered() -> list[T]:
        try:
            return [await ask()]
        except KafkaError as error:
            if not error.retriable:
                raise
            return []

    (found,) = await eventually(answered, "the coordinator answers")
    return found


class Guarded:
    """The broker with the topics and ACLs of one installation, made by the administrator and by nobody else."""

    def __init__(self, broker: SecuredKafka) -> None:
        self.broker = broker
        self.admin = broker.administrator("guarded")
        self.by_name: dict[str, KafkaSettings] = {}

    async def prepare(self) -> None:
        await provisioning.apply(self.admin)
        for name in EVERYBODY:
            self.broker.give(acls_of(name, self.admin))
            self.by_name[name] = self.broker.by_certificate(self.admin, name)
        # An ACL counts some moments after it was made; the last one made comes last.
        last = list(EVERYBODY)[-1]

        async def counts() -> bool:
            return bool((await self.allowed(last))[self.topic(RAW[-1])])

        await eventually(counts, "the last ACL counts")

    def topic(self, topic: Topic) -> str:
        return clients.topic_name(self.admin, topic)

    async def allowed(self, name: str) -> dict[str, frozenset[int] | None]:
        settings = self.by_name[name]
        client = await clients.started(clients.admin(settings), settings)
        try:
            return await topic_rights(client, [self.topic(topic) for topic in TOPICS])
        finally:
            await client.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with SecuredKafka.running(tmp_path_factory.mktemp("guarded")) as broker:
        prepared = Guarded(broker)
        asyncio.run(prepared.prepare())
        yield prepared


async def test_the_broker_allows_each_principal_what_the_table_says_of_each_topic_and_nothing_else(
    guarded: Guarded,
) -> None:
    told = await asyncio.gather(*(guarded.allowed(name) for name in EVERYBODY))
    for name, allowed in zip(EVERYBODY, told, strict=True):
        for topic in TOPICS:
            direct = topic_operations(name, topic)
            wanted: set[int] = {
                *direct,
                *(IMPLIED[operation] for operation in direct if operation in IMPLIED),
            }
            assert set(allowed[guarded.topic(topic)] or ()) == wanted, f"{name} on {topic.name}"


async def test_a_record_is_taken_from_exactly_those_who_may_write_it(guarded: Guarded) -> None:
    """Tried and not asked: every principal writes to every topic."""

    async def tries(name: str) -> None:
        settings = guarded.by_name[name]
        producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap, **security(settings))
        await producer.start()
        try:
            outcomes = await asyncio.gather(
                *(
                    producer.send_and_wait(guarded.topic(topic), b"forged", key=b"k", partition=0)
                    for topic in TOPICS
                ),
                return_exceptions=True,
            )
        finally:
            await producer.stop()
        for topic, outcome in zip(TOPICS, outcomes, strict=True):
            refused = isinstance(outcome, TopicAuthorizationFailedError)
            assert refused == (Operation.WRITE not in topic_operations(name, topic)), (
                f"{name} on {topic.name}: {outcome!r}"
            )
            assert refused or not isinstance(outcome, BaseException), f"{name} on {topic.name}: {outcome!r}"

    for name in EVERYBODY:
        await tries(name)


async def test_nobody_reads_a_group_of_another_process(guarded: Guarded) -> None:
    groups = {name: group for name in EVERYBODY if (group := group_of(name, guarded.admin))}
    for name, settings in guarded.by_name.items():
        client = await clients.started(clients.admin(settings), settings)
        try:
            for owner, group in {**groups, OTHERS: OTHERS}.items():
                try:
                    allowed = await patient(partial(group_rights, client, group))
                except GroupAuthorizationFailedError:
                    allowed = frozenset()
                wanted = {Operation.READ, Operation.DESCRIBE} if owner == name else set[Operation]()
                if EVERYBODY[name].sees_groups and owner != OTHERS:
                    wanted.add(Operation.DESCRIBE)
                assert allowed == wanted, f"{name} on the group of {owner}"
        finally:
            await client.close()


async def test_nobody_fences_a_process_by_its_transactional_id(guarded: Guarded) -> None:
    """An id is what keeps a frozen responder from writing: who could take it would stop the real one."""
    ids = {
        name: f"{transaction_prefix(name, guarded.admin)}0"
        for name, rights in EVERYBODY.items()
        if rights.transactions
    }
    ids["dead-letters"] = guarded.admin.topic_prefix + EVERYBODY["dead-letters"].transactional_id
    for name, settings in guarded.by_name.items():
        for owner, transactional_id in ids.items():
            producer = AIOKafkaProducer(
                bootstrap_servers=settings.bootstrap, transactional_id=transactional_id, **security(settings)
            )
            outcome: KafkaError | None = None
            try:
                await producer.start()
            except (TransactionalIdAuthorizationFailed, ClusterAuthorizationFailedError) as error:
                outcome = error
            finally:
                await producer.stop()
            assert (outcome is None) == (owner == name), f"{name} takes the id of {owner}: {outcome!r}"


async def test_what_a_user_may_not_read_is_refused_when_it_is_read(guarded: Guarded) -> None:
    """The viewer sees every decision and no line that a job printed; the gateway never reads commands back."""
    for name, topic in (("viewer", RAW_JOB_LOGS), ("gateway", COMMANDS), ("notifier", COMMANDS)):
        settings = guarded.by_name[name]
        reader = await clients.started(clients.consumer(settings, group=None), settings)
        try:
            with pytest.raises(TopicAuthorizationFailedError):
                async with asyncio.timeout(10):
                    await anext(clients.batches_to_end(reader, TopicPartition(guarded.topic(topic), 0)))
        finally:
            await reader.stop()


async def test_only_topics_apply_binds_the_topics_to_a_cluster(guarded: Guarded) -> None:
    detector, topics = guarded.by_name["detector"], guarded.by_name["topics"]
    with pytest.raises(ConfigError, match=r"bound to no cluster yet.*run `faultline topics apply`"):
        await installation.claim(detector, "west", "detector")
    await provisioning.apply(topics)
    await installation.claim(topics, "west", "topics apply")
    await installation.claim(detector, "west", "detector")
    with pytest.raises(ConfigError, match="belong to cluster west"):
        await installation.claim(detector, "east", "detector")
    with pytest.raises(Unreachable, match="may not Write topic"):
        await installation.rename(detector, "west", "east", "an attacker")
