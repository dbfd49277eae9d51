"""Runs one command in a container of a pod, through the API server (`pods/exec` over a WebSocket), with bounded output and time.

The command is a list and goes through no shell. Protocol: v5.channel.k8s.io, or v4 of older servers; each message is a channel
number and its bytes, and channel 3 ends it with a Status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp
import orjson

from connectors.kubernetes import errors
from connectors.kubernetes.client import Cluster, path_of

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_OUTPUT, _STATUS = (1, 2), 3


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. `exit_code` is None where the server did not say; `output` is cut to what was asked for."""

    exit_code: int | None
    output: str
    cut: bool = False
    reason: str = ""
    """What the server said where it did not run."""


async def run_in(
    cluster: Cluster,
    namespace: str,
    pod: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    timeout_s: float = 8.0,
    max_bytes: int = 4096,
) -> Ran:
    """Run a command and wait for its end.

    Raises:
        Forbidden: no right to `pods/exec`.
        NotFound: there is no such pod.
        MaybeApplied: no end within `timeout_s`, or the connection was cut: it may have run.
    """
    path = path_of("v1", "pods", namespace=namespace, name=pod, subresource="exec")
    query = [*(("command", part) for part in command), ("stdout", "true"), ("stderr", "true")]
    query += [("container", container)] if container else []
    what = f"exec in {namespace}/{pod}"
    try:
        async with asyncio.timeout(timeout_s):
            socket = await cluster.websocket(path, query, _PROTOCOLS)
            async with socket:
                return await _read(socket, max_bytes)
    except aiohttp.WSServerHandshakeError as error:
        headers = dict((error.headers or {}).items())
        raise errors.of_status(
            error.status, headers, error.message.encode(), write=True, what=what
        ) from error
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise errors.of_transport(error, write=True, what=what) from error


async def _read(socket: aiohttp.ClientWebSocketResponse, max_bytes: int) -> Ran:
    output, cut = b"", False
    async for message in socket:
        data = message.data if isinstance(message.data, bytes) else str(message.data).encode()
        if not data:
            continue
        channel, rest = data[0], data[1:]
        if channel in _OUTPUT:
            cut = cut or len(output) + len(rest) > max_bytes
            output += rest[: max_bytes - len(output)]
        elif channel == _STATUS:
            code, reason = _ended(rest)
            return Ran(code, output.decode("utf-8", "replace"), cut, reason)
    return Ran(None, output.decode("utf-8", "replace"), cut, "the connection ended before the command")


def _ended(raw: bytes) -> tuple[int | None, str]:
    """The exit code in a Status; None with the reason where it did not run."""
    try:
        status = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None, raw[:200].decode("utf-8", "replace")
    if status.get("status") == "Success":
        return 0, ""
    causes = (status.get("details") or {}).get("causes") or []
    codes = [str(cause.get("message")) for cause in causes if cause.get("reason") == "ExitCode"]
    message = str(status.get("message") or "")[:200]
    return (int(codes[0]), message) if codes and codes[0].isdecimal() else (None, message)
