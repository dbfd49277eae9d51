"""A loop that runs beside a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest


@asynccontextmanager
async def in_background(loop: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a process's loop until the block ends: it is cancelled then, and must not have ended before."""
    task = asyncio.create_task(loop)
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
