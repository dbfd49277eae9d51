"""Spans of what is posted, paged and silenced, in the trace of the incident it is about."""

from __future__ import annotations

from contextlib import AbstractContextManager

from connectors.base import Effect, Outcome, Refused, Retry, Unknown
from streams.telemetry import semconv, tracing
from streams.telemetry.trace_context import of_incident


def call(kind: str, effect: Effect) -> AbstractContextManager[tracing.Span]:
    """The span of one call to a chat system or a sink; `kind` is `apply` or `lookup`."""
    if not tracing.is_on():
        return tracing.span("")
    about_one = effect.incident.startswith("inc-")  # a summary is about many
    return tracing.span(
        f"{kind} {effect.action}",
        tracing.Kind.CLIENT,
        parent=of_incident(effect.incident) if about_one else None,
        attributes={
            semconv.CLUSTER: effect.cluster,
            **({semconv.INCIDENT: effect.incident} if about_one else {}),
            semconv.ACTION: effect.action,
            semconv.CALL: kind,
            semconv.TARGET: str(effect.target),
            semconv.SLOT: effect.step,
            semconv.EFFECT_KEY: effect.key,
        },
    )


def say(span: tracing.Span, outcome: Outcome) -> None:
    """How a call ended."""
    name = type(outcome).__name__
    span.set({semconv.OUTCOME: name})
    if isinstance(outcome, Retry | Unknown | Refused):
        span.fail(name, outcome.reason)
