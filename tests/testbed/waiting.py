"""Waiting for something to become true, with a deadline: the only way in which tests wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_EVERY_S = 0.05


def until(condition: Callable[[], T | None], what: str, *, timeout_s: float = 60) -> T:
    """Call ``condition`` until it returns something true, and return that.

    Raises ``TimeoutError`` naming ``what``; whatever ``condition`` raises goes through.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(_LOOK_EVERY_S)


async def eventually(condition: Callable[[], Awaitable[T | None]], what: str, *, timeout_s: float = 60) -> T:
    """Do as ``until`` does, for a condition that is awaited; one look that hangs ends at the deadline too."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if result := await condition():
                    return result
                await asyncio.sleep(_LOOK_EVERY_S)
    except TimeoutError as late:
        raise TimeoutError(f"not within {timeout_s:g} s: {what}") from late
