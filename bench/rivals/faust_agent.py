"""A straightforward Faust agent: one record at a time, expressions in turn, a message for each report found."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import faust
import orjson

from bench.rivals.wanted import signals_of


async def one_pass(bootstrap: str, topic: str, reports: str, records: int, run: str) -> dict[str, float]:
    """Read `records` records in a group of its own; the first hundred only start the clock."""
    app = faust.App(
        f"bench-faust-{run}",
        broker=f"kafka://{bootstrap}",
        value_serializer="raw",
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        web_enabled=False,
        store="memory://",
    )
    lines = app.topic(topic, value_serializer="raw")
    found = app.topic(reports, value_serializer="json")
    done = asyncio.Event()
    seen = signals = 0
    began = 0.0

    @app.agent(lines)
    async def detect(stream: Any) -> None:
        nonlocal seen, signals, began
        async for value in stream:
            for signal in signals_of(value):
                await found.send(key=signal["host"], value=signal)
                signals += 1
            seen += 1
            if seen == 100:
                began = time.perf_counter()
            if seen >= records:
                done.set()

    await app.start()
    try:
        await done.wait()
        took = time.perf_counter() - began
    finally:
        await app.stop()
    return {"per_s": (seen - 100) / took, "signals": signals}


async def passes() -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(orjson.dumps(await one_pass(**orjson.loads(line))).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(passes())
