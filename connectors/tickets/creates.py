"""What this process knows of its own creates: why an effect must not make one more ticket, whatever hides those that it made.

A ticket is found again by its mark. Should that fail all the same (a rule takes labels off, an index is broken), each attempt
would make another one: so an effect of which one is known to be made gets no second, and one whose creates stay without answer
and without a find is tried ever more seldom.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import datetime, timedelta
from typing import TypeVar

from connectors.base import Blocked, Effect
from connectors.tickets.ticket_api import Ticket

MAX_REMEMBERED = 20_000
"""Effects and tickets that are remembered."""
MAX_UNANSWERED = 8
"""Creates of one effect without an answer after which the pauses begin."""
FIRST_PAUSE = timedelta(minutes=5)
"""Doubled each time: a week holds about ten of them."""

V = TypeVar("V")


class Creates:
    """The creates of this process, by the mark of their effect."""

    def __init__(self) -> None:
        self._made: dict[str, str] = {}
        self._unanswered: dict[str, tuple[int, datetime]] = {}

    def hindrance(self, mark: str, effect: Effect, now: datetime, pause_s: float) -> Blocked | None:
        """Why no ticket may be made now; None where one may."""
        if made := self.own(mark, effect):
            why = (
                f"{made} was opened for this, but is not found by its mark any more; no second one is opened"
            )
            return Blocked("a ticket that is not found", why, pause_s)
        times, last = self._unanswered.get(mark, (0, now))
        if times >= MAX_UNANSWERED:
            left = last + FIRST_PAUSE * 2 ** min(times - MAX_UNANSWERED, 16) - now
            if left > timedelta():
                why = f"{times} attempts to open a ticket had no answer, and none of theirs is found"
                return Blocked("attempts without an answer", why, left.total_seconds())
        return None

    def own(self, mark: str, effect: Effect) -> str | None:
        """The ticket that is known to have been made for the effect, by this process or an earlier attempt."""
        made = self._made.get(mark) or effect.prior.get("ticket")
        return str(made) if made else None

    def made(self, mark: str, ticket: Ticket) -> None:
        """A ticket was made."""
        remember(self._made, mark, ticket.key)
        self._unanswered.pop(mark, None)

    def unanswered(self, mark: str, now: datetime) -> None:
        """One may have been made."""
        times, _ = self._unanswered.get(mark, (0, now))
        remember(self._unanswered, mark, (times + 1, now))

    def withdrawn(self, mark: str) -> None:
        """What was made is withdrawn: if it is wanted again, it is made again."""
        self._made.pop(mark, None)
        self._unanswered.pop(mark, None)


def remember(memory: MutableMapping[str, V], name: str, value: V) -> None:
    """Keep a value, and of all values the latest."""
    memory[name] = value
    if len(memory) > MAX_REMEMBERED:
        del memory[next(iter(memory))]
