"""Rate limits for Slack: a token bucket for each method and channel, and a pause where Slack asked for one.

A 429 concerns one method in one channel; the others go on. A call that would have to wait long fails with the time to retry
at, so that a more urgent message can overtake it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from streams.model.clock import MonotonicClock, boot_seconds
from streams.model.errors import Temporary

MAX_WAIT_S = 1.5
"""The longest a call waits here."""

Key = tuple[str, str]
"""(method, channel)"""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`per_s` calls a second in the long run, `burst` at once."""

    per_s: float
    burst: int


@dataclass(slots=True)
class _Bucket:
    rate: RateLimit
    tokens: float
    at: float
    closed_until: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until the next call may go out."""
        self.tokens = min(self.rate.burst, self.tokens + (now - self.at) * self.rate.per_s)
        self.at = now
        turn = 0.0 if self.tokens >= 1 else (1 - self.tokens) / self.rate.per_s
        return max(turn, self.closed_until - now)


POST = "chat.postMessage"


class Limits:
    """The buckets of one token: `posts` for new messages (bursts of three), `others` for every other method."""

    def __init__(
        self,
        *,
        posts_per_s: float = 1.0,
        calls_per_minute: float = 50.0,
        clock: MonotonicClock = boot_seconds,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._posts = RateLimit(posts_per_s, burst=3)
        self._others = RateLimit(calls_per_minute / 60, burst=10)
        self._clock = clock
        self._sleep = sleep
        self._buckets: dict[Key, _Bucket] = {}

    async def take(self, method: str, channel: str) -> None:
        """Return when the call may go out.

        Raises:
            Temporary: it would have to wait longer than `MAX_WAIT_S`; carries how long.
        """
        bucket = self._bucket(method, channel)
        while (wait := bucket.wait_s(self._clock())) > 0:
            if wait > MAX_WAIT_S:
                raise Temporary(f"{method}: held back by the rate limit", retry_after_s=wait)
            await self._sleep(wait)
        bucket.tokens -= 1

    def give_back(self, method: str, channel: str) -> None:
        """The call was not sent after all: the next one may use its token."""
        self._bucket(method, channel).tokens += 1

    def pause(self, method: str, channel: str, seconds: float) -> None:
        """Slack answered 429: hold back calls of this kind for so many seconds."""
        self._bucket(method, channel).closed_until = self._clock() + seconds

    def _bucket(self, method: str, channel: str) -> _Bucket:
        if (method, channel) not in self._buckets:
            rate = self._posts if method == POST else self._others
            self._buckets[method, channel] = _Bucket(rate, rate.burst, self._clock())
        return self._buckets[method, channel]
