"""A channel that is archived, gone or closed: noticed, said once elsewhere, survived, and gone on with when it is mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from faultline.chat import channel_health
from faultline.chat.channel_health import EVERY_CHANNEL, ChannelHealth
from faultline.chat.process import Chat
from sandbox.emulated import broker
from sandbox.fake_services.slack import SlackStandin
from streams.config.connector_settings import SlackRoute
from streams.config.settings import KafkaSettings
from streams.model.incident import IncidentState
from tests.connectors.chat.test_slack_contract import CHANNEL, slack
from tests.connectors.chat.thread_documents import NOW
from tests.faultline.chat.test_chat_embedded import running, seen
from tests.faultline.chat.test_routes import other
from tests.faultline.chat.test_storm_embedded import writing

VISION = "C0VISION"


def test_a_broken_channel_rests_longer_each_time_and_only_it() -> None:
    health = ChannelHealth()
    assert health.failed(VISION, "is_archived", NOW)
    assert health.paused_until(VISION) == NOW + timedelta(seconds=15)
    assert health.paused_until(CHANNEL) is None
    assert not health.failed(VISION, "is_archived", NOW)
    assert health.paused_until(VISION) == NOW + timedelta(seconds=30)
    for _ in range(20):
        health.failed(VISION, "is_archived", NOW)
    assert health.paused_until(VISION) == NOW + timedelta(seconds=channel_health.LONGEST_PAUSE_S)
    health.worked(VISION, NOW)
    assert health.paused_until(VISION) is None


def test_without_a_token_every_channel_rests_and_one_message_ends_that() -> None:
    health = ChannelHealth()
    health.failed(EVERY_CHANNEL, "token_revoked", NOW)
    assert health.paused_until(VISION) == health.paused_until(CHANNEL) is not None
    health.worked(CHANNEL, NOW)
    assert health.paused_until(VISION) is None


def chat(settings: KafkaSettings, server: SlackStandin) -> Chat:
    connector = slack(server.base_url, posts_per_s=1000, calls_per_minute=60_000)
    routes = (SlackRoute(channel=VISION),)
    return Chat(settings, connector, channel=CHANNEL, debounce_s=0.05, lease_s=30, routes=routes)


def archive(server: SlackStandin) -> Callable[[], None]:
    server.archived.add(VISION)
    return server.archived.clear


def remove(server: SlackStandin) -> Callable[[], None]:
    kept = server.channels.pop(VISION)
    return lambda: server.channels.update({VISION: kept})


@pytest.mark.embedded
@pytest.mark.parametrize("breaking", [archive, remove])
async def test_a_channel_that_cannot_be_posted_to_is_said_once_and_catches_up(
    breaking: Callable[[SlackStandin], Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_health, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(channel_health, "LONGEST_PAUSE_S", 0.5)
    first = other(1)
    ended = replace(first, revision=2, state=IncidentState.RESOLVED, closed_at=first.opened_at)
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin(channels=(CHANNEL, VISION)) as server,
        writing(embedded.settings) as write,
    ):
        await write(first)
        async with running(chat(embedded.settings, server)):
            await seen(lambda: len(server.channels[VISION]) == 2, "the thread is there")
            mend = breaking(server)
            await write(ended, other(2), other(3))
            await seen(lambda: server.roots(CHANNEL), "the default channel is told")
        async with running(chat(embedded.settings, server)):
            calls = len(server.calls("chat.postMessage")) + len(server.calls("chat.update"))
            await seen(
                lambda: len(server.calls("chat.postMessage")) + len(server.calls("chat.update")) > calls,
                "it tries again after the restart",
            )
            mend()
            await seen(lambda: len(server.roots(VISION)) == 3, "what waited is told")
            await seen(lambda: "resolved" in server.roots(VISION)[0].text, "and what changed")
            await seen(lambda: "again" in server.roots(CHANNEL)[0].text, "and that it works again")
    (notice,) = server.roots(CHANNEL)
    assert notice.edits == 1
    keys = [message.key for message in server.channels[VISION]]
    assert len(keys) == len(set(keys))


@pytest.mark.embedded
async def test_a_channel_that_is_mended_while_nobody_tries_is_said_to_work_at_the_next_message(
    tmp_path: Path,
) -> None:
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin(channels=(CHANNEL, VISION)) as server,
        writing(embedded.settings) as write,
    ):
        mend = archive(server)
        await write(other(1))
        async with running(chat(embedded.settings, server)):
            await seen(lambda: server.roots(CHANNEL), "the default channel is told")
        mend()
        async with running(chat(embedded.settings, server)):
            await seen(lambda: server.roots(VISION), "what waited is told")
            await seen(lambda: "again" in server.roots(CHANNEL)[0].text, "and that it works again")
            # Ended here it might not have noted that it said so, and would take that word back instead.
            archive(server)
            await write(other(2))
            await seen(lambda: len(server.roots(CHANNEL)) == 2, "another breakage is another message")


@pytest.mark.embedded
async def test_a_revoked_token_costs_few_calls_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_health, "FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr(channel_health, "LONGEST_PAUSE_S", 0.5)
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin(channels=(CHANNEL, VISION)) as server,
        writing(embedded.settings) as write,
    ):
        server.token = "xoxb-another"
        await write(*(other(n) for n in range(4)))
        async with running(chat(embedded.settings, server)):
            await seen(lambda: len(server.calls("chat.postMessage")) >= 4, "it tries")
            server.token = "xoxb-standin"
            await seen(lambda: len(server.roots(VISION)) == 4, "all is told")
    assert server.roots(CHANNEL) == []


@pytest.mark.embedded
async def test_without_the_scope_for_reading_messages_are_posted_all_the_same(tmp_path: Path) -> None:
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin(channels=(CHANNEL, VISION)) as server,
        writing(embedded.settings) as write,
    ):
        server.missing_scopes = {"conversations.history": "channels:history"}
        await write(*(other(n) for n in range(4)))
        async with running(chat(embedded.settings, server)):
            await seen(lambda: len(server.roots(VISION)) == 4, "all is told")
