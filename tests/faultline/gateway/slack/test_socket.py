"""Over Socket Mode: acknowledged in time, taken once, and back after every kind of disconnection."""

from __future__ import annotations

import asyncio

import pytest

from faultline.gateway.slack import desk, socket
from sandbox.fake_services.server import InjectedFault
from tests.faultline.gateway.slack.world import World, workspace

pytestmark = pytest.mark.embedded


async def reconnected(world: World, before: int) -> None:
    await world.until(
        lambda: (
            len(world.slack.calls("/link/")) > before and any(not one.closed for one in world.slack.sockets)
        ),
        "it is connected again",
    )


async def works(world: World) -> None:
    number = len(world.slack.answers)
    ack = await world.slack.press(world.ada, "faultline.ack", world.value())
    assert ack.taken
    await world.until(lambda: len(world.slack.answers) > number, "ada is answered")


async def test_an_envelope_that_is_delivered_again_is_acknowledged_and_does_nothing_more() -> None:
    async with workspace() as world:
        press = world.slack.press_of(world.ada, "faultline.stop", world.value())
        for attempt in range(3):
            ack = await world.slack.send("interactive", press, envelope_id="env-again", attempt=attempt)
            assert ack.taken
        await world.answered(world.ada)
        await works(world)
        assert [command.verb for command in world.responder.commands] == ["stop", "ack"]


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", "link_disabled"])
async def test_a_refresh_that_slack_asks_for_leaves_a_new_connection(reason: str) -> None:
    async with workspace(ping_s=1.0) as world:
        before = len(world.slack.calls("/link/"))
        await world.slack.disconnect(reason)
        await reconnected(world, before)
        await works(world)


async def test_a_connection_that_is_cut_is_made_again() -> None:
    async with workspace(ping_s=1.0) as world:
        before = len(world.slack.calls("/link/"))
        world.slack.cut()
        await reconnected(world, before)
        await works(world)


async def test_it_waits_for_slack_and_asks_for_a_new_address_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket, "FIRST_PAUSE_S", 0.05)
    async with workspace(ping_s=1.0) as world:
        world.slack.fail(InjectedFault("apps.connections.open", "status", times=2, status=503))
        world.slack.fail(
            InjectedFault("apps.connections.open", "status", times=1, status=429, retry_after="0")
        )
        before = len(world.slack.calls("/link/"))
        world.slack.cut()
        await reconnected(world, before)
        await works(world)


async def test_an_address_that_does_not_work_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "CONNECT_WITHIN_S", 0.5)
    async with workspace(ping_s=1.0) as world:
        world.slack.ticket_s = -1.0
        before = len(world.slack.calls("/link/"))
        world.slack.cut()
        await world.until(lambda: len(world.slack.calls("/link/")) > before, "the expired address was tried")
        world.slack.ticket_s = 30.0
        await reconnected(world, before + 1)
        await works(world)


async def test_a_kafka_that_is_slow_holds_up_no_acknowledgement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "ACK_WITHIN_S", 0.1)
    async with workspace() as world:
        release = asyncio.Event()
        send = world.responder.send

        async def slow(command: object) -> None:
            await release.wait()
            await send(command)  # type: ignore[arg-type]

        monkeypatch.setattr(world.responder, "send", slow)
        ack = await world.slack.press(world.ada, "faultline.stop", world.value())
        assert ack.taken
        assert world.responder.commands == []
        release.set()
        assert await world.answered(world.ada) == [f"accepted: stopped by ada ({world.ada.id})"]


async def test_what_cannot_be_taken_is_not_acknowledged_and_taken_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with workspace() as world:
        monkeypatch.setattr(desk, "MAX_AT_ONCE", 0)
        press = world.slack.press_of(world.ada, "faultline.stop", world.value())
        assert not (await world.slack.send("interactive", press, envelope_id="e1")).taken
        monkeypatch.undo()
        assert (await world.slack.send("interactive", press, envelope_id="e1", attempt=1)).taken
        await world.answered(world.ada)
        assert len(world.responder.commands) == 1
