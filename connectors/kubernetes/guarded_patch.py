"""Read, decide, write: the shape of every change to a Kubernetes object, and what a failed request means for an effect.

What to do is decided by a pure function of the object as it was just read. The write carries the object's
resourceVersion, so it takes effect only on exactly that state; after a conflict all three are repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, stop_before_delay
from tenacity.wait import wait_random_exponential

from connectors.base import LeaseHeld, Outcome, Refused, Retry, Unknown
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import Conflict, MaybeApplied, NotFound, Unauthorized
from streams.model.errors import FaultlineError, Permanent, Temporary, Unreachable

T = TypeVar("T")

RETRY_AFTER_S = 2.0
"""When to retry if the server did not say."""
WAITED_OUT_S = 2.0
"""Pauses up to this long are waited inside the call; longer ones are returned as `Retry`."""
DEADLINE_S = 6.0
"""No further attempt starts after this long in one call; well below the lease."""
ATTEMPTS = 4
CREDENTIALS_PAUSE_S = 10.0
"""When to retry after a 401: nothing was applied, and whoever rotates the credentials may not be done yet."""

_backoff = wait_random_exponential(multiplier=0.1, max=1.0)


@dataclass(frozen=True, slots=True)
class GuardedChange:
    """A merge patch to send, and what is true once the server has taken it."""

    patch: Object
    then: Outcome


Decide = Callable[[Object], GuardedChange | Outcome]


async def change(
    cluster: Cluster, path: str, decide: Decide, lease: LeaseHeld, *, if_gone: Outcome, strict: bool = False
) -> Outcome:
    """Bring one object to where `decide` wants it; `if_gone` is the answer when there is no such object.

    With `strict` a change of a field that the server does not know is `Refused` and leaves nothing behind.

    Raises:
        Fenced: the lease has expired; nothing was sent.
    """

    async def once() -> Outcome:
        try:
            thing = await cluster.get(path)
        except NotFound:
            return if_gone
        decided = decide(thing)
        if not isinstance(decided, GuardedChange):
            return decided
        lease.check()
        try:
            await cluster.patch(path, _locked(decided.patch, thing), strict=strict)
        except NotFound:
            return if_gone
        return decided.then

    return await attempted(once)


async def look(
    cluster: Cluster, path: str, judge: Callable[[Object], Outcome], *, if_gone: Outcome
) -> Outcome:
    """Read one object and return the outcome that `judge` derives from it."""

    async def once() -> Outcome:
        try:
            return judge(await cluster.get(path))
        except NotFound:
            return if_gone

    return await attempted(once)


async def attempted(once: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Retry briefly where that is certainly safe, and turn the remaining errors into an outcome.

    Raises:
        Fenced: and every other error that says nothing about the request itself.
    """
    try:
        return await briefly(once)
    except FaultlineError as error:
        return outcome_of(error)


async def briefly(once: Callable[[], Awaitable[T]]) -> T:
    """Short in-call retries for write conflicts, brief throttling, failed reads and connection errors."""
    tries = AsyncRetrying(
        retry=retry_if_exception(_is_brief),
        wait=_pause_s,
        stop=stop_after_attempt(ATTEMPTS) | stop_before_delay(DEADLINE_S),
        reraise=True,
    )

    async def attempt() -> T:  # tenacity awaits only coroutine functions, which a lambda is not
        return await once()

    return await tries(attempt)


def outcome_of(error: FaultlineError) -> Outcome:
    """The outcome for an error of the API server. Errors that say nothing about the request are raised again."""
    match error:
        case MaybeApplied():
            return Unknown(str(error))
        case Temporary() if error.retry_after_s is not None:
            return Retry(error.retry_after_s, str(error))
        case Temporary() | Unreachable():
            return Retry(RETRY_AFTER_S, str(error))
        case Unauthorized():
            return Retry(CREDENTIALS_PAUSE_S, str(error))
        case Permanent():
            return Refused(str(error))
        case _:
            raise error


def _locked(patch: Object, thing: Object) -> Object:
    """The patch, valid only for the very object and version that was read."""
    read = thing["metadata"]
    lock = {"resourceVersion": read["resourceVersion"], "uid": read["uid"]}
    return patch | {"metadata": patch.get("metadata", {}) | lock}


def _is_brief(error: BaseException) -> bool:
    if isinstance(error, Temporary):
        return (error.retry_after_s or 0.0) <= WAITED_OUT_S
    return isinstance(error, Unreachable)


def _pause_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, Conflict):
        return _backoff(state) / 4
    asked = error.retry_after_s if isinstance(error, Temporary) else None
    return asked if asked is not None else _backoff(state)
