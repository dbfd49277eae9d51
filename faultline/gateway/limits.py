"""What bounds the gateway: deliveries over time, failed proofs per address, and bytes of bodies in memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from faultline.gateway.refusal import RequestRefused

MAX_ADDRESSES = 10_000
"""Addresses whose failures are remembered; the one that failed longest ago is forgotten first."""

Monotonic = Callable[[], float]


class TokenBucket:
    """Allows `burst` at once and `per_s` in the long run. Pure: it is told the time, in seconds."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at: float | None = None

    def take(self, now: float) -> float:
        """Take one. Returns 0, or after how many seconds there is one; then none is taken."""
        self._refill(now)
        if self._left < 1:
            return (1 - self._left) / self._per_s
        self._left -= 1
        return 0.0

    def wait(self, now: float) -> float:
        """After how many seconds there is one; 0 when there is one now. Takes none."""
        self._refill(now)
        return 0.0 if self._left >= 1 else (1 - self._left) / self._per_s

    def _refill(self, now: float) -> None:
        if self._at is not None:
            self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_s)
        self._at = now


class FailureLimit:
    """Failed proofs per address. An address that fails too often is answered without looking at its bodies."""

    def __init__(self, per_minute: float) -> None:
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def failed(self, address: str, now: float) -> None:
        """Count a failure."""
        bucket = self._buckets.setdefault(
            address, TokenBucket(self._per_minute / 60, max(1.0, self._per_minute))
        )
        self._buckets.move_to_end(address)
        bucket.take(now)
        while len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)

    def wait(self, address: str, now: float) -> float:
        """After how many seconds the address may try again; 0 for now."""
        bucket = self._buckets.get(address)
        return bucket.wait(now) if bucket is not None else 0.0


class BodyBudget:
    """Bytes of bodies that are in memory at once. Senders that have proven nothing yet get at most half of them."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held = 0
        self._unproven = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def hold(self, size: int, *, proven: bool, wait_s: float) -> AsyncIterator[None]:
        """Hold `size` bytes while the context lasts.

        Raises:
            RequestRefused: 503 when there is no room for them within `wait_s`.
        """
        # One body always fits: the budget is never smaller, and half of it may be.
        most_unproven = max(self._total // 2, size)

        def fits() -> bool:
            return self._held + size <= self._total and (proven or self._unproven + size <= most_unproven)

        try:
            async with asyncio.timeout(wait_s), self._freed:
                await self._freed.wait_for(fits)
                self._change(size, proven)
        except TimeoutError:
            raise RequestRefused(503, "too many requests at once, try again", retry_after_s=wait_s) from None
        try:
            yield
        finally:
            self._change(-size, proven)
            async with self._freed:
                self._freed.notify_all()

    def _change(self, size: int, proven: bool) -> None:
        self._held += size
        self._unproven += 0 if proven else size


async def read_body(request: web.Request, *, most: int, timeout_s: float) -> bytes:
    """The body as it was sent.

    Raises:
        RequestRefused: 413 as soon as it is longer than `most`, 408 when it takes longer than `timeout_s`, 415 when it is
            compressed, 400 when it ends early.
    """
    if request.headers.get("Content-Encoding", "identity").strip().casefold() not in ("", "identity"):
        raise RequestRefused(415, "compressed bodies are not taken")
    refuse_long(request, most)
    parts: list[bytes] = []
    length = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for part in request.content.iter_any():
                length += len(part)
                if length > most:
                    raise RequestRefused(413, f"the body is longer than {most} bytes")
                parts.append(part)
    except TimeoutError:
        raise RequestRefused(408, f"the body took longer than {timeout_s:g} s") from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise RequestRefused(400, "the body ended early") from error
    return b"".join(parts)


def refuse_long(request: web.Request, most: int) -> None:
    """Refuse a body that says itself that it is longer than `most`."""
    if (request.content_length or 0) > most:
        raise RequestRefused(413, f"the body is longer than {most} bytes")
