"""Two installations on the same topics: the one whose cluster does not hold them is rejected before it touches anything."""

from __future__ import annotations

import asyncio
import itertools
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faultline.cli.main import EXIT_BAD_INPUT
from streams.config.settings import KafkaSettings
from streams.kafka import installation, provisioning
from streams.kafka.clients import admin, group_name, started
from streams.kafka.installation import Claim, holder
from streams.model.errors import ConfigError
from tests.testbed.children import Child, free_port
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import until

NOW = datetime(2026, 3, 3, 3, 0, tzinfo=UTC)


def claim(cluster: str, replaces: str = "") -> Claim:
    return Claim(cluster, "a test", NOW, replaces)


@pytest.mark.parametrize(
    ("claims", "held"),
    [
        ([], None),
        ([claim("east")], "east"),
        ([claim("east"), claim("west")], "east"),
        ([claim("east"), claim("west", replaces="east")], "west"),
        ([claim("east"), claim("west", replaces="north"), claim("south", replaces="east")], "south"),
        ([claim("east"), claim("west", replaces="east"), claim("south", replaces="east")], "west"),
        ([claim("east"), claim("east", replaces="east")], "east"),
    ],
)
def test_the_first_claim_holds_until_one_says_that_it_replaces_it(
    claims: list[Claim], held: str | None
) -> None:
    found = holder(claims)
    assert (found.cluster if found else None) == held


@pytest.fixture
async def topics(kafka: Kafka) -> KafkaSettings:
    """Topics of an installation that nobody has claimed."""
    settings = KafkaSettings(
        bootstrap=kafka.bootstrap,
        topic_prefix=f"one{uuid.uuid4().hex[:8]}.",
        replication_factor=1,
        raw_partitions=1,
        cluster_partitions=1,
    )
    await provisioning.apply(settings)
    return settings


@pytest.mark.kafka
async def test_of_two_that_start_in_the_same_moment_exactly_one_goes_on(topics: KafkaSettings) -> None:
    names = [f"cluster-{n}" for n in range(4)]
    ends = await asyncio.gather(
        *(installation.claim(topics, name, "a test") for name in names), return_exceptions=True
    )
    refused = [name for name, end in zip(names, ends, strict=True) if isinstance(end, ConfigError)]
    assert len(refused) == len(names) - 1, ends
    (held,) = set(names) - set(refused)
    for name in names:
        if name == held:
            await installation.claim(topics, name, "its restart")
        else:
            with pytest.raises(ConfigError, match=f"belong to cluster {held}"):
                await installation.claim(topics, name, "its restart")


@pytest.mark.kafka
async def test_who_is_turned_away_again_and_again_leaves_one_record_an_hour(topics: KafkaSettings) -> None:
    minutes = itertools.count()
    await installation.claim(topics, "east", "a test", clock=lambda: NOW)
    for _ in range(5):
        at = NOW + timedelta(minutes=20 * next(minutes))
        with pytest.raises(ConfigError):
            await installation.claim(topics, "west", "a crash loop", clock=lambda at=at: at)  # type: ignore[misc]
    assert len(await installation.read_claims(topics)) == 1 + 2


@pytest.mark.kafka
async def test_a_cluster_is_given_another_name_on_purpose_only(topics: KafkaSettings) -> None:
    await installation.claim(topics, "east", "a test")
    with pytest.raises(ConfigError, match=r"these topics belong to cluster east; did you mean east\?"):
        await installation.rename(topics, "eats", "west", "a person")
    await installation.rename(topics, "east", "west", "a person")
    await installation.rename(topics, "east", "west", "the same once more")
    await installation.claim(topics, "west", "a test")
    with pytest.raises(ConfigError, match=r"belong to cluster west"):
        await installation.claim(topics, "east", "an old process")


class Site:
    """Processes of one prefix, each with the cluster it is told."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.children: list[Child] = []

    def start(self, process: str, cluster: str) -> Child:
        dumped = self._settings.model_dump(exclude_none=True, exclude_defaults=True)
        env = {f"FAULTLINE_KAFKA__{key.upper()}": str(value) for key, value in dumped.items()}
        env |= {
            "FAULTLINE_CLUSTER": cluster,
            "FAULTLINE_LOG_FORMAT": "json",
            "FAULTLINE_HTTP_PORT": str(free_port()),
        }
        log = self._folder / f"{process}-{cluster}.log"
        child = Child(process, [sys.executable, "-m", "faultline", "run", process], log=log, env=env)
        self.children.append(child)
        return child


@contextmanager
def site(settings: KafkaSettings, folder: Path) -> Iterator[Site]:
    made = Site(settings, folder)
    try:
        yield made
    finally:
        for child in made.children:
            child.stop()


@pytest.mark.kafka
async def test_a_second_detector_of_another_cluster_ends_before_it_joins_and_the_first_says_so(
    topics: KafkaSettings, tmp_path: Path
) -> None:
    with site(topics, tmp_path) as ours:
        first = ours.start("detector", "east")
        await asyncio.to_thread(
            first.wait_until, lambda: _has(first, '"partitions assigned"'), "has partitions"
        )
        second = ours.start("detector", "other")
        assert await asyncio.to_thread(second.wait, 60) == EXIT_BAD_INPUT
        said = second.log.read_text()
        assert "these settings say other" in said
        assert "belong to cluster east" in said
        assert "--rename-from east" in said
        assert "Traceback" not in said
        assert await _members(topics, "detector") == 1
        await asyncio.to_thread(
            until, lambda: _has(first, '"theirs": "other"'), "the first tells of the second"
        )
        assert first.exit_code is None

        await installation.rename(topics, "east", "west", "a person")
        assert await asyncio.to_thread(first.wait, 60) == EXIT_BAD_INPUT
        assert "belong to cluster west" in first.log.read_text()


def _has(child: Child, words: str) -> bool:
    return words in child.log.read_text()


async def _members(settings: KafkaSettings, process: str) -> int:
    client = await started(admin(settings), settings)
    try:
        (answer,) = await client.describe_consumer_groups([group_name(settings, process)])
        return len(answer.groups[0][5])
    finally:
        await client.close()
