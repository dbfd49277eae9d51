"""Live updates: who is told of what, how many at once, and what a reader costs who does not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from faultline.console.live import Interest, LiveUpdates
from faultline.live_view.view import LiveView
from streams.model.control import Control
from streams.model.incident import Incident
from tests.faultline.console.scenes import EAST, Night, asking, incident, many
from tests.faultline.console.served import ADA, events, reading, served

pytestmark = pytest.mark.embedded


@asynccontextmanager
async def following(updates: LiveUpdates, interest: Interest) -> AsyncIterator[str]:
    """A server that answers with these updates alone."""
    app = web.Application()

    async def handler(request: web.Request) -> web.StreamResponse:
        return await updates.serve(request, web.StreamResponse(), interest, None)

    async def end(_: web.Application) -> None:
        updates.end()

    app.router.add_get("/changes", handler)
    app.on_shutdown.append(end)
    runner = web.AppRunner(app, shutdown_timeout=5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/changes"
    finally:
        await runner.cleanup()


async def hears(answer: aiohttp.ClientResponse, name: str) -> None:
    """Wait for an event of this name, whatever comes before it."""
    while (await events(answer, 1)) != [name]:
        assert not answer.content.at_eof()


def change(view: LiveView, about: Incident, revision: int) -> None:
    view.take_incident(replace(about, revision=revision))


async def test_a_page_is_told_of_what_it_shows_and_of_nothing_else() -> None:
    view, mine, other = LiveView(), incident(), incident(family="gpu_memory")
    updates = LiveUpdates(view, 10, pause_s=0.0, beat_s=0.05)
    async with (
        following(updates, Interest(frozenset({mine.id, EAST}))) as url,
        aiohttp.ClientSession() as session,
        session.get(url) as answer,
    ):
        assert answer.content_type == "text/event-stream"
        assert await events(answer, 1) == ["changed"], "what changed while the page was on its way"
        change(view, other, 2)
        assert await events(answer, 1) == ["beat"]
        change(view, mine, 2)
        assert "changed" in await events(answer, 2)
        view.take_control(Control(EAST, 2))
        assert "changed" in await events(answer, 2)
    assert updates.readers == 0


async def test_a_storm_is_one_event_until_the_pause_is_over() -> None:
    view, about = LiveView(), incident()
    updates = LiveUpdates(view, 10, pause_s=0.2, beat_s=0.05)
    async with (
        following(updates, Interest()) as url,
        aiohttp.ClientSession() as session,
        session.get(url) as answer,
    ):
        await events(answer, 1)
        for revision in range(2, 2_000):
            change(view, about, revision)
        assert await events(answer, 3) == ["changed", "beat", "beat"]


async def test_readers_are_bounded_and_those_left_out_look_again_by_themselves() -> None:
    view = LiveView()
    updates = LiveUpdates(view, 2)
    async with following(updates, Interest()) as url, aiohttp.ClientSession() as session:
        first, second = await session.get(url), await session.get(url)
        assert await events(first, 1) == await events(second, 1) == ["changed"]
        async with session.get(url) as third:
            text = await third.text()
        assert "retry: 30000" in text
        assert "event: full" in text
        assert updates.readers == 2
        first.close()
        second.close()


async def test_a_reader_who_never_reads_keeps_nobody_waiting() -> None:
    night = Night()
    async with served(night) as base, reading(base) as ada:
        port = int(base.rpartition(":")[2])
        _, deaf = await asyncio.open_connection("127.0.0.1", port)
        head = "".join(f"{name}: {value}\r\n" for name, value in ADA.items())
        deaf.write(f"GET /changes HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n".encode())
        await deaf.drain()
        async with ada.session.get(f"{base}/changes") as answer:
            await events(answer, 1)
            many(night, 500)
            assert await events(answer, 1) == ["changed"]
        assert "Open 500" in (await ada.get("/")).shown
        deaf.close()


async def test_the_stream_of_a_page_is_for_those_who_may_see_the_page() -> None:
    night = Night()
    asking(night)
    async with served(night) as base, reading(base, {}) as eve:
        assert (await eve.get("/changes")).status == 403
