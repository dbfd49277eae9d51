"""Spans of correlation: one for what is read together, one for an incident that opens, one for each of its later turns.

Which trace a signal comes from is only remembered, and only for the latest signals: an incident whose signals were read before a
restart names where its raw records lie, and no trace of them. Spans of incidents have ids of their own, so what is published once
more after a crash is the same span once more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice

from streams.correlate.changes import MORE_EVIDENCE, Changes
from streams.model.incident import Incident
from streams.model.signal import Signal
from streams.telemetry import semconv, tracing
from streams.telemetry.trace_context import TraceContext, extract, of_incident, of_revision

MAX_SIGNALS = 20_000
"""Signals whose trace is remembered, the latest."""
MAX_EVIDENCE = 16
OPENED = "incident.opened"


class IncidentSpans:
    """Of one correlator. Does nothing while tracing is off."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, TraceContext] = OrderedDict()
        """By signal: the trace of the record that brought it."""
        self._steps: OrderedDict[str, TraceContext] = OrderedDict()
        """By signal: the span of the step that read it, if that is sampled."""

    def read(
        self, headers: Iterable[tuple[str, bytes]] | Mapping[str, bytes] | None, signals: Sequence[Signal]
    ) -> None:
        """Remember the trace of signals that a record brought."""
        if not tracing.is_on() or (context := extract(headers)) is None:
            return
        _remember(self._traces, (signal.id for signal in signals), context)

    @contextmanager
    def step(self, signals: Mapping[str, Sequence[Signal]]) -> Iterator[tracing.Span]:
        """The span of what signals, by cluster, lead to. Facts and ticks have none."""
        if not signals or not tracing.is_on():
            yield tracing.NO_SPAN
            return
        ids = [signal.id for each in signals.values() for signal in each]
        with tracing.span(
            "process signals",
            tracing.Kind.CONSUMER,
            links=self._known(ids),
            attributes={
                semconv.SYSTEM: semconv.KAFKA,
                semconv.OPERATION_TYPE: semconv.PROCESS,
                semconv.OPERATION_NAME: semconv.PROCESS,
                semconv.DESTINATION: "signals",
                semconv.SIGNALS: len(ids),
            },
        ) as span:
            if span.context is not None and span.context.sampled:
                _remember(self._steps, ids, span.context)
            yield span

    def published(self, changes: Changes, step: TraceContext | None, now: datetime) -> None:
        """Spans of the incidents that were written, `step` being what led to them."""
        if not tracing.is_on():
            return
        events = {
            (entry.incident, entry.attributes.get("revision")): entry.event for entry in changes.timeline
        }
        for incident in changes.incidents:
            event = events.get((incident.id, incident.revision), MORE_EVIDENCE)
            if event == MORE_EVIDENCE:
                continue
            opened = event == OPENED
            # Much is decided by the clock: then the evidence was read by an earlier step. Of a step that is not sampled nobody
            # has a span to link to.
            links = [step] if step is not None and step.sampled else []
            if opened:
                evidence = [proof.signal_id for proof in incident.proofs]
                read = (self._steps[name] for name in evidence if name in self._steps)
                links = list(dict.fromkeys([*links, *read, *self._known(evidence)]))
            first = of_incident(incident.id)
            with tracing.span(
                f"open incident {incident.family}" if opened else event,
                tracing.Kind.PRODUCER,
                own=first if opened else of_revision(incident.id, incident.revision),
                parent=None if opened else first,
                links=links,
                attributes=_about(incident),
                began_at=_began_at(incident, now) if opened else None,
            ):
                pass

    def _known(self, signals: Iterable[str]) -> list[TraceContext]:
        found = (self._traces[name] for name in signals if name in self._traces)
        return list(islice(dict.fromkeys(found), tracing.MAX_LINKS - 1))


def _remember(traces: OrderedDict[str, TraceContext], names: Iterable[str], context: TraceContext) -> None:
    traces.update(dict.fromkeys(names, context))
    while len(traces) > MAX_SIGNALS:
        traces.popitem(last=False)


def _began_at(incident: Incident, now: datetime) -> datetime:
    """When Kafka had the evidence: the span is as long as it took to decide. A shipper's clock may be ahead."""
    return min(incident.evident_read_at or incident.opened_at, now)


def _about(incident: Incident) -> tracing.Attributes:
    places = dict.fromkeys(evidence.coordinates for proof in incident.proofs for evidence in proof.evidence)
    return {
        semconv.SYSTEM: semconv.KAFKA,
        semconv.OPERATION_TYPE: semconv.SEND,
        semconv.OPERATION_NAME: semconv.SEND,
        semconv.DESTINATION: "incidents",
        semconv.CLUSTER: incident.cluster,
        semconv.INCIDENT: incident.id,
        semconv.INCIDENT_FAMILY: incident.family,
        semconv.INCIDENT_REVISION: incident.revision,
        semconv.INCIDENT_STATE: incident.state.value,
        semconv.INCIDENT_ROOT: incident.root.key,
        semconv.EVIDENCE: list(places)[:MAX_EVIDENCE],
    }
