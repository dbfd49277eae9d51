"""What a delivery from Slack asks for. Each is a value that the pure part returns and `desk.py` carries out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.model.conversation import Command
from streams.model.errors import BadInput
from streams.model.message import Message, plain

MAX_NAME = 80


class Outsider(BadInput):
    """Somebody of another workspace (a shared channel): nothing here is decided or shown to them."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who did it, as Slack says. The id cannot be chosen; the name is for people to read."""

    id: str
    name: str = ""

    @property
    def actor(self) -> str:
        """`name (id)`, as a command names its actor."""
        return f"{self.name} ({self.id})" if self.name else self.id


@dataclass(frozen=True, slots=True)
class Decide:
    """Send the command and tell the person what became of it.

    Without a `response_url` (a press on the App Home) the answer is shown on that person's App Home.
    """

    command: Command
    person: Person
    response_url: str = ""


@dataclass(frozen=True, slots=True)
class Show:
    """Show something to this person only. Without a `response_url` it is a dialog."""

    message: Message
    response_url: str = ""
    trigger_id: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Open a dialog. It has to be open within three seconds of the press; `instead` says what to do where it cannot be."""

    view: Mapping[str, Any]
    trigger_id: str
    response_url: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Correct:
    """The dialog stays open and says by which field what is wrong."""

    errors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ShowHome:
    """The person opened the App Home."""

    person: Person


@dataclass(frozen=True, slots=True)
class ThreadReply:
    """A person wrote into a thread. Whose thread it is has to be looked up."""

    person: Person
    channel: str
    thread_ts: str
    ts: str
    text: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing is asked of us; `why` is for the log."""

    why: str = ""


Action = Decide | Show | Ask | Correct | ShowHome | ThreadReply | Nothing


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request of Slack, however it came. `kind` is the envelope's type: `interactive`, `slash_commands` or `events_api`."""

    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)


def team_in(payload: Mapping[str, Any]) -> str:
    """The workspace that a request is about; empty where it names none."""
    team = payload.get("team")
    found = team.get("id") if isinstance(team, Mapping) else payload.get("team_id")
    return found if isinstance(found, str) else ""


def person_in(payload: Mapping[str, Any]) -> Person:
    """Who pressed, of this workspace.

    Raises:
        Outsider: the person belongs to another workspace.
        BadInput: nobody is named.
    """
    user = payload.get("user")
    if not isinstance(user, Mapping) or not isinstance(user.get("id"), str) or not user["id"]:
        raise BadInput("nobody is named as the one who pressed")
    team = payload.get("team")
    ours, theirs = (team.get("id") if isinstance(team, Mapping) else None), user.get("team_id")
    if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
        raise Outsider(f"{user['id'][:40]} belongs to another workspace")
    return Person(user["id"][:MAX_NAME], clean_name(user.get("username") or user.get("name")))


def clean_name(name: object) -> str:
    """A display name for one line of text; empty where there is none."""
    return " ".join(plain(name, MAX_NAME).split()) if isinstance(name, str) else ""


def text_in(fields: Mapping[str, Any], name: str, where: str = "the request") -> str:
    """A text that has to be there. Raises BadInput."""
    text = fields.get(name)
    if not isinstance(text, str) or not text:
        raise BadInput(f"{where} has no text {name!r}")
    return text
