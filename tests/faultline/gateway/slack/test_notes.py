"""What people write about an incident: the shortcut on a message, and replies in its thread."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.chat.slack_api import EVENT_TYPE
from faultline.gateway.slack.texts import message_text
from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.slack import Posting
from streams.model.conversation import Verb
from tests.faultline.gateway.slack.world import World, workspace

pytestmark = pytest.mark.embedded

WAYS = pytest.mark.parametrize("over", ["socket", "http"])


def thread(
    world: World, *, bot_id: str = "B0FAULTLINE", incident: str = "", ts: str = "1700000000.000001"
) -> str:
    """A root message in the channel, as the chat process posts it; returns its `ts`."""
    payload = {"incident": incident or world.incident.id, "key": "k", "digest": "d"}
    metadata = {"event_type": EVENT_TYPE, "event_payload": payload}
    root = Posting(ts=ts, channel="C0INCIDENTS", text="root", metadata=metadata, bot_id=bot_id)
    world.slack.channels["C0INCIDENTS"].append(root)
    return ts


def notes(world: World) -> list[str]:
    return [
        f"{entry.actor}: {entry.text}"
        for entry in world.view.timeline(world.incident.id)
        if entry.event == "person.note"
    ]


@WAYS
async def test_a_reply_in_an_incidents_thread_becomes_a_note_of_who_wrote_it(over: str) -> None:
    async with workspace(over=over) as world:
        root = thread(world)
        assert (
            await world.slack.write(world.ada, "swapped <http://x.test|the riser> &amp; <@U2>", root)
        ).taken
        assert (await world.slack.write(world.bob, "thanks", root)).taken
        assert notes(world) == [
            f"ada ({world.ada.id}): swapped the riser & @U2",
            f"bob ({world.bob.id}): thanks",
        ]
        assert world.slack.answers == [], "nobody is told that they wrote something"
        assert len(world.slack.calls("conversations.replies")) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"bot_id": "B1"},
        {"app_id": "A1"},
        {"subtype": "bot_message"},
        {"subtype": "message_changed"},
        {"subtype": "message_deleted"},
        {"subtype": "channel_join"},
        {"edited": {"ts": "1.0"}},
        {"user_team": "T9OTHER"},
    ],
)
async def test_only_what_people_write_anew_is_a_note(more: dict[str, Any]) -> None:
    async with workspace(over="http") as world:
        root = thread(world)
        assert (await world.slack.write(world.ada, "text", root, **more)).taken
        assert (await world.slack.write(world.ada, "  ", root)).taken
        assert world.responder.commands == []


async def test_a_thread_of_somebody_else_and_a_message_outside_of_threads_are_none_of_ours() -> None:
    async with workspace() as world:
        foreign = thread(world, bot_id="B0OTHER", ts="1700000000.000002")
        unknown = thread(world, incident="inc-ffffffffffffffff", ts="1700000000.000003")
        for root in (foreign, unknown, None, "1600000000.000001"):
            assert (await world.slack.write(world.ada, "hello", root)).taken
        assert world.responder.commands == []


@WAYS
async def test_a_reply_that_cannot_be_placed_now_is_delivered_again_and_noted_once(over: str) -> None:
    async with workspace(over=over) as world:
        root = thread(world)
        world.slack.fail(
            InjectedFault("conversations.replies", "status", times=1, status=429, retry_after="1")
        )
        first = await world.slack.write(world.ada, "swapped", root)
        assert not first.taken
        written = world.slack.channels["C0INCIDENTS"][-1]
        event = {
            "type": "message", "user": world.ada.id, "text": "swapped", "ts": written.ts, "thread_ts": root,
            "channel": "C0INCIDENTS",
        }  # fmt: skip
        for _ in range(2):
            assert (await world.slack.happen(event)).taken
        assert notes(world) == [f"ada ({world.ada.id}): swapped"]


async def test_a_reply_waits_for_kafka() -> None:
    async with workspace(over="http") as world:
        root = thread(world)
        world.responder.kafka_away = True
        assert (await world.slack.write(world.ada, "swapped", root)).status == 503


@WAYS
async def test_the_shortcut_asks_which_open_incident_a_message_belongs_to(over: str) -> None:
    async with workspace(over=over) as world:
        await world.slack.note(world.eve, "the <http://x.test|fan> is &lt;loud&gt;")
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        ((name, dialog),) = world.slack.dialogs.items()
        choice, text = dialog["blocks"]
        assert text["element"]["initial_value"] == "the fan is <loud>"
        (option,) = choice["element"]["options"]
        empty = await world.slack.submit(
            world.eve, name, {"incident": {"chosen": option["value"]}, "text": " "}
        )
        assert empty.body == {"response_action": "errors", "errors": {"text": "A note needs words."}}
        await world.slack.submit(
            world.eve, name, {"incident": {"chosen": option["value"]}, "text": "the fan is loud"}
        )
        assert await world.answered(world.eve) == ["accepted: the fan is loud"]
        assert notes(world) == [f"eve ({world.eve.id}): the fan is loud"]
        assert world.responder.commands[0].verb is Verb.NOTE


async def test_with_no_incident_open_the_shortcut_says_so() -> None:
    async with workspace() as world:
        world.view._incidents.clear()
        await world.slack.note(world.eve, "text")
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        ((_, dialog),) = world.slack.dialogs.items()
        assert dialog["blocks"][0]["text"]["text"] == "No incident is open."
        assert "submit" not in dialog


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a <https://x.test|b> c", "a b c"),
        ("<https://x.test>", "https://x.test"),
        ("<!channel> &lt;b&gt;", "!channel <b>"),
        ("<", "<"),
        ("x" * 9000, "x" * 2000),
        (None, ""),
    ],
)
def test_a_messages_text_loses_slacks_markup(raw: object, shown: str) -> None:
    assert message_text(raw) == shown
