"""A reverse proxy that lets a test decide what becomes of the next request: answered otherwise, cut, or left hanging.

Faults stand in two queues, one for requests that change something and one for the rest, and each is used once. What a
real network does is told apart: whether the server *saw* the request (`forward`) and whether the client saw the answer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web

IsWrite = Callable[[str, str], bool]
"""Called with method and path (query included): does this request change something?"""

HOP_BY_HOP = frozenset(
    {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"}
)


def by_method(method: str, path: str) -> bool:
    """What changes something in an API that uses HTTP's methods as they are meant."""
    return method not in ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class Answer:
    """Answer this instead of what the server says; with `forward` the server has acted on the request all the same."""

    status: int
    body: str = "{}"
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    forward: bool = False


@dataclass(frozen=True)
class Cut:
    """Close the connection without an answer."""

    forward: bool


@dataclass(frozen=True)
class Hang:
    """Never answer, so that the client's own timeout ends it."""

    forward: bool


Fault = Answer | Cut | Hang


@dataclass(frozen=True)
class Seen:
    """One request that arrived at the proxy.

    `status` is what the client was told, None where it got no answer; `served` is what the server said, None where it
    never saw the request.
    """

    method: str
    path: str
    write: bool
    at_s: float
    status: int | None
    body: bytes
    served: int | None = None


class FaultProxy:
    """Stands at `url` in front of `upstream`; an async context manager."""

    def __init__(
        self, upstream: str, is_write: IsWrite = by_method, tls: ssl.SSLContext | bool = True
    ) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        self._upstream = upstream.rstrip("/")
        self._is_write = is_write
        self._tls = tls
        self._on_write: deque[Fault] = deque()
        self._on_read: deque[Fault] = deque()
        self._before_write: deque[Callable[[], object]] = deque()
        self._closing = asyncio.Event()

    @property
    def writes(self) -> list[Seen]:
        """The requests that were meant to change something, oldest first."""
        return [seen for seen in self.seen if seen.write]

    @property
    def will_hang(self) -> bool:
        """Whether a request that is to come will never be answered."""
        return any(isinstance(fault, Hang) for fault in (*self._on_write, *self._on_read))

    def on_writes(self, *faults: Fault) -> None:
        """What becomes of the next requests that change something, in order."""
        self._on_write.extend(faults)

    def on_reads(self, *faults: Fault) -> None:
        """What becomes of the next requests that change nothing, in order."""
        self._on_read.extend(faults)

    def heal(self) -> None:
        """Forget the faults that were not used."""
        self._on_write.clear()
        self._on_read.clear()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(auto_decompress=True)
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        await self._runner.cleanup()
        await self._session.close()

    def _fault(self, method: str, path: str, body: bytes, write: bool) -> Fault | None:
        """What becomes of this request; a subclass may choose by what is in it."""
        queue = self._on_write if write else self._on_read
        return queue.popleft() if queue else None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        at_s, body, path = time.monotonic(), await request.read(), request.rel_url.raw_path_qs
        write = self._is_write(request.method, path)
        fault = self._fault(request.method, path, body, write)
        # Written down before anything is awaited, in the order of arrival; the status follows.
        row = len(self.seen)
        self.seen.append(Seen(request.method, path, write, at_s, None, body))
        answer, served = None, None
        if fault is None or fault.forward:
            answer = await self._forward(request, path, body)
            served = answer.status
            self.seen[row] = Seen(request.method, path, write, at_s, None, body, served)
        match fault:
            case Answer():
                answer = web.Response(status=fault.status, text=fault.body, headers=dict(fault.headers))
            case Cut():
                self._abort(request)
                return web.Response(status=500)
            case Hang():
                await self._closing.wait()
                return web.Response(status=500)
        assert answer is not None
        self.seen[row] = Seen(request.method, path, write, at_s, answer.status, body, served)
        return answer

    async def _forward(self, request: web.Request, path: str, body: bytes) -> web.Response:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        async with self._session.request(
            request.method,
            self._upstream + path,
            data=body or None,
            headers=headers,
            ssl=self._tls,
            allow_redirects=False,
        ) as reply:
            kept = {name: value for name, value in reply.headers.items() if name.lower() not in HOP_BY_HOP}
            return web.Response(status=reply.status, body=await reply.read(), headers=kept)

    @staticmethod
    def _abort(request: web.Request) -> None:
        if request.transport is not None:
            request.transport.abort()
