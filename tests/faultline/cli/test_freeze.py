"""A freeze of what is not there freezes nothing, so it is refused with what there is."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from click.testing import CliRunner, Result

from faultline.cli.freeze_scopes import check_known, check_shape
from faultline.cli.main import cli
from faultline.cli.read_topics import read_control
from streams.config.settings import KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.topics import COMMANDS, INVENTORY
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.errors import BadInput
from streams.model.facts import FactRecord, NodeFact
from tests.testbed.kafka import Kafka

NODES = [
    NodeFact("c1", f"gpu-{n}", f"u{n}", utc_now(), pool=pool) for n, pool in enumerate(("train", "infer"))
]


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("pool:trian", "no pool trian in cluster c1; known: infer, train; did you mean train?"),
        ("pool:nothere", "no pool nothere in cluster c1; known: infer, train (--force"),
        ("namespace:team", "the inventory has no namespace of cluster c1, so team cannot be checked"),
    ],
)
def test_a_place_that_the_inventory_does_not_know_is_refused_with_what_it_knows(
    scope: str, told: str
) -> None:
    with pytest.raises(BadInput) as refused:
        check_known(scope, NODES, "c1")
    assert told in str(refused.value)
    check_known("pool:train", NODES, "c1")


@pytest.mark.parametrize(
    ("scope", "told"),
    [
        ("pools:train", "did you mean pool?"),
        ("train", "did you mean pool:train?"),
        ("pool:", "give pool:NAME"),
    ],
)
def test_a_scope_of_no_kind_is_refused(scope: str, told: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_shape(scope)
    assert told in str(refused.value)


@pytest.mark.parametrize("minutes", ["nan", "1e12", "0"])
def test_a_freeze_takes_no_time_that_is_none(minutes: str) -> None:
    refused = CliRunner().invoke(cli, ["guard", "freeze", "--for", minutes])
    assert refused.exit_code == 2
    assert "Invalid value for '--for'" in refused.stderr


@pytest.mark.kafka
def test_a_freeze_of_a_pool_that_is_not_there_is_never_written_unless_it_is_to_come(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = KafkaSettings(
        bootstrap=kafka.bootstrap, topic_prefix="freezing.", replication_factor=1, cluster_partitions=1
    )
    asyncio.run(_installed(settings))
    monkeypatch.setenv("FAULTLINE_CLUSTER", "c1")
    for key in ("bootstrap", "topic_prefix", "replication_factor", "cluster_partitions"):
        monkeypatch.setenv(f"FAULTLINE_KAFKA__{key.upper()}", str(getattr(settings, key)))
    refused = _freeze("pool:trian")
    assert isinstance(refused.exception, BadInput)
    assert "did you mean train?" in str(refused.exception)
    assert asyncio.run(_commands(settings)) == 0
    assert _freeze("pool:train").exception is None
    assert _freeze("pool:tomorrow", "--force").exception is None
    assert asyncio.run(_commands(settings)) == 2
    assert asyncio.run(read_control(settings, "c1")).freezes == ()


def _freeze(scope: str, *more: str) -> Result:
    return CliRunner().invoke(cli, ["guard", "freeze", "--scope", scope, "--for", "5", "--wait", "0", *more])


async def _installed(settings: KafkaSettings) -> None:
    await provisioning.apply(settings)
    producer = await clients.started(clients.producer(settings), settings)
    for node in NODES:
        value, key = encode(FactRecord(node)), node.key.encode()
        await producer.send_and_wait(clients.topic_name(settings, INVENTORY), value, key=key, partition=0)
    await producer.stop()


async def _commands(settings: KafkaSettings) -> int:
    """How many decisions have been written."""
    reader = await clients.started(clients.consumer(settings, group=None), settings)
    where = TopicPartition(clients.topic_name(settings, COMMANDS), 0)
    end: int = (await reader.end_offsets([where]))[where]
    await reader.stop()
    return end
