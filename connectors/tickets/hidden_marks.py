"""Marks in a comment of HTML at the end of a Markdown body: neither GitHub nor GitLab shows it, and both keep it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from connectors.tickets.ticket_api import AGAIN, KEY_MARK, Marks, marks_in

_HIDDEN = re.compile(r"<!-- (faultline-[A-Za-z0-9_. -]+) -->\s*\Z")


def hidden(marks: Iterable[str]) -> str:
    """What goes into the comment."""
    return " ".join(marks)


def marks_hidden_in(body: str) -> frozenset[str]:
    """Marks of effects and of recurrences. Those of incidents and places are labels: a label that is gone counts."""
    found = _HIDDEN.search(body)
    named = marks_in(found[1]) if found else frozenset[str]()
    return frozenset(mark for mark in named if KEY_MARK.fullmatch(mark) or mark.startswith(AGAIN))


def with_marks(body: str, marks: Marks) -> str:
    """The body with the marks of another incident among those hidden in it."""
    found = _HIDDEN.search(body)
    old = found[1].split() if found else []
    text = body[: found.start()] if found else body.rstrip() + "\n\n"
    return f"{text}<!-- {hidden(dict.fromkeys([*old, marks.key, marks.again]))} -->"


def others(assigned: Iterable[str], ours: Collection[str]) -> bool:
    """Whether somebody has taken the ticket on: an assignee that the settings do not name."""
    return any(name not in ours for name in assigned)
