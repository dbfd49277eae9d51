"""Slack's deliveries over Socket Mode: a connection that this process opens, so that nothing has to be reachable from outside.

slack-sdk keeps the connection: heartbeats, the refresh that Slack asks for, reconnects. Two of its habits are replaced here: it
asks for a new address every few seconds for ever, and after a failure tries an address again that works only once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import NoReturn
from urllib.parse import urlsplit

import structlog
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from connectors.http import Rejected, http_client, read
from faultline.gateway.parts import GatewayParts
from faultline.gateway.slack.actions import Delivery
from faultline.gateway.slack.desk import Desk
from streams.config.connector_settings import SlackSettings
from streams.model.errors import FaultlineError, Temporary

log = structlog.get_logger(__name__)

CONNECT_WITHIN_S = 20.0
"""An address that Slack gave is dropped after this time, and a new one is asked for."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
PING_S = 5.0

_TICKET = re.compile(r"(ticket|app_id)=[^&\s'\"]+")


async def run(parts: GatewayParts, *, ping_s: float = PING_S) -> NoReturn:
    """Take deliveries until cancelled. Without `slack.app_token` and `slack.token` there is nothing to do."""
    token = parts.slack.app_token
    if token is None or parts.slack.token is None:
        await _for_ever()
    desk = Desk(parts)
    client = _Client(parts.slack, token.get_secret_value(), ping_s)

    async def take(_: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        try:
            said = await desk.take(Delivery(request.type, request.payload or {}))
        except Temporary as error:
            log.warning("a delivery of Slack is not acknowledged", kind=request.type, reason=str(error))
            return
        payload = dict(said) if said is not None else None
        await client.send_socket_mode_response(SocketModeResponse(request.envelope_id, payload))

    client.socket_mode_request_listeners.append(take)
    try:
        await client.connect()
        log.info("connected to Slack")
        await _for_ever()
    finally:
        await client.close()
        await desk.close()


async def _for_ever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets this event")


class _Client(SocketModeClient):
    """slack-sdk's client with our way to ask for an address, and our log."""

    def __init__(self, settings: SlackSettings, app_token: str, ping_s: float) -> None:
        super().__init__(app_token, logger=_sdk_log(), ping_interval=ping_s)
        if urlsplit(settings.base_url).hostname in ("127.0.0.1", "::1", "localhost"):
            # The SDK takes a proxy from the environment, and asks it even for this machine.
            self.proxy = None
        self._http = http_client(
            settings.base_url, timeout_s=settings.timeout_s, headers={"Authorization": f"Bearer {app_token}"}
        )

    async def issue_new_wss_url(self) -> str:
        """Ask until Slack gives an address, less and less often: it allows few such calls a minute."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._address()
            except FaultlineError as error:
                asked_s = error.retry_after_s if isinstance(error, Temporary) else None
                wait_s = max(pause_s, min(asked_s or 0.0, LONGEST_PAUSE_S))
                log.error("cannot connect to Slack", reason=str(error), again_in_s=wait_s)
                await asyncio.sleep(wait_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def connect(self) -> None:
        """Connect; an address that does not work is not tried for long."""
        while not self.closed:
            if self.wss_uri is None:
                self.wss_uri = await self.issue_new_wss_url()
            try:
                async with asyncio.timeout(CONNECT_WITHIN_S):
                    await super().connect()  # type: ignore[no-untyped-call]
                return
            except TimeoutError:
                log.warning("Slack's address for Socket Mode does not answer; asking for another")
                self.wss_uri = None

    async def close(self) -> None:
        """Close the connection."""
        await super().close()  # type: ignore[no-untyped-call]
        await self._http.aclose()

    async def _address(self) -> str:
        answer = await read(self._http, "POST", "apps.connections.open")
        if answer.get("ok") is True and isinstance(answer.get("url"), str):
            return str(answer["url"])
        code = str(answer.get("error", "no address in the answer"))
        if code in ("ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"):
            raise Temporary(f"apps.connections.open: {code}")
        raise Rejected(
            f"apps.connections.open: {code}; slack.app_token has to be an app-level token with connections:write",
            status=200,
            body=answer,
        )


class _ToOurLog(logging.Handler):
    """Hands on what the SDK has to say, without the address's ticket and without its tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning("socket mode", reason=_TICKET.sub(r"\1=…", record.getMessage())[:500])


def _sdk_log() -> logging.Logger:
    logger = logging.getLogger(f"{__name__}.sdk")
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(_ToOurLog())
    return logger
