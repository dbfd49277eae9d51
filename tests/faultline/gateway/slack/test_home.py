"""The App Home: what is open, what waits for the one who looks, and how it stays true without flooding Slack."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from faultline.gateway.slack import home
from faultline.gateway.slack.actions import Person
from faultline.gateway.slack.home import home_view
from faultline.live_view.view import LiveView
from sandbox.fake_services.server import InjectedFault
from streams.model.run import Demand, Mode, StepState
from tests.connectors.chat.thread_documents import incident, run
from tests.faultline.gateway.slack.world import SRE, workspace

ADA = Person("U1", "ada")


def shown(view: dict[str, Any]) -> str:
    """Texts and buttons of a Home, in its order."""
    lines = []
    for block in view["blocks"]:
        if block["type"] == "actions":
            lines.append(" ".join(f"[{one['text']['text']}]" for one in block["elements"]))
        else:
            lines.append(block["text"]["text"] if "text" in block else block["elements"][0]["text"])
    return "\n".join(lines)


def waiting(*demands: Demand) -> LiveView:
    view = LiveView()
    view.ready = True
    view.take_incident(incident())
    asked = run(incident(), Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL)
    steps = tuple(replace(r, demands=demands) if r.id == "cordon" else r for r in asked.steps)
    view.take_run(asked.id, replace(asked, steps=steps))
    return view


@pytest.mark.parametrize(
    ("demands", "groups", "waits"),
    [
        ((), (), True),
        ((Demand(people=None),), (), True),
        ((Demand("oncall", 1, ("bob", "ada|U1")),), (), True),
        ((Demand("oncall", 1, ("bob",)),), (), False),
        ((Demand("oncall", 1, ("ada",)),), (), False),
        ((Demand("oncall", 1, ("slack:S1",)),), ("slack:S1",), True),
        ((Demand("oncall", 1, ("slack:S1",)),), ("slack:S2",), False),
        ((Demand("oncall", 2, ("slack:S1",), ("ada (U1)",)),), ("slack:S1",), False),
        ((Demand("oncall", 2, ("slack:S1",), ("bob (U2)",)),), ("slack:S1",), True),
        ((Demand("oncall", 1, ("bob",)), Demand("leads", 1, ("U1",))), (), True),
    ],
)
def test_what_waits_for_you_is_what_your_id_or_groups_may_approve(
    demands: tuple[Demand, ...], groups: tuple[str, ...], waits: bool
) -> None:
    text = shown(home_view(waiting(*demands).overviews(), ADA, groups))
    assert ("*Waits for you*" in text, "*Nothing waits for you*" in text) == (waits, not waits)
    assert ("[Approve] [Reject] [Explain]" in text) is waits
    assert "*Open: 1*" in text


def test_a_hundred_open_incidents_fit_and_nothing_in_them_is_markup() -> None:
    view = LiveView()
    view.ready = True
    for number in range(100):
        view.take_incident(incident(id=f"inc-{number:016x}", title=f"<!channel> {number}"))
    made = home_view(view.overviews(), ADA, ())
    assert len(made["blocks"]) <= 100
    text = shown(made)
    assert "<!channel>" not in text
    assert "and 80 more: /faultline list" in text
    assert len({block["block_id"] for block in made["blocks"]}) == len(made["blocks"])


def test_with_nothing_open_it_says_so() -> None:
    assert "Still reading" in shown(home_view([], ADA, (), ready=False))
    assert (
        shown(home_view([], ADA, (), notice="refused: no"))
        == "refused: no\n*Nothing waits for you*\n*No incident is open*"
    )


server = pytest.mark.embedded


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "REFRESH_S", 0.02)
    monkeypatch.setattr(home, "MAX_AGE_S", 0.0)


@server
@pytest.mark.parametrize("over", ["socket", "http"])
async def test_a_home_that_was_opened_follows_what_happens(
    over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch)
    async with workspace(over=over, policy={"approvers": [f"slack:{SRE}"]}) as world:
        for who in (world.ada, world.eve):
            await world.slack.open_home(who)
        await world.until(lambda: len(world.slack.homes) == 2, "both Homes are published")
        assert "*Waits for you*" in shown(world.slack.homes[world.ada.id])
        assert "*Nothing waits for you*" in shown(world.slack.homes[world.eve.id])
        await world.slack.press(world.bob, "faultline.approve", world.value())
        await world.until(
            lambda: "*Nothing waits for you*" in shown(world.slack.homes[world.ada.id]),
            "ada's Home has changed",
        )


@server
async def test_a_press_on_the_home_is_answered_at_its_top_and_an_explanation_is_a_dialog() -> None:
    async with workspace(policy={"approvers": ["bob"]}) as world:
        await world.slack.open_home(world.ada)
        await world.until(lambda: world.slack.homes, "the Home is published")
        await world.slack.press(world.ada, "faultline.approve", world.value(), on_home=True)
        await world.until(
            lambda: shown(world.slack.homes[world.ada.id]).startswith("refused: approval by ada"),
            "the refusal is shown",
        )
        await world.slack.press(world.ada, "faultline.explain", world.value(), on_home=True)
        await world.until(lambda: world.slack.dialogs, "the dialog is open")
        ((_, dialog),) = world.slack.dialogs.items()
        assert world.incident.title in str(dialog["blocks"])
        assert world.slack.answers == []


@server
async def test_a_home_that_slack_does_not_take_now_is_published_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick(monkeypatch)
    async with workspace() as world:
        world.slack.fail(InjectedFault("views.publish", "status", times=2, status=429, retry_after="0"))
        await world.slack.open_home(world.ada)
        world.responder.publish(replace(world.incident, revision=2, title="another title"))
        await world.until(lambda: "another title" in str(world.slack.homes), "the Home is published")


@server
async def test_what_changes_nothing_on_a_home_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    async with workspace() as world:
        await world.slack.open_home(world.ada)
        await world.until(lambda: world.slack.published == 1, "the Home is published")
        for revision in range(2, 12):
            world.responder.publish(replace(world.incident, revision=revision))
            await asyncio.sleep(0)
        world.responder.publish(replace(world.incident, revision=12, title="another title"))
        await world.until(lambda: "another title" in str(world.slack.homes), "the Home has changed")
        assert world.slack.published == 2
