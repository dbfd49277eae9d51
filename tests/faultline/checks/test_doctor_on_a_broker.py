"""`doctor` on a real broker: each state that it names is made there, and a broker that hangs holds nothing up."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from aiokafka import AIOKafkaConsumer, TopicPartition
from click.testing import CliRunner

from faultline.checks import group_probe
from faultline.checks.broker_probe import probe_broker
from faultline.checks.connect import connected
from faultline.checks.controls_probe import probe_controls, probe_dead_letters
from faultline.checks.finding import CheckFinding
from faultline.checks.group_probe import probe_groups
from faultline.checks.shipper_probe import probe_shippers
from faultline.cli.main import cli
from faultline.runtime.settings import Settings
from streams.config.settings import KafkaSettings
from streams.kafka import clients, installation, provisioning
from streams.kafka.topics import CONTROLS, DEAD_LETTERS, RAW_METRICS, RAW_NODE_LOGS, Topic, partition_of
from streams.model.clock import to_millis, utc_now
from streams.model.codec import encode
from streams.model.control import Control, Freeze, Switch
from tests.testbed.kafka import Kafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def settings(kafka: Kafka) -> Settings:
    """An installation of its own, with all its topics."""
    found = Settings(cluster="west", kafka=kafka.settings("doctor"))
    asyncio.run(_begin(found.kafka))
    return found


async def _begin(settings: KafkaSettings) -> None:
    await provisioning.apply(settings)
    await installation.claim(settings, "west", "topics apply on a test machine")


async def write(
    settings: KafkaSettings, topic: Topic, *values: bytes, ago: timedelta = timedelta(), key: bytes = b"west"
) -> None:
    producer = await clients.started(clients.producer(settings), settings)
    try:
        for value in values:
            await producer.send_and_wait(
                clients.topic_name(settings, topic),
                value,
                key=key,
                partition=partition_of("west", 2) if topic.partitions == "cluster" else 0,
                timestamp_ms=to_millis(utc_now() - ago),
            )
    finally:
        await producer.stop()


@asynccontextmanager
async def member(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    """A member of the detector's group that has a partition, and commits only what it is told."""
    client = clients.consumer(settings, group="detector")
    client.subscribe([clients.topic_name(settings, RAW_NODE_LOGS)])
    await clients.started(client, settings)
    try:
        async with asyncio.timeout(20):
            while not client.assignment():
                await client.getmany(timeout_ms=100)
        yield client
    finally:
        await client.stop()


def place(settings: KafkaSettings) -> TopicPartition:
    return TopicPartition(clients.topic_name(settings, RAW_NODE_LOGS), 0)


async def groups(settings: Settings) -> list[CheckFinding]:
    return [one for one in await probe_groups(settings, ("detector",)) if one.where != "versions"]


async def test_a_group_is_left_stuck_idle_or_ahead_of_its_topic(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_probe, "SAMPLE_S", 0.3)
    kafka = settings.kafka
    (nobody,) = await groups(settings)
    assert (nobody.level, nobody.what) == ("warning", "nobody is in it; 0 records wait")
    await write(kafka, RAW_NODE_LOGS, b"one", b"two", ago=timedelta(minutes=3))
    async with member(kafka) as client:
        await client.commit({place(kafka): 0})
        (stuck,) = await groups(settings)
        assert (stuck.level, stuck.where) == ("fault", "group of the detector")
        assert stuck.what.startswith("it is stuck in 1 partitions")
        assert "2 records wait" in stuck.what
        await client.commit({place(kafka): 2})
        assert await groups(settings) == []
        await client.commit({place(kafka): 700})
        (back,) = await groups(settings)
        assert "the broker restored from an older copy" in back.what
        await client.commit({place(kafka): 0})
    (left,) = await groups(settings)
    assert left.level == "fault"
    assert left.what.startswith("nobody is in it; 2 records wait, the oldest since")


async def test_topics_that_went_silent_and_clocks_of_hosts(settings: Settings) -> None:
    kafka = settings.kafka
    line = f"{(utc_now() + timedelta(minutes=5)).isoformat()} gpu-07 kernel: all is well".encode()
    await write(kafka, RAW_NODE_LOGS, line, ago=timedelta(hours=3))
    told = {one.where: one for one in await probe_shippers(kafka)}
    name = clients.topic_name(kafka, RAW_NODE_LOGS)
    assert told[f"shippers of {name}"].what.startswith("silent for 3 h")
    assert "gpu-07 wrote a line" in told[f"clock of shippers of {name}"].what
    assert told["shippers"].level == "note", "topics that nobody ever used are no fault"
    await write(kafka, RAW_NODE_LOGS, b"gpu-07 kernel: all is well")
    assert {one.where for one in await probe_shippers(kafka)} == {"shippers"}


async def test_a_node_that_went_silent_among_others(settings: Settings) -> None:
    kafka = settings.kafka
    for minutes in range(28, 0, -2):
        for node in (b"gpu-01", b"gpu-02", b"gpu-03", b"gpu-04"):
            if node != b"gpu-04" or minutes > 20:
                await write(kafka, RAW_METRICS, b"{}", ago=timedelta(minutes=minutes), key=node)
    told = [one for one in await probe_shippers(kafka) if "went silent while" in one.what]
    assert [one.what.split(", the first")[0] for one in told] == ["1 nodes went silent while 3 go on: gpu-04"]


async def test_switches_that_are_on_and_dead_letters_that_grow(settings: Settings) -> None:
    kafka, now = settings.kafka, utc_now()
    assert await probe_dead_letters(kafka) == []
    control = Control(
        "west",
        1,
        kill_switch=Switch("ann", now, "storage is down"),
        freezes=(Freeze("pool:h100", "bo", now - timedelta(days=2)),),
    )
    await write(kafka, CONTROLS, encode(control))
    told = {one.where: one for one in await probe_controls(settings)}
    assert "by ann" in told["kill switch"].what
    assert "storage is down" in told["kill switch"].what
    assert told["freeze"].level == "warning", "a freeze without an end, two days old"
    assert told["responder.mode"].level == "note"
    await write(kafka, DEAD_LETTERS, *[b"what"] * 20)
    (letters,) = await probe_dead_letters(kafka)
    assert letters.what.startswith("20 in the last hour")


async def test_a_second_installation_on_the_same_topics_is_named(settings: Settings) -> None:
    assert await probe_broker(settings.kafka, "west") == []
    assert not await _holds(settings.kafka, "east")
    (finding,) = await probe_broker(settings.kafka, "west")
    assert finding.where == "installation"
    assert "cluster east" in finding.what


async def _holds(settings: KafkaSettings, cluster: str) -> bool:
    from streams.model.errors import ConfigError

    try:
        return await installation.hold(settings, cluster, "detector on another machine")
    except ConfigError:
        return False


def test_the_command_tells_everything_at_once_and_each_finding_has_a_command(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "faultline.yaml"
    values = settings.kafka.model_dump(mode="json", exclude_unset=True)
    file.write_text(yaml.safe_dump({"cluster": "west", "kafka": values}))
    ran = CliRunner().invoke(
        cli, ["--config", str(file), "doctor", "--process", "detector", "--output", "json"]
    )
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.exit_code == 1, ran.output
    assert all(one["run"] and one["do"] for one in records)
    assert {"fault", "note"} <= {one["record"] for one in records}


@pytest.mark.nightly
async def test_a_broker_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    with Kafka.running(tmp_path) as broker:
        settings = Settings(cluster="west", kafka=broker.settings("hangs"))
        await provisioning.apply(settings.kafka)
        broker.pause()
        try:
            began = time.monotonic()
            told = await asyncio.to_thread(connected, settings, ("detector",), within_s=1.0, longest_s=2.5)
            took_s = time.monotonic() - began
        finally:
            broker.resume()
    assert took_s < 5
    assert {one.level for one in told} == {"unreachable"}
    assert len(told) >= 6
