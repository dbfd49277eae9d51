"""The stand-in for people in Slack keeps Slack's limits: a test that passes against it means something."""

from __future__ import annotations

import httpx
import pytest

from sandbox.fake_services.slack_people import SlackPeople

pytestmark = pytest.mark.embedded

MODAL = {"type": "modal", "title": {"type": "plain_text", "text": "T"}, "blocks": [{"type": "divider"}]}


async def call(slack: SlackPeople, method: str, **body: object) -> dict[str, object]:
    async with httpx.AsyncClient(trust_env=False) as client:
        headers = {"Authorization": f"Bearer {slack.token}"}
        answer = await client.post(f"{slack.base_url}/{method}", json=body, headers=headers)
        found: dict[str, object] = answer.json()
        return found


async def test_a_response_url_takes_five_posts_and_lives_for_its_time() -> None:
    async with SlackPeople() as slack, httpx.AsyncClient(trust_env=False) as client:
        url = slack.press_of(slack.person("ada"), "a", "{}")["response_url"]
        statuses = [(await client.post(url, json={"text": "x"})).status_code for _ in range(6)]
        assert statuses == [200] * 5 + [404]
        slack.url_s = -1.0
        late = slack.press_of(slack.person("ada"), "a", "{}")["response_url"]
        assert (await client.post(late, json={"text": "x"})).json()["error"] == "expired_url"


async def test_a_trigger_opens_one_dialog_and_soon() -> None:
    async with SlackPeople() as slack:
        trigger = slack.press_of(slack.person("ada"), "a", "{}")["trigger_id"]
        assert (await call(slack, "views.open", trigger_id=trigger, view=MODAL))["ok"] is True
        again = await call(slack, "views.open", trigger_id=trigger, view=MODAL)
        assert again["error"] == "invalid_trigger_id"
        slack.trigger_s = -1.0
        late = slack.press_of(slack.person("ada"), "a", "{}")["trigger_id"]
        assert (await call(slack, "views.open", trigger_id=late, view=MODAL))["error"] == "expired_trigger_id"


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": {"type": "plain_text", "text": "x" * 25}},
        {"blocks": []},
        {"blocks": [{"type": "divider"}] * 101},
        {"blocks": [{"type": "input", "element": {"type": "plain_text_input"}}]},
        {"private_metadata": "x" * 3001},
        {"type": "home"},
    ],
)
async def test_a_dialog_beyond_slacks_limits_is_refused(wrong: dict[str, object]) -> None:
    async with SlackPeople() as slack:
        trigger = slack.press_of(slack.person("ada"), "a", "{}")["trigger_id"]
        answer = await call(slack, "views.open", trigger_id=trigger, view=MODAL | wrong)
        assert answer["error"] == "invalid_arguments"


async def test_nothing_is_delivered_without_a_connection_and_a_token_is_needed_for_one() -> None:
    async with SlackPeople() as slack:
        assert not (await slack.press(slack.person("ada"), "a", "{}")).taken
        assert (await call(slack, "apps.connections.open"))["error"] == "invalid_auth"
