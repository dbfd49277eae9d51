"""Limits on concurrent calls to each external system. Pure.

A call gets its slot before its intent is committed, so that it starts right after the commit and no lease expires in a queue. A
step without a slot does not hold up the other steps of its run; the run queues for that system.

Urgent calls are those for decisive faults and for jobs that we suspended. Neither urgent nor other calls may use the last quarter
of a system's slots, so that neither ever starves the other.

Of the tickets allowed within `WINDOW`, the last quarter is for urgent ones alone: old or merely likely faults wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf

from runbooks.language.schema import TICKETS
from streams.config.settings import ResponderSettings

CLUSTER, TICKET_SYSTEM, NEW_TICKETS = "cluster", "tickets", "new tickets"
QUEUES = (CLUSTER, TICKET_SYSTEM, NEW_TICKETS)
"""What runs queue for: a call to the API server, a call to the ticket system, and opening one more ticket there."""

WINDOW = timedelta(minutes=10)
"""The window of `tickets_per_10_min`."""


SlotKey = tuple[str, str, str]
"""Run, step and kind of a call."""


def system_of(action: str) -> str:
    """The system that an action is carried out on."""
    return TICKET_SYSTEM if action in TICKETS else CLUSTER


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """What one run may start now. `free` calls by queue (a queue not named is unlimited); calls `in_flight` keep their slot."""

    free: Mapping[str, float] = field(default_factory=dict)
    in_flight: Mapping[SlotKey, object] = field(default_factory=dict)
    no_tickets: str = ""
    """Why no ticket may be opened now; empty where one may."""

    def free_in(self, queue: str) -> float:
        """How many calls may be started."""
        return self.free.get(queue, inf)


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Concurrent calls by system, and tickets per `WINDOW`. A system not named is unlimited."""

    at_once: Mapping[str, int] = field(default_factory=dict)
    tickets: float = inf

    @classmethod
    def of(cls, settings: ResponderSettings) -> CallLimits:
        """From the settings."""
        at_once = {CLUSTER: settings.calls_at_once, TICKET_SYSTEM: settings.tickets_at_once}
        return cls(at_once, settings.tickets_per_10_min)


@dataclass(slots=True)
class CallSlots:
    """The calls in flight, and how many more may be started."""

    limits: CallLimits
    _in_flight: dict[SlotKey, tuple[str, bool]] = field(default_factory=dict)
    _used: Counter[tuple[str, bool]] = field(default_factory=Counter)
    _opened: deque[datetime] = field(default_factory=deque)
    _held_until: dict[str, datetime] = field(default_factory=dict)

    def take(self, key: SlotKey, action: str, *, urgent: bool) -> None:
        """A call is about to start. One in flight already keeps its slot."""
        if key not in self._in_flight:
            self._in_flight[key] = (system_of(action), urgent)
            self._used[self._in_flight[key]] += 1

    def give_back(self, key: SlotKey) -> None:
        """A call has ended."""
        if (place := self._in_flight.pop(key, None)) is not None:
            self._used[place] -= 1

    @property
    def systems(self) -> list[str]:
        """The system of every call in flight."""
        return [system for system, _ in self._in_flight.values()]

    def opened(self, at: datetime) -> None:
        """A ticket was opened at this time. Times are out of order only while runs are recovered."""
        if self._opened and at < self._opened[-1]:
            self._opened = deque(sorted([*self._opened, at]))
        else:
            self._opened.append(at)

    def hold(self, system: str, until: datetime) -> None:
        """A system asks for a pause, or does not answer: no call to it starts before then."""
        self._held_until[system] = max(until, self._held_until.get(system, until))

    def free(self, queue: str, now: datetime, *, urgent: bool) -> float:
        """How many calls of this queue may be started now."""
        if queue == NEW_TICKETS:
            left = self._tickets_left(now, urgent=urgent)
            return min(left, self.free(TICKET_SYSTEM, now, urgent=urgent))
        if now < self._held_until.get(queue, now):
            return 0
        if (width := self.limits.at_once.get(queue)) is None:
            return inf
        mine, others = self._used[queue, urgent], self._used[queue, not urgent]
        return max(0, min(width - width // 4 - mine, width - mine - others))

    def free_slots(self, now: datetime, *, urgent: bool, urgent_ticket: bool | None = None) -> FreeSlots:
        """What a run may start now. `urgent_ticket` is for the ticket system, where it differs."""
        by_queue = dict.fromkeys(QUEUES, urgent)
        if urgent_ticket is not None:
            by_queue |= {TICKET_SYSTEM: urgent_ticket, NEW_TICKETS: urgent_ticket}
        free = {queue: self.free(queue, now, urgent=mine) for queue, mine in by_queue.items()}
        return FreeSlots(free, self._in_flight, self._no_tickets(now, urgent=by_queue[NEW_TICKETS]))

    def _no_tickets(self, now: datetime, *, urgent: bool) -> str:
        """Why no ticket may be opened now; empty where one may."""
        if self._tickets_left(now, urgent=urgent):
            return ""
        kept = self._tickets_left(now, urgent=True)
        rest = f", the rest ({kept:.0f}) is kept for fresh decisive faults" if kept else ""
        return f"{len(self._opened)} tickets were opened within 10 minutes{rest}; this one is queued"

    def _tickets_left(self, now: datetime, *, urgent: bool) -> float:
        while self._opened and self._opened[0] <= now - WINDOW:
            self._opened.popleft()
        limit = self.limits.tickets
        kept = 0 if urgent or limit == inf else limit // 4
        return max(0, limit - kept - len(self._opened))
