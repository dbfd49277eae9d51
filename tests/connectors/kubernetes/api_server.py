"""A scripted API server on loopback: each request is answered by a function of the test's, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
from aiohttp import web

from connectors.kubernetes.client import Cluster

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """Serve every path and method by `handler`; yields the base URL."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def cluster_of(handler: Handler, *, timeout_s: float = 60.0) -> AsyncIterator[Cluster]:
    """A client of a server that answers by `handler`."""
    async with serving(handler) as url, await Cluster.at(url, timeout_s=timeout_s) as cluster:
        yield cluster


def answer(status: int, reason: str = "", **more: object) -> web.Response:
    """A Status object, as the API server answers what it refuses."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
        **more,
    }
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")


def document(body: object) -> web.Response:
    """A 200 with JSON."""
    return web.Response(body=orjson.dumps(body), content_type="application/json")
