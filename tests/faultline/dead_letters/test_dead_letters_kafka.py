"""`faultline dead-letters` on a real broker: what is written back is written once, whoever tries and whatever is killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import ConsumerRecord
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from faultline.dead_letters import retry as retrying
from faultline.dead_letters.letter import Choice, Letter, Retried, read
from faultline.dead_letters.outlook import TodaysCode
from faultline.dead_letters.reading import reader
from streams.config.settings import KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.dead_letters import MAX_BYTES, RETRIED_HEADER, dead_letter
from streams.kafka.topics import DEAD_LETTERS, RAW_NODE_LOGS
from streams.model.clock import from_millis, utc_now
from streams.model.codec import encode
from streams.model.errors import Fenced
from streams.model.record import RawRecord
from tests.runbooks.topics import committed_records
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

THEN = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)


def line(number: int) -> bytes:
    """A line without a time of its own: its record's time is all that tells how old it is."""
    return f"NVRM: Xid (PCI:0000:3b:00): 79, pid={number}, GPU has fallen off the bus.".encode()


def old_record(number: int, value: bytes | None = None) -> RawRecord:
    return RawRecord(
        "raw.node-logs",
        1,
        100 + number,
        THEN,
        b"n1",
        value or line(number),
        (("faultline-cluster", b"west"),),
    )


async def bury(
    settings: KafkaSettings, records: Sequence[RawRecord], reason: str = "not known at {}"
) -> None:
    """Write dead letters as a detector of an older version would have."""
    producer = await clients.started(clients.producer(settings), settings)
    try:
        for number, record in enumerate(records):
            key, value, headers = dead_letter(record, stage="detector", reasons=[reason.format(number)])
            name = clients.topic_name(settings, DEAD_LETTERS)
            await producer.send_and_wait(name, value, key=key, headers=headers)
    finally:
        await producer.stop()


async def written(settings: KafkaSettings) -> list[ConsumerRecord[bytes, bytes]]:
    """What lies in both partitions of `raw.node-logs`."""
    return [one for number in range(2) for one in await committed_records(settings, RAW_NODE_LOGS, number)]


@pytest.fixture
def settings(kafka: Kafka) -> KafkaSettings:
    """The broker with topics under a prefix of this test's own."""
    return asyncio.run(with_topics(kafka))


async def with_topics(kafka: Kafka) -> KafkaSettings:
    """Every topic, with the sizes of production."""
    mine = kafka.settings("letters", raw_partitions=2)
    await provisioning.apply(mine)
    return mine


@pytest.fixture
def config(settings: KafkaSettings, tmp_path: Path) -> Path:
    """A settings file for it."""
    file = tmp_path / "faultline.yaml"
    names = (
        "bootstrap",
        "topic_prefix",
        "cluster_partitions",
        "raw_partitions",
        "replication_factor",
        "min_insync_replicas",
    )
    of_kafka = {name: getattr(settings, name) for name in names}
    file.write_text(yaml.safe_dump({"cluster": "west", "kafka": of_kafka}))
    return file


def run(config: Path, *arguments: str) -> Result:
    """What the command prints; an exception is the test's own."""
    return CliRunner().invoke(
        cli, ["--config", str(config), "dead-letters", *arguments], catch_exceptions=False
    )


def documents(result: Result) -> list[dict[str, Any]]:
    return [json.loads(text) for text in result.stdout.splitlines()]


def test_letters_are_listed_newest_first_grouped_and_shown(settings: KafkaSettings, config: Path) -> None:
    broken = [old_record(n, b"\x1f\x8b\x08broken") for n in range(3)]
    asyncio.run(bury(settings, [*broken, old_record(9)]))
    listed = documents(run(config, "list", "-o", "json"))
    assert [one["source"] for one in listed] == [f"raw.node-logs:1:{n}" for n in (109, 102, 101, 100)]
    assert len(documents(run(config, "list", "-o", "json", "--limit", "2"))) == 2
    assert [one["source"] for one in documents(run(config, "list", "-o", "json", "--grep", "Xid"))] == [
        "raw.node-logs:1:109"
    ]
    (group,) = documents(run(config, "groups", "-o", "json"))
    assert (group["letters"], group["reason"], group["topic"]) == (4, "not known at <n>", "raw.node-logs")
    shown = documents(run(config, "show", listed[0]["letter"], "-o", "json"))[0]
    assert (shown["value"], shown["verdict"], shown["headers"]) == (
        line(9).decode(), "retry", {"faultline-cluster": "west"},
    )  # fmt: skip
    assert documents(run(config, "show", listed[1]["letter"], "-o", "json"))[0]["verdict"] == "dead"


def test_only_what_can_be_read_now_is_written_back_once_with_its_own_time(
    settings: KafkaSettings, config: Path
) -> None:
    still_dead = old_record(3, b"\x1f\x8b\x08\x00broken gzip")
    cut = old_record(4, b"x" * (MAX_BYTES + 1))
    asyncio.run(bury(settings, [old_record(0), old_record(0), old_record(1), still_dead, cut]))
    dry = run(config, "retry", "--all", "-o", "json")
    assert sorted(one["outcome"] for one in documents(dry)) == [
        "already",
        "dead",
        "left",
        "would retry",
        "would retry",
    ]
    assert asyncio.run(written(settings)) == []

    first = run(config, "retry", "--all", "--yes", "-o", "json")
    outcomes = sorted((one["source"], one["outcome"]) for one in documents(first))
    assert outcomes == [
        ("raw.node-logs:1:100", "already"),
        ("raw.node-logs:1:100", "retried"),
        ("raw.node-logs:1:101", "retried"),
        ("raw.node-logs:1:103", "dead"),
        ("raw.node-logs:1:104", "left"),
    ]
    back = asyncio.run(written(settings))
    assert [(one.partition, one.key, one.value) for one in back] == [(1, b"n1", line(0)), (1, b"n1", line(1))]
    assert {from_millis(one.timestamp) for one in back} == {THEN}, "they must not look new"
    assert all({"faultline-cluster", RETRIED_HEADER} == dict(one.headers).keys() for one in back)

    again = run(config, "retry", "--all", "--yes", "-o", "json")
    assert again.exit_code == 1
    assert {one["outcome"] for one in documents(again)} == {"already", "dead", "left"}
    assert len(asyncio.run(written(settings))) == 2
    assert documents(run(config, "groups", "-o", "json"))[0]["retried"] == 2


def test_a_retry_that_is_killed_and_begun_again_writes_every_record_once(
    settings: KafkaSettings, config: Path, tmp_path: Path
) -> None:
    asyncio.run(bury(settings, [old_record(number) for number in range(60)]))
    command = [
        sys.executable,
        "-m",
        "faultline",
        "--config",
        str(config),
        "dead-letters",
        "retry",
        "--all",
        "--yes",
    ]
    killed = Child("retry", [*command, "--rate", "5"], log=tmp_path / "retry.log")

    async def some_are_written() -> bool:
        return len(await written(settings)) >= 10

    asyncio.run(eventually(some_are_written, "some are written back"))
    killed.kill()
    before = len(asyncio.run(written(settings)))
    assert before < 60, "it was killed in the middle"
    assert run(config, "retry", "--all", "--yes", "--rate", "1000").exit_code == 0
    assert sorted(one.value for one in asyncio.run(written(settings))) == sorted(map(line, range(60)))


async def test_of_two_people_at_once_the_later_goes_on_and_the_first_is_stopped(kafka: Kafka) -> None:
    settings = await with_topics(kafka)
    await bury(settings, [old_record(number) for number in range(6)])
    code = TodaysCode("west", "faultline-cluster", 2)
    async with (
        reader(settings) as mine,
        retrying.opened(settings, mine, code, write=True, by="ada", clock=utc_now) as first,
    ):
        going = first.run(Choice(), limit=100, per_s=2.0)
        assert (await anext(going)).outcome == "retried"
        async with (
            reader(settings) as theirs,
            retrying.opened(settings, theirs, code, write=True, by="bob", clock=utc_now) as second,
        ):
            outcomes = [tried.outcome async for tried in second.run(Choice(), limit=100, per_s=1000.0)]
        assert outcomes == ["already", "already", "retried", "retried", "retried", "retried"]
        with pytest.raises(Fenced, match="another"):
            async for _ in going:
                pass
    assert len(await written(settings)) == 6


async def test_a_mark_behind_an_open_transaction_of_another_process_is_not_missed(kafka: Kafka) -> None:
    settings = await with_topics(kafka)
    await bury(settings, [old_record(0)])
    code = TodaysCode("west", "faultline-cluster", 2)
    other = await clients.started(clients.producer(settings, transactional_id="a-responder"), settings)
    name = clients.topic_name(settings, DEAD_LETTERS)
    (letter,) = [
        found
        for number in range(2)
        for one in await committed_records(settings, DEAD_LETTERS, number)
        if isinstance(found := read(one), Letter)
    ]
    mark = Retried(letter.coordinates, letter.source, letter.group, utc_now(), "bob")
    try:
        await other.begin_transaction()
        await other.send_and_wait(name, b"open", partition=letter.partition)
        plain = await clients.started(clients.producer(settings), settings)
        await plain.send_and_wait(
            name, None, key=b"k", partition=letter.partition, headers=[(RETRIED_HEADER, encode(mark))]
        )
        await plain.stop()

        async def tried() -> list[str]:
            async with (
                reader(settings) as client,
                retrying.opened(settings, client, code, write=True, by="ada", clock=utc_now) as this,
            ):
                return [one.outcome async for one in this.run(Choice(), limit=9, per_s=100.0)]

        task = asyncio.create_task(tried())
        # Long enough for one that does not wait for the transaction to have written; one that does cannot be done.
        await asyncio.wait({task}, timeout=2)
        assert not task.done()
        await other.abort_transaction()
        assert await task == ["already"]
        assert await written(settings) == []
    finally:
        await other.stop()


def test_a_purge_says_what_is_lost_and_deletes_no_more(settings: KafkaSettings, config: Path) -> None:
    asyncio.run(bury(settings, [old_record(number) for number in range(4)]))
    listed = documents(run(config, "list", "-o", "json"))
    assert run(config, "retry", listed[-1]["letter"], "--yes").exit_code == 0
    third = listed[1]["letter"]
    dry = run(config, "purge", "--before-offset", third)
    assert "2 letters" in dry.stderr
    assert "would be lost" in dry.stderr
    assert len(documents(run(config, "list", "-o", "json"))) == 4
    group, summary = documents(run(config, "purge", "--before-offset", third, "--yes", "-o", "json"))
    assert (group["letters"], group["retried"], summary["letters"], summary["deleted"]) == (2, 1, 2, True)
    left = documents(run(config, "list", "-o", "json"))
    assert [one["source"] for one in left] == ["raw.node-logs:1:103", "raw.node-logs:1:102"]
    assert run(config, "purge", "--before", "0m", "--yes").exit_code == 0
    assert documents(run(config, "list", "-o", "json")) == []


def test_a_topic_with_the_brokers_time_takes_no_old_record(settings: KafkaSettings, config: Path) -> None:
    async def with_log_append_time() -> None:
        from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

        admin = await clients.started(clients.admin(settings), settings)
        name = clients.topic_name(settings, RAW_NODE_LOGS)
        try:
            resource = ConfigResource(
                ConfigResourceType.TOPIC, name, configs={"message.timestamp.type": "LogAppendTime"}
            )
            await admin.alter_configs([resource])
        finally:
            await admin.close()
        await bury(settings, [old_record(0)])

    asyncio.run(with_log_append_time())
    (tried,) = documents(run(config, "retry", "--all", "--yes", "-o", "json"))
    assert (tried["outcome"], "LogAppendTime" in tried["why"]) == ("left", True)
    assert asyncio.run(written(settings)) == []
