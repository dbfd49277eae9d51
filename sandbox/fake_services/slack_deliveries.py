"""How the stand-in for Slack reaches an app: envelopes over Socket Mode, or signed requests over HTTP. From its documentation:

`apps.connections.open` takes an app-level token and gives an address that works once, within 30 seconds; ten connections at most.
A connection begins with `hello`; an envelope (`envelope_id`, `type`, `payload`, `accepts_response_payload`, `retry_attempt`) is
acknowledged within three seconds or not at all; `disconnect` says why. A request over HTTP is a form or JSON, signed (`v0`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp import WSMsgType, web

from sandbox.fake_services.slack import SlackStandin

APP = "A0FAULTLINE"
ACK_WITHIN_S = 3.0
TICKET_S = 30.0
MAX_CONNECTIONS = 10


@dataclass(frozen=True, slots=True)
class Ack:
    """How the app acknowledged: `status` as over HTTP (0 when it did not), and what it said."""

    status: int
    body: Any = None

    @property
    def taken(self) -> bool:
        """Whether Slack takes it as acknowledged."""
        return self.status == 200


@dataclass(slots=True)
class _Waiting:
    envelope: dict[str, Any]
    acknowledged: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class SlackDeliveries(SlackStandin):
    """Slack with an app to deliver to. `app_url` is where requests over HTTP go; without it all goes over Socket Mode."""

    def __init__(self, *, app_token: str, signing_secret: str, **more: Any) -> None:
        super().__init__(**more)
        self.app_token = app_token
        self.signing_secret = signing_secret
        self.app_url = ""
        self.ticket_s = TICKET_S
        self.sockets: list[web.WebSocketResponse] = []
        self._tickets: dict[str, float] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._count = count(1)
        self._session: aiohttp.ClientSession | None = None
        self.app.router.add_post("/api/apps.connections.open", self._connections_open)
        self.app.router.add_get("/link/", self._socket)

    async def stop(self) -> None:
        """Stop listening, and close connections to the app."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        await super().stop()

    async def deliver(self, kind: str, payload: Mapping[str, Any]) -> Ack:
        """Hand the app a payload, over HTTP where `app_url` is set, else over one of its connections."""
        if self.app_url:
            return await self.request(kind, payload)
        return await self.send(kind, payload)

    async def request(
        self, kind: str, payload: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Ack:
        """One request over HTTP; `headers` are added to those of a genuine one."""
        path = {"interactive": "interactions", "slash_commands": "commands", "events_api": "events"}[kind]
        match kind:
            case "interactive":
                body = urlencode({"payload": orjson.dumps(payload).decode()}).encode()
            case "slash_commands":
                body = urlencode(payload).encode()
            case _:
                body = orjson.dumps(payload)
        content = "application/json" if kind == "events_api" else "application/x-www-form-urlencoded"
        sent = {"Content-Type": content, **self.signed(body), **(headers or {})}
        if self._session is None:
            self._session = aiohttp.ClientSession()
        async with self._session.post(f"{self.app_url}/slack/{path}", data=body, headers=sent) as response:
            said = await response.read()
            return Ack(response.status, orjson.loads(said) if said and response.status == 200 else None)

    def signed(self, body: bytes, at: float | None = None) -> dict[str, str]:
        """The headers of a genuine request."""
        stamp = str(int(at if at is not None else time.time()))
        mac = hmac.new(self.signing_secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256)
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={mac.hexdigest()}"}

    async def send(
        self, kind: str, payload: Mapping[str, Any], *, envelope_id: str = "", attempt: int = 0
    ) -> Ack:
        """One envelope over a connection; `attempt` above 0 is a redelivery."""
        name = envelope_id or f"env-{next(self._count)}"
        envelope = {
            "type": kind, "envelope_id": name, "payload": dict(payload),
            "accepts_response_payload": kind != "events_api", "retry_attempt": attempt,
            "retry_reason": "timeout" if attempt else "",
        }  # fmt: skip
        waiting = self._waiting[name] = _Waiting(envelope)
        if not await self._handed_over(orjson.dumps(envelope).decode()):
            return Ack(0)
        try:
            return Ack(200, await asyncio.wait_for(waiting.acknowledged, ACK_WITHIN_S))
        except TimeoutError:
            return Ack(0)

    async def _handed_over(self, envelope: str) -> bool:
        """Whether a connection took it. One that is going away takes nothing, and an earlier one is asked."""
        for socket in reversed([one for one in self.sockets if not one.closed]):
            with suppress(ConnectionResetError):
                await socket.send_str(envelope)
                return True
        return False

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Tell every connection to go, as Slack does every few hours, and close it."""
        for socket in [one for one in self.sockets if not one.closed]:
            await socket.send_str(
                orjson.dumps({"type": "disconnect", "reason": reason, "debug_info": {}}).decode()
            )

    def cut(self) -> None:
        """Cut every connection without a word."""
        for socket in self.sockets:
            if (transport := getattr(socket._req, "transport", None)) is not None:
                transport.abort()

    async def _connections_open(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.app_token}":
            return web.json_response({"ok": False, "error": "invalid_auth"})
        ticket = f"ticket-{next(self._count)}"
        self._tickets[ticket] = time.monotonic() + self.ticket_s
        address = self.url.replace("http://", "ws://")
        return web.json_response({"ok": True, "url": f"{address}/link/?ticket={ticket}&app_id={APP}"})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        until = self._tickets.pop(request.query.get("ticket", ""), 0.0)
        if time.monotonic() > until:
            return web.Response(status=403)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets = [one for one in self.sockets if not one.closed]
        if len(self.sockets) >= MAX_CONNECTIONS:
            await socket.send_json({"type": "disconnect", "reason": "too_many_websockets"})
            await socket.close()
            return socket
        self.sockets.append(socket)
        hello = {"type": "hello", "num_connections": len(self.sockets), "connection_info": {"app_id": APP}}
        await socket.send_str(orjson.dumps(hello).decode())
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                said = orjson.loads(message.data)
                waiting = self._waiting.get(said.get("envelope_id", ""))
                if waiting is not None and not waiting.acknowledged.done():
                    waiting.acknowledged.set_result(said.get("payload"))
        return socket
