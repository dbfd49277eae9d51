"""The policy of tickets, the same for every system: one ticket per incident, one comment per key, whatever crashes.

No system here has idempotency keys, and most searches lag. So a ticket is looked up before it is made, "not found" counts only
when two looks with a pause in between agree, and a ticket or comment made after an uncertain one is looked at once more:
later copies are folded into the first. Whoever sees two copies keeps the older one, so that two processes never disagree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from weakref import WeakValueDictionary

import structlog

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
    Waiting,
)
from connectors.http import Ambiguous, translated
from connectors.tickets.copies import attach_once, finish, fold, fold_comments, holds
from connectors.tickets.creates import Creates, remember
from connectors.tickets.evidence_files import files_of
from connectors.tickets.finding import Finder
from connectors.tickets.ticket_api import (
    Draft,
    Marks,
    Phase,
    Ticket,
    TicketApi,
    TicketFile,
    check_marks,
    marks_of,
)
from connectors.tickets.ticket_fields import TicketFields
from connectors.tickets.ticket_message import ticket_message, ticket_title
from streams.model.errors import Permanent
from streams.model.message import Message, Paragraph

log = structlog.get_logger(__name__)

Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], datetime]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class TicketDesk:
    """`open_ticket`, `comment_ticket`, `close_ticket`, in the system behind `api`.

    Params: `summary` and `text` (else the context's title and reason), for comment and close `ticket` (its key) where
    the caller knows it. Results: `ticket` (the key), `id`, `url`.
    """

    actions = frozenset({"open_ticket", "comment_ticket", "close_ticket"})

    def __init__(
        self,
        api: TicketApi,
        *,
        fields: TicketFields | None = None,
        reopen_within_h: float = 0.0,
        console_url: str = "",
        evidence: bool = True,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = _utc_now,
    ) -> None:
        self._api = api
        self._fields = fields or TicketFields({})
        self._finder = Finder(api, timedelta(hours=reopen_within_h))
        self._creates = Creates()
        self._console_url = console_url
        self._evidence = evidence
        self._sleep = sleep
        self._clock = clock
        self._in_doubt: dict[str, None] = {}
        """Keys that were looked up and not found: what is made for them may be a copy, so it is looked at again."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def close(self) -> None:
        """Close connections."""
        await self._api.close()

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Open, comment or close, once. Calls for one incident never overlap in this process."""
        lock = self._locks.setdefault(effect.incident, asyncio.Lock())
        async with lock:
            return await translated(self._apply(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """Check whether it was done; for a ticket twice with a pause, because the search lags."""
        return await translated(self._lookup(effect))

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Withdraw a ticket that nobody works on yet. Comments and closings stay: people have read them."""
        if effect.action != "open_ticket":
            return Refused(f"{effect.action} cannot be undone")
        return await translated(self._withdraw(effect, lease))

    async def _apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        self._check(effect)
        match effect.action:
            case "open_ticket":
                return await self._open(effect, lease)
            case "comment_ticket":
                return await self._comment(effect, lease)
            case "close_ticket":
                return await self._close(effect, lease)
            case other:
                raise Permanent(f"unknown action {other}")

    async def _lookup(self, effect: Effect) -> Outcome:
        self._check(effect)
        marks = marks_of(effect)
        if effect.action == "open_ticket":
            tickets = await self._finder.tickets(effect)
            if not tickets:
                await self._sleep(self._api.search_lag_s)
                tickets = await self._finder.tickets(effect)
            if not tickets:
                return self._absent(marks, "no ticket carries its mark")
            if left := await self._left_to_do(effect, tickets[0]):
                return Waiting(0.0, left, _result(tickets[0]))
            return AlreadyDone(_result(tickets[0]), f"opened {tickets[0].key}")
        ticket = await self._finder.ticket(effect)
        if ticket is None:
            return Absent("the incident has no ticket")
        made = ticket.is_done
        if effect.action == "comment_ticket":
            made = await self._has_comment(ticket, marks.key)
        return AlreadyDone(_result(ticket)) if made else self._absent(marks, f"not on {ticket.key}")

    def _check(self, effect: Effect) -> None:
        """Refuse what would not be found again, before anything is made."""
        marks = marks_of(effect)
        check_marks(marks, self._api.misfit(marks))

    def _absent(self, marks: Marks, why: str) -> Absent:
        remember(self._in_doubt, marks.key, None)
        return Absent(why)

    async def _open(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        marks = marks_of(effect)
        tickets = await self._finder.tickets(effect)
        if not tickets and (earlier := await self._finder.earlier(marks, self._clock())) is not None:
            await self._api.claim(earlier, marks, lease)
            claimed = await self._api.read(earlier.id)
            tickets = [claimed] if claimed is not None else []
        if tickets:
            await fold(self._api, tickets, lease)
            did = await self._complete(effect, tickets[0], lease)
            self._in_doubt.pop(marks.key, None)
            key = tickets[0].key
            is_own = self._creates.own(marks.key, effect) == key
            return AlreadyDone(
                _result(tickets[0]), did or (f"opened {key}" if is_own else f"{key} was already open")
            )
        if (
            hindered := self._creates.hindrance(marks.key, effect, self._clock(), self._api.search_lag_s)
        ) is not None:
            return hindered
        title, message = ticket_title(effect), ticket_message(effect, self._console_url)
        # Nothing that could fail may follow the create: only its success may be reported.
        try:
            made = await self._api.create(Draft(title, message, marks, self._fields.filled(effect)), lease)
        except Ambiguous:
            self._creates.unanswered(marks.key, self._clock())
            raise
        self._finder.made(marks, made)
        self._creates.made(marks.key, made)
        if marks.key in self._in_doubt:
            return Waiting(self._api.search_lag_s, f"opened {made.key}; looking for copies", _result(made))
        if self._files(effect):
            return Waiting(0.0, f"opened {made.key}; its evidence follows", _result(made))
        return Done(_result(made), f"opened {made.key}")

    async def _complete(self, effect: Effect, ticket: Ticket, lease: LeaseHeld) -> str:
        """Do what is left to do on a ticket that was found: say that the fault is back, attach evidence. Says what was done."""
        marks, did = marks_of(effect), ""
        if marks.again in ticket.marks and not await self._has_comment(ticket, f"{marks.key}-again"):
            if ticket.is_done:
                await self._api.reopen(ticket, lease)
                did = f"reopened {ticket.key}"
            text = ticket_message(effect, self._console_url, opening="The fault is back.")
            await self._api.comment(ticket, text, f"{marks.key}-again", lease)
        for file in self._files(effect):
            try:
                await attach_once(self._api, ticket, file, lease)
            except Permanent as error:
                # The ticket is what matters: one that takes no files (a right, a size) is not a failed step.
                log.warning("could not attach evidence", ticket=ticket.key, file=file.name, reason=str(error))
                did = f"{ticket.key} is open, but takes no {file.name}: {error}"
        return did

    async def _left_to_do(self, effect: Effect, ticket: Ticket) -> str:
        """What `_complete` would still do."""
        marks = marks_of(effect)
        if marks.again in ticket.marks and not await self._has_comment(ticket, f"{marks.key}-again"):
            return f"{ticket.key} is to be reopened"
        files = {file.name for file in self._files(effect)}
        if files and files - {one.name for one in await self._api.attached(ticket)}:
            return f"evidence is to be attached to {ticket.key}"
        return ""

    def _files(self, effect: Effect) -> Sequence[TicketFile]:
        return [f for f in files_of(effect.context) if self._api.takes(f)] if self._evidence else ()

    async def _comment(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        ticket = await self._folded_ticket(effect, lease)
        if ticket is None:
            return self._no_ticket()
        marks, comments = marks_of(effect), await self._api.comments(ticket)
        await fold_comments(self._api, ticket, comments, lease)
        if holds(comments, marks.key):
            self._in_doubt.pop(marks.key, None)
            return AlreadyDone(_result(ticket))
        await self._api.comment(ticket, ticket_message(effect, self._console_url), marks.key, lease)
        if marks.key in self._in_doubt and self._api.folds_comments:
            return Waiting(
                self._api.search_lag_s, f"commented on {ticket.key}; looking for copies", _result(ticket)
            )
        return Done(_result(ticket), f"commented on {ticket.key}")

    async def _close(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        ticket = await self._folded_ticket(effect, lease)
        if ticket is None:
            return self._no_ticket()
        key = marks_of(effect).key
        if ticket.is_done:
            await self._fold_comments(ticket, lease)
            self._in_doubt.pop(key, None)
            return AlreadyDone(_result(ticket), f"{ticket.key} is {ticket.status}")
        await finish(self._api, ticket, ticket_message(effect, self._console_url), key, lease)
        # Seldom does anything follow a closing that would see what a second process said meanwhile: so it is looked for now.
        await self._fold_comments(ticket, lease)
        if key in self._in_doubt and self._api.folds_comments:
            return Waiting(
                self._api.search_lag_s, f"closed {ticket.key}; looking for copies", _result(ticket)
            )
        return Done(_result(ticket), f"closed {ticket.key}")

    async def _fold_comments(self, ticket: Ticket, lease: LeaseHeld) -> None:
        if self._api.folds_comments:
            await fold_comments(self._api, ticket, await self._api.comments(ticket), lease)

    async def _withdraw(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Close the ticket, say why, and take our marks off: a withdrawn ticket must not be found as the open one."""
        marks = marks_of(effect)
        token = f"{marks.key}-undo"
        tickets = [ticket for ticket in await self._finder.tickets(effect) if marks.key in ticket.marks]
        if not tickets:
            return AlreadyDone(detail="there is no ticket of ours")
        ticket, *copies = tickets
        if not await self._has_comment(ticket, token):
            if ticket.is_done:
                return AlreadyDone(_result(ticket), f"{ticket.key} was closed by someone else")
            if ticket.phase is not Phase.NEW:
                return Blocked.person(f"{ticket.key} is {ticket.status}: already in progress")
        if not ticket.is_done:
            text = "The reason for this ticket no longer holds; it is withdrawn."
            await finish(self._api, ticket, Message(text, (Paragraph(text),)), token, lease, withdrawn=True)
        await fold(self._api, tickets, lease)
        for each in (*copies, ticket):  # the first one last: until then the next call finds it and goes on
            await self._api.forget(each, marks, lease)
        self._finder.withdrawn(marks)
        self._creates.withdrawn(marks.key)
        return Done(_result(ticket), f"withdrew {ticket.key}")

    async def _folded_ticket(self, effect: Effect, lease: LeaseHeld) -> Ticket | None:
        tickets = await self._finder.tickets(effect)
        if tickets:
            await fold(self._api, tickets, lease)
        return await self._finder.ticket(effect, tickets)

    async def _has_comment(self, ticket: Ticket, token: str) -> bool:
        return holds(await self._api.comments(ticket), token)

    def _no_ticket(self) -> Outcome:
        return Blocked("no ticket", "no ticket of this incident was found yet", self._api.search_lag_s)


def _result(ticket: Ticket) -> Result:
    return {"ticket": ticket.key, "id": ticket.id, "url": ticket.url}
