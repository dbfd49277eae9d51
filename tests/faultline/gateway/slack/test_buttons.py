"""Every button, in every state of an incident, over both ways: what the person is told and what the responder did."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from sandbox.fake_services import slack_people
from sandbox.fake_services.server import InjectedFault
from streams.model.clock import utc_now
from streams.model.conversation import Verb
from streams.model.incident import IncidentState
from streams.model.run import RunOutcome, StepState
from tests.faultline.gateway.slack.world import SRE, World, workspace

pytestmark = pytest.mark.embedded

WAYS = pytest.mark.parametrize("over", ["socket", "http"])

STATES = ("asking", "under way", "over", "unknown")
"""The run waits for an approval, has a call in flight, was stopped; or the incident is not known."""

NO_RUN, NOTHING_LEFT = "has no run", "no destructive step is left"
TABLE = {
    Verb.ACK: ("accepted: acknowledged by ada",) * 3 + (NO_RUN,),
    Verb.APPROVE: ("accepted: ada", "not accepted: no step is pending", "not accepted: no step is pending", NO_RUN),
    Verb.STOP: ("accepted: stopped by ada",) * 3 + (NO_RUN,),
    Verb.HAND_OVER: ("accepted: taken over", "accepted: taken over", "the run is already over", NO_RUN),
    Verb.SNOOZE: ("accepted: snoozed by ada", "accepted: snoozed by ada", NOTHING_LEFT, NO_RUN),
    Verb.SILENCE: ("accepted: silenced by ada",) * 4,
}  # fmt: skip


async def stand(world: World, state: str) -> str:
    """Bring the run into a state; returns the value of the buttons that were shown before."""
    value = world.value()
    match state:
        case "over":
            await world.slack.press(world.bob, "faultline.stop", value)
            await world.answered(world.bob)
        case "unknown":
            return json.dumps(json.loads(value) | {"i": "inc-ffffffffffffffff"})
    return value


@pytest.mark.parametrize(("verb", "state"), [(verb, state) for verb in TABLE for state in STATES])
async def test_every_button_is_answered_in_every_state(verb: Verb, state: str) -> None:
    async with workspace(over="http", asks=state != "under way") as world:
        value = await stand(world, state)
        ack = await world.slack.press(world.ada, f"faultline.{verb}", value)
        assert ack.taken
        (told,) = await world.answered(world.ada)
        assert TABLE[verb][STATES.index(state)] in told
        command = world.responder.commands[-1]
        assert (command.verb, command.actor, command.via) == (verb, f"ada ({world.ada.id})", "slack")


@WAYS
async def test_a_second_press_hears_who_was_first_and_when(over: str) -> None:
    async with workspace(over=over) as world:
        value = world.value()
        await world.slack.press(world.ada, "faultline.approve", value)
        await world.slack.press(world.bob, "faultline.approve", value)
        (first,) = await world.answered(world.ada)
        (second,) = await world.answered(world.bob)
        assert first.startswith("accepted: ada")
        assert second.startswith(
            f"refused: approval by bob ({world.bob.id}) not accepted: ada ({world.ada.id}) approved it at 2"
        )
        assert [r.effect is not None for r in world.run.steps if r.id.startswith("cordon")] == [True]


async def test_a_press_below_an_old_plan_is_refused_as_such() -> None:
    async with workspace() as world:
        await world.slack.press(world.ada, "faultline.approve", world.value(d="0" * 32))
        (told,) = await world.answered(world.ada)
        assert "it refers to an outdated plan" in told
        assert not any(record.effect for record in world.run.steps)


@WAYS
async def test_a_rejection_asks_for_the_reason_and_counts_without_one(over: str) -> None:
    async with workspace(over=over) as world:
        await world.slack.press(world.ada, "faultline.reject", world.value())
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        ((name, dialog),) = world.slack.dialogs.items()
        assert world.incident.title in dialog["blocks"][0]["text"]["text"]
        assert world.responder.commands == []
        await world.slack.submit(world.ada, name, {"text": None})
        (told,) = await world.answered(world.ada)
        assert told == f"accepted: rejected by ada ({world.ada.id})"
        assert world.run.outcome is RunOutcome.REJECTED


async def test_a_reason_is_on_the_timeline_and_a_dialog_submitted_twice_counts_once() -> None:
    async with workspace() as world:
        await world.slack.press(world.ada, "faultline.reject", world.value())
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        (name,) = world.slack.dialogs
        await world.slack.submit(world.ada, name, {"text": "not <!channel> tonight"})
        await world.slack.submit(world.ada, name, {"text": "not <!channel> tonight"})
        (told,) = await world.answered(world.ada)
        assert "not &lt;!channel&gt; tonight" in told, "nobody is mentioned by a reason"
        assert len({command.id for command in world.responder.commands}) == 1
        assert world.run.approvals[0].reason == "not <!channel> tonight"


async def test_resolve_is_confirmed_first() -> None:
    async with workspace() as world:
        await world.slack.press(world.ada, "faultline.resolve", world.value())
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        ((name, dialog),) = world.slack.dialogs.items()
        assert dialog["submit"]["text"] == "Resolve"
        assert world.responder.commands == []
        await world.slack.submit(world.ada, name, {"text": "fixed by hand"})
        (told,) = await world.answered(world.ada)
        assert told == f"accepted: resolved by ada ({world.ada.id}): fixed by hand"


async def test_a_dialog_that_comes_too_late_says_how_it_goes_without() -> None:
    async with workspace() as world:
        world.slack.trigger_s = -1.0
        await world.slack.press(world.ada, "faultline.reject", world.value())
        (told,) = await world.answered(world.ada)
        assert f"faultline incidents reject {world.incident.id}" in told
        assert world.slack.dialogs == {}


@WAYS
@pytest.mark.parametrize(
    ("button", "words"), [("evidence", "Evidence: 0 observations"), ("explain", "gpu_off_bus on")]
)
async def test_evidence_and_explanation_are_shown_to_the_one_who_asks(
    over: str, button: str, words: str
) -> None:
    async with workspace(over=over) as world:
        await world.slack.press(world.ada, f"faultline.{button}", world.value())
        (told,) = await world.answered(world.ada)
        assert words in told
        assert world.slack.answers[0].body["response_type"] == "ephemeral"
        assert world.slack.answers[0].body["replace_original"] is False
        assert world.responder.commands == []


@WAYS
async def test_a_redelivered_press_does_nothing_more(over: str) -> None:
    async with workspace(over=over) as world:
        press = world.slack.press_of(world.ada, "faultline.ack", world.value())
        acks = [await world.slack.deliver("interactive", press) for _ in range(3)]
        await world.answered(world.ada)
        await world.slack.press(world.bob, "faultline.ack", world.value())
        await world.answered(world.bob)
        assert len(await world.answered(world.ada)) == 1
        assert len(world.responder.commands) == 2
        # Slack signs each attempt anew a second later; the same signature again is a replay.
        assert acks[0].taken


async def test_two_gateways_that_get_the_same_press_send_the_same_command() -> None:
    async with workspace() as world:
        press = world.slack.press_of(world.ada, "faultline.stop", world.value(), at=1_700_000_000.5)
        await world.slack.deliver("interactive", press)
        await world.answered(world.ada)
        (first,) = world.responder.commands
    async with workspace() as world:
        press = world.slack.press_of(world.ada, "faultline.stop", world.value(), at=1_700_000_000.5)
        await world.slack.deliver("interactive", press)
        await world.answered(world.ada)
        assert world.responder.commands[0].id == first.id


@WAYS
async def test_a_command_that_nobody_heard_says_so_and_is_told_later_and_applied_once(over: str) -> None:
    async with workspace(over=over, answer_within_s=0.2) as world:
        world.responder.away = True
        await world.slack.press(world.ada, "faultline.stop", world.value())
        (waiting,) = await world.answered(world.ada)
        assert waiting.startswith(
            "stop is stored. No responder answered within 0 s; it will be applied when one is back"
        )
        world.responder.back()
        told = await world.answered(world.ada, 2)
        assert told[1] == f"accepted: stopped by ada ({world.ada.id})"
        assert world.run.outcome is RunOutcome.CANCELLED
        lines = [line for line in world.view.timeline(world.incident.id) if line.event == "person.stopped"]
        assert len(lines) == 1


async def test_a_press_that_kafka_does_not_take_is_not_called_stored() -> None:
    async with workspace() as world:
        world.responder.kafka_away = True
        await world.slack.press(world.ada, "faultline.stop", world.value())
        (told,) = await world.answered(world.ada)
        assert told.startswith("stop: Kafka does not answer.")


async def test_an_approval_counts_through_a_user_group_and_only_a_members() -> None:
    rules = {
        "approval_groups": {"oncall": [f"slack:{SRE}"]},
        "approval_classes": {"close": {"group": "oncall", "quorum": 2}},
    }
    async with workspace(policy=rules) as world:
        for who, number in ((world.eve, 1), (world.ada, 1), (world.ada, 2), (world.bob, 1)):
            await world.slack.press(who, "faultline.approve", world.value())
            await world.answered(who, number)
        eve, (first, again), bob = (
            await world.answered(world.eve), await world.answered(world.ada, 2), await world.answered(world.bob)
        )  # fmt: skip
        assert "is not among oncall (slack:S0SRE)" in eve[0]
        assert "still needs one more of oncall" in first
        assert "has already approved" in again
        assert bob[0].startswith("accepted: bob")
        assert [command.groups for command in world.responder.commands] == [
            ("slack:S0OTHER",), ("slack:S0SRE",), ("slack:S0SRE",), ("slack:S0SRE",)
        ]  # fmt: skip
        assert len(world.slack.calls("usergroups.list")) == 1


async def test_while_the_groups_cannot_be_read_nobody_is_in_one_and_is_told_why() -> None:
    async with workspace(policy={"approvers": [f"slack:{SRE}"]}) as world:
        world.slack.fail(InjectedFault("usergroups.list", "status", times=100))
        await world.slack.press(world.ada, "faultline.approve", world.value())
        (told,) = await world.answered(world.ada)
        assert told.startswith("refused:")
        assert "Slack does not say at the moment which user groups you are in" in told
        await world.slack.press(world.ada, "faultline.stop", world.value())
        assert (await world.answered(world.ada, 2))[1].startswith("accepted: stopped")


async def test_somebody_of_another_workspace_decides_nothing() -> None:
    async with workspace() as world:
        guest = world.slack.person("mallory", team="T9OTHER")
        await world.slack.press(guest, "faultline.stop", world.value())
        (told,) = await world.answered(guest)
        assert told.startswith("Only members of this workspace")
        assert world.responder.commands == []


async def test_an_installation_in_another_workspace_decides_nothing_whatever_it_signs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with workspace() as world:
        monkeypatch.setattr(slack_people, "TEAM", "T9OTHER")
        stranger = world.slack.person("mallory", team="T9OTHER")
        await world.slack.press(stranger, "faultline.stop", world.value())
        await world.slack.type(stranger, f"stop {world.incident.id}")
        monkeypatch.undo()
        await world.slack.press(world.ada, "faultline.ack", world.value())
        await world.answered(world.ada)
        assert [one.verb for one in world.responder.commands] == [Verb.ACK]


async def test_a_press_while_slack_refuses_our_token_is_not_taken_and_may_be_pressed_again() -> None:
    async with workspace(over="http") as world:
        token, world.slack.token = world.slack.token, "another"
        assert (await world.slack.press(world.ada, "faultline.stop", world.value())).status == 503
        assert world.responder.commands == []
        world.slack.token = token
        assert (await world.slack.press(world.ada, "faultline.stop", world.value())).taken
        await world.answered(world.ada)
        assert [one.verb for one in world.responder.commands] == [Verb.STOP]


@pytest.mark.parametrize("lag_s", [0.0, -3600.0, 3600.0])
async def test_an_approval_is_as_old_as_its_press_and_never_from_the_future(lag_s: float) -> None:
    async with workspace() as world:
        now = utc_now()
        await world.slack.press(world.ada, "faultline.snooze", world.value(), at=now.timestamp() + lag_s)
        await world.answered(world.ada)
        (command,) = world.responder.commands
        assert command.at <= utc_now()
        assert command.until == command.at + timedelta(minutes=10)
        assert (utc_now() - command.at >= timedelta(hours=1)) is (lag_s < 0)


async def test_many_presses_at_once_are_all_answered_though_no_responder_is_there() -> None:
    async with workspace(over="http", answer_within_s=0.5) as world:
        world.responder.away = True
        people = [world.slack.person(f"p{number}") for number in range(500)]
        acks = await asyncio.gather(
            *(world.slack.press(one, "faultline.ack", world.value()) for one in people)
        )
        assert all(ack.taken for ack in acks)
        await world.until(lambda: len(world.slack.answers) == 500, "everybody is answered")
        assert len({command.id for command in world.responder.commands}) == 500
        world.responder.back()
        await world.until(lambda: len(world.slack.answers) == 1000, "everybody is told what came of it")


async def test_an_answer_that_slack_does_not_take_any_more_changes_nothing_of_the_decision() -> None:
    async with workspace() as world:
        world.slack.url_s = -1.0
        await world.slack.press(world.ada, "faultline.stop", world.value())
        await world.until(lambda: world.run.outcome is RunOutcome.CANCELLED, "the run is stopped")
        await world.until(lambda: world.slack.calls("/actions/"), "the answer was tried")
        world.slack.url_s = 1800.0
        await world.slack.press(world.bob, "faultline.ack", world.value())
        assert (await world.answered(world.bob))[0].startswith("accepted")
        assert [answer.user for answer in world.slack.answers] == [world.bob.id]


async def test_an_answer_is_posted_again_once_when_the_connection_breaks() -> None:
    async with workspace() as world:
        world.slack.fail(InjectedFault("/actions/", "lose_request", times=1))
        await world.slack.press(world.ada, "faultline.ack", world.value())
        assert len(await world.answered(world.ada)) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example.test/x",
        "https://slack.com.example.test/x",
        "http://hooks.slack.com/x",
        "file:///etc/passwd",
    ],
)
async def test_nothing_is_posted_to_an_address_that_is_not_slacks(url: str) -> None:
    async with workspace() as world:
        press = world.slack.press_of(world.ada, "faultline.ack", world.value()) | {"response_url": url}
        await world.slack.deliver("interactive", press)
        await world.slack.press(world.bob, "faultline.ack", world.value())
        await world.answered(world.bob)
        assert len(world.responder.commands) == 2


async def test_an_incident_that_is_over_says_since_when() -> None:
    async with workspace() as world:
        await world.slack.press(world.bob, "faultline.stop", world.value())
        await world.answered(world.bob)
        over = replace(world.incident, revision=2, state=IncidentState.RESOLVED, closed_at=utc_now())
        world.responder.publish(over)
        await world.slack.press(world.ada, "faultline.resolve", world.value())
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        (name,) = world.slack.dialogs
        await world.slack.submit(world.ada, name, {"text": None})
        (told,) = await world.answered(world.ada)
        assert f"{world.incident.id} has been over since 20" in told


async def test_not_now_holds_the_question_back() -> None:
    async with workspace() as world:
        await world.slack.press(world.ada, "faultline.snooze", world.value())
        (told,) = await world.answered(world.ada)
        assert told.startswith(f"accepted: snoozed by ada ({world.ada.id}) until 20")
        world.responder.work()
        assert StepState.BLOCKED in {record.state for record in world.run.steps}
