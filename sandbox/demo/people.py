"""The demo's people: one is on call and may approve, one is not. They find the question in the thread and press its button.

Their presses take the way that Slack's take: over Socket Mode to the gateway, and the answer comes back to their response URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from sandbox.fake_services.slack import Posting
from sandbox.fake_services.slack_people import Person, SlackPeople
from streams.model.conversation import Verb

ON_CALL = "S0ONCALL"
"""The user group that may approve."""
APPROVER, BYSTANDER = "Ada Byron", "Ben Ortiz"
APPROVE = f"faultline.{Verb.APPROVE}"


@dataclass(frozen=True, slots=True)
class Press:
    """One press of *Approve*, and what Slack showed to the one who pressed, alone; empty when nobody answered."""

    who: str
    answer: str = ""


def move_in(slack: SlackPeople) -> None:
    """Let both into the workspace, and one of them into the group."""
    slack.groups[ON_CALL] = [slack.person(APPROVER).id]
    slack.person(BYSTANDER)


def approve_value(posting: Posting) -> str | None:
    """The value of the message's button *Approve*; None when it has none."""
    return next((one["value"] for one in _elements(posting) if one.get("action_id") == APPROVE), None)


def incident_asked(posting: Posting) -> str | None:
    """The incident that the message asks to approve something for; None when it asks nothing."""
    value = approve_value(posting)
    return str(orjson.loads(value)["i"]) if value is not None else None


def answers_to(slack: SlackPeople, who: Person) -> list[str]:
    """What Slack has shown to this person alone."""
    return [one.text for one in slack.answers if one.user == who.id]


def _elements(posting: Posting) -> Iterator[dict[str, Any]]:
    shown = [*posting.blocks, *(block for one in posting.attachments for block in one.get("blocks", []))]
    for block in shown:
        if block["type"] == "actions":
            yield from block["elements"]
