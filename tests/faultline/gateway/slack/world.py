"""A gateway's Slack part, a workspace with people in it, and a responder in memory between them: no Kafka, real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from faultline.gateway.app import build_app
from faultline.gateway.parts import GatewayParts
from faultline.gateway.raw_records import RawRecords
from faultline.gateway.server import served
from faultline.gateway.slack import socket
from faultline.live_view.decisions import Decisions
from faultline.live_view.view import LiveView
from runbooks.engine.partition_state import PartitionState
from sandbox.fake_services.slack_people import Person, SlackPeople
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.model.clock import utc_now
from streams.model.conversation import Command
from streams.model.errors import Temporary
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident
from streams.model.run import Mode, Run, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, LIBRARY, cluster, incident
from tests.testbed.waiting import eventually

SRE = "S0SRE"
TICKETLESS = frozenset(ACTIONS - {"open_ticket"})


class Responder(Decisions):
    """What takes commands: the responder's own state of one partition. `away`: commands are stored until it is back."""

    def __init__(self, view: LiveView, policy: ResponderSettings) -> None:
        super().__init__(KafkaSettings(), view)
        self._live = view
        self.state = PartitionState(LIBRARY, policy, TICKETLESS)
        facts: list[Fact] = [*cluster().nodes.values(), *cluster().jobs.values()]
        for fact in facts:
            self.state.take_fact(fact.key, fact)
            view.take_fact(fact.key, fact)
        self.commands: list[Command] = []
        self.stored: list[Command] = []
        self.away = False
        self.kafka_away = False
        self._offset = 0

    async def send(self, command: Command) -> None:
        if self.kafka_away:
            raise Temporary("Kafka does not answer")
        self.commands.append(command)
        self.stored.append(command)
        self.work()

    def back(self) -> None:
        """It comes back, and applies what was stored meanwhile."""
        self.away = False
        self.work()

    def publish(self, about: Incident) -> None:
        """A revision of an incident, as the correlator writes it."""
        self._live.take_incident(about)
        self.state.take_incident(about)
        self.work()

    def work(self, now: datetime | None = None) -> None:
        """One iteration, unless it is away."""
        if self.away:
            return
        stored, self.stored = self.stored, []
        for command in stored:
            self.state.take_command(command)
        self.state.advance(now or utc_now())
        changes = self.state.collect()
        for run in changes.runs:
            self._live.take_run(run.id, run)
        for entry in changes.timeline:
            self._offset += 1
            self._live.take_entry(entry, self._offset)


@dataclass
class World:
    """Everything a test plays with."""

    slack: SlackPeople
    responder: Responder
    view: LiveView
    ada: Person
    bob: Person
    eve: Person
    incidents: list[Incident] = field(default_factory=list)

    @property
    def incident(self) -> Incident:
        return self.incidents[0]

    @property
    def run(self) -> Run:
        (run,) = self.view.runs(self.incident.id)
        return run

    def value(self, **changes: Any) -> str:
        """A button's value, for the present plan."""
        run = next(iter(self.view.runs(self.incident.id)), None)
        step = (
            next((r.id for r in run.steps if r.state is StepState.AWAITING_APPROVAL), None) if run else None
        )
        found = {
            "i": self.incident.id,
            "c": CLUSTER,
            "s": step,
            "d": run.plan.digest if run else None,
            **changes,
        }
        return json.dumps({name: value for name, value in found.items() if value is not None})

    async def answered(self, person: Person, number: int = 1) -> list[str]:
        """The texts that only this person sees, once there are so many."""

        async def told() -> list[str] | None:
            found = [answer.text for answer in self.slack.answers if answer.user == person.id]
            return found if len(found) >= number else None

        return await eventually(told, f"{person.name} was answered {number} times")

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        async def holds() -> Any:
            return condition()

        return await eventually(holds, what)


@asynccontextmanager
async def workspace(
    *,
    over: str = "socket",
    asks: bool = True,
    answer_within_s: float = 5.0,
    off_s: float = 0.0,
    policy: Mapping[str, Any] | None = None,
    ping_s: float = socket.PING_S,
) -> AsyncIterator[World]:
    """A workspace whose app is a gateway, reached over `socket` or `http`.

    One incident is open; with `asks` its run waits for an approval. Each `ping_s` the gateway looks after its connection; one
    whose answer takes half of that is dropped.
    """
    view = LiveView()
    view.ready = True
    wanted = ResponderSettings.model_validate({"mode": Mode.AUTO, **(policy or {})})
    responder = Responder(view, wanted)
    async with SlackPeople() as slack:
        settings = SlackSettings.model_validate(
            {
                "base_url": slack.base_url, "token": slack.token, "channel": "C0INCIDENTS",
                "answer_within_s": answer_within_s, "calls_per_minute": 60_000,
                **({"app_token": slack.app_token} if over == "socket" else {"signing_secret": slack.signing_secret}),
            }
        )  # fmt: skip
        parts = GatewayParts(
            settings=GatewaySettings(), view=view, decisions=responder, records=RawRecords(KafkaSettings()),
            cluster=CLUSTER, slack=settings, clock=lambda: utc_now() + timedelta(seconds=off_s),
        )  # fmt: skip
        people = [slack.person(name) for name in ("ada", "bob", "eve")]
        slack.groups = {SRE: [people[0].id, people[1].id], "S0OTHER": [people[2].id]}
        world = World(slack, responder, view, *people)
        about = incident(
            certainty=Certainty.LIKELY if asks else Certainty.DECISIVE,
            opened_at=utc_now(),
            updated_at=utc_now(),
        )
        world.incidents.append(about)
        responder.publish(about)
        async with _reached(over, parts, slack, ping_s):
            yield world


@asynccontextmanager
async def _reached(over: str, parts: GatewayParts, slack: SlackPeople, ping_s: float) -> AsyncIterator[None]:
    if over == "http":
        async with served(build_app(parts), parts.settings) as port:
            slack.app_url = f"http://127.0.0.1:{port}"
            yield
        return
    task = asyncio.create_task(socket.run(parts, ping_s=ping_s))
    try:

        async def connected() -> bool:
            return bool(slack.sockets)

        await eventually(connected, "the gateway is connected")
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
