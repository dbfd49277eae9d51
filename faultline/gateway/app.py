"""The gateway's web application: who serves which paths, and what runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NoReturn

from aiohttp import web

from faultline.gateway import hooks
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import answer_refusals

__all__ = ["BESIDE", "ROUTES", "GatewayParts", "build_app"]

RouteProvider = Callable[[GatewayParts], Iterable[web.RouteDef]]
Beside = Callable[[GatewayParts], Coroutine[Any, Any, NoReturn]]

ROUTES: tuple[RouteProvider, ...] = (hooks.routes,)
"""Who serves which paths. Slack's requests: `faultline.gateway.slack.routes`."""

BESIDE: tuple[Beside, ...] = ()
"""What runs beside the HTTP server. Slack's Socket Mode: `faultline.gateway.slack.socket.run`."""


def build_app(parts: GatewayParts) -> web.Application:
    """The application with every configured path. The console, last, takes everything else below `/`."""
    app = web.Application(middlewares=[answer_refusals], client_max_size=parts.settings.max_body_bytes)
    for routes in ROUTES:
        app.add_routes(routes(parts))
    # The console goes here: `add_console(app, settings=…, view=parts.view, decisions=parts.decisions, clock=parts.clock)`.
    return app
