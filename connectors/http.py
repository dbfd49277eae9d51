"""Builds all HTTP clients, and decides what the result of a request means.

The hard part is a missing answer. A request that never left (no connection) may be sent again; one that was cut off after it
left may have been executed, and for a change that means `Ambiguous`: look it up first. The client itself retries nothing; only
reads are repeated here, a few times and briefly.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

import httpx
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from connectors.base import LeaseHeld, Outcome, Refused, Retry, Unknown
from streams.model.errors import FaultlineError, Permanent, Temporary

MAX_RETRY_AFTER_S = 3600.0
"""The longest pause accepted from a Retry-After header."""

_READ_ATTEMPTS = 3
_DEFAULT_PAUSE_S = 5.0


class Ambiguous(FaultlineError):
    """A change was sent and its outcome is not known: a timeout, a cut connection, a server error."""


class Throttled(Temporary):
    """The server asked to be left alone for a while: a limit, or a service that says when it is back."""


class Rejected(Permanent):
    """The server refused the request. `body` is its answer where that was a JSON object, else empty."""

    def __init__(self, message: str, *, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


def http_client(
    base_url: str,
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    auth: tuple[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    """A client for one API. It follows no redirects (a body must not end up elsewhere) and retries nothing.

    A proxy named in the environment is used, but never towards this machine itself.
    """
    trust_env = not is_loopback(httpx.URL(base_url).host)
    return httpx.AsyncClient(
        base_url=base_url.rstrip("/") + "/",
        timeout=timeout_s,
        headers={"User-Agent": "faultline", "Accept": "application/json", **(headers or {})},
        auth=auth,
        follow_redirects=False,
        verify=tls if tls is not None else public_authorities(trust_env=trust_env),
        trust_env=trust_env,
    )


def public_authorities(*, trust_env: bool) -> ssl.SSLContext:
    """What certificates are checked against where nothing else is set: all clients of a process share it.

    Reading the bundle takes 20 ms of an event loop, more than all else of a client that is made for one request. A bundle
    that the environment names is read again once its file has changed.
    """
    file = os.environ.get("SSL_CERT_FILE", "") if trust_env else ""
    folder = os.environ.get("SSL_CERT_DIR", "") if trust_env else ""
    return _authorities(trust_env, file, folder, os.stat(file).st_mtime_ns if file else 0)


@lru_cache(maxsize=4)
def _authorities(trust_env: bool, file: str, folder: str, changed_ns: int) -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=trust_env)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as the body of a request: alone, or where `part` names a field, in a form."""

    name: str
    media_type: str
    content: bytes
    part: str = ""


async def change(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    *,
    lease: LeaseHeld,
    json: Any = None,
    params: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    upload: Upload | None = None,
) -> dict[str, Any]:
    """Send a request that changes something, once, and return its JSON object (empty without a body; a list as `items`).

    Raises:
        Fenced: the lease does not hold any more; nothing was sent.
        Temporary: it was certainly not executed (no connection, 429).
        Ambiguous: it may have been executed (timeout, cut connection, 5xx, an answer that is not JSON).
        Rejected: the server refused it.
    """

    sent: dict[str, Any] = {"json": json, "params": params, "headers": dict(headers or {})}
    if upload is not None and upload.part:
        sent["files"] = {upload.part: (upload.name, upload.content, upload.media_type)}
    elif upload is not None:
        sent["content"] = upload.content
        sent["headers"]["Content-Type"] = upload.media_type
    response = await send_once(client, method, path, lease=lease, **sent)
    answer = _answer(_where(client, method, path), response, uncertain=Ambiguous)
    if isinstance(answer, list):  # as Jira answers an upload
        return {"items": answer}
    return answer


async def send_once(
    client: httpx.AsyncClient, method: str, path: str, *, lease: LeaseHeld, **sent: Any
) -> httpx.Response:
    """Send a request that changes something, once, and return the response as it is, whatever its status.

    Raises:
        Fenced: the lease does not hold any more; nothing was sent.
        Temporary: it certainly did not arrive.
        Ambiguous: it may have arrived.
    """

    async def check_before_send(event: str, _: Mapping[str, Any]) -> None:
        # Checked again right before the request is written: waiting for a connection may take longer than the lease.
        if event.endswith("send_request_headers.started"):
            lease.check()

    lease.check()
    try:
        return await client.request(method, path, **sent, extensions={"trace": check_before_send})
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise Temporary(f"{_where(client, method, path)}: cannot connect: {_what(error)}") from error
    except httpx.RequestError as error:
        raise Ambiguous(f"{_where(client, method, path)}: no answer: {_what(error)}") from error


def answer_of(client: httpx.AsyncClient, method: str, path: str, response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a response to `send_once`, with the meaning and the errors of `change`."""
    answer = _answer(_where(client, method, path), response, uncertain=Ambiguous)
    return answer if isinstance(answer, dict) else {"items": answer}


async def deliver(
    client: httpx.AsyncClient,
    path: str,
    content: bytes,
    *,
    lease: LeaseHeld,
    deadline_s: float,
    headers: Mapping[str, str],
) -> int:
    """POST bytes to whoever takes them, once, and return the status of an answer that says yes. Its body is not read: it may be
    anything, of any length. Neither the path nor the answer is in an error's words: they may hold a secret.

    Raises:
        Fenced: the lease does not hold any more; nothing was sent.
        Temporary: it was certainly not taken (no connection, 408, 425, 429, 503 that says when to come back).
        Ambiguous: it may have been taken (no answer within `deadline_s`, a cut connection, another 5xx).
        Rejected: the receiver refused it, or answered with a redirect.
    """
    where, left = f"POST {client.base_url.host}", False

    async def check_before_send(event: str, _: Mapping[str, Any]) -> None:
        nonlocal left
        if event.endswith("send_request_headers.started"):
            lease.check()
            left = True

    lease.check()
    try:
        async with (
            asyncio.timeout(deadline_s),
            client.stream(
                "POST",
                path,
                content=content,
                headers=dict(headers),
                extensions={"trace": check_before_send},
            ) as response,
        ):
            status, pause = response.status_code, retry_after_s(response)
    except (httpx.RequestError, TimeoutError) as error:
        # A proxy that opens no tunnel was sent a request, too, but not ours.
        if not left or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
            raise Temporary(f"{where}: cannot connect: {type(error).__name__}") from error
        raise Ambiguous(f"{where}: no answer: {type(error).__name__}") from error
    if 200 <= status < 300:
        return status
    if status in (408, 425, 429) or (status == 503 and pause is not None):
        kind = Throttled if pause is not None or status == 429 else Temporary
        raise kind(f"{where}: not now ({status})", retry_after_s=pause)
    if status >= 500:
        raise Ambiguous(f"{where}: server error {status}")
    what = "a redirect, which is not followed" if 300 <= status < 400 else "refused"
    raise Rejected(f"{where}: {what} ({status})", status=status, body={})


async def read(
    client: httpx.AsyncClient,
    method: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    json: Any = None,
) -> dict[str, Any]:
    """Send a request that changes nothing and return its JSON object; brief failures are retried.

    Raises:
        Temporary: it failed for now.
        Rejected: the server refused it.
    """
    answer = await _read(client, method, path, params, json)
    if isinstance(answer, list):
        raise Temporary(f"{_where(client, method, path)}: the answer is not a JSON object")
    return answer


async def read_list(
    client: httpx.AsyncClient, path: str, *, params: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """GET a page of JSON objects. Raises as `read` does."""
    answer = await _read(client, "GET", path, params, None)
    if not isinstance(answer, list) or not all(isinstance(row, dict) for row in answer):
        raise Temporary(f"{_where(client, 'GET', path)}: the answer is not a list of JSON objects")
    return answer


async def _read(
    client: httpx.AsyncClient, method: str, path: str, params: Mapping[str, Any] | None, json: Any
) -> dict[str, Any] | list[Any]:
    attempts = AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, Temporary) and error.retry_after_s is None),
        stop=stop_after_attempt(_READ_ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.1, max=1.0),
        reraise=True,
    )
    return await attempts(_read_once, client, method, path, params, json)


async def _read_once(
    client: httpx.AsyncClient, method: str, path: str, params: Mapping[str, Any] | None, json: Any
) -> dict[str, Any] | list[Any]:
    try:
        response = await client.request(method, path, params=params, json=json)
    except httpx.RequestError as error:
        raise Temporary(f"{_where(client, method, path)}: {_what(error)}") from error
    return _answer(_where(client, method, path), response, uncertain=Temporary)


def outcome_of(error: FaultlineError) -> Outcome:
    """What an error of `change` or `read` means for an effect. Other errors are raised again."""
    match error:
        case Ambiguous():
            return Unknown(str(error))
        case Temporary():
            pause = _DEFAULT_PAUSE_S if error.retry_after_s is None else error.retry_after_s
            return Retry(pause, str(error), asked=isinstance(error, Throttled))
        case Permanent():
            return Refused(str(error))
        case _:
            raise error


async def translated(call: Awaitable[Outcome]) -> Outcome:
    """The outcome of a connector's call, with the errors of `change` and `read` turned into outcomes too."""
    try:
        return await call
    except (Ambiguous, Temporary, Permanent) as error:
        return outcome_of(error)


def retry_after_s(response: httpx.Response) -> float | None:
    """Seconds from a Retry-After header, given as seconds or as a date; None without a usable one."""
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.replace(".", "", 1).isascii() and value.replace(".", "", 1).isdigit():
        seconds = float(value)
    else:
        try:
            seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


def _answer(
    where: str, response: httpx.Response, *, uncertain: type[Ambiguous] | type[Temporary]
) -> dict[str, Any] | list[Any]:
    """The JSON of a response, empty without a body. `uncertain` is raised where nobody knows what the server did."""
    status = response.status_code
    if status == 429 or (status == 403 and _is_throttled(response)):
        pause = retry_after_s(response)
        if pause is None:
            pause = _until_reset_s(response)
        raise Throttled(
            f"{where}: too many requests", retry_after_s=_DEFAULT_PAUSE_S if pause is None else pause
        )
    if status >= 500:
        raise uncertain(f"{where}: server error {status}")
    if response.is_success and not response.content:
        return {}
    body = _json(response)
    if not response.is_success:
        raise Rejected(
            f"{where}: refused with {status}", status=status, body=body if isinstance(body, dict) else {}
        )
    if not isinstance(body, dict | list):
        raise uncertain(f"{where}: the answer is neither a JSON object nor a list")
    return body


def _is_throttled(response: httpx.Response) -> bool:
    """Whether a 403 says "slow down": GitHub answers its limits so, with a header or only in words."""
    if response.headers.get("Retry-After") or response.headers.get("X-RateLimit-Remaining") == "0":
        return True
    return "rate limit" in response.text[:2000].casefold()


def _until_reset_s(response: httpx.Response) -> float | None:
    """Seconds until the limit is reset, where the answer says when; a minute where only its words tell of a limit."""
    reset = response.headers.get("X-RateLimit-Reset", "")
    if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isascii() and reset.isdigit():
        return min(max(float(reset) - datetime.now(UTC).timestamp(), 1.0), MAX_RETRY_AFTER_S)
    return 60.0 if response.status_code == 403 else None


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:  # the caller checks the type
        return None


def _where(client: httpx.AsyncClient, method: str, path: str) -> str:
    return f"{method} {client.base_url.host}/{path.lstrip('/').split('?')[0]}"


def _what(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, not an address
        return False
