"""The state is what the changelog says, whoever wrote it and whoever owned the partition meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.correlate.changelog import Changelog
from streams.kafka import clients
from streams.kafka.topics import CHANGELOG
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded

ROWS = {b"c\0%d" % i: b"%d" % i for i in range(500)}


class Site:
    """A changelog of two partitions with a writer, and those who follow it."""

    def __init__(self, settings: KafkaSettings, writer: AIOKafkaProducer) -> None:
        self.settings = settings
        self.writer = writer
        self.followers: list[Changelog] = []

    async def write(self, *rows: tuple[bytes, bytes | None], partition: int = 0) -> list[int]:
        """Write rows; returns where they lie."""
        name = clients.topic_name(self.settings, CHANGELOG)
        sent = [await self.writer.send(name, value, key=key, partition=partition) for key, value in rows]
        return [(await one).offset for one in sent]

    async def follower(self) -> Changelog:
        """One more, that has read what is there."""
        changelog = Changelog(self.settings, beat=lambda: None)
        self.followers.append(changelog)
        await changelog.start()
        return changelog

    async def own(self, changelog: Changelog, *rows: tuple[bytes, bytes | None]) -> None:
        """Change rows as an owner does."""
        for key, value in rows:
            if value is None:
                del changelog.rows(0)[key]
            else:
                changelog.rows(0)[key] = value
        changelog.wrote(0, await self.write(*rows))


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    base = KafkaSettings(cluster_partitions=2)
    async with broker.running(base, log=tmp_path / "broker.log") as running:
        writer = await clients.started(clients.producer(running.settings), running.settings)
        found = Site(running.settings, writer)
        await found.write(*ROWS.items())
        yield found
        for one in found.followers:
            await one.stop()
        await writer.stop()


async def follows(changelog: Changelog, rows: dict[bytes, bytes]) -> None:
    async def the_same() -> bool:
        return changelog.rows(0) == rows

    await eventually(the_same, "the rows are those of the changelog", timeout_s=60)


async def test_everything_is_read_at_the_start_and_followed_from_then_on(site: Site) -> None:
    changelog = await site.follower()
    assert changelog.rows(0) == ROWS
    assert changelog.rows(1) == {}
    await site.write((b"c\x000", None), (b"c\x001", b"other"))
    await follows(changelog, {**dict(list(ROWS.items())[2:]), b"c\x001": b"other"})


async def test_whoever_takes_a_partition_has_all_that_was_written_before(site: Site) -> None:
    changelog = await site.follower()
    await site.write((b"c\x001", b"late"))
    await changelog.take({0})
    assert changelog.rows(0) == ROWS | {b"c\x001": b"late"}


async def test_an_owner_does_not_read_its_own_rows_over_later_ones(site: Site) -> None:
    changelog = await site.follower()
    await changelog.take({0})
    await site.own(changelog, (b"c\x001", b"first"))
    changelog.rows(0)[b"c\x001"] = b"second, not written yet"
    await site.write((b"d\x001", b"seen"), partition=1)

    async def has_read_on() -> bool:
        return changelog.rows(1) == {b"d\x001": b"seen"}

    await eventually(has_read_on, "another partition is followed", timeout_s=60)
    assert changelog.rows(0)[b"c\x001"] == b"second, not written yet"


async def test_what_another_wrote_meanwhile_is_read_on_from_our_last_row(site: Site) -> None:
    changelog = await site.follower()
    await changelog.take({0})
    await site.own(changelog, (b"c\x001", b"ours"), (b"c\x002", None))
    changelog.leave()
    await site.write((b"c\x001", b"theirs"), (b"c\x003", None))
    await changelog.take({0})
    expected = ROWS | {b"c\x001": b"theirs"}
    del expected[b"c\x002"], expected[b"c\x003"]
    assert changelog.rows(0) == expected


async def test_a_row_that_was_never_written_is_gone_with_the_partition(site: Site) -> None:
    changelog = await site.follower()
    await changelog.take({0})
    await site.own(changelog, (b"c\x001", b"written"))
    changelog.rows(0)[b"c\0never"] = b"written"
    changelog.rows(0)[b"c\x001"] = b"never written"
    del changelog.rows(0)[b"c\x002"]
    changelog.leave()
    await changelog.take({0})
    assert changelog.rows(0) == ROWS | {b"c\x001": b"written"}


async def test_what_was_written_without_our_knowing_is_read(site: Site) -> None:
    changelog = await site.follower()
    await changelog.take({0})
    changelog.rows(0)[b"c\x001"] = b"written"
    await site.write((b"c\x001", b"written"))
    changelog.leave()
    await changelog.take({0})
    assert changelog.rows(0) == ROWS | {b"c\x001": b"written"}


async def test_what_a_stranger_wrote_in_between_counts_in_the_order_in_which_it_lies_there(
    site: Site,
) -> None:
    changelog = await site.follower()
    await changelog.take({0})
    await site.write((b"c\x001", b"a stranger's"), (b"c\x002", b"a stranger's"))
    await site.own(changelog, (b"c\x001", b"ours"))
    changelog.leave()
    await changelog.take({0})
    assert changelog.rows(0) == ROWS | {b"c\x001": b"ours", b"c\x002": b"a stranger's"}


async def test_a_partition_that_is_lost_while_it_is_read_is_followed(site: Site) -> None:
    changelog = await site.follower()
    taking = asyncio.create_task(changelog.take({0}))
    await asyncio.sleep(0)  # it has asked the broker
    changelog.leave()
    await taking
    await site.write((b"c\x001", b"theirs"))
    await follows(changelog, ROWS | {b"c\x001": b"theirs"})
