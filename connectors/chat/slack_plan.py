"""Steps in Slack's form: a plan with one task a step, or plain lines for clients that do not know plans.

A plan takes 50 tasks, each with an id of its own. Its texts are plain: nothing in them is parsed, so nothing is escaped, and
the bracket that would start a mention is replaced all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from connectors.chat.slack_text import DATE_FORMAT, date_token, in_utc, mrkdwn
from streams.model.message import MAX_STEPS, Fact, Step, Steps, is_web_address, plain

MAX_TITLE = 150
MAX_TASK = 80
"""Characters of a task's title: 50 of them leave room for details."""
MAX_DETAIL = 400
MARKS = {"pending": "▫️", "in_progress": "⏳", "complete": "✅", "error": "❌"}


def plan_block(block: Steps, room: int) -> dict[str, Any]:
    """The plan, of `room` characters at most: details are cut before titles, and all alike."""
    steps = block.steps[:MAX_STEPS]
    heading = _plain(block.title, MAX_TITLE) or "–"
    titles = [_plain(step.title, MAX_TASK) or "–" for step in steps]
    facts = [list(_facts(step)) for step in steps]
    left = room - len(heading) - sum(map(len, titles)) - sum(_shown(one) for parts in facts for one in parts)
    most = max(0, min(MAX_DETAIL, left // max(1, sum(bool(step.detail) for step in steps)) - 1))
    return {
        "type": "plan",
        "title": heading,
        "tasks": [
            _task(step, title, parts, most) for step, title, parts in zip(steps, titles, facts, strict=True)
        ],
    }


def plan_lines(block: Steps, most: int) -> Iterator[str]:
    """The steps as mrkdwn, as many together as `most` characters take."""
    text = f"*{mrkdwn(block.title, MAX_TITLE)}*"
    for step in block.steps[:MAX_STEPS]:
        facts = "".join(f", {mrkdwn(fact.label.lower(), 30)} {_fact_text(fact)}" for fact in step.facts)
        detail = f"\n{mrkdwn(step.detail, MAX_DETAIL)}" if step.detail else ""
        line = f"{MARKS[step.state]} {mrkdwn(step.title, MAX_TASK)}{facts}{detail}"
        if len(text) + 1 + len(line) > most:
            yield text
            text = line
        else:
            text = f"{text}\n{line}"
    yield text


def _task(step: Step, title: str, facts: list[dict[str, Any]], most: int) -> dict[str, Any]:
    parts = list(facts)
    if step.detail and most > 1:
        parts.append({"type": "text", "text": ("\n" if facts else "") + _plain(step.detail, most)})
    task: dict[str, Any] = {"task_id": step.id, "title": title, "status": step.state}
    if parts:
        section = {"type": "rich_text_section", "elements": parts}
        task["details"] = {"type": "rich_text", "elements": [section]}
    return task


def _facts(step: Step) -> Iterator[dict[str, Any]]:
    for number, fact in enumerate(step.facts):
        head = f"{' · ' if number else ''}{_plain(fact.label, 30)} "
        if fact.at is not None:
            yield {"type": "text", "text": head}
            yield _date(fact.at)
        elif fact.url and is_web_address(fact.url) and len(fact.url) <= 300 and fact.text:
            yield {"type": "text", "text": head}
            yield {"type": "link", "url": fact.url, "text": _plain(fact.text, 60)}
        else:
            yield {"type": "text", "text": head + _plain(fact.text, 60)}


def _date(at: datetime) -> dict[str, Any]:
    """A moment in the reader's own time zone."""
    return {"type": "date", "timestamp": int(at.timestamp()), "format": DATE_FORMAT, "fallback": in_utc(at)}


def _fact_text(fact: Fact) -> str:
    return date_token(fact.at) if fact.at else mrkdwn(fact.text, 60)


def _shown(element: dict[str, Any]) -> int:
    return len(element.get("text", "")) + len(element.get("url", "")) + len(element.get("fallback", ""))


def _plain(text: str, limit: int) -> str:
    """One text without control characters. `<` would open a mention or a link elsewhere, should a client parse it here."""
    return plain(text, limit).replace("<", "‹")
