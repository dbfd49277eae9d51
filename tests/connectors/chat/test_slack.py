"""Slack's own traps: limits for each method and channel, metadata lost on edits, deleted messages, copies, foreign apps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from pydantic import SecretStr, ValidationError

from connectors.base import Absent, AlreadyDone, Blocked, Done, NoLease, Refused, Retry, Unknown
from connectors.chat.rate_limits import MAX_WAIT_S, Limits
from connectors.chat.slack import Slack
from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.slack import Posting, SlackStandin
from streams.config.connector_settings import SlackSettings
from streams.model.errors import ConfigError, Fenced, Temporary
from streams.model.message import MAX_STEPS, Fact, Heading, Message, Step, Steps, Tone
from streams.model.run import Target
from tests.connectors.chat.test_slack_contract import CHANNEL, MESSAGE, ROOT, effect, slack
from tests.connectors.chat.thread_documents import NOW
from tests.contract.case import LostLease

LEASE = NoLease()
NEWER = Message("resolved", (Heading("resolved"),), Tone.GOOD)


@pytest.fixture
async def server() -> AsyncIterator[SlackStandin]:
    async with SlackStandin(channels=(CHANNEL, "C0OTHER")) as standin:
        yield standin


@pytest.fixture
async def connector(server: SlackStandin) -> AsyncIterator[Slack]:
    made = slack(server.base_url)
    yield made
    await made.close()


async def test_an_edited_message_keeps_its_key_and_is_still_found(
    server: SlackStandin, connector: Slack
) -> None:
    root = await connector.apply(ROOT, LEASE)
    assert isinstance(root, Done)
    ts = str(root.result["ts"])
    await connector.apply(effect("edit", Target("Message", ts, namespace=CHANNEL), message=NEWER), LEASE)
    (posted,) = server.roots()
    assert (posted.text, posted.key, posted.edits) == ("resolved", ROOT.key, 1)
    assert isinstance(await connector.lookup(ROOT), AlreadyDone)


async def test_looking_up_an_edit_tells_shown_from_not_shown_from_deleted(
    server: SlackStandin, connector: Slack
) -> None:
    root = await connector.apply(ROOT, LEASE)
    assert isinstance(root, Done)
    ts = str(root.result["ts"])
    newer = effect("edit", Target("Message", ts, namespace=CHANNEL), message=NEWER)
    assert isinstance(await connector.lookup(newer), Absent)
    await connector.apply(newer, LEASE)
    assert isinstance(await connector.lookup(newer), AlreadyDone)
    server.delete(ts)
    assert isinstance(await connector.lookup(newer), Refused)
    assert isinstance(await connector.apply(newer, LEASE), Refused)


async def test_a_429_holds_back_its_own_method_and_channel_only(
    server: SlackStandin, connector: Slack
) -> None:
    root = await connector.apply(ROOT, LEASE)
    assert isinstance(root, Done)
    server.fail(InjectedFault("chat.postMessage", "status", status=429, retry_after="30"))
    reply = effect("reply", Target("Thread", str(root.result["ts"]), namespace=CHANNEL), key="b" * 32)
    first = await connector.apply(reply, LEASE)
    assert isinstance(first, Retry)
    assert first.after_s == 30
    posts = len(server.calls("chat.postMessage"))
    second = await connector.apply(reply, LEASE)
    assert isinstance(second, Retry)
    assert 10 < second.after_s <= 30
    assert len(server.calls("chat.postMessage")) == posts
    newer = effect("edit", Target("Message", str(root.result["ts"]), namespace=CHANNEL), message=NEWER)
    assert isinstance(await connector.apply(newer, LEASE), Done)
    elsewhere = effect("open_thread", Target("Channel", "C0OTHER"), key="c" * 32)
    assert isinstance(await connector.apply(elsewhere, LEASE), Done)


async def test_a_copy_that_got_through_is_removed_and_the_oldest_kept(
    server: SlackStandin, connector: Slack
) -> None:
    await connector.apply(ROOT, LEASE)
    (first,) = server.roots()
    server.channels[CHANNEL].append(replace(first, ts="9999999999.000001"))
    found = await connector.apply(ROOT, LEASE)
    assert isinstance(found, AlreadyDone)
    assert found.result["ts"] == first.ts
    assert [root.ts for root in server.roots()] == [first.ts]


async def test_another_apps_message_is_never_taken_for_ours(server: SlackStandin, connector: Slack) -> None:
    payload = {"incident": ROOT.incident, "key": ROOT.key}
    server.channels[CHANNEL].append(
        Posting(
            ts="1.000001",
            channel=CHANNEL,
            text="mine!",
            metadata={"event_type": "faultline_thread", "event_payload": payload},
            bot_id="B0OTHER",
        )
    )
    assert isinstance(await connector.lookup(ROOT), Absent)


async def test_a_message_is_found_behind_pages_of_others(server: SlackStandin, connector: Slack) -> None:
    await connector.apply(ROOT, LEASE)
    for n in range(450):
        server.channels[CHANNEL].append(Posting(ts=f"9999999999.{n:06d}", channel=CHANNEL, text="chatter"))
    assert isinstance(await connector.apply(ROOT, LEASE), AlreadyDone)


async def test_a_message_not_yet_in_history_is_found_at_the_second_look(server: SlackStandin) -> None:
    server.lag_s = 0.2
    connector = slack(server.base_url, history_lag_s=0.4)
    server.fail(InjectedFault("chat.postMessage", "lose_answer"))
    assert isinstance(await connector.apply(ROOT, LEASE), Unknown)
    assert isinstance(await connector.lookup(ROOT), AlreadyDone)
    await connector.close()


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ratelimited", Retry),
        ("internal_error", Unknown),
        ("fatal_error", Unknown),
        ("msg_too_long", Refused),
        ("not_in_channel", Blocked),
        ("is_archived", Blocked),
        ("channel_not_found", Blocked),
        ("token_revoked", Blocked),
        ("missing_scope", Blocked),
    ],
)
async def test_slacks_words_are_understood(
    word: str, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Contrary(SlackStandin):
        def _post(self, args: object) -> dict[str, object]:
            return {"ok": False, "error": word}

    async with Contrary() as server:
        connector = slack(server.base_url)
        outcome = await connector.apply(ROOT, LEASE)
        await connector.close()
    assert isinstance(outcome, expected)
    assert isinstance(outcome, Retry | Unknown | Refused | Blocked)
    assert word in outcome.reason


async def test_a_wrong_token_waits_for_a_person(server: SlackStandin) -> None:
    connector = slack(server.base_url, token=SecretStr("xoxb-wrong"))
    outcome = await connector.apply(ROOT, LEASE)
    await connector.close()
    assert isinstance(outcome, Blocked)
    assert outcome.by == "token"
    assert "invalid_auth" in outcome.reason
    assert "xoxb-wrong" not in outcome.reason


def test_without_a_token_there_is_no_connector() -> None:
    with pytest.raises(ConfigError, match=r"slack\.token"):
        Slack(SlackSettings(channel=CHANNEL))


def test_a_token_without_a_channel_is_no_setting() -> None:
    with pytest.raises(ValidationError, match="needs a channel"):
        SlackSettings(token=SecretStr("t"))


async def test_a_long_turn_is_handed_back_and_a_short_one_waited_for() -> None:
    now, slept = [0.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limits = Limits(posts_per_s=1.0, calls_per_minute=6.0, clock=lambda: now[0], sleep=sleep)
    for _ in range(4):
        await limits.take("chat.postMessage", "C1")
    assert slept == [1.0]
    await limits.take("chat.postMessage", "C2")
    for _ in range(10):
        await limits.take("chat.update", "C1")
    with pytest.raises(Temporary) as held:
        await limits.take("chat.update", "C1")
    assert slept == [1.0]
    assert held.value.retry_after_s is not None
    assert held.value.retry_after_s > MAX_WAIT_S


async def test_a_call_that_its_lease_forbids_does_not_make_the_next_one_wait(server: SlackStandin) -> None:
    now, slept = [0.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    limits = Limits(calls_per_minute=50.0, clock=lambda: now[0], sleep=sleep)
    connector = slack(server.base_url, limits)
    root = await connector.apply(ROOT, LEASE)
    assert isinstance(root, Done)
    newer = effect("edit", Target("Message", str(root.result["ts"]), namespace=CHANNEL), message=NEWER)
    for _ in range(10):
        await limits.take("chat.update", CHANNEL)
    for _ in range(5):
        with pytest.raises(Fenced):
            await connector.apply(newer, LostLease())
    assert len(slept) == 1, "only the first has to wait for its turn"
    assert isinstance(await connector.apply(newer, LEASE), Done)
    await connector.close()


async def test_a_burst_of_posts_keeps_to_one_a_second(server: SlackStandin) -> None:
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    connector, done = slack(server.base_url), 0
    limits = connector._api._limits
    limits._clock, limits._sleep = lambda: now[0], sleep
    while done < 5:
        outcome = await connector.apply(replace(ROOT, key=f"{done:032x}"), LEASE)
        done += isinstance(outcome, Done)
    await connector.close()
    assert now[0] >= 1.9
    assert MESSAGE.summary == server.roots()[0].text


async def test_an_app_that_may_not_read_blocks_its_lookups_only(
    server: SlackStandin, connector: Slack
) -> None:
    server.missing_scopes = {"conversations.history": "channels:history"}
    found = await connector.lookup(ROOT)
    assert isinstance(found, Blocked)
    assert found.by == "reading"
    assert "needs scope channels:history" in found.reason
    fresh = replace(ROOT, params={**ROOT.params, "fresh": True})
    assert isinstance(await connector.apply(fresh, LEASE), Done)


@pytest.mark.parametrize(("blocks", "kinds"), [("rich", ["section", "plan"]), ("classic", ["section"])])
async def test_a_run_of_fifty_steps_is_taken_in_either_form(
    server: SlackStandin, blocks: str, kinds: list[str]
) -> None:
    steps = tuple(
        Step(f"s{n}", "see it make progress " * 9, "pending", (Fact("Since", at=NOW),), "it waits " * 99)
        for n in range(MAX_STEPS)
    )
    message = Message("a run", (Heading("a run"), Steps("50 steps", steps)), Tone.ACTIVE)
    connector = slack(server.base_url, blocks=blocks)
    root = await connector.apply(effect("open_thread", ROOT.target, message=message), LEASE)
    assert isinstance(root, Done)
    target = Target("Message", str(root.result["ts"]), namespace=CHANNEL)
    done = replace(message, blocks=(Steps("50 steps", tuple(replace(s, state="complete") for s in steps)),))
    assert isinstance(await connector.apply(effect("edit", target, message=done), LEASE), Done)
    await connector.close()
    (posted,) = server.roots()
    assert [block["type"] for block in posted.blocks] == kinds
    assert sum("see it make progress" in line for line in posted.lines) >= 3
