"""The HTTP server around the application: bounded connections, and none that stays silent.

aiohttp waits without end for the head of a connection's first request, so connections are watched here until it is complete.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from faultline.gateway.refusal import Handler
from streams.config.gateway_settings import GatewaySettings
from streams.model.errors import ConfigError

LINGER_S = 1.0
"""How long the rest of a refused body is read and thrown away, so that the sender sees the answer and not a reset."""

KEEPALIVE_S = 75.0
"""How long a connection may wait for its next request: longer than proxies keep theirs, so that none is closed as they use it."""

SHUTDOWN_S = 10.0
"""How long requests under way may take when the process stops."""


class _Connections:
    """Makes the handlers of connections, closes those that send no head, and keeps room for new ones.

    Where all places are taken, whoever has been waiting longest without a request loses theirs. So nobody can hold them all with
    connections on which nothing happens, or half a head that never ends.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._silent: set[RequestHandler] = set()
        self._idle: OrderedDict[RequestHandler, None] = OrderedDict()
        """Connections without a request in progress, by when that began."""

    def accept(self, server: web.Server) -> asyncio.BaseProtocol:
        """The handler of a new connection."""
        if len(server.connections) >= self._settings.max_connections and not self._make_room():
            return _TurnedAway()
        if len(self._idle) > 2 * self._settings.max_connections:
            self._forget_closed()
        handler = server()
        self._silent.add(handler)
        self._idle[handler] = None
        asyncio.get_running_loop().call_later(self._settings.head_timeout_s, self._close_silent, handler)
        return handler

    @web.middleware
    async def notice(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Middleware: the connection has sent a whole head."""
        connection = request.protocol
        self._silent.discard(connection)
        self._idle.pop(connection, None)
        try:
            return await handler(request)
        finally:
            self._idle[connection] = None

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; false where none is."""
        while self._idle:
            handler, _ = self._idle.popitem(last=False)
            if handler.transport is not None:
                handler.transport.abort()
                return True
        return False

    def _forget_closed(self) -> None:
        for handler in [one for one in self._idle if one.transport is None]:
            del self._idle[handler]

    def _close_silent(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            if handler.transport is not None:
                handler.transport.abort()


class _TurnedAway(asyncio.Protocol):
    """A connection beyond the limit, while requests are in progress on all others."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        if isinstance(transport, asyncio.Transport):
            transport.abort()


@asynccontextmanager
async def served(app: web.Application, settings: GatewaySettings) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port. Requests under way are finished on the way out.

    Raises:
        ConfigError: when the address cannot be listened on.
    """
    connections = _Connections(settings)
    app.middlewares.insert(0, connections.notice)
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        lingering_time=LINGER_S,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=SHUTDOWN_S,
    )
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("the runner has no server after its setup")
        try:
            listening = await asyncio.get_running_loop().create_server(
                partial(connections.accept, runner.server), settings.host, settings.port, backlog=512
            )
        except OSError as error:
            where = f"{settings.host} port {settings.port} (gateway.host, gateway.port)"
            raise ConfigError(f"cannot listen on {where}: {error.strerror}") from error
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            listening.close()
    finally:
        await runner.cleanup()
