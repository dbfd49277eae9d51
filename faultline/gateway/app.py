"""The gateway's web application: who serves which paths, and what runs beside it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NoReturn

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from faultline.console.app import add_console
from faultline.gateway import hooks, slack
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import answer_refusals
from faultline.gateway.slack import socket

__all__ = ["BESIDE", "ROUTES", "GatewayParts", "build_app"]

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}

RouteProvider = Callable[[GatewayParts], Iterable[web.RouteDef]]
Beside = Callable[[GatewayParts], Coroutine[Any, Any, NoReturn]]

ROUTES: tuple[RouteProvider, ...] = (hooks.routes, slack.routes)
"""Who serves which paths."""

BESIDE: tuple[Beside, ...] = (socket.run,)
"""What runs beside the HTTP server."""


def build_app(parts: GatewayParts) -> web.Application:
    """The application with every configured path. The console, last, takes everything else below `/`."""
    app = web.Application(
        middlewares=[_counted(parts), answer_refusals], client_max_size=parts.settings.max_body_bytes
    )
    app.on_response_prepare.append(_add_headers)
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


def _counted(parts: GatewayParts) -> Middleware:
    """Tells of every delivery to a hook and what was answered."""

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        status = 500
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        finally:
            folder, _, name = request.path.lstrip("/").partition("/")
            if folder in ("hooks", "slack"):
                outcome = "accepted" if status < 400 else "refused" if status < 500 else "failed"
                parts.on_delivery(name if folder == "hooks" else folder, outcome)

    return counted


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """What every answer says, errors too, unless whoever made it says otherwise: it is no page, and nobody keeps it."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "faultline"  # aiohttp has named itself and Python's version by now
