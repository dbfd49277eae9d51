"""What a ticket says: the step's own text first, then the facts of the incident, with links where they are known."""

from __future__ import annotations

from connectors.base import Effect
from connectors.tickets.evidence_files import FILE_KEYS
from connectors.tickets.inert import one_line
from streams.model.message import Block, Fact, Facts, Heading, Message, Paragraph, is_web_address, plain

MAX_TITLE = 250
"""Characters: Jira refuses more than 255, GitHub more than 256, GitLab more than 255."""

_LINKS = ("thread", "thread_url", "link")
"""Facts whose value is an address of Faultline's own making; any other is shown as text."""


def ticket_title(effect: Effect) -> str:
    """The title: one line, never empty."""
    return one_line(_title(effect), MAX_TITLE) or effect.incident


def ticket_message(effect: Effect, console_url: str = "", *, opening: str = "") -> Message:
    """The ticket or comment. `opening` is said before anything else."""
    title = _title(effect)
    text = str(effect.params.get("text") or effect.context.get("reason", ""))
    blocks: list[Block] = [Heading(title)]
    blocks += [Paragraph(line) for line in (opening, text) if line]
    shown = [Fact("incident", effect.incident), Fact("cluster", effect.cluster)]
    if console_url:
        link = f"{console_url.rstrip('/')}/incidents/{effect.incident}"
        shown.append(Fact("console", link, url=link))
    for name, value in effect.context.items():
        if name in ("title", "reason", *FILE_KEYS) or value == "":
            continue
        words = str(value)
        url = words if name in _LINKS and is_web_address(words) else None
        shown.append(Fact(name.replace("_", " "), words, url=url))
    blocks.append(Facts(tuple(shown)))
    return Message(title, tuple(blocks))


def _title(effect: Effect) -> str:
    """The first that says anything: a title of blanks and control characters is none."""
    told = (str(text or "") for text in (effect.params.get("summary"), effect.context.get("title")))
    return next((text for text in told if plain(text, MAX_TITLE).strip()), effect.incident)
