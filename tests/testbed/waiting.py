"""Waiting for something to become true, with a deadline: the only way in which tests wait.

A deadline says that something is broken, never that the machine is busy. It grows with the load: where four processes want each
core, four times as long is waited. `TEST_PATIENCE=3` makes all of them three times as long.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120 * float(os.environ.get("TEST_PATIENCE", "1"))
"""How long a test waits on a machine that has nothing else to do. What needs longer says how many times as long."""

_LOOK_EVERY_S = 0.05
_LOOK_AT_LEAST_EVERY_S = 1.0
_MOST = 8
"""A machine busier than this gets no further patience."""


def patience(timeout_s: float) -> float:
    """Return how long `timeout_s` of a machine with nothing else to do are on this one at present, in seconds."""
    wanting_a_core = os.getloadavg()[0] / (os.cpu_count() or 1)
    return timeout_s * min(max(1.0, wanting_a_core), _MOST)


def until(condition: Callable[[], T | None], what: str, *, timeout_s: float = PATIENCE_S) -> T:
    """Call ``condition`` until it returns something true, and return that.

    Raises ``TimeoutError`` naming ``what``; whatever ``condition`` raises goes through.
    """
    began = time.monotonic()
    while True:
        looked = time.monotonic()
        if result := condition():
            return result
        if (waited := time.monotonic() - began) > patience(timeout_s):
            raise TimeoutError(_late(what, timeout_s, waited))
        time.sleep(_pause_s(time.monotonic() - looked))


async def eventually(
    condition: Callable[[], Awaitable[T | None]], what: str, *, timeout_s: float = PATIENCE_S
) -> T:
    """Do as ``until`` does, for a condition that is awaited; one look that hangs ends at the deadline too."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(None) as limit:
            while True:
                limit.reschedule(began + patience(timeout_s))
                looked = loop.time()
                if result := await condition():
                    return result
                await asyncio.sleep(_pause_s(loop.time() - looked))
    except TimeoutError as late:
        raise TimeoutError(_late(what, timeout_s, loop.time() - began)) from late


def _pause_s(look_s: float) -> float:
    """How long to wait after a look that took so long: one that starts a kubectl or reads a topic must not fill a core."""
    return min(max(_LOOK_EVERY_S, look_s), _LOOK_AT_LEAST_EVERY_S)


def _late(what: str, timeout_s: float, waited_s: float) -> str:
    return f"not within {timeout_s:g} s: {what} (waited {waited_s:.1f} s on a machine as busy as this)"
