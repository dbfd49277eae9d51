"""The console as the gateway serves it: documents from Kafka on the page, decisions in Kafka, by whichever gateway answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from faultline.gateway.process import Gateway
from sandbox.emulated import broker
from streams.config.connector_settings import SlackSettings
from streams.config.console_settings import ConsoleSettings
from streams.config.settings import KafkaSettings
from streams.kafka.topics import COMMANDS, INCIDENTS, TIMELINE
from streams.model.clock import utc_now
from streams.model.codec import decode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.pulse import Pulse
from tests.faultline.console.served import BEHIND_A_PROXY, events, reading
from tests.faultline.gateway import serving
from tests.faultline.gateway.test_gateway_embedded import INCIDENT, seen, tell, values
from tests.testbed.children import free_port

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def gateway(kafka: KafkaSettings) -> AsyncIterator[str]:
    """A gateway with the console, ready, at the address that is yielded."""
    pulse, port = Pulse(), free_port()
    process = Gateway(
        kafka,
        serving.settings(port=port),
        cluster="c1",
        slack=SlackSettings(),
        console=ConsoleSettings.model_validate({**BEHIND_A_PROXY, "answer_wait_s": 0}),
        pulse=pulse,
    )
    running = asyncio.create_task(process.run())
    try:
        await seen(lambda: pulse.is_ready or running.done(), "the gateway is ready")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_form_of_one_gateway_is_taken_by_the_other_and_both_show_the_answer(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        await tell(kafka.settings, INCIDENTS, INCIDENT)
        async with gateway(kafka.settings) as one, gateway(kafka.settings) as other, reading(one) as ada:
            path = f"/incidents/{INCIDENT.id}"
            form = await ada.form(path, "ack")
            ada.base = other
            page = await ada.post(f"{path}/decide", form, Origin=other)
            assert "Acknowledge: stored, no answer yet" in page.shown
            (command,) = [decode(Command, value) for value in await values(kafka.settings, COMMANDS)]
            assert (command.verb, command.incident, command.groups) == (
                Verb.ACK,
                INCIDENT.id,
                ("oidc:sre", "oidc:gpu"),
            )
            answer = TimelineEntry(
                INCIDENT.id,
                "c1",
                utc_now(),
                command.actor,
                "person.ack",
                "acknowledged",
                {"command": command.id},
            )
            await tell(kafka.settings, TIMELINE, answer)
            await ada.shows(page.address, one, "Acknowledge: accepted")
            await ada.shows(page.address, other, "Acknowledge: accepted")


async def test_a_follower_hears_of_what_is_written_to_kafka_and_keeps_no_gateway_from_stopping(
    tmp_path: Path,
) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka, AsyncExitStack() as later:
        async with gateway(kafka.settings) as base:
            ada = await later.enter_async_context(reading(base))
            answer = await ada.session.get(f"{base}/changes?names={INCIDENT.id}")
            assert await events(answer, 1) == ["changed"]
            await tell(kafka.settings, INCIDENTS, INCIDENT)
            assert await events(answer, 1) == ["changed"]
        # The gateway has stopped, and with it the stream that was open.
        assert await events(answer, 1) == []


async def test_what_other_systems_post_is_not_the_consoles(tmp_path: Path) -> None:
    async with (
        broker.running(log=tmp_path / "broker.log") as kafka,
        gateway(kafka.settings) as base,
        reading(base) as ada,
    ):
        assert (await ada.post("/hooks/alertmanager", {})).status == 401
        assert (await ada.get("/hooks/other")).status == 404
