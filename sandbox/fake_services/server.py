"""What both stand-ins share: a loopback HTTP server, a log of requests, and faults on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from aiohttp import web

MAX_BODY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in. `body` is the parsed JSON, else None; `faulty`: a fault was injected into it."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    faulty: bool = False


@dataclass(slots=True)
class InjectedFault:
    """What to do wrong with the next `times` requests whose path contains `path`.

    `lose_answer` does the work and then cuts the connection; `lose_request` cuts it without doing anything; `hang` does the
    work and never answers; `status` answers with that status (and Retry-After, if given) and does nothing, or, with
    `after_work`, does the work first.
    """

    path: str
    kind: Literal["lose_answer", "lose_request", "hang", "status"]
    times: int = 1
    status: int = 500
    retry_after: str | None = None
    after_work: bool = False


class Standin:
    """Base of a stand-in. Subclasses add routes to `self.app` and answer with `web.Response`.

    Use it as an async context manager, or `start` and `stop` it. While `down`, every connection is cut before the
    request is handled, and counted in `turned_away`. Each answer takes `takes_s`; `most_at_once` requests ran concurrently.
    """

    def __init__(self) -> None:
        self.app = web.Application(middlewares=[self._middleware], client_max_size=MAX_BODY_BYTES)
        self.requests: list[Request] = []
        self.down = False
        self.turned_away = 0
        self.takes_s = 0.0
        self.most_at_once = 0
        self._in_progress = 0
        self._faults: list[InjectedFault] = []
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens, `http://127.0.0.1:<port>`; known once it is started."""
        if not self._port:
            raise RuntimeError(f"{type(self).__name__} is not started")
        return f"http://127.0.0.1:{self._port}"

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one."""
        self._runner = web.AppRunner(self.app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening; what was received stays readable."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Any:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def fail(self, fault: InjectedFault) -> None:
        """Inject this fault into the next requests."""
        self._faults.append(fault)

    def heal(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def calls(self, path: str, method: str | None = None) -> list[Request]:
        """The requests so far whose path contains `path`."""
        return [r for r in self.requests if path in r.path and method in (None, r.method)]

    @web.middleware
    async def _middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self.down:
            self.turned_away += 1
            return _cut(request)
        self._in_progress += 1
        self.most_at_once = max(self.most_at_once, self._in_progress)
        try:
            return await self._answer(request, handler)
        finally:
            self._in_progress -= 1

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        raw = await request.read()
        await asyncio.sleep(self.takes_s)
        fault = next((f for f in self._faults if f.path in request.path and f.times > 0), None)
        if fault is not None:
            fault.times -= 1
        self.requests.append(
            Request(request.method, request.path, dict(request.query), _parsed(raw), fault is not None)
        )
        if fault is None:
            return await handler(request)
        if fault.kind in ("lose_answer", "hang") or fault.after_work:
            await handler(request)
        if fault.kind == "hang":
            await asyncio.Event().wait()
        if fault.kind == "status":
            headers = {"Retry-After": fault.retry_after} if fault.retry_after is not None else {}
            return web.json_response({"ok": False}, status=fault.status, headers=headers)
        return _cut(request)


def _cut(request: web.Request) -> web.Response:
    """Cut the connection; the response that the framework insists on goes nowhere."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _parsed(raw: bytes) -> Any:
    try:
        return orjson.loads(raw) if raw else None
    except orjson.JSONDecodeError:
        return None
