"""What the correlator counts of what it published."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from streams.correlate.changes import Changes
from streams.correlate.figures import CorrelatorFigures
from streams.telemetry import metrics as shown
from streams.telemetry import tracing
from streams.telemetry.registry import Metrics
from streams.telemetry.trace_context import of_incident
from tests.streams.correlate.world import FOUR, World, cluster, off_bus


class Tracing:
    """Tracing is on; what is asked for here makes no span."""

    def span(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("an exemplar makes no span")

    def outcomes(self) -> Any:
        return {}


async def test_an_incident_counts_once_and_stands_until_it_is_over() -> None:
    world, metrics = World(cluster({"a": FOUR})), Metrics("correlator")
    figures = CorrelatorFigures(metrics, lambda: world.now)
    seen = 0

    async def publish() -> None:
        nonlocal seen
        figures.published(Changes(tuple(world.revisions[seen:]), tuple(world.timeline[seen:])))
        seen = len(world.revisions)
        await metrics.look_around()

    world.see(off_bus("n2", 10.0))
    await publish()
    incident = world.only()
    family = incident.family
    assert metrics.value(shown.INCIDENTS_OPENED, family) == 1
    assert metrics.value(shown.INCIDENTS, incident.state, family) == 1
    assert metrics.value(shown.INCIDENT_DELAY, family) == 1
    assert metrics.value(shown.DETECTION_DELAY) == 1
    world.revisions.append(replace(incident, revision=2))
    await publish()
    assert metrics.value(shown.INCIDENTS_OPENED, family) == 1
    figures.lost()
    await metrics.look_around()
    assert metrics.value(shown.INCIDENTS, incident.state, family) == 0
    world.restart()
    figures.took_over(world.engine.standing())
    await metrics.look_around()
    assert metrics.value(shown.INCIDENTS, world.only().state, family) == 1
    assert metrics.value(shown.INCIDENTS_OPENED, family) == 1


async def test_the_delay_is_from_the_evidence_in_kafka_to_the_incident() -> None:
    world, metrics = World(cluster({"a": FOUR})), Metrics("correlator")
    world.see(off_bus("n2", 10.0))
    read_at = world.only().evident_read_at
    assert read_at is not None
    figures = CorrelatorFigures(metrics, lambda: read_at + timedelta(seconds=0.25))
    figures.published(Changes(tuple(world.revisions[:1])))
    name = f'faultline_incident_delay_seconds_sum{{family="{world.only().family}"}} 0.25'
    assert name in metrics.exposition("")[0].decode()


async def test_while_tracing_is_on_a_delay_leads_to_the_trace_of_its_incident() -> None:
    world = World(cluster({"a": FOUR}))
    world.see(off_bus("n2", 10.0))
    texts = []
    for tracer in (Tracing(), None):
        metrics = Metrics("correlator")
        with tracing.installed(tracer):
            CorrelatorFigures(metrics, lambda: world.now).published(Changes(tuple(world.revisions)))
        texts.append(metrics.exposition("application/openmetrics-text; version=1.0.0")[0].decode())
    assert f'# {{trace_id="{of_incident(world.only().id).trace_id}"}}' in texts[0]
    assert "trace_id" not in texts[1]
