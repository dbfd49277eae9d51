"""A collector that keeps the spans it is sent over HTTP, decoded by OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True)
class Received:
    """One span. Ids are hex; `links` are pairs of trace and span id."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]
    resource: dict[str, Any]
    failed: bool
    reason: str

    @property
    def ids(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


@dataclass
class Collector:
    """What has come. `status` is the answer to the next requests."""

    status: int = 200
    url: str = ""
    spans: list[Received] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """Decode a request."""
        raw = (
            gzip.decompress(body)
            if headers.get("Content-Encoding", headers.get("content-encoding")) == "gzip"
            else body
        )
        request = ExportTraceServiceRequest.FromString(raw)
        with self.lock:
            self.headers.append({name.lower(): value for name, value in headers.items()})
            self.bodies.append(raw)
            for by_resource in request.resource_spans:
                resource = {one.key: _value(one.value) for one in by_resource.resource.attributes}
                for scope in by_resource.scope_spans:
                    for span in scope.spans:
                        self.spans.append(
                            Received(
                                span.name,
                                span.trace_id.hex(),
                                span.span_id.hex(),
                                span.parent_span_id.hex(),
                                tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                                {one.key: _value(one.value) for one in span.attributes},
                                resource,
                                span.status.code == 2,
                                span.status.message,
                            )
                        )

    def named(self, name: str) -> list[Received]:
        """The spans of a name."""
        with self.lock:
            return [span for span in self.spans if span.name == name]

    def by_ids(self) -> dict[tuple[str, str], Received]:
        """Every span by its ids."""
        with self.lock:
            return {span.ids: span for span in self.spans}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of loopback."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/v1/traces":
                self.send_error(404)
                return
            if collector.status == 200:
                collector.take(dict(self.headers), body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
