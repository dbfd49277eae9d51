"""A thread as plain text: what its readers see, without the chat system's colours and buttons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from faultline.cli.output import laid_out
from faultline.replay.threads import Posted, final
from streams.model.clock import moment, rfc3339
from streams.model.message import (
    Block,
    Buttons,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Notice,
    Paragraph,
    Step,
    Steps,
    Table,
    plain,
)

INDENT = "    "
WIDTH = 150
STEP_MARKS = {"pending": "[ ]", "in_progress": "[>]", "complete": "[x]", "error": "[!]"}
MAX_TEXT = 2000
"""Longer texts are cut after this many characters."""


def thread_lines(posted: Sequence[Posted]) -> Iterator[str]:
    """The messages of one thread as they stand in the end; replies are set in, and an edited message says how often."""
    for number, last in enumerate(final(posted)):
        versions = [one for one in posted if one.slot == last.slot]
        edits = f", edited {len(versions) - 1} times, last {moment(last.at)}" if len(versions) > 1 else ""
        indent = INDENT if number else ""
        yield f"{indent}[{moment(versions[0].at)}{edits}]"
        yield from (f"{indent}{line}".rstrip() for line in message_lines(last.message))
        yield ""


def posted_line(posted: Posted) -> dict[str, Any]:
    """One message in the shape of `--output json`."""
    return {
        "record": "post",
        "at": rfc3339(posted.at),
        "incident": posted.incident,
        "slot": posted.slot,
        "edit": posted.is_edit,
        "lines": message_lines(posted.message),
    }


def message_lines(message: Message) -> list[str]:
    """The blocks of one message, line by line; control characters are left out."""
    return [line for block in message.blocks for line in _lines(block)]


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Heading() | Paragraph() | Notice():
            yield plain(block.text, MAX_TEXT)
        case Facts():
            yield "  ·  ".join(f"{fact.label}: {_value(fact)}" for fact in block.facts)
        case Table():
            cells = [[plain(cell, MAX_TEXT) for cell in row] for row in (block.columns, *block.rows)]
            yield from laid_out(cells, WIDTH)
        case Steps():
            yield plain(block.title, MAX_TEXT)
            for step in block.steps:
                yield from _step_lines(step)
        case Code():
            yield from (f"| {plain(line, MAX_TEXT)}" for line in block.text.splitlines())
        case Buttons():
            yield " ".join(f"[{button.label}]" for button in block.buttons)


def _step_lines(step: Step) -> Iterator[str]:
    facts = "".join(f"  ·  {fact.label}: {_value(fact)}" for fact in step.facts)
    yield f"{STEP_MARKS[step.state]} {plain(step.title, MAX_TEXT)}{facts}"
    if step.detail:
        yield f"    {plain(step.detail, MAX_TEXT)}"


def _value(fact: Fact) -> str:
    return moment(fact.at) if fact.at else plain(fact.text, MAX_TEXT)
