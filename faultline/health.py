"""`/live` and `/ready` of a process, answered from its pulse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.model.pulse import Pulse


@asynccontextmanager
async def health_server(pulse: Pulse, *, host: str, port: int) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port. Does nothing and yields 0 when `port` is 0."""
    if port == 0:
        yield 0
        return
    from aiohttp import web  # half a second that only a process with probes need wait for

    def answer(good: bool, **more: object) -> web.Response:
        return web.json_response({"ok": good, **more}, status=200 if good else 503)

    app = web.Application()

    async def live(_: web.Request) -> web.Response:
        return answer(pulse.is_alive)

    async def ready(_: web.Request) -> web.Response:
        return answer(pulse.is_ready, **pulse.states)

    app.add_routes([web.get("/live", live), web.get("/ready", ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield port
    finally:
        await runner.cleanup()
