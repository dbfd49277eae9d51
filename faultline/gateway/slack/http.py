"""Slack's requests over HTTP: the signature over the raw body first, then the same as over Socket Mode."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import orjson
import structlog
from aiohttp import web

from connectors.chat.slack_requests import MAX_BODY_BYTES, Forged, verify
from faultline.gateway.limits import BodyBudget, FailureLimit, read_body, refuse_long
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import RequestRefused
from faultline.gateway.slack.actions import Delivery
from faultline.gateway.slack.desk import Desk
from streams.model.errors import BadInput, Temporary

log = structlog.get_logger(__name__)

ROOM_S = 1.0
"""How long a request waits for room for its body: Slack waits three seconds for everything."""

_SIGNATURE = "X-Slack-Signature"

MAX_SIGNATURES = 20_000
"""Signatures of requests that were taken: the same one again within its five minutes is a replay."""


def routes(parts: GatewayParts) -> list[web.RouteDef]:
    """`/slack/interactions`, `/slack/commands` and `/slack/events`; none without a signing secret."""
    secret = parts.slack.signing_secret
    if secret is None or parts.slack.token is None:
        return []
    requests = _Requests(parts, secret.get_secret_value())
    return [
        web.post("/slack/interactions", requests.interaction),
        web.post("/slack/commands", requests.command),
        web.post("/slack/events", requests.event),
    ]


class _Requests:
    """The three addresses that an app's configuration names."""

    def __init__(self, parts: GatewayParts, secret: str) -> None:
        self._parts = parts
        self._budget = BodyBudget(parts.settings.max_held_bytes)
        self._failures = FailureLimit(parts.settings.failures_per_minute)
        self._secret = secret
        self._desk = Desk(parts)
        self._taken: OrderedDict[str, None] = OrderedDict()

    async def interaction(self, request: web.Request) -> web.Response:
        return await self._answer(request, "interactive")

    async def command(self, request: web.Request) -> web.Response:
        return await self._answer(request, "slash_commands")

    async def event(self, request: web.Request) -> web.Response:
        return await self._answer(request, "events_api")

    async def _answer(self, request: web.Request, kind: str) -> web.Response:
        body = await self._genuine(request)
        signature = request.headers[_SIGNATURE]
        # Nothing was awaited since it was checked: of two copies at once, one is the replay.
        self._remember(signature)
        try:
            payload = _payload(kind, body)
            if kind == "events_api" and payload.get("type") == "url_verification":
                return web.json_response({"challenge": str(payload.get("challenge", ""))[:1000]})
            said = await self._desk.take(Delivery(kind, payload))
        except BadInput as error:
            raise RequestRefused(400, str(error)) from error
        except Temporary:
            self._taken.pop(signature, None)
            raise
        return web.Response() if said is None else web.json_response(dict(said))

    async def _genuine(self, request: web.Request) -> bytes:
        """The body of a request that Slack has signed. Raises RequestRefused."""
        address, settings = request.remote or "", self._parts.settings
        now = asyncio.get_running_loop().time()
        if wait := self._failures.wait(address, now):
            raise RequestRefused(429, "too many failed authentications", retry_after_s=wait)
        refuse_long(request, MAX_BODY_BYTES)
        size = MAX_BODY_BYTES if request.content_length is None else request.content_length
        async with self._budget.hold(size, proven=False, wait_s=ROOM_S):
            body = await read_body(request, most=MAX_BODY_BYTES, timeout_s=settings.body_timeout_s)
        try:
            verify(self._secret, request.headers, body, self._parts.clock())
            if request.headers[_SIGNATURE] in self._taken:
                raise Forged("the request was taken before")
        except Forged as error:
            self._failures.failed(address, now)
            log.warning(
                "refused a request as not Slack's", path=request.path, address=address, reason=str(error)
            )
            raise RequestRefused(401, str(error)) from error
        return body

    def _remember(self, signature: str) -> None:
        self._taken[signature] = None
        if len(self._taken) > MAX_SIGNATURES:
            self._taken.popitem(last=False)


def _payload(kind: str, body: bytes) -> Mapping[str, Any]:
    """What a request carries: JSON for an event, a form for a command, a form with one JSON field for an interaction."""
    try:
        if kind == "events_api":
            return _object(body)
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise BadInput("the request is no form") from error
    if kind == "slash_commands":
        return dict(fields)
    found = [text for name, text in fields if name == "payload"]
    if len(found) != 1:
        raise BadInput("the request has no single `payload`")
    return _object(found[0])


def _object(text: str | bytes) -> Mapping[str, Any]:
    try:
        loaded = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput("the request is no JSON") from error
    if not isinstance(loaded, dict):
        raise BadInput("the request is no JSON object")
    return loaded
