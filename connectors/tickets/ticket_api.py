"""What every ticket system has to offer, and nothing of what is done with it: that is `desk.py`.

A ticket carries marks: one of the effect that opened it, one of the incident, one of the place that fails (so that a
recurrence finds the ticket of last time). How a system keeps them is its own affair: labels, a hidden line, a column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from connectors.base import Effect, LeaseHeld
from streams.model.digest import digest
from streams.model.errors import Permanent
from streams.model.message import Message

KEY_MARK = re.compile(r"faultline-[0-9a-f]{16,}")
AGAIN = "faultline-again-"
PLACE = "faultline-at-"
ANY_MARK = re.compile(r"faultline-[A-Za-z0-9_.-]+")
COMMON_LABEL = "faultline"
"""The label of all tickets, for people's filters."""


class Phase(StrEnum):
    """How far a ticket is, whatever its statuses are called."""

    NEW = "new"
    IN_PROGRESS = "in progress"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Marks:
    """What a ticket of an effect is found by. `place` is empty where the incident's root is not known."""

    key: str
    incident: str
    place: str = ""

    @property
    def again(self) -> str:
        """The mark of a ticket that was opened for an earlier incident and taken over for this one."""
        return AGAIN + self.incident.removeprefix("faultline-")

    @property
    def all(self) -> tuple[str, ...]:
        """The marks of a new ticket."""
        return tuple(filter(None, (self.key, self.incident, self.place)))


@dataclass(frozen=True, slots=True)
class Ticket:
    """One ticket as the system just returned it. `born` orders tickets by age; `closed_at` is None where nobody says."""

    id: str
    key: str
    url: str
    born: str
    marks: frozenset[str] = frozenset()
    status: str = ""
    phase: Phase = Phase.NEW
    closed_at: datetime | None = None
    can_reopen: bool = True

    @property
    def is_done(self) -> bool:
        """True when its status counts as done, whatever the status is called."""
        return self.phase is Phase.DONE

    @property
    def is_ours(self) -> bool:
        """Whether an effect still holds it. A withdrawn ticket has lost its mark."""
        return any(map(KEY_MARK.fullmatch, self.marks))


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment, as plain text with whatever hides in it. `by` is its author's id in that system."""

    id: str
    by: str
    text: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A ticket to be made. `title` is one line; `fields` are the installation's own, already filled in."""

    title: str
    message: Message
    marks: Marks
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TicketFile:
    """A file to attach."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Attached:
    """A file at a ticket. `by` is who attached it, by their id in that system."""

    id: str
    name: str
    by: str


class TicketApi(Protocol):
    """One system. Every method raises what `connectors.http.read` and `change` raise; a refusal says what the system says."""

    search_lag_s: float
    """How long after a write a search may still miss it."""
    folds_comments: bool
    """Whether a comment can be taken back."""

    def misfit(self, marks: Marks) -> str:
        """What of the marks a field there would cut, and where; else empty. A mark that was cut finds no ticket."""

    async def search(self, mark: str, *, known: Sequence[str] = ()) -> list[Ticket]:
        """Tickets with the mark of an incident or of a place, in no order. `known` are ids that the answer should not miss."""

    async def read(self, name: str) -> Ticket | None:
        """One ticket by id or key, or None when there is none (or none that we may see). This never lags."""

    async def create(self, draft: Draft, lease: LeaseHeld) -> Ticket:
        """Make a ticket."""

    async def comments(self, ticket: Ticket) -> list[Comment]:
        """All comments, oldest first."""

    async def comment(self, ticket: Ticket, message: Message, token: str, lease: LeaseHeld) -> None:
        """Add a comment in which `token` is found again."""

    async def drop_comment(self, ticket: Ticket, comment: Comment, lease: LeaseHeld) -> None:
        """Delete our own comment, or turn it into a pointer without its token."""

    async def finish(self, ticket: Ticket, why: str, lease: LeaseHeld, *, withdrawn: bool = False) -> None:
        """Close it. `why` is one line for systems that ask for a resolution."""

    async def reopen(self, ticket: Ticket, lease: LeaseHeld) -> None:
        """Open it again."""

    async def claim(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Add the marks of another incident, `again` among them, to a ticket."""

    async def forget(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Take the marks away, so that the ticket is not found as this incident's any more."""

    def takes(self, file: TicketFile) -> bool:
        """Whether such a file can be attached there."""

    async def attached(self, ticket: Ticket) -> list[Attached]:
        """The attached files, oldest first, in an order on which everybody agrees."""

    async def attach(self, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> str:
        """Attach a file. Returns the id under which `attached` lists it."""

    async def detach(self, ticket: Ticket, attached: Attached, lease: LeaseHeld) -> None:
        """Delete an attached file; that it is gone already is what was wanted."""

    async def close(self) -> None:
        """Close connections."""


def marks_of(effect: Effect) -> Marks:
    """The marks of an effect's ticket. None contains a blank: labels cannot."""
    root, family = effect.context.get("root"), effect.context.get("family")
    place = PLACE + digest(effect.cluster, str(root), str(family), size=8) if root and family else ""
    return Marks(f"faultline-{_label_safe(effect.key)}", f"faultline-{_label_safe(effect.incident)}", place)


def check_marks(marks: Marks, misfit: str) -> None:
    """Refuse marks that would not be found again: each attempt would make one more ticket.

    Raises:
        Permanent: the key is none of ours, the incident has no name, or a field of the system cuts one of them (`misfit`).
    """
    if not KEY_MARK.fullmatch(marks.key):
        raise Permanent(f"the effect's key is no hexadecimal number of 16 digits or more: {marks.key[10:90]}")
    if not ANY_MARK.fullmatch(marks.incident):
        raise Permanent("the effect names no incident")
    if misfit:
        raise Permanent(f"a ticket would not be found again: {misfit}")


def too_long(limits: Sequence[tuple[str, int]], what: str) -> str:
    """The first text that is longer than its limit, as `misfit` says it."""
    return next(
        (f"{what} cuts {text[:60]} at {most} characters" for text, most in limits if len(text) > most), ""
    )


def marks_in(text: str) -> frozenset[str]:
    """Every mark in a text."""
    return frozenset(ANY_MARK.findall(text))


def path_safe(text: str) -> str:
    """An id or key safe in a path: anything else finds no ticket instead of another resource."""
    text = text.removeprefix("#")
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else "0"


def _label_safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text)
