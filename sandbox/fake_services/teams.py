"""A stand-in for a Teams workflow that posts what a webhook sends it ("When a Teams webhook request is received").

`POST /workflows/{id}/triggers/manual/paths/invoke?sig=…`, as the Workflows app makes such URLs:

* 401 for a wrong `sig`, 400 for a body that is no JSON object, 429 with Retry-After beyond `per_window` requests in `window_s`.
* Else 202 with an empty body, before anything is posted. What the flow then makes of it nobody learns: a message whose card is
  too large (28 KB) or not of version 1.5, and everything while the flow is `orphaned`, ends in `lost`, the rest in `posts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
from aiohttp import web

from sandbox.fake_services.server import Standin

MAX_MESSAGE_BYTES = 28 * 1024
CARD = "application/vnd.microsoft.card.adaptive"
PATH = "/workflows/0123456789abcdef/triggers/manual/paths/invoke"

_ELEMENTS = {
    "AdaptiveCard": {"$schema", "version", "body", "msteams", "fallbackText"},
    "Container": {"style", "bleed", "items"},
    "RichTextBlock": {"inlines", "spacing"},
    "TextRun": {"text", "weight", "size", "isSubtle", "fontType", "selectAction"},
    "TextBlock": {"text", "wrap"},
    "Table": {"columns", "rows", "firstRowAsHeader", "showGridLines"},
    "TableRow": {"cells"},
    "TableCell": {"items"},
    "Action.OpenUrl": {"url"},
}
"""The part of the schema of Adaptive Cards 1.5 that is used here: the properties of each element besides `type`."""


class TeamsStandin(Standin):
    """A flow that posts in one channel."""

    def __init__(
        self,
        *,
        sig: str = "standin-sig",
        per_window: int = 1_000,
        window_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.sig, self.per_window, self.window_s = sig, per_window, window_s
        self.orphaned = False
        self.posts: list[dict[str, Any]] = []
        self.ids: list[str] = []
        """The `X-Faultline-Id` of each request that was taken."""
        self.lost: list[str] = []
        """Why a request that was answered with 202 was not posted."""
        self._clock = clock
        self._taken_at: list[float] = []
        self.app.router.add_post(PATH, self._invoke)

    @property
    def trigger(self) -> str:
        """The path and query of its URL."""
        return f"{PATH}?api-version=1&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={self.sig}"

    async def _invoke(self, request: web.Request) -> web.Response:
        if request.query.get("sig") != self.sig:
            return web.json_response({"error": {"code": "DirectApiAuthorizationRequired"}}, status=401)
        now = self._clock()
        self._taken_at = [at for at in self._taken_at if now - at < self.window_s]
        if len(self._taken_at) >= self.per_window:
            return web.json_response(
                {"error": {"code": "429"}}, status=429, headers={"Retry-After": str(int(self.window_s) or 1)}
            )
        raw = await request.read()
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            return web.json_response({"error": {"code": "InvalidRequestContent"}}, status=400)
        self._taken_at.append(now)
        self.ids.append(request.headers.get("X-Faultline-Id", ""))
        if why := "the flow has no owner" if self.orphaned else _not_postable(body, len(raw)):
            self.lost.append(why)
        else:
            self.posts.append(body["attachments"][0]["content"])
        return web.Response(status=202)


def _not_postable(body: dict[str, Any], size: int) -> str:
    attachments = body.get("attachments") or []
    if body.get("type") != "message" or not attachments or attachments[0].get("contentType") != CARD:
        return "no message with an adaptive card"
    if size > MAX_MESSAGE_BYTES:
        return f"{size} bytes are too large"
    return next(_wrong(attachments[0]["content"]), "")


def _wrong(element: Any) -> Iterator[str]:
    """What the schema does not allow."""
    if isinstance(element, list):
        for one in element:
            yield from _wrong(one)
    elif isinstance(element, dict) and "type" in element:
        known = _ELEMENTS.get(element["type"])
        if known is None or set(element) - known - {"type"}:
            yield f"{element['type']}: {sorted(set(element) - (known or set()))}"
        for value in element.values():
            yield from _wrong(value)
