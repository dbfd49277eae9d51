"""Spans, for the shells of the processes. Off until `install`: then `span` costs a comparison, and OpenTelemetry is not imported.

    with tracing.span("process raw", CONSUMER, links=batch.contexts) as span:
        await write(records, headers=span.headers)

Pure parts know nothing of it, so replays and what-ifs start no spans whatever is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from enum import Enum
from typing import Protocol

from streams.telemetry.trace_context import TraceContext, of_incident, of_run

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value]
Headers = tuple[tuple[str, bytes], ...]

MAX_LINKS = 128
"""Links of one span at most, as OpenTelemetry has it by default."""


class Kind(Enum):
    """What a span is towards others."""

    INTERNAL = "internal"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(Protocol):
    """A span under way."""

    @property
    def headers(self) -> Headers:
        """The headers of records that are written within it; none while tracing is off."""

    @property
    def context(self) -> TraceContext | None:
        """What others link to; None while tracing is off."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def fail(self, kind: str, reason: str = "") -> None:
        """Say that it failed: `kind` is of a bounded set, `reason` is for people."""


class Tracer(Protocol):
    """Makes spans and sends them: `streams.telemetry.export`."""

    def outcomes(self) -> Mapping[tuple[str, ...], float]:
        """How many spans were sent, failed or were dropped."""

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
    ) -> AbstractContextManager[Span]:
        """A span from now, or `began_at`, until the context ends, or `ended_at`. An exception marks it as failed."""


class _NoSpan:
    headers: Headers = ()
    context: TraceContext | None = None

    def set(self, attributes: Attributes) -> None:
        """Nothing is kept."""

    def fail(self, kind: str, reason: str = "") -> None:
        """Nothing is kept."""


NO_SPAN: Span = _NoSpan()
"""For work that has no span of its own, whether tracing is on or not."""
_tracer: Tracer | None = None


@contextmanager
def installed(tracer: Tracer | None) -> Iterator[None]:
    """Have `span` make spans of `tracer` while the context lasts; None leaves tracing off."""
    global _tracer
    before, _tracer = _tracer, tracer
    try:
        yield
    finally:
        _tracer = before


def is_on() -> bool:
    """Whether spans are made."""
    return _tracer is not None


def outcomes() -> Mapping[tuple[str, ...], float]:
    """What became of spans, by outcome; empty while tracing is off."""
    return _tracer.outcomes() if _tracer is not None else {}


def span(
    name: str,
    kind: Kind = Kind.INTERNAL,
    *,
    parent: TraceContext | None = None,
    own: TraceContext | None = None,
    links: Sequence[TraceContext] = (),
    attributes: Attributes | None = None,
    began_at: datetime | None = None,
    ended_at: datetime | None = None,
) -> AbstractContextManager[Span]:
    """A span while the context lasts. `own` are the ids it has to have; without them they are random.

    With `own` or with a parent it is sampled as these say; else when a span that it links to is, or by the ratio of the settings.
    """
    if _tracer is None:
        return nullcontext(NO_SPAN)
    return _tracer.span(
        name,
        kind,
        parent=parent,
        own=own,
        links=links[:MAX_LINKS],
        attributes=attributes or {},
        began_at=began_at,
        ended_at=ended_at,
    )


def incident_headers(incident: str) -> Headers:
    """The headers of a record about an incident; none while tracing is off."""
    return of_incident(incident).headers if _tracer is not None else ()


def run_headers(incident: str, run: str) -> Headers:
    """The headers of a record about a run; none while tracing is off."""
    return of_run(incident, run).headers if _tracer is not None else ()


def incident_trace(incident: str) -> str | None:
    """The trace of an incident, for exemplars; None while tracing is off."""
    return of_incident(incident).trace_id if _tracer is not None else None
