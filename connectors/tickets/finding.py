"""Which tickets are an incident's: those that carry its mark, and those that this process made or that were reported to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from connectors.base import Effect
from connectors.tickets.creates import remember
from connectors.tickets.ticket_api import Marks, Ticket, TicketApi, marks_of, path_safe


class Finder:
    """Finds tickets in the system behind `api`."""

    def __init__(self, api: TicketApi, reopen_within: timedelta) -> None:
        self._api = api
        self._reopen_within = reopen_within
        self._made: dict[str, str] = {}
        """Id by the incident's mark, of tickets that this process made: the search's lag does not matter for them."""

    def made(self, marks: Marks, ticket: Ticket) -> None:
        """A ticket was made for the incident."""
        remember(self._made, marks.incident, ticket.id)

    def withdrawn(self, marks: Marks) -> None:
        """The incident has none any more."""
        self._made.pop(marks.incident, None)

    async def ticket(self, effect: Effect, tickets: Sequence[Ticket] | None = None) -> Ticket | None:
        """The ticket a later step is about: the one it names, else the oldest of the incident."""
        if named := effect.params.get("ticket") or effect.prior.get("ticket"):
            return await self._api.read(path_safe(str(named)))
        found = await self.tickets(effect) if tickets is None else tickets
        return found[0] if found else None

    async def tickets(self, effect: Effect) -> list[Ticket]:
        """The incident's tickets, oldest first, including the one this process made or was given. Withdrawn ones are not."""
        mark = marks_of(effect).incident
        known = [str(i) for i in dict.fromkeys((self._made.get(mark), effect.prior.get("id"))) if i]
        found = {ticket.id: ticket for ticket in await self._api.search(mark, known=known)}
        for ticket_id in known:
            # Reading by id never lags.
            if ticket_id not in found and (ticket := await self._api.read(ticket_id)) is not None:
                found[ticket_id] = ticket
        ours = [t for t in found.values() if mark in t.marks and t.is_ours]
        return sorted(ours, key=lambda ticket: ticket.born)

    async def earlier(self, marks: Marks, now: datetime) -> Ticket | None:
        """The ticket of this fault's last incident, if it is open or was closed within the time set."""
        if not self._reopen_within or not marks.place:
            return None
        found = sorted(await self._api.search(marks.place), key=lambda ticket: ticket.born)
        # A withdrawn ticket has no incident any more, or no effect.
        found = [t for t in found if t.is_ours and marks.place in t.marks and _incidents(t)]
        if not found:
            return None
        # Of one incident's copies the oldest is the ticket; the others were closed as copies.
        of = _incidents(found[-1])
        last = next(ticket for ticket in found if _incidents(ticket) & of)
        if not last.is_done:
            return last
        recent = last.closed_at is not None and now - last.closed_at <= self._reopen_within
        return last if recent and last.can_reopen else None


def _incidents(ticket: Ticket) -> frozenset[str]:
    return frozenset(m for m in ticket.marks if m.startswith("faultline-inc"))
