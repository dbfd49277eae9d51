"""Spans of runs and of their calls, all in the trace of the incident.

The first span of a run is sent when its plan is stored, so its calls have a parent from the beginning; one from the beginning to
the end follows when it is over. Both have ids of their own: a run that another responder goes on with is still in its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime

from connectors.base import Absent, AlreadyDone, Blocked, Done, Outcome, Refused, Retry, Unknown, Waiting
from runbooks.engine.run.transition import Call
from streams.model.run import Run
from streams.telemetry import semconv, tracing
from streams.telemetry.trace_context import of_finished_run, of_incident, of_run

Turn = tuple[Run, bool]
"""A run that begins, or (True) one that has ended."""


def turns(runs: Iterable[Run], before: Mapping[str, Run]) -> list[Turn]:
    """The runs among those about to be stored that begin or end with it; none while tracing is off."""
    if not tracing.is_on():
        return []
    found: list[Turn] = []
    for run in runs:
        known = before.get(run.id)
        if known is None:
            found.append((run, False))
        if run.finished_at is not None and (known is None or known.finished_at is None):
            found.append((run, True))
    return found


def taken_over(runs: Iterable[Run]) -> list[Turn]:
    """The runs that a successor goes on with: a killed responder may not have sent their first span. Sent twice, it is the same
    span."""
    return [(run, False) for run in runs] if tracing.is_on() else []


def emit(found: Iterable[Turn], now: datetime) -> None:
    """The spans of runs that were stored."""
    for run, ended in found:
        about: dict[str, tracing.Value] = {
            semconv.CLUSTER: run.cluster,
            semconv.INCIDENT: run.incident,
            semconv.RUN: run.id,
            semconv.RUNBOOK: f"{run.plan.runbook}@{run.plan.runbook_revision}",
            semconv.MODE: run.plan.mode.value,
        }
        if ended:
            about[semconv.RUN_OUTCOME] = run.outcome.value or run.state.value
        with tracing.span(
            f"{'finish' if ended else 'start'} run {run.plan.runbook}",
            parent=of_run(run.incident, run.id) if ended else of_incident(run.incident),
            own=(of_finished_run if ended else of_run)(run.incident, run.id),
            attributes=about,
            began_at=min(run.created_at, now),
            ended_at=run.finished_at if ended else min(run.created_at, now),
        ):
            pass


def call(one: Call) -> AbstractContextManager[tracing.Span]:
    """The span of one call to a connector."""
    effect = one.effect
    if not tracing.is_on():
        return tracing.span("")
    return tracing.span(
        f"{one.kind} {effect.action}",
        tracing.Kind.CLIENT,
        parent=of_run(effect.incident, effect.run),
        attributes={
            semconv.CLUSTER: effect.cluster,
            semconv.INCIDENT: effect.incident,
            semconv.RUN: effect.run,
            semconv.STEP: effect.step,
            semconv.ACTION: effect.action,
            semconv.CALL: one.kind,
            semconv.TARGET: str(effect.target),
            semconv.EFFECT_KEY: effect.key,
        },
    )


def say(span: tracing.Span, outcome: Outcome) -> None:
    """How a call ended. What is to be tried again has failed this time; a wait and a blocked call have not."""
    name = type(outcome).__name__
    span.set({semconv.OUTCOME: name})
    match outcome:
        case Retry() | Unknown() | Refused():
            span.fail(name, outcome.reason)
        case Done() | AlreadyDone() | Absent() | Waiting() | Blocked():
            pass
