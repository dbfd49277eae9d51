"""Messages in Slack's form: a headline, an attachment with the colour bar, and a plain `text` for notifications.

Everything is escaped and shown verbatim, so that log text can neither mention anybody nor make a link. The caps are those
of Slack's own validators; beyond about 13,000 characters Slack refuses a message, so this one stays below 10,000. Buttons are
never left out for room: an approval that cannot be given is worse than a table cut short.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from connectors.chat.slack_plan import plan_block, plan_lines
from connectors.chat.slack_text import date_token, escape, mrkdwn, notice_text
from streams.model.digest import digest
from streams.model.message import (
    Block,
    Button,
    Buttons,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Notice,
    Paragraph,
    Steps,
    Table,
    Tone,
    is_web_address,
    plain,
)

MAX_TOTAL = 10_000
MAX_BLOCKS = 50
MAX_PLAN = 6_000
"""Characters of a plan, its title and the titles and details of its tasks taken together."""
MAX_SECTION = 2800
MAX_FIELD = 1900
MAX_FIELDS = 10
MAX_HEADLINE = 600
MAX_TEXT = 600
MAX_NOTICE = 1200
MAX_ACTIONS = 25
MAX_LABEL = 75
MAX_VALUE = 2000
MAX_CELL = 60

COLOURS = {
    Tone.BAD: "#d13438",
    Tone.ACTIVE: "#e8a317",
    Tone.ASKING: "#7b3fe4",
    Tone.GOOD: "#2e9e5b",
    Tone.QUIET: "#8a8d91",
}

SlackBlock = dict[str, Any]


def render(message: Message, *, answers: bool = False, rich: bool = True) -> dict[str, Any]:
    """The `text`, `blocks` and `attachments` of chat.postMessage and chat.update.

    `answers` is whether anybody takes in a press: a button that nobody answers is worse than none, so without it there are none.
    `rich` shows steps as a plan; it stands above the colour bar, because attachments take the older blocks only.
    """
    head = [block for block in message.blocks[:1] if isinstance(block, Heading)]
    headline = head[0].text if head else message.summary
    body = [b for b in message.blocks[len(head) :] if answers or not isinstance(b, Buttons)]
    top = [_section(f"*{mrkdwn(headline.replace(chr(10), ' '), MAX_HEADLINE)}*")]
    text = mrkdwn(message.summary, MAX_TEXT)
    if body and isinstance(body[0], Notice):
        # A mention in an attachment calls nobody, and the text is what a phone shows.
        text = notice_text(body[0], MAX_NOTICE)
        top, body = [_section(text)], body[1:]
    room = MAX_TOTAL - MAX_HEADLINE - MAX_TEXT
    if rich and (plans := [block for block in body if isinstance(block, Steps)]):
        # One plan to a message: a second one is shown as text.
        top.append(plan_block(plans[0], MAX_PLAN))
        room -= MAX_PLAN
        body = [block for block in body if block is not plans[0]]
    below = _within_caps(body, room)
    _name_blocks([*top, *below])
    return {
        "text": text,
        "blocks": top,
        "attachments": [{"color": COLOURS[message.tone], "blocks": below}] if below else [],
    }


def _name_blocks(blocks: Sequence[SlackBlock]) -> None:
    """Give every block an id of its own that changes with what the message shows: Slack asks for new ids at every edit.
    Actions are told apart by their `action_id`, which stays."""
    shown = digest(json.dumps(blocks), size=6)
    for number, block in enumerate(blocks):
        block["block_id"] = f"{shown}-{number}"


def _within_caps(blocks: Sequence[Block], room: int) -> list[SlackBlock]:
    rendered = [(block, list(_rendered(block))) for block in blocks]
    asks = [one for block, parts in rendered if isinstance(block, Buttons) for one in parts]
    room -= sum(map(_length, asks))
    places = MAX_BLOCKS - 3 - len(asks)
    chosen: list[SlackBlock] = []
    left_out = False
    for block, parts in rendered:
        for part in parts:
            if isinstance(block, Buttons):
                chosen.append(part)
            elif left_out or places == 0 or _length(part) > room:
                left_out = True
            else:
                room, places = room - _length(part), places - 1
                chosen.append(part)
    if left_out:
        chosen.append(_context("… more than a message takes; the rest is in the incident's timeline."))
    return chosen


def _rendered(block: Block) -> Iterator[SlackBlock]:
    match block:
        case Heading():
            yield _section(f"*{mrkdwn(block.text.replace(chr(10), ' '), MAX_HEADLINE)}*")
        case Paragraph():
            if text := mrkdwn(block.text, MAX_SECTION):
                yield _context(text) if block.quiet else _section(text)
        case Facts():
            for start in range(0, len(block.facts), MAX_FIELDS):
                fields = [_field(fact) for fact in block.facts[start : start + MAX_FIELDS]]
                yield {"type": "section", "fields": fields}
        case Table():
            yield _section(_fenced(table_text(block)))
        case Steps():
            yield from map(_section, plan_lines(block, MAX_SECTION))
        case Notice():
            yield _section(notice_text(block, MAX_NOTICE))
        case Code():
            if block.text:
                yield _section(_fenced(block.text))
        case Buttons():
            yield {"type": "actions", "elements": [_button(one) for one in block.buttons[:MAX_ACTIONS]]}


def table_text(table: Table) -> str:
    """A table in columns of a fixed-width font, cells cut to `MAX_CELL` characters."""
    rows = [
        tuple(plain(cell.replace("\n", " "), MAX_CELL) for cell in row)
        for row in (table.columns, *table.rows)
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _field(fact: Fact) -> dict[str, Any]:
    value = date_token(fact.at) if fact.at else _linked(fact)
    return {"type": "mrkdwn", "verbatim": True, "text": f"*{mrkdwn(fact.label, 60)}*\n{value or '–'}"}


def _button(button: Button) -> dict[str, Any]:
    if len(button.value) > MAX_VALUE:
        raise ValueError(
            f"the value of button {button.label!r} is longer than Slack's {MAX_VALUE} characters"
        )
    element = {
        "type": "button",
        "action_id": f"faultline.{button.action}",
        "text": {"type": "plain_text", "text": plain(button.label, MAX_LABEL), "emoji": False},
        "value": button.value,
    }
    return element if button.style == "plain" else element | {"style": button.style}


def _linked(fact: Fact) -> str:
    """The text, as a link where it has an address. A bar or bracket in it would end the link."""
    text = mrkdwn(fact.text, MAX_FIELD)
    link = f"<{escape(fact.url or '')}|{text}>"
    if not text or set(text) & set("|<>\n") or not is_web_address(fact.url or "") or len(link) > MAX_FIELD:
        return text
    return link


def _section(mrkdwn: str) -> SlackBlock:
    return {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": mrkdwn}}


def _context(mrkdwn: str) -> SlackBlock:
    return {"type": "context", "elements": [{"type": "mrkdwn", "verbatim": True, "text": mrkdwn}]}


def _fenced(text: str) -> str:
    """A code block that its own content cannot end."""
    return f"```{mrkdwn(text.replace('```', chr(39) * 3), MAX_SECTION)}```"


def _length(block: SlackBlock) -> int:
    """Characters that count against the total."""
    match block["type"]:
        case "section" if "fields" in block:
            return sum(len(field["text"]) for field in block["fields"])
        case "section":
            return len(block["text"]["text"])
        case "context":
            return sum(len(element["text"]) for element in block["elements"])
        case _:
            return sum(len(one["value"]) + len(one["text"]["text"]) for one in block["elements"])
