"""A press in Slack, on a broker: gateway → `commands` → responder → `timeline` → gateway → an answer that one person sees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from faultline.gateway.process import Gateway
from sandbox.fake_services.slack_people import Person, SlackPeople
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.kafka.topics import COMMANDS, TIMELINE
from streams.model.codec import decode
from streams.model.conversation import TimelineEntry
from streams.model.pulse import Pulse
from streams.model.run import Run, RunState, StepState
from tests.runbooks.engine.test_people_embedded import Site, book, cordons, fresh, site
from tests.runbooks.topics import committed
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def gateway(here: Site, slack: SlackPeople, *, answer_within_s: float = 30) -> AsyncIterator[None]:
    """The gateway process, connected over Socket Mode. On a busy machine a responder that is there may need many seconds."""
    settings = SlackSettings.model_validate(
        {
            "base_url": slack.base_url, "token": slack.token, "channel": "C0INCIDENTS", "app_token": slack.app_token,
            "answer_within_s": answer_within_s,
        }
    )  # fmt: skip
    process = Gateway(here.settings, GatewaySettings(), cluster="c1", slack=settings, pulse=Pulse())
    task = asyncio.create_task(process.run())
    try:

        async def connected() -> bool:
            return bool(slack.sockets)

        await eventually(connected, "the gateway is connected")
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError), ended


def value(run: Run) -> str:
    (asked,) = [r.id for r in run.steps if r.state is StepState.AWAITING_APPROVAL]
    return json.dumps({"i": run.incident, "c": run.cluster, "s": asked, "d": run.plan.digest})


async def answered(slack: SlackPeople, person: Person, number: int = 1) -> list[str]:
    async def told() -> list[str] | None:
        found = [answer.text for answer in slack.answers if answer.user == person.id]
        return found if len(found) >= number else None

    return await eventually(told, f"{person.name} was answered")


async def events(here: Site) -> list[TimelineEntry]:
    said = await committed(here.settings, TIMELINE, here.partition)
    return [decode(TimelineEntry, raw) for _, raw in said if raw is not None]


async def test_a_wrong_persons_press_is_refused_by_the_responder_and_a_right_ones_acts_once(
    tmp_path: Path,
) -> None:
    rules: dict[str, Any] = {
        "approval_groups": {"oncall": ["slack:S0SRE"]}, "approval_classes": {"close": {"group": "oncall"}},
    }  # fmt: skip
    async with site(tmp_path) as here, SlackPeople() as slack, gateway(here, slack):
        ada, eve = slack.person("ada"), slack.person("eve")
        slack.groups = {"S0SRE": [ada.id]}
        about = fresh()
        await here.publish(about)
        async with here.responder(book(), **rules):
            button = value(await here.until(RunState.AWAITING_APPROVAL))
            assert (await slack.press(eve, "faultline.approve", button)).taken
            (refused,) = await answered(slack, eve)
            assert refused == (
                f"refused: approval by eve ({eve.id}) not accepted: eve ({eve.id}) is not among oncall (slack:S0SRE)"
            )
            assert cordons(tmp_path) == 0
            await slack.press(ada, "faultline.approve", button)
            (accepted,) = await answered(slack, ada)
            assert accepted.startswith(f"accepted: ada ({ada.id}) approved the plan")
            await here.until(RunState.SUCCEEDED)
            await slack.press(ada, "faultline.approve", button)
            assert "approved it at 20" in (await answered(slack, ada, 2))[1]
        told = [
            (entry.event, entry.actor)
            for entry in await events(here)
            if entry.attributes.get("via") == "slack"
        ]
        assert told == [
            ("person.approval_refused", f"eve ({eve.id})"),
            ("person.approved", f"ada ({ada.id})"),
            ("person.approval_refused", f"ada ({ada.id})"),
        ]
        assert cordons(tmp_path) == 1


async def test_what_is_pressed_while_the_responder_is_away_is_heard_once_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here, SlackPeople() as slack, gateway(here, slack, answer_within_s=3):
        ada = slack.person("ada")
        about = fresh()
        await here.publish(about)
        async with here.responder(book()):
            button = value(await here.until(RunState.AWAITING_APPROVAL))
        press = slack.press_of(ada, "faultline.approve", button)
        for attempt in range(2):
            assert (await slack.send("interactive", press, envelope_id="env-1", attempt=attempt)).taken
        (stored,) = await answered(slack, ada)
        assert stored.startswith("approve is stored. No responder answered within 3 s")
        assert len(await committed(here.settings, COMMANDS, here.partition)) == 1
        assert cordons(tmp_path) == 0
        async with here.responder(book()):
            await here.until(RunState.SUCCEEDED)
            told = await answered(slack, ada, 2)
            assert told[1].startswith(f"accepted: ada ({ada.id}) approved the plan")
        assert cordons(tmp_path) == 1
        said = [entry for entry in await events(here) if entry.event == "person.approved"]
        assert len(said) == 1


async def test_taking_over_and_a_note_are_on_the_timeline_and_the_run_ends(tmp_path: Path) -> None:
    async with site(tmp_path) as here, SlackPeople() as slack, gateway(here, slack):
        ada = slack.person("ada")
        about = fresh()
        await here.publish(about)
        async with here.responder(book()):
            button = value(await here.until(RunState.AWAITING_APPROVAL))
            await slack.press(ada, "faultline.hand_over", button)
            assert await answered(slack, ada) == [f"accepted: taken over by ada ({ada.id})"]
            await here.until(RunState.CANCELLED)
            await slack.type(ada, f"note {about.id} cable reseated")
            assert (await answered(slack, ada, 2))[1] == "accepted: cable reseated"
            shown = await here.type("incidents", "show", about.id)
            assert "cable reseated" in shown.out
            assert "taken over by ada" in shown.out
        assert cordons(tmp_path) == 0
