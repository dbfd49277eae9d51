"""A request that is refused: with which status, why, and when to try again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import ceil

import structlog
from aiohttp import web

from streams.model.errors import FaultlineError, Temporary, Unreachable

log = structlog.get_logger(__name__)

RETRY_S = 5.0
"""When a sender should try again if nothing better is known."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestRefused(FaultlineError):
    """A request that is not served. The message goes to the sender: it never holds a secret or what a topic holds."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


@web.middleware
async def answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn refusals and outages behind the gateway into answers: what may succeed later is a 503, so senders retry."""
    try:
        return await handler(request)
    except RequestRefused as refused:
        return _answer(request, refused)
    except (Temporary, Unreachable) as error:
        # Whoever cannot reach Kafka says so once; a line for each sender that comes again meanwhile would bury it.
        log.debug("not taken", path=request.path, reason=str(error))
        later = getattr(error, "retry_after_s", None) or RETRY_S
        return _answer(request, RequestRefused(503, "not taken, try again", retry_after_s=later))


def _answer(request: web.Request, refused: RequestRefused) -> web.Response:
    answer = web.json_response({"ok": False, "error": str(refused)}, status=refused.status)
    if refused.retry_after_s is not None:
        answer.headers["Retry-After"] = str(max(1, ceil(refused.retry_after_s)))
    if refused.status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="faultline"'
    if request.body_exists and not request.content.is_eof():
        # The rest of the body is not waited for: the connection ends with this answer.
        answer.force_close()
    return answer
