"""How long the console takes for a page, and how soon readers hear of a change: `bench/console.py [--quick]`.

1,000 open incidents, each with a run that asks a person, and 1,000 nodes, in the view of one process, which serves over HTTP on
loopback. The client is in the same process, so its reading is in the figures.

Figures, milliseconds each:
  `overview_ms` …            the median of the rounds for each kind of page; target: under 100
  `overview_changed_ms`      the list right after every one of the thousand rows has changed
  `reader_ms`                from a change in the view until the last of 200 followers has heard of it
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace

import aiohttp

from bench.figures import Figure, middle, progress, report
from tests.faultline.console.scenes import Night, many
from tests.faultline.console.served import ADA, BEHIND_A_PROXY, served

INCIDENTS, NODES, READERS = 1_000, 1_000, 200


async def timed(session: aiohttp.ClientSession, url: str) -> float:
    """Milliseconds until a whole page is here."""
    began = time.perf_counter()
    async with session.get(url) as answer:
        await answer.read()
        answer.raise_for_status()
    return (time.perf_counter() - began) * 1000


async def hears(answer: aiohttp.ClientResponse, event: bytes) -> None:
    """Wait until a follower is sent an event."""
    async for line in answer.content:
        if line.startswith(b"event: " + event):
            return


async def reader_ms(session: aiohttp.ClientSession, base: str, night: Night, name: str) -> float:
    """Milliseconds from a change until the last of all followers has heard of it."""
    answers = [await session.get(f"{base}/changes") for _ in range(READERS)]
    await asyncio.gather(*(hears(answer, b"changed") for answer in answers))
    about = night.view.incident(name)
    if about is None:
        raise KeyError(name)
    began = time.perf_counter()
    night.view.take_incident(replace(about, revision=about.revision + 1))
    await asyncio.gather(*(hears(answer, b"changed") for answer in answers))
    took = (time.perf_counter() - began) * 1000
    for answer in answers:
        answer.close()
    return took


async def measure(rounds: int) -> dict[str, Figure]:
    """All figures."""
    night = Night()
    made = many(night, INCIDENTS, nodes=NODES)
    night.view.ready = True
    paths = {
        "overview": "/",
        "last_page": "/?page=20",
        "search": "/search?q=n-07",
        "incident": f"/incidents/{made[500].id}",
        "fleet": "/fleet",
        "runbooks": "/runbooks",
    }
    figures: dict[str, Figure] = {}
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        served(night, BEHIND_A_PROXY) as base,
        aiohttp.ClientSession(headers=ADA, connector=connector) as session,
    ):
        for name, path in paths.items():
            await timed(session, base + path)
            took = middle([await timed(session, base + path) for _ in range(rounds)])
            figures[f"{name}_ms"] = took
            progress(f"{name}: {took:.1f} ms")
        changed = []
        for revision in range(rounds):
            for about in made:
                night.view.take_incident(replace(about, revision=10 + revision))
            changed.append(await timed(session, f"{base}/"))
        figures["overview_changed_ms"] = middle(changed)
        figures["reader_ms"] = await reader_ms(session, base, night, made[0].id)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 30")
    options = parser.parse_args()
    report(asyncio.run(measure(5 if options.quick else 30)), packages=("aiohttp", "jinja2"))


if __name__ == "__main__":
    main()
