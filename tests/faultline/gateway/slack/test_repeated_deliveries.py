"""A delivery that Slack repeats while it is worked on: done once, and never acknowledged for one that was not taken."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from faultline.gateway.parts import GatewayParts
from faultline.gateway.raw_records import RawRecords
from faultline.gateway.slack.actions import Delivery
from faultline.gateway.slack.desk import Desk
from faultline.gateway.slack.web_api import WebApi
from faultline.live_view.decisions import Decisions
from faultline.live_view.view import LiveView
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.settings import KafkaSettings
from streams.model.conversation import Command
from streams.model.errors import Temporary
from tests.connectors.chat.thread_documents import NOW, incident
from tests.faultline.gateway.slack.test_home_in_turn import until_it_waits


class Kafka:
    """What takes commands: the first ones wait for `answers`, and are not taken where the answer is an error."""

    def __init__(self, *answers: Temporary | None) -> None:
        self.answers = [asyncio.get_running_loop().create_future() for _ in answers]
        self.outcomes = answers
        self.taken: list[Command] = []
        self.asked = 0
        self.waits = asyncio.Event()

    async def send(self, command: Command) -> None:
        """Take a command."""
        self.asked += 1
        if self.asked <= len(self.answers):
            self.waits.set()
            await self.answers[self.asked - 1]
        self.taken.append(command)

    def answer(self) -> None:
        """Answer what waits."""
        for future, outcome in zip(self.answers, self.outcomes, strict=True):
            if outcome is None:
                future.set_result(None)
            else:
                future.set_exception(outcome)


def desk_on(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> Desk:
    about = incident()
    view = LiveView()
    view.ready = True
    view.take_incident(about)

    async def is_own_team(_: WebApi, team: str) -> bool:
        await asyncio.sleep(0)  # Slack is asked
        return True

    async def incident_of_thread(_: WebApi, channel: str, ts: str) -> str:
        return about.id

    async def user_name(_: WebApi, user: str) -> str:
        return "ada"

    for method in (is_own_team, incident_of_thread, user_name):
        monkeypatch.setattr(WebApi, method.__name__, method)
    settings = SlackSettings.model_validate(
        {"base_url": "http://127.0.0.1:1", "token": "xoxb", "channel": "C0INCIDENTS"}
    )
    return Desk(
        GatewayParts(
            settings=GatewaySettings(), view=view, decisions=cast("Decisions", kafka), records=RawRecords(KafkaSettings()),
            cluster="c1", slack=settings, clock=lambda: NOW,
        )
    )  # fmt: skip


REPLY = Delivery(
    "events_api",
    {
        "team_id": "T1", "event_id": "Ev1",
        "event": {"type": "message", "user": "U1", "channel": "C1", "thread_ts": "1700000000.000001", "ts": "1700000001.000001",
                  "text": "swapped the riser"},
    },
)  # fmt: skip


async def test_a_delivery_that_is_repeated_while_it_is_worked_on_is_done_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = Kafka()
    desk = desk_on(kafka, monkeypatch)
    await asyncio.gather(desk.take(REPLY), desk.take(replace(REPLY)))
    assert [command.reason for command in kafka.taken] == ["swapped the riser"]
    await desk.close()


async def test_a_repeated_delivery_is_carried_out_where_the_first_cannot_be_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = Kafka(Temporary("Kafka does not answer"))
    desk = desk_on(kafka, monkeypatch)
    first = asyncio.create_task(desk.take(REPLY))
    await kafka.waits.wait()
    again = asyncio.create_task(desk.take(replace(REPLY)))
    await until_it_waits(first, again)
    kafka.answer()
    with pytest.raises(Temporary):
        await first
    await again
    assert [command.reason for command in kafka.taken] == ["swapped the riser"], "Slack repeats it no more"
    await desk.close()
