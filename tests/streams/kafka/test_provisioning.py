import uuid
from pathlib import Path

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from streams.config.settings import KafkaSettings
from streams.kafka import provisioning
from streams.kafka.clients import admin, topic_name
from streams.kafka.provisioning import Actual, Wanted, differences
from streams.kafka.topics import INCIDENTS, RAW_METRICS, SIGNALS, partition_of
from streams.model.errors import ConfigError, Unreachable
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

CLUSTER_TOPIC = Wanted("runs", 8, False, 3, {"cleanup.policy": "compact"})
RAW_TOPIC = Wanted("raw.metrics", 12, True, 3, {"cleanup.policy": "delete"})


@pytest.mark.parametrize(
    ("wanted", "actual", "kinds"),
    [
        (CLUSTER_TOPIC, None, ["create"]),
        (CLUSTER_TOPIC, Actual(8, 3, {"cleanup.policy": "compact"}), []),
        (CLUSTER_TOPIC, Actual(8, 3, {"cleanup.policy": "compact", "segment.ms": "1"}), []),
        (CLUSTER_TOPIC, Actual(9, 3, {"cleanup.policy": "compact"}), ["conflict"]),
        (CLUSTER_TOPIC, Actual(8, 1, {}), ["config", "advice"]),
        (RAW_TOPIC, Actual(24, 3, {"cleanup.policy": "delete"}), []),
        (RAW_TOPIC, Actual(6, 3, {"cleanup.policy": "delete"}), ["partitions"]),
    ],
)
def test_a_difference_is_named_for_what_it_takes_to_mend_it(
    wanted: Wanted, actual: Actual | None, kinds: list[str]
) -> None:
    found = differences([wanted], {wanted.name: actual} if actual else {})
    assert [change.kind for change in found] == kinds


def test_a_cluster_always_lands_on_the_same_partition() -> None:
    # The figures are those of Kafka's own default partitioner for these keys: they must never change.
    assert [partition_of(name, 8) for name in ("default", "gpu-east", "gpu-west")] == [3, 2, 7]


def settings(kafka: Kafka, **changes: object) -> KafkaSettings:
    values: dict[str, object] = {
        "bootstrap": kafka.bootstrap,
        "topic_prefix": f"p{uuid.uuid4().hex[:8]}.",
        "replication_factor": 1,
        "raw_partitions": 2,
        "cluster_partitions": 2,
    }
    return KafkaSettings.model_validate(values | changes)


@pytest.mark.kafka
async def test_apply_makes_what_is_missing_and_then_finds_nothing_to_do(kafka: Kafka) -> None:
    mine = settings(kafka)
    with pytest.raises(ConfigError, match="run `faultline topics apply`"):
        await provisioning.verify(mine)
    made = await provisioning.apply(mine)
    assert {change.kind for change in made} == {"create"}
    assert await provisioning.apply(mine) == []
    await provisioning.verify(mine)


@pytest.mark.kafka
async def test_apply_grows_and_alters_but_keeps_what_a_person_set(kafka: Kafka) -> None:
    mine = settings(kafka)
    await provisioning.apply(mine)
    name = topic_name(mine, INCIDENTS)
    client = admin(mine)
    await client.start()
    foreign = ConfigResource(ConfigResourceType.TOPIC, name, configs={"segment.ms": "3600000"})
    await client.alter_configs([foreign])

    async def shown() -> bool:
        return "segment.ms" in (await provisioning.read_actual(client, [name]))[name].config

    await eventually(shown, "the broker shows what was set by hand")

    grown = settings(kafka, topic_prefix=mine.topic_prefix, raw_partitions=4)
    changes = {change.topic: change.kind for change in await provisioning.apply(grown)}
    assert changes[topic_name(mine, RAW_METRICS)] == "partitions"
    assert changes[name] == "config"
    actual = await provisioning.read_actual(client, [name, topic_name(mine, RAW_METRICS)])
    await client.close()
    assert actual[name].config["segment.ms"] == "3600000"
    assert actual[name].config["cleanup.policy"] == "compact"
    assert actual[topic_name(mine, RAW_METRICS)].partitions == 4


@pytest.mark.kafka
async def test_a_partition_count_that_cannot_change_is_refused_and_nothing_is_touched(kafka: Kafka) -> None:
    mine = settings(kafka)
    await provisioning.apply(mine)
    other = settings(kafka, topic_prefix=mine.topic_prefix, raw_partitions=4, cluster_partitions=3)
    with pytest.raises(ConfigError, match=topic_name(mine, SIGNALS)):
        await provisioning.apply(other)
    assert {change.kind for change in await provisioning.diff(other)} == {"conflict", "partitions"}


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
        await provisioning.diff(KafkaSettings(bootstrap="127.0.0.1:1"))


@pytest.mark.kafka
async def test_looking_for_topics_makes_none_on_a_broker_that_makes_topics_by_itself(tmp_path: Path) -> None:
    with Kafka.running(tmp_path, properties={"auto.create.topics.enable": "true"}) as broker:
        mine = settings(broker)
        for _ in range(2):
            assert {change.kind for change in await provisioning.diff(mine)} == {"create"}
        with pytest.raises(ConfigError):
            await provisioning.verify(mine)
        await provisioning.apply(mine)
        assert await provisioning.diff(mine) == []
