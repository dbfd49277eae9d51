"""`/live`, `/ready` and `/metrics` of a process, answered from its pulse and its metrics by a thread of its own.

The event loop may be busy for a while with a burst of records; a kubelet that gets no answer would then restart a process that
works at full speed, and the next one would start over. A process that really hangs is recognized by its pulse.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from streams.model.pulse import Pulse
from streams.telemetry.redaction import clean
from streams.telemetry.registry import Metrics

REQUEST_S = 5.0
"""How long a client may take to send its request."""


@asynccontextmanager
async def health_server(
    pulse: Pulse, *, host: str, port: int, metrics: Metrics | None = None
) -> AsyncIterator[int]:
    """Serve while the context lasts; yields the port. Does nothing and yields 0 when `port` is 0.

    Raises:
        OSError: when the address cannot be listened on.
    """
    if port == 0:
        yield 0
        return
    server = _Server(pulse, metrics, host, port)
    thread = Thread(target=server.serve_forever, args=(0.1,), name="probes", daemon=True)
    thread.start()
    try:
        yield port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A client that connects and sends nothing must not delay the shutdown.
    block_on_close = False
    request_queue_size = 64

    def __init__(self, pulse: Pulse, metrics: Metrics | None, host: str, port: int) -> None:
        self.pulse = pulse
        self.metrics = metrics
        self.address_family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Probe)

    def server_bind(self) -> None:
        # The base class resolves the host name, which may take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is not logged."""


class _Probe(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S
    server: _Server

    def do_GET(self) -> None:
        pulse = self.server.pulse
        match self.path.split("?")[0]:
            case "/live":
                stalled = pulse.stalled
                self._answer(200 if not stalled else 503, not stalled, stalled)
            case "/ready":
                ready = pulse.is_ready
                self._answer(200 if ready else 503, ready, pulse.stalled, **pulse.states)
            case "/metrics" if self.server.metrics is not None:
                self._send(200, *self.server.metrics.exposition(self.headers.get("Accept", "")))
            case _:
                self._answer(404, False, "there are /live, /ready and /metrics")

    do_HEAD = do_GET

    def _answer(self, status: int, good: bool, why: str, **more: object) -> None:
        body = clean(json.dumps({"ok": good} | ({"why": why} if why else {}) | more)).encode()
        self._send(status, body, "application/json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes are not logged."""
