"""What a connector's tests tell the contract suite, and what the responder does with an outcome, in small."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Connector,
    Done,
    Effect,
    LeaseHeld,
    NoLease,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from streams.model.errors import Fenced
from tests.contract.faults import Answer, FaultProxy


class Case(ABC):
    """One effect in a world of its own: nothing it touches is shared with another case.

    `deadline_s` bounds how long one effect may take.
    """

    deadline_s: float = 30.0

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy

    @abstractmethod
    def effect(self) -> Effect:
        """The effect under test: equal at every call, without `prior`."""

    @abstractmethod
    def connector(self) -> Connector:
        """A fresh connector that remembers nothing, talking to `proxy.url`. The suite closes it."""

    @abstractmethod
    async def changes(self) -> int:
        """How often the change is there, asked of the server itself: 0 before, 1 after, 2 is the bug looked for."""

    async def foreign_change(self) -> None:
        """A person changes what `apply` made, so that `undo` must keep its hands off. Needed under `ConnectorContract`."""
        raise NotImplementedError

    @abstractmethod
    async def snapshot(self) -> object:
        """Everything that `apply` and `undo` may touch, in a form that can be compared."""

    def refusal(self) -> Answer:
        """How this server says no for good."""
        return Answer(
            403, '{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,"message":"no"}'
        )

    def throttled(self, after_s: int) -> Answer:
        """How this server says "too many requests, come back in `after_s` seconds"."""
        headers = {"Content-Type": "application/json", "Retry-After": str(after_s)}
        return Answer(429, "{}", headers)

    def broken(self, *, forward: bool = False) -> Answer:
        """How this server, or what stands before it, breaks; `forward`: after it has acted."""
        return Answer(503, "{}", forward=forward)


class LostLease:
    """A lease that has run out, or does so once `writes` requests that change something have arrived."""

    def __init__(self, proxy: FaultProxy | None = None, writes: int = 0) -> None:
        self._proxy = proxy
        self._writes = writes

    def check(self) -> None:
        """Pass as long as it holds.

        Raises:
            Fenced: from then on.
        """
        if self._proxy is None or len(self._proxy.writes) >= self._writes:
            raise Fenced("the lease has run out")


class WatchedLease:
    """A lease that always holds and remembers how many writes had left at each check."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self.checked_at: list[int] = []

    def check(self) -> None:
        """Note how many writes have arrived so far."""
        self.checked_at.append(len(self._proxy.writes))


async def when_sent(apply: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """The outcome of a request that left; until one has, apply again, as the responder does.

    The short time that ends a request which is never answered bounds the connection before it, too, and a busy machine may
    need longer for one: then `Retry` is right. That the request left only once is for the caller to check.

    Raises:
        TimeoutError: none left within 30 seconds.
    """
    deadline = time.monotonic() + 30
    while isinstance(outcome := await apply(), Retry):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing was sent within 30 s: {outcome}")
    return outcome


async def carry_out(case: Case, connector: Connector, lease: LeaseHeld | None = None) -> list[Outcome]:
    """Apply until it is over, as the responder does: `Waiting`, `Retry`, `Blocked` call again, `Unknown` looks up first.

    Returns every outcome in order; the last one is `Done`, `AlreadyDone` or `Refused`.

    Raises:
        TimeoutError: with the outcomes so far, when it is not over by the case's deadline.
    """
    return await _go_on(case, connector, lease or NoLease(), undo=False)


async def take_back(case: Case, connector: Connector, lease: LeaseHeld | None = None) -> list[Outcome]:
    """Undo until it is over or stands still; the last outcome is `Done`, `AlreadyDone`, `Blocked` or `Refused`."""
    return await _go_on(case, connector, lease or NoLease(), undo=True)


async def _go_on(case: Case, connector: Connector, lease: LeaseHeld, *, undo: bool) -> list[Outcome]:
    effect, outcomes, deadline = case.effect(), list[Outcome](), time.monotonic() + case.deadline_s
    final = (Done, AlreadyDone, Refused, Blocked) if undo else (Done, AlreadyDone, Refused)
    look_up = False
    while time.monotonic() < deadline:
        if look_up:
            outcome = await connector.lookup(effect)
        elif undo:
            outcome = await connector.undo(effect, lease)
        else:
            outcome = await connector.apply(effect, lease)
        outcomes.append(outcome)
        if isinstance(outcome, final) and not (look_up and undo):
            return outcomes
        # After an unclear undo both "still there" and "gone" lead to another guarded undo, which settles it.
        look_up = isinstance(outcome, Unknown) or (look_up and isinstance(outcome, Retry))
        await asyncio.sleep(_pause_s(outcome))
    raise TimeoutError(f"not over within {case.deadline_s:g} s: {outcomes}")


def _pause_s(outcome: Outcome) -> float:
    """Keep to what the other side asked for, but don't idle where only the world has to move."""
    match outcome:
        case Retry() if outcome.asked:
            return outcome.after_s
        case Retry() | Waiting() | Blocked() | Unknown():
            return min(outcome.after_s, 0.1)
        case Absent() | Done() | AlreadyDone() | Refused():
            return 0.0
