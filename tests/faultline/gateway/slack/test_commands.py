"""`/faultline`: what each line means, and what a misspelt one is answered with."""

from __future__ import annotations

from datetime import timedelta

import pytest

from faultline.gateway.slack.actions import Action, Decide, Delivery, Show
from faultline.gateway.slack.interactions import action_of
from faultline.live_view.view import LiveView
from streams.model.conversation import Command, Verb
from streams.model.facts import NodeFact
from streams.model.message import Code, Table
from tests.connectors.chat.thread_documents import NOW, incident, run
from tests.faultline.gateway.slack.world import workspace

ABOUT = incident()
SHORT = ABOUT.id[4:12]


def a_view(*, ready: bool = True) -> LiveView:
    view = LiveView()
    view.ready = ready
    view.take_incident(ABOUT)
    view.take_run("r", run(ABOUT))
    for number, pool in enumerate(("train", "infer")):
        node = NodeFact("c1", f"gpu-{number}", f"u{number}", NOW, gpus=8, pool=pool)
        view.take_fact(node.key, node)
    return view


def typed(text: str, view: LiveView | None = None) -> Action:
    payload = {
        "text": text,
        "user_id": "U1",
        "user_name": "ada",
        "trigger_id": "t1",
        "response_url": "https://hooks.slack.com/x",
    }
    return action_of(Delivery("slash_commands", payload), view or a_view(), "c1", NOW)


def command(text: str) -> Command:
    found = typed(text)
    assert isinstance(found, Decide), found
    return found.command


@pytest.mark.parametrize(
    ("text", "verb", "reason", "lasts"),
    [
        (f"ack {SHORT}", Verb.ACK, "", None),
        (f"ACK {ABOUT.id} on it", Verb.ACK, "on it", None),
        (f"ack {SHORT} 10m of looking", Verb.ACK, "10m of looking", None),
        (f"stop {SHORT} wrong node", Verb.STOP, "wrong node", None),
        (f"resolve {SHORT}", Verb.RESOLVE, "", None),
        (f"handover {SHORT} mine", Verb.HAND_OVER, "mine", None),
        (f"snooze {SHORT}", Verb.SNOOZE, "", timedelta(minutes=10)),
        (f"snooze {SHORT} 20m after the run", Verb.SNOOZE, "after the run", timedelta(minutes=20)),
        (f"silence {SHORT}", Verb.SILENCE, "", timedelta(hours=1)),
        (f"silence {SHORT} 2h", Verb.SILENCE, "", timedelta(hours=2)),
        (f"note {SHORT} swapped the riser", Verb.NOTE, "swapped the riser", None),
        (f"stop {SHORT} R&amp;D needs &lt;it&gt;", Verb.STOP, "R&D needs <it>", None),
    ],
)
def test_a_line_about_an_incident(text: str, verb: Verb, reason: str, lasts: timedelta | None) -> None:
    made = command(text)
    assert (made.verb, made.incident, made.cluster, made.reason) == (verb, ABOUT.id, "c1", reason)
    assert (made.actor, made.via, made.at) == ("ada (U1)", "slack", NOW)
    assert made.until == (NOW + lasts if lasts else None)


@pytest.mark.parametrize(
    ("text", "verb", "scope", "lasts", "reason"),
    [
        ("freeze", Verb.FREEZE, "", None, ""),
        ("freeze 2h upgrade", Verb.FREEZE, "", timedelta(hours=2), "upgrade"),
        ("freeze pool:train 1d", Verb.FREEZE, "pool:train", timedelta(days=1), ""),
        ("freeze pool:new --force", Verb.FREEZE, "pool:new", None, ""),
        ("thaw pool:gone", Verb.THAW, "pool:gone", None, ""),
        ("kill smoke in row 3", Verb.KILL, "", None, "smoke in row 3"),
        ("unkill", Verb.UNKILL, "", None, ""),
    ],
)
def test_a_line_about_the_cluster(
    text: str, verb: Verb, scope: str, lasts: timedelta | None, reason: str
) -> None:
    made = command(text)
    assert (made.verb, made.incident, made.cluster, made.scope, made.reason) == (
        verb,
        "",
        "c1",
        scope,
        reason,
    )
    assert made.until == (NOW + lasts if lasts else None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Faultline"),
        ("help", "Faultline"),
        ("stpo inc-1", "No command stpo; did you mean stop?"),
        ("approve", "No command approve"),
        ("stop", "Which incident?"),
        ("stop inc-ffff", "No incident inc-ffff"),
        (f"show {ABOUT.id[:-1]}x", f"did you mean {ABOUT.id}?"),
        (f"snooze {SHORT} 999d", "999d is no length"),
        (f"note {SHORT}", "A note needs words"),
        ("freeze pol:train", "pol:train is no scope: pool:NAME or namespace:NAME; did you mean pool?"),
        ("freeze pool:trian", "no pool trian in cluster c1; known: infer, train; did you mean train?"),
        ("freeze namespace:x", "no namespace x in cluster c1; known: none"),
    ],
)
def test_what_is_no_command_is_answered_with_what_may_be_meant(text: str, told: str) -> None:
    found = typed(text)
    assert isinstance(found, Show)
    assert told in found.message.summary


def test_approving_is_left_to_the_button_below_the_plan() -> None:
    found = typed("approve inc-1")
    assert isinstance(found, Show)
    (code,) = found.message.blocks
    assert isinstance(code, Code)
    assert "press the button below it" in code.text


def test_the_same_line_delivered_twice_is_the_same_command_and_typed_twice_is_not() -> None:
    assert command(f"ack {SHORT}").id == command(f"ack {SHORT}").id
    payload = {"text": f"ack {SHORT}", "user_id": "U1", "trigger_id": "t2"}
    again = action_of(Delivery("slash_commands", payload), a_view(), "c1", NOW)
    assert isinstance(again, Decide)
    assert again.command.id != command(f"ack {SHORT}").id


def test_until_everything_is_read_no_incident_is_guessed_but_the_switch_works() -> None:
    early = typed(f"stop {SHORT}", a_view(ready=False))
    assert isinstance(early, Show)
    assert "Still reading" in early.message.summary
    assert isinstance(typed("kill", a_view(ready=False)), Decide)


def test_the_list_and_one_incident_are_shown() -> None:
    found = typed("list")
    assert isinstance(found, Show)
    (table,) = found.message.blocks
    assert isinstance(table, Table)
    assert table.rows[0][:2] == (SHORT, "open")
    one = typed(f"show {SHORT}")
    assert isinstance(one, Show)
    assert one.message.summary == ABOUT.title
    assert "Evidence" in str(one.message.blocks)


@pytest.mark.embedded
@pytest.mark.parametrize("over", ["socket", "http"])
async def test_a_line_is_answered_to_its_author_only_and_decisions_by_the_responder(over: str) -> None:
    async with workspace(over=over, policy={"approvers": ["somebody"]}) as world:
        ack = await world.slack.type(world.eve, "list")
        assert ack.body["response_type"] == "ephemeral"
        assert world.incident.id[4:12] in str(ack.body["attachments"])
        ack = await world.slack.type(world.eve, "kill smoke")
        assert (ack.taken, ack.body) == (True, None)
        (told,) = await world.answered(world.eve)
        assert told == f"accepted: eve ({world.eve.id}) engaged the kill switch: smoke"
        await world.slack.type(world.eve, "unkill")
        told = (await world.answered(world.eve, 2))[1]
        assert told.startswith(f"refused: unkill by eve ({world.eve.id}) not accepted: eve")
        await world.slack.type(world.eve, f"note {world.incident.id[4:12]} the fan is loud")
        await world.answered(world.eve, 3)
        assert world.view.timeline(world.incident.id)[-1].text == "the fan is loud"
