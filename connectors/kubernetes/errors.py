"""Errors of the API server, by what an answer, or the lack of one, means for the caller.

FaultlineError
├── Unreachable         no connection: certainly not sent
├── Temporary           429, a failed read: certainly not applied, the same call may succeed later
│   ├── Conflict            409: the object changed since it was read; read it again
│   ├── EvictionBlocked     429 of an eviction: blocked by a PodDisruptionBudget
│   └── Gone                410: the resourceVersion or page token is too old; list again
├── Permanent           4xx: certainly not applied, and never will be as it is
│   ├── NotFound            404
│   ├── AlreadyExists       409 of a create
│   └── Forbidden           401 and 403
│       └── Unauthorized        401: the credentials, not a right
└── MaybeApplied        a write whose answer was lost (timeout, cut connection, 5xx): look it up first

A read never ends in `MaybeApplied`. Source of the meanings: Kubernetes API conventions, "HTTP Status codes".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import orjson

from streams.model.errors import FaultlineError, Permanent, Temporary, Unreachable


class Conflict(Temporary):
    """The object changed since it was read (409): read it again and decide again."""


class Gone(Temporary):
    """The resourceVersion or continue token is too old (410): list again."""


class EvictionBlocked(Temporary):
    """A PodDisruptionBudget does not allow this eviction now (429)."""


class NotFound(Permanent):
    """No such object, or no such kind (404)."""


class AlreadyExists(Permanent):
    """An object of that name is there already (409 of a create)."""


class Forbidden(Permanent):
    """No or not enough rights (401, 403); the message says which right is missing."""


class Unauthorized(Forbidden):
    """Credentials that the server does not accept (401), fresh ones included."""


class MaybeApplied(FaultlineError):
    """A write whose answer was lost: it may or may not have been applied."""


NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
"""Failures before a connection was open: nothing can have reached the server."""


def of_transport(error: Exception, *, write: bool, what: str) -> FaultlineError:
    """A transport failure as one of these errors. `what` is method and path, for the message."""
    reason = str(error) or type(error).__name__
    if isinstance(error, NOT_SENT):
        return Unreachable(f"the API server does not answer: {what}: {reason}")
    if isinstance(error, asyncio.TimeoutError):
        reason = "no answer in time"
    if write:
        return MaybeApplied(f"{what}: {reason}; it may have been applied")
    return Temporary(f"{what}: {reason}")


def of_status(
    status: int, headers: Mapping[str, str], body: bytes, *, write: bool, what: str
) -> FaultlineError:
    """An answer of 400 and above as one of these errors, with the server's own message."""
    answer = _status_object(body)
    reason, message = str(answer.get("reason") or ""), str(answer.get("message") or "")
    text = f"{what}: {status} {reason}: {message or body[:200].decode('utf-8', 'replace')}"
    retry_after = _retry_after(headers, answer)
    match status:
        case 401:
            return Unauthorized(text)
        case 403:
            return Forbidden(text)
        case 404:
            return NotFound(text)
        case 409 if reason == "AlreadyExists":
            return AlreadyExists(text)
        case 409:
            return Conflict(text, retry_after_s=retry_after)
        case 410:
            return Gone(text, retry_after_s=retry_after)
        case 429 if budget := _budget_cause(answer):
            return EvictionBlocked(f"{text} ({budget})", retry_after_s=retry_after)
        case 429:
            return Temporary(text, retry_after_s=retry_after)
        case _ if status >= 500:
            return MaybeApplied(text) if write else Temporary(text, retry_after_s=retry_after)
        case _:
            return Permanent(text)


def of_event(status: Mapping[str, Any], *, what: str) -> FaultlineError:
    """The `object` of a watch's ERROR event as one of these errors."""
    code = status.get("code")
    body = orjson.dumps(status)
    return of_status(code if isinstance(code, int) else 500, {}, body, write=False, what=what)


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}  # a proxy's page: the message then quotes its first bytes
    return answer if isinstance(answer, dict) else {}


def _details(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    details = answer.get("details")
    return details if isinstance(details, dict) else {}


def _budget_cause(answer: Mapping[str, Any]) -> str:
    """What the eviction handler says about the budget, which it names only there; a 429 of flow control has no cause."""
    causes = _details(answer).get("causes")
    for cause in causes if isinstance(causes, list) else []:
        if isinstance(cause, dict) and cause.get("reason") == "DisruptionBudget":
            return str(cause.get("message") or "a PodDisruptionBudget")
    return ""


def _retry_after(headers: Mapping[str, str], answer: Mapping[str, Any]) -> float | None:
    """Seconds from the header, else from `details.retryAfterSeconds`; the HTTP-date form is not used by Kubernetes."""
    for given in (headers.get("Retry-After"), _details(answer).get("retryAfterSeconds")):
        try:
            seconds = float(given) if given is not None else 0.0
        except (TypeError, ValueError):
            continue
        if seconds > 0:
            return seconds
    return None
