"""A stand-in for a receiver of signed CloudEvents, written from the specifications of CloudEvents 1.0 (structured JSON over HTTP)
and of Standard Webhooks.

`POST /hook` takes an event: 400 for one that is no CloudEvent, 401 for a signature or a timestamp that is wrong (more than
five minutes off), 413 above `MAX_BODY_BYTES`, else 204. Events with an id it has are counted and folded; with `tells_copies`
the answer to a copy is 208. `POST /moved` redirects.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from sandbox.fake_services.server import MAX_BODY_BYTES, Standin

SECRET = "whsec_" + base64.b64encode(b"a secret of the stand-in's own...").decode()
TOLERANCE_S = 300

__all__ = ["MAX_BODY_BYTES", "SECRET", "WebhookStandin"]


class WebhookStandin(Standin):
    """A receiver with one secret. `events` by id, as they came first; `deliveries` counts those that were taken, copies too."""

    def __init__(
        self, *, secret: str = SECRET, tells_copies: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self.events: dict[str, dict[str, Any]] = {}
        self.bodies: list[bytes] = []
        self.deliveries = 0
        self.tells_copies = tells_copies
        self.secret = secret
        self._clock = clock
        self.app.router.add_post("/hook", self._take)
        self.app.router.add_post("/moved", self._moved)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if why := self._unsigned(request, body):
            return web.json_response({"error": why}, status=401)
        if not request.headers.get("Content-Type", "").startswith("application/cloudevents+json"):
            return web.json_response({"error": "not a CloudEvent in structured mode"}, status=415)
        event = orjson.loads(body)
        if wrong := [name for name in ("id", "source", "specversion", "type") if not event.get(name)]:
            return web.json_response({"error": f"missing {wrong}"}, status=400)
        if event["specversion"] != "1.0" or event["id"] != request.headers["webhook-id"]:
            return web.json_response({"error": "not the event that was signed"}, status=400)
        self.deliveries += 1
        self.bodies.append(body)
        copy = event["id"] in self.events
        self.events.setdefault(event["id"], event)
        return web.Response(status=208 if copy and self.tells_copies else 204)

    def _unsigned(self, request: web.Request, body: bytes) -> str:
        """Why a delivery is not believed; empty when it is."""
        name, stamp = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
        if not name or not stamp.isdigit() or abs(self._clock() - int(stamp)) > TOLERANCE_S:
            return "no id, or a timestamp too far off"
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        expected = hmac.new(key, f"{name}.{stamp}.".encode() + body, hashlib.sha256).digest()
        for one in request.headers.get("webhook-signature", "").split():
            version, _, value = one.partition(",")
            if version == "v1" and hmac.compare_digest(value, base64.b64encode(expected).decode()):
                return ""
        return "no signature that fits"

    async def _moved(self, request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"{self.url}/hook"})
