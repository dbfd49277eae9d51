"""What every hook does with a request: prove who sends it, bound it, take it, and answer once it is durable.

The order matters. A token is in the head: without the right one the body is not read. A signature needs the body: until it is
proven, a sender gets little room and few tries. Only what is proven counts against the hook's rate.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import structlog
from aiohttp import web

from faultline.gateway.authentication import BodyProof, Headers, HeadProof
from faultline.gateway.limits import BodyBudget, FailureLimit, TokenBucket, read_body, refuse_long
from faultline.gateway.parts import GatewayParts
from faultline.gateway.refusal import RequestRefused

log = structlog.get_logger(__name__)

ROOM_S = 3.0
"""How long a request waits for room for its body."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery whose sender is proven. `by_signature`: by one over the body, which does not cover the other headers."""

    body: bytes
    headers: Headers
    content_type: str
    by_signature: bool

    def json(self) -> Any:
        """The body as JSON. Raises RequestRefused when it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise RequestRefused(400, f"the body is no JSON: {error}") from error


class Hook(ABC):
    """One path. Subclasses say how a sender proves itself, and what becomes of a delivery."""

    name: str
    most_bytes: int

    def __init__(self, parts: GatewayParts, heads: Sequence[HeadProof], bodies: Sequence[BodyProof]) -> None:
        settings = parts.settings
        self.parts = parts
        self._heads = heads
        self._bodies = bodies
        self._rate = TokenBucket(settings.requests_per_s, settings.requests_at_once)
        self._failures = FailureLimit(settings.failures_per_minute)

    @abstractmethod
    async def take(self, delivery: Delivery) -> str:
        """Take a delivery. What it returns is told to the sender; by then it is durable.

        Raises:
            RequestRefused, Temporary: when it is not taken.
        """

    async def receive(self, request: web.Request, budget: BodyBudget) -> web.Response:
        """Answer a request."""
        proven = any(head.proves(request.headers) for head in self._heads)
        offered = [body for body in self._bodies if body.is_offered(request.headers)]
        address = request.remote or ""
        if not proven:
            self._refuse_stranger(address, is_signed=bool(offered))
        settings = self.parts.settings
        most = min(self.most_bytes, settings.max_body_bytes)
        refuse_long(request, most)
        length = request.content_length
        async with budget.hold(most if length is None else length, proven=proven, wait_s=ROOM_S):
            try:
                body = await read_body(request, most=most, timeout_s=settings.body_timeout_s)
                if not proven:
                    self._check(offered, request.headers, body)
            except RequestRefused as refused:
                if not proven:
                    self._fail(address, str(refused))
                raise
            if wait := self._rate.take(_monotonic()):
                raise RequestRefused(503, "too many deliveries, try again", retry_after_s=wait)
            delivery = Delivery(body, request.headers, request.content_type, by_signature=not proven)
            told = await self.take(delivery)
            self.parts.count(f"{self.name} taken")
            return web.json_response({"ok": True, "text": told})

    def _refuse_stranger(self, address: str, *, is_signed: bool) -> None:
        """Refuse who proves nothing, and whoever failed too often, before the body is read."""
        if wait := self._failures.wait(address, _monotonic()):
            raise RequestRefused(429, "too many failed authentications", retry_after_s=wait)
        if not is_signed:
            self._fail(address, "no token or signature, or a wrong one")
            raise RequestRefused(401, "no token or signature, or a wrong one")

    def _check(self, offered: Sequence[BodyProof], headers: Headers, body: bytes) -> None:
        for proof in offered:
            proof.check(headers, body, self.parts.clock())

    def _fail(self, address: str, why: str) -> None:
        self._failures.failed(address, _monotonic())
        self.parts.count(f"{self.name} refused")
        log.warning("delivery refused", hook=self.name, address=address, reason=why)


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
