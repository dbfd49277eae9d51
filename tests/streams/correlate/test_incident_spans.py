"""An incident's span links to the step that read its evidence, also where the clock decided, and to no span that nobody has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from streams.config.tracing_settings import TracingSettings
from streams.correlate.changes import Changes
from streams.correlate.incident_spans import IncidentSpans
from streams.model.incident import Incident
from streams.model.signal import Signal
from streams.telemetry import tracing
from streams.telemetry.export import OtlpTracer
from streams.telemetry.trace_context import TraceContext
from tests.streams.correlate.world import World, at, sign, xid
from tests.testbed.otlp_collector import Collector, Received, collecting

SHIPPER = TraceContext("ab" * 16, "cd" * 8, sampled=True)


@contextmanager
def tracer(collector: Collector, ratio: float) -> Iterator[OtlpTracer]:
    settings = TracingSettings(endpoint=collector.url, sample_ratio=ratio)
    made = OtlpTracer(settings, component="correlator", version="1", instance="one")
    try:
        with tracing.installed(made):
            yield made
    finally:
        made.close()


def opened() -> tuple[Signal, Incident, Changes]:
    """A GPU that fell off the bus, its incident, and what the correlator publishes of it."""
    world, lost = World(), xid("n1", 79, 0)
    world.see(lost)
    world.pass_to(120)
    (incident,) = world.incidents()
    incident = replace(incident, revision=1)
    entries = [e for e in world.timeline if e.incident == incident.id and e.event == "incident.opened"]
    return lost, incident, Changes(incidents=(incident,), timeline=tuple(entries[:1]))


def spans(ratio: float, *, decided_by_the_clock: bool) -> tuple[Received, Collector]:
    lost, _, changes = opened()
    with collecting() as collector, tracer(collector, ratio) as made:
        mine = IncidentSpans()
        mine.read(dict(SHIPPER.headers), [lost])
        with mine.step({"c1": [lost]}) as read:
            step = read.context
        if decided_by_the_clock:
            with mine.step({}) as span:
                mine.published(changes, span.context, at(30))
        else:
            mine.published(changes, step, at(30))
        other = sign("node.kernel", "n2", 40, "hung_task")
        with mine.step({"c1": [other]}):
            pass
        made.flush()
        (incident,) = [s for s in collector.by_ids().values() if s.name.startswith("open incident")]
        return incident, collector


@pytest.mark.parametrize("decided_by_the_clock", [False, True])
def test_the_step_that_read_the_evidence_is_linked(decided_by_the_clock: bool) -> None:
    incident, collector = spans(0.0, decided_by_the_clock=decided_by_the_clock)
    (step,) = collector.named("process signals")
    assert incident.links == (step.ids, SHIPPER[:2])


def test_what_is_read_and_decided_without_signals_has_no_span() -> None:
    _, collector = spans(1.0, decided_by_the_clock=True)
    assert sorted({s.name for s in collector.by_ids().values()}) == [
        "open incident gpu_off_bus",
        "process signals",
    ]


def test_a_step_that_nobody_has_is_not_linked() -> None:
    lost, _, changes = opened()
    with collecting() as collector, tracer(collector, 0.0) as made:
        mine = IncidentSpans()
        with mine.step({"c1": [lost]}) as span:
            mine.published(changes, span.context, at(30))
        made.flush()
        (incident,) = collector.by_ids().values()
    assert incident.links == ()
