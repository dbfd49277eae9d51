"""The gateway's web application: what it is made of, and who serves which paths."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from aiohttp import web

from faultline.gateway.raw_records import RawRecords
from faultline.live_view.decisions import Decisions
from faultline.live_view.view import LiveView
from streams.config.connector_settings import SlackSettings
from streams.config.gateway_settings import GatewaySettings
from streams.model.clock import Clock, utc_now


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """What every part of the gateway is built from. `cluster` is the one this installation is configured for."""

    settings: GatewaySettings
    view: LiveView
    decisions: Decisions
    records: RawRecords
    cluster: str
    slack: SlackSettings
    clock: Clock = utc_now


RouteProvider = Callable[[GatewayParts], Iterable[web.RouteDef]]
Beside = Callable[[GatewayParts], Coroutine[Any, Any, NoReturn]]

ROUTES: tuple[RouteProvider, ...] = ()
"""Who serves which paths. Slack's requests: `faultline.gateway.slack.routes`."""

BESIDE: tuple[Beside, ...] = ()
"""What runs beside the HTTP server. Slack's Socket Mode: `faultline.gateway.slack.socket.run`."""


def build_app(parts: GatewayParts) -> web.Application:
    """The application with every configured path. The console, last, takes everything else below `/`."""
    app = web.Application(client_max_size=parts.settings.max_body_bytes)
    for routes in ROUTES:
        app.add_routes(routes(parts))
    # The console goes here: `add_console(app, settings=…, view=parts.view, decisions=parts.decisions, clock=parts.clock)`.
    return app
