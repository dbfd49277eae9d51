"""Over HTTP only what Slack has signed just now is looked at; the rest is 401 and does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline.gateway.parts import GatewayParts
from faultline.gateway.raw_records import RawRecords
from faultline.gateway.slack import routes
from faultline.gateway.slack.actions import Delivery
from faultline.gateway.slack.interactions import action_of, delivery_id
from faultline.live_view.view import LiveView
from sandbox.fake_services.slack_people import SlackPeople
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.settings import KafkaSettings
from streams.model.errors import BadInput
from tests.faultline.gateway.slack.world import World, workspace
from tests.runbooks.scenes import NOW

server = pytest.mark.embedded


def other_secret(slack: SlackPeople, body: bytes) -> dict[str, str]:
    return SlackPeople(signing_secret="guessed").signed(body)


FORGED: dict[str, Callable[[SlackPeople, bytes], dict[str, str]]] = {
    "no signature": lambda slack, body: {},
    "another secret": other_secret,
    "another body": lambda slack, body: slack.signed(b"another"),
    "stale": lambda slack, body: slack.signed(body, time.time() - 301),
    "from the future": lambda slack, body: slack.signed(body, time.time() + 301),
    "no number": lambda slack, body: slack.signed(body) | {"X-Slack-Request-Timestamp": "soon"},
    "no signature but a timestamp": lambda slack, body: slack.signed(body) | {"X-Slack-Signature": ""},
}


async def post(world: World, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.slack.app_url}{path}", data=body, headers=headers) as response,
    ):
        return response.status, await response.text()


def form(world: World) -> bytes:
    press = world.slack.press_of(world.ada, "faultline.stop", world.value())
    return urlencode({"payload": orjson.dumps(press).decode()}).encode()


@server
@pytest.mark.parametrize("path", ["/slack/interactions", "/slack/commands", "/slack/events"])
@pytest.mark.parametrize("kind", FORGED)
async def test_a_forged_or_stale_request_is_401_and_does_nothing(kind: str, path: str) -> None:
    async with workspace(over="http") as world:
        body = form(world)
        status, _ = await post(world, path, body, FORGED[kind](world.slack, body))
        assert status == 401
        assert (world.responder.commands, world.slack.answers) == ([], [])


@server
async def test_the_same_signed_request_again_is_a_replay() -> None:
    async with workspace(over="http") as world:
        body = form(world)
        headers = world.slack.signed(body) | {"Content-Type": "application/x-www-form-urlencoded"}
        assert (await post(world, "/slack/interactions", body, headers))[0] == 200
        assert (await post(world, "/slack/interactions", body, headers))[0] == 401
        assert (await post(world, "/slack/commands", body, headers))[0] == 401
        await world.answered(world.ada)
        assert len(world.responder.commands) == 1


@server
async def test_a_clock_that_is_off_by_minutes_takes_nothing_rather_than_everything() -> None:
    async with workspace(over="http", off_s=400) as world:
        assert (await world.slack.press(world.ada, "faultline.stop", world.value())).status == 401
        assert world.responder.commands == []


@server
async def test_an_address_that_guesses_is_stopped_before_its_bodies_are_read() -> None:
    async with workspace(over="http") as world:
        statuses = [(await post(world, "/slack/events", b"{}", {}))[0] for _ in range(40)]
        assert (statuses[0], statuses[-1]) == (401, 429)


@server
async def test_slack_is_told_the_challenge_and_malformed_requests_are_refused() -> None:
    async with workspace(over="http") as world:
        asked = {"type": "url_verification", "challenge": "abc"}
        assert (await world.slack.request("events_api", asked)).body == {"challenge": "abc"}
        for path, body in (
            ("events", b"["), ("interactions", b"payload=%7B"), ("interactions", b"payload=[]"), ("interactions", b"a=b"),
            ("commands", b"\xff\xfe"),
        ):  # fmt: skip
            assert (await post(world, f"/slack/{path}", body, world.slack.signed(body)))[0] == 400
        long = b"x" * 300_000
        assert (await post(world, "/slack/events", long, world.slack.signed(long)))[0] == 413


@server
async def test_without_a_secret_the_paths_do_not_exist() -> None:
    async with workspace(over="socket") as world:
        parts = GatewayParts(
            settings=GatewaySettings(), view=world.view, decisions=world.responder, records=RawRecords(KafkaSettings()),
            cluster="c1", slack=SlackSettings(),
        )  # fmt: skip
        assert routes(parts) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["type", "user", "id", "actions", "action_id", "value", "view", "event", "text", "user_id", "thread_ts", "ts", "state"]
    ), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@given(
    st.sampled_from(["interactive", "slash_commands", "events_api", "hello"]),
    st.sampled_from(["block_actions", "view_submission", "message_action", "event_callback", None]),
    st.dictionaries(
        st.sampled_from(
            ["user", "actions", "view", "event", "text", "user_id", "team", "message", "trigger_id"]
        ),
        JSON,
    ),
)
def test_no_payload_makes_it_fail_in_another_way(kind: str, type_: str | None, rest: dict[str, Any]) -> None:
    delivery = Delivery(kind, {"type": type_, "callback_id": "faultline.note", **rest})
    delivery_id(delivery)
    try:
        action_of(delivery, LiveView(), "c1", NOW)
    except BadInput:
        pass
