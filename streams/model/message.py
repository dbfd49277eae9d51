"""A message for people, before anybody decides where it is shown.

Runbooks and processes say *what* is to be told as a few neutral blocks; each sink (Slack, a ticket, the terminal) renders
them in its own form. Every text is taken as untrusted: sinks escape it, and `plain` takes out what no reader wants to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from streams.model.codec import encode
from streams.model.digest import digest

# Control characters other than newline and tab (terminal escapes among them), bidirectional overrides that let a line read
# differently from what it says, and halves of surrogate pairs that no encoder takes. Zero-width characters stay: sinks put them
# between what would otherwise be a mention, a link or a formula.
_UNWANTED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

_PRIORITY = re.compile(r"\A<\d{1,3}>")

_WEB = re.compile(r"https?://[!-;=?-{}~]{1,1000}", re.ASCII)
"""Addresses without blanks, angle brackets and bars: no sink has to quote them."""


class Tone(StrEnum):
    """How a message should feel at a glance; sinks turn it into a colour and never into the only carrier of meaning."""

    BAD = "bad"
    ACTIVE = "active"
    ASKING = "asking"
    GOOD = "good"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Heading:
    """One short line that stands out."""

    text: str
    type: Literal["heading"] = "heading"


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text. `quiet` asks for small print."""

    text: str
    quiet: bool = False
    type: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True, slots=True)
class Fact:
    """A label with a text or a moment; a moment is shown in the reader's own time where the sink can, and the text leads to
    `url` where it can and the address is a plain one of the web."""

    label: str
    text: str = ""
    at: datetime | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """A few facts side by side."""

    facts: tuple[Fact, ...]
    type: Literal["facts"] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns; every row has as many cells as there are columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    type: Literal["table"] = "table"


MAX_STEPS = 50
"""Steps of one `Steps` block; whoever has more folds those that matter least."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of several. `state` is what the eye sees; the title or the facts say it in words."""

    id: str
    """Unique in its block, and the same at every edit."""
    title: str
    state: Literal["pending", "in_progress", "complete", "error"]
    facts: tuple[Fact, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps that are carried out one after the other, at most `MAX_STEPS`."""

    title: str
    steps: tuple[Step, ...]
    type: Literal["steps"] = "steps"


@dataclass(frozen=True, slots=True)
class Code:
    """Raw lines, shown as they are."""

    text: str
    type: Literal["code"] = "code"


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment within a sentence."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for somebody in particular. `who` are their ids in the chat system; a sink without them shows the sentence."""

    who: tuple[str, ...]
    parts: tuple[str | Moment, ...]
    type: Literal["notice"] = "notice"

    @property
    def text(self) -> str:
        """The sentence with its moments in UTC."""
        return "".join(
            part if isinstance(part, str) else part.at.astimezone(UTC).strftime("%H:%M UTC")
            for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Button:
    """A decision offered. `action` is a `Verb`; `value` is opaque to people, holds ids and digests, never a secret."""

    action: str
    label: str
    value: str
    style: Literal["plain", "primary", "danger"] = "plain"


@dataclass(frozen=True, slots=True)
class Buttons:
    """Decisions side by side. A sink that cannot take an answer shows nothing."""

    buttons: tuple[Button, ...]
    type: Literal["buttons"] = "buttons"


Block = Annotated[
    Heading | Paragraph | Facts | Table | Steps | Code | Notice | Buttons,
    Field(discriminator="type"),
]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `summary` is its notification and says in one line what the blocks say at length."""

    summary: str
    blocks: tuple[Block, ...] = ()
    tone: Tone = Tone.QUIET

    @property
    def digest(self) -> str:
        """Equal for two messages that show the same; a sink skips an edit that changes nothing."""
        return digest(encode(self).decode(), size=8)


def plain(text: str, limit: int) -> str:
    """Text without control characters, cut to `limit` characters with an ellipsis. Bounded work whatever comes in."""
    window = limit * 4 + 16
    cleaned = _UNWANTED.sub("", text[:window])
    return cut(cleaned if len(text) <= window else cleaned + " ", limit)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters; the last is an ellipsis when something was left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def some(names: Iterable[str], most: int) -> str:
    """The first `most` names and how many more there are: `a, b, +3 more`."""
    names = list(names)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, +{len(names) - most} more"


def without_priority(line: str) -> str:
    """A log line without the number of facility and severity that syslog puts before it (`<4>`)."""
    return _PRIORITY.sub("", line, count=1)


def is_web_address(url: str) -> bool:
    """Whether a link may be made of it as it stands."""
    return _WEB.fullmatch(url) is not None
