"""What a person is shown on request: the list, one incident, its evidence, its explanation, the answer to a command. Pure."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from connectors.chat.slack_blocks import render
from faultline.chat.thread_messages import evidence_message
from faultline.live_view.decisions import Decision
from faultline.live_view.overview import Overview
from faultline.live_view.view import LiveView
from runbooks.engine.wait_reasons import ending_reason
from streams.model.clock import moment
from streams.model.conversation import TimelineEntry
from streams.model.message import Block, Code, Fact, Facts, Message, Paragraph, Table, plain

MAX_LISTED = 25
MAX_RULED_OUT = 5
MAX_LINES = 8
MAX_ANSWER = 2500

_LINK = re.compile(r"<(?P<to>[^<>|]*)(?:\|(?P<label>[^<>]*))?>")
"""Links, mentions and dates in a message's text; what a person types as `<` or `>` arrives escaped."""


def listed(view: LiveView) -> Message:
    """Open incidents first, then those whose node is still cordoned."""
    if not view.ready:
        return Message("Still reading what happened before this start; try again in a moment.")
    shown = view.overviews()
    if not shown:
        return Message("No incident is open.")
    rows = tuple(
        (one.incident.id[4:12], one.standing, str(one.incident.severity), one.incident.title, one.waits_for)
        for one in shown[:MAX_LISTED]
    )
    more = f", the first {MAX_LISTED} of them" if len(shown) > MAX_LISTED else ""
    table = Table(("id", "state", "severity", "title", "waits for"), rows)
    return Message(f"{len(shown)} open or waiting for a repair{more}", (table,))


def about(view: LiveView, incident: str, *, evidence: bool | None) -> Message:
    """One incident: its evidence, its explanation, or (None) both."""
    one = view.overview(incident)
    if one is None:
        why = "is not known here" if view.ready else "may not be read yet; try again in a moment"
        return Message(f"{incident[:60]} {why}")
    proofs = evidence_message(one.incident)
    if evidence is True:
        return Message(f"{proofs.summary} · {one.incident.title}", proofs.blocks, proofs.tone)
    blocks = explanation(one, view.timeline(incident))
    return Message(one.incident.title, (*blocks, *(proofs.blocks if evidence is None else ())))


def explanation(one: Overview, timeline: tuple[TimelineEntry, ...]) -> tuple[Block, ...]:
    """Why this root cause, what was ruled out, what the run does, and what happened last."""
    incident = one.incident
    run = one.runs[-1] if one.runs else None
    facts = [
        Fact("Root cause", f"{incident.root} ({incident.certainty})"),
        Fact("State", f"{one.standing} · {incident.severity}"),
        Fact("Started", at=incident.fault_at),
    ]
    if run is not None:
        why = ending_reason(run)
        facts.append(
            Fact("Run", f"{run.plan.runbook}: {run.outcome or run.state}" + (f", {why}" if why else ""))
        )
    blocks: list[Block] = [Paragraph(incident.reason), Facts(tuple(facts))]
    if one.waits_for:
        blocks.append(Paragraph(f"Waiting for {one.waits_for}"))
    rejected = [candidate for candidate in incident.candidates if not candidate.chosen]
    if rejected:
        rows = tuple((str(c.entity), c.family, c.reason) for c in rejected[:MAX_RULED_OUT])
        blocks.append(Table(("ruled out", "as", "because"), rows))
    if timeline:
        lines = (
            f"{moment(entry.at)} {plain(entry.actor, 40)}: {plain(entry.text.replace(chr(10), ' '), 180)}"
            for entry in timeline[-MAX_LINES:]
        )
        blocks.append(Code("\n".join(lines)))
    blocks.append(Paragraph(incident.id, quiet=True))
    return tuple(blocks)


def message_text(text: object, limit: int = 2000) -> str:
    """What a person wrote, without Slack's markup: labels instead of links, `@U123` for a mention, `&` for `&amp;`."""
    if not isinstance(text, str):
        return ""
    shown = _LINK.sub(lambda found: found["label"] or found["to"], text[: 4 * limit])
    return html.unescape(shown).strip()[:limit]


def answer(decision: Decision, waited_s: float, *, will_tell: bool) -> str:
    """What became of a command, for the one who gave it."""
    if decision.accepted is None:
        later = "you are told here when one does" if will_tell else "the timeline shows the result"
        return (
            f"{decision.command.verb} is stored. No responder answered within {waited_s:.0f} s; "
            f"it will be applied when one is back, and {later}."
        )
    return f"{'accepted' if decision.accepted else 'refused'}: {decision.text}"


def ephemeral(text: str) -> dict[str, Any]:
    """A line for one person. Plain text: names and reasons in it can neither mention anybody nor make a link."""
    shown = plain(text, MAX_ANSWER) or "–"
    block = {"type": "section", "text": {"type": "plain_text", "text": shown, "emoji": False}}
    return {"response_type": "ephemeral", "replace_original": False, **_fallback(shown), "blocks": [block]}


def ephemeral_message(message: Message) -> dict[str, Any]:
    """A message for one person, without buttons."""
    return {"response_type": "ephemeral", "replace_original": False, **render(message)}


def dialog_blocks(message: Message) -> list[Mapping[str, Any]]:
    """A message's blocks for a dialog, which takes no attachments."""
    shown = render(message)
    return [*shown["blocks"], *(block for part in shown["attachments"] for block in part["blocks"])]


def _fallback(text: str) -> dict[str, Any]:
    shown: dict[str, Any] = render(Message(text))
    return {"text": shown["text"]}
