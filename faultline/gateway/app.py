"""The gateway's web application: who serves which paths, and what runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NoReturn

from aiohttp import web

from faultline.console.app import add_console
from faultline.gateway import hooks, slack
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import answer_refusals
from faultline.gateway.slack import socket

__all__ = ["BESIDE", "ROUTES", "GatewayParts", "build_app"]

RouteProvider = Callable[[GatewayParts], Iterable[web.RouteDef]]
Beside = Callable[[GatewayParts], Coroutine[Any, Any, NoReturn]]

ROUTES: tuple[RouteProvider, ...] = (hooks.routes, slack.routes)
"""Who serves which paths."""

BESIDE: tuple[Beside, ...] = (socket.run,)
"""What runs beside the HTTP server."""


def build_app(parts: GatewayParts) -> web.Application:
    """The application with every configured path. The console, last, takes everything else below `/`."""
    app = web.Application(middlewares=[answer_refusals], client_max_size=parts.settings.max_body_bytes)
    for routes in ROUTES:
        app.add_routes(routes(parts))
    if parts.console is not None:
        add_console(
            app,
            settings=parts.console,
            view=parts.view,
            decisions=parts.decisions,
            clock=parts.clock,
            runbooks=parts.runbooks,
        )
    return app
