"""Spans by the OpenTelemetry SDK, sent as OTLP over HTTP by a thread of its own.

Work never waits for it: a span that finds the queue full is dropped, and a collector that is away costs its own thread time and
one log line, until it answers again. What became of the spans is counted. Nothing of it is imported while tracing is off.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import requests
import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace.span import SpanContext, TraceFlags, TraceState

from streams.config.tracing_settings import TracingSettings
from streams.model.clock import to_millis
from streams.telemetry import semconv
from streams.telemetry.redaction import clean
from streams.telemetry.trace_context import TraceContext
from streams.telemetry.tracing import MAX_LINKS, Attributes, Headers, Kind, Span, Value

log = structlog.get_logger("faultline.tracing")

CLOSE_S = 3.0
"""How long the end of a process waits for its last spans."""

SEND_EVERY_S = 0.5
"""What a killed process loses."""
MAX_VALUE = 1024
"""Most characters of one attribute's value."""

_KINDS = {
    Kind.INTERNAL: trace.SpanKind.INTERNAL,
    Kind.CLIENT: trace.SpanKind.CLIENT,
    Kind.PRODUCER: trace.SpanKind.PRODUCER,
    Kind.CONSUMER: trace.SpanKind.CONSUMER,
}

_own: ContextVar[TraceContext | None] = ContextVar("ids of the next span", default=None)


class SpanCounts:
    """What became of spans that ended. `dropped` found the queue full; what still waits is in none of them."""

    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._lock = threading.Lock()
        self.ended = self.sent = self.failed = 0

    def add(self, *, ended: int = 0, sent: int = 0, failed: int = 0) -> None:
        """Count; from any thread."""
        with self._lock:
            self.ended += ended
            self.sent += sent
            self.failed += failed

    @property
    def dropped(self) -> int:
        """Certainly dropped until now: ended, never handed to the exporter, and more than the queue holds."""
        with self._lock:
            return max(0, self.ended - self.sent - self.failed - self._queue)


class OtlpTracer:
    """Makes spans of one process and sends them. Close it at the end.

    Args:
        settings: With an endpoint.
        component: The process, the end of `service.name`.
        version: Of Faultline.
        instance: Names this process among its like.
        exporter: Instead of the one over HTTP, for tests.
    """

    def __init__(
        self,
        settings: TracingSettings,
        *,
        component: str,
        version: str,
        instance: str,
        exporter: SpanExporter | None = None,
    ) -> None:
        self.counts = SpanCounts(settings.queue)
        # They report each failed request, with the address; the exporter below does so once.
        for chatty in ("opentelemetry", "urllib3"):
            logging.getLogger(chatty).setLevel(logging.CRITICAL)
        resource = {
            semconv.SERVICE_NAMESPACE: "faultline",
            semconv.SERVICE_NAME: f"faultline-{component}",
            semconv.SERVICE_VERSION: version,
            semconv.SERVICE_INSTANCE_ID: instance,
            **settings.resource,
        }
        self._provider = TracerProvider(
            sampler=LinkedRatio(settings.sample_ratio),
            resource=Resource(resource),
            id_generator=_Ids(),
            span_limits=SpanLimits(max_links=MAX_LINKS, max_attribute_length=MAX_VALUE),
            shutdown_on_exit=False,
        )
        self._sender = BatchSpanProcessor(
            CountingExporter(exporter or _http_exporter(settings), self.counts),
            max_queue_size=settings.queue,
            schedule_delay_millis=SEND_EVERY_S * 1000,
            max_export_batch_size=512,
        )
        self._provider.add_span_processor(_CountEnded(self.counts))
        self._provider.add_span_processor(self._sender)
        self._tracer = self._provider.get_tracer("faultline", version)
        self._component = component

    @contextmanager
    def span(
        self,
        name: str,
        kind: Kind,
        *,
        parent: TraceContext | None,
        own: TraceContext | None,
        links: Sequence[TraceContext],
        attributes: Attributes,
        began_at: datetime | None,
        ended_at: datetime | None,
    ) -> Iterator[Span]:
        """See `streams.telemetry.tracing.span`."""
        token = _own.set(own)
        try:
            span = self._tracer.start_span(
                name,
                context=_parent_context(parent),
                kind=_KINDS[kind],
                attributes={semconv.COMPONENT: self._component, **_clean(attributes)},
                links=[trace.Link(_span_context(one)) for one in links],
                start_time=None if began_at is None else to_millis(began_at) * 1_000_000,
            )
        finally:
            _own.reset(token)
        try:
            yield _Handle(span)
        except BaseException as error:
            _Handle(span).fail(type(error).__name__, str(error))
            raise
        finally:
            span.end(None if ended_at is None else to_millis(ended_at) * 1_000_000)

    def outcomes(self) -> dict[tuple[str, ...], float]:
        """What became of spans so far."""
        counts = self.counts
        return {("sent",): counts.sent, ("failed",): counts.failed, ("dropped",): counts.dropped}

    def flush(self) -> None:
        """Send what waits, and wait for it: for tests, and for nobody who has work to do."""
        self._sender.force_flush()

    def close(self) -> None:
        """Send what waits, for `CLOSE_S` at most. Blocks."""
        closing = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(CLOSE_S)


class _Handle:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def context(self) -> TraceContext:
        known = self._span.get_span_context()
        return TraceContext(
            trace.format_trace_id(known.trace_id),
            trace.format_span_id(known.span_id),
            known.trace_flags.sampled,
        )

    @property
    def headers(self) -> Headers:
        return self.context.headers

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(_clean(attributes))

    def fail(self, kind: str, reason: str = "") -> None:
        self._span.set_attribute(semconv.ERROR_TYPE, kind)
        self._span.set_status(trace.StatusCode.ERROR, clean(reason)[:MAX_VALUE])


class LinkedRatio(Sampler):
    """Samples a span with a parent as the parent, one with ids of its own as these say, one that links to a sampled span always,
    and of the others a share."""

    def __init__(self, ratio: float) -> None:
        self._share = TraceIdRatioBased(ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace.SpanKind | None = None,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """The decision, as the SDK asks for it."""
        own = _own.get()
        parent = trace.get_current_span(parent_context).get_span_context()
        if own is not None:
            sampled = own.sampled
        elif parent.is_valid:
            sampled = parent.trace_flags.sampled
        elif any(link.context.trace_flags.sampled for link in links or ()):
            sampled = True
        else:
            return self._share.should_sample(None, trace_id, name, kind, attributes, links, trace_state)
        decision = Decision.RECORD_AND_SAMPLE if sampled else Decision.DROP
        return SamplingResult(decision, attributes if sampled else None, trace_state)

    def get_description(self) -> str:
        """Its name."""
        return f"LinkedRatio{{{self._share.get_description()}}}"


class CountingExporter(SpanExporter):
    """Counts what became of spans, and logs when sending begins to fail and when it works again, not each time."""

    def __init__(self, inner: SpanExporter, counts: SpanCounts) -> None:
        self._inner = inner
        self._counts = counts
        self._lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch; never raises."""
        try:
            result = self._inner.export(spans)
            why = "the collector did not take them"
        except Exception as error:  # noqa: BLE001 - a library's fault costs spans, and no work
            result, why = SpanExportResult.FAILURE, type(error).__name__
        if result is SpanExportResult.SUCCESS:
            self._counts.add(sent=len(spans))
            if self._lost:
                log.info("spans are sent again", lost=self._lost, dropped=self._counts.dropped)
                self._lost = 0
            return result
        self._counts.add(failed=len(spans))
        if not self._lost:
            log.warning("spans cannot be sent; nothing else waits for them", reason=why, spans=len(spans))
        self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()


class _CountEnded(SpanProcessor):
    def __init__(self, counts: SpanCounts) -> None:
        self._counts = counts

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._counts.add(ended=1)


class _Ids(RandomIdGenerator):
    """Random ids, or those that the span has to have."""

    def generate_trace_id(self) -> int:
        own = _own.get()
        return int(own.trace_id, 16) if own is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        own = _own.get()
        return int(own.span_id, 16) if own is not None else super().generate_span_id()


def _http_exporter(settings: TracingSettings) -> OTLPSpanExporter:
    if settings.endpoint is None:
        raise ValueError("tracing.endpoint is not set")
    session = requests.Session()
    session.trust_env = False  # no login from a .netrc, and no proxy in between: a collector is a neighbour
    return OTLPSpanExporter(
        endpoint=settings.endpoint.rstrip("/") + "/v1/traces",
        headers={name: value.get_secret_value() for name, value in settings.headers.items()},
        timeout=settings.timeout_s,
        compression=Compression.Gzip,
        session=session,
    )


def _span_context(context: TraceContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([context.state]) if context.state else None,
    )


def _parent_context(parent: TraceContext | None) -> Context:
    # Never the span around it by accident: a context without one begins a trace.
    if parent is None:
        return Context()
    return trace.set_span_in_context(trace.NonRecordingSpan(_span_context(parent)), Context())


def _clean(attributes: Attributes) -> dict[str, Value]:
    return {
        name: clean(value)
        if isinstance(value, str)
        else [clean(one) for one in value]
        if isinstance(value, list | tuple)
        else value
        for name, value in attributes.items()
    }
