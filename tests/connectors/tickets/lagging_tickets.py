"""A ticket system in memory whose reads lag, and a scheduler that decides which of several workers goes on next."""

from __future__ import annotations

import random
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from connectors.base import LeaseHeld
from connectors.http import Ambiguous
from connectors.tickets.ticket_api import Attached, Comment, Draft, Marks, Phase, Ticket, TicketFile
from streams.model.message import Message


class Turn:
    """Awaited where a request is on its way: the scheduler decides when it goes on."""

    def __await__(self) -> Generator[None]:
        yield


@dataclass
class Said:
    """A comment, and since when everybody can read it."""

    comment: Comment
    at: float


@dataclass
class Kept:
    """A ticket, and since when a search finds it."""

    ticket: Ticket
    at: float
    said: list[Said] = field(default_factory=list)
    files: list[Attached] = field(default_factory=list)


class LaggingTickets:
    """A `TicketApi` of which every request takes a turn. Its searches lag by `lag_s`, its lists of comments by a tenth of that.

    `lost` is how likely the answer to a create or a comment is lost after it was done.
    """

    folds_comments = True
    search_lag_s = 10.0

    def __init__(self, chance: random.Random, *, lag_s: float = 8.0, lost: float = 0.0) -> None:
        self.chance, self.lag_s, self.lost = chance, lag_s, lost
        self.now = 0.0
        self.kept: list[Kept] = []
        self.detached, self.dropped = 0, 0
        self._numbers = 0

    async def sleep(self, seconds: float) -> None:
        """A worker waits; the others may go on meanwhile."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.5
            await Turn()

    def open(self) -> list[Kept]:
        """Tickets that are not done."""
        return [kept for kept in self.kept if not kept.ticket.is_done]

    def misfit(self, marks: Marks) -> str:
        return ""

    async def search(self, mark: str, *, known: Sequence[str] = ()) -> list[Ticket]:
        await Turn()
        return [k.ticket for k in self.kept if mark in k.ticket.marks and k.at <= self.now]

    async def read(self, name: str) -> Ticket | None:
        await Turn()
        return next((k.ticket for k in self.kept if name in (k.ticket.id, k.ticket.key)), None)

    async def create(self, draft: Draft, lease: LeaseHeld) -> Ticket:
        await self._leave(lease)
        number = len(self.kept) + 1
        ticket = Ticket(
            str(number), f"T-{number}", f"https://tickets.example.test/{number}", f"{number:09d}",
            marks=frozenset(draft.marks.all),
        )  # fmt: skip
        self.kept.append(Kept(ticket, self.now + self.lag_s))
        self._answer()
        await Turn()
        return ticket

    async def comments(self, ticket: Ticket) -> list[Comment]:
        await Turn()
        return [said.comment for said in self._of(ticket).said if said.at <= self.now]

    async def comment(self, ticket: Ticket, message: Message, token: str, lease: LeaseHeld) -> None:
        await self._leave(lease)
        self._numbers += 1
        comment = Comment(str(self._numbers), "faultline", f"{message.summary} {token}")
        self._of(ticket).said.append(Said(comment, self.now + self.lag_s / 10))
        self._answer()
        await Turn()

    async def drop_comment(self, ticket: Ticket, comment: Comment, lease: LeaseHeld) -> None:
        await self._leave(lease)
        kept = self._of(ticket)
        self.dropped += 1
        kept.said = [said for said in kept.said if said.comment.id != comment.id]

    async def finish(self, ticket: Ticket, why: str, lease: LeaseHeld, *, withdrawn: bool = False) -> None:
        await self._leave(lease)
        closed = datetime(2026, 11, 25, tzinfo=UTC)
        self._set(ticket, phase=Phase.DONE, status="done", closed_at=closed)

    async def reopen(self, ticket: Ticket, lease: LeaseHeld) -> None:
        await self._leave(lease)
        self._set(ticket, phase=Phase.NEW, status="open", closed_at=None)

    async def claim(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        await self._leave(lease)
        has = self._of(ticket).ticket.marks
        self._set(ticket, marks=has | {marks.key, marks.incident, marks.again})

    async def forget(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        await self._leave(lease)
        self._set(ticket, marks=self._of(ticket).ticket.marks - {marks.key})

    def takes(self, file: TicketFile) -> bool:
        return True

    async def attached(self, ticket: Ticket) -> list[Attached]:
        await Turn()
        return list(self._of(ticket).files)

    async def attach(self, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> str:
        await self._leave(lease)
        self._numbers += 1
        made = Attached(str(self._numbers), file.name, "faultline")
        self._of(ticket).files.append(made)
        self._answer()
        await Turn()
        return made.id

    async def detach(self, ticket: Ticket, attached: Attached, lease: LeaseHeld) -> None:
        await self._leave(lease)
        kept = self._of(ticket)
        self.detached += 1
        kept.files = [one for one in kept.files if one.id != attached.id]

    async def close(self) -> None:
        return None

    async def _leave(self, lease: LeaseHeld) -> None:
        lease.check()
        await Turn()

    def _answer(self) -> None:
        if self.chance.random() < self.lost:
            raise Ambiguous("the answer was lost")

    def _of(self, ticket: Ticket) -> Kept:
        return next(kept for kept in self.kept if kept.ticket.id == ticket.id)

    def _set(self, ticket: Ticket, **changes: Any) -> None:
        kept = self._of(ticket)
        kept.ticket = replace(kept.ticket, **changes)


def interleave(
    workers: Sequence[Coroutine[Any, Any, None]], system: LaggingTickets, *, crash: bool = False
) -> None:
    """Run the workers to their ends, one request at a time, in an order that chance decides. `crash`: one may die on the way."""
    going = list(workers)
    dies_in = system.chance.randrange(4, 40) if crash else -1
    steps = 0
    while going:
        worker = system.chance.choice(going)
        steps += 1
        system.now += system.chance.choice((0.01, 0.1, 1.0))
        if steps == dies_in and len(going) > 1:
            worker.close()
            going.remove(worker)
            continue
        try:
            worker.send(None)
        except StopIteration:
            going.remove(worker)
