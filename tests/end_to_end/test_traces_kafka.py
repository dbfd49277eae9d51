"""A trace on a real broker, through a pipeline whose correlator and responder are killed in the middle of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from streams.kafka.topics import RAW_NODE_LOGS
from streams.telemetry import semconv
from streams.telemetry.trace_context import of_incident, of_run
from tests.end_to_end import shippers
from tests.end_to_end.shadow_pipeline import ShadowPipeline, ago
from tests.faultline.replay.test_replay import JOB, NODES, TRAINING, node, pod
from tests.testbed.kafka import Kafka
from tests.testbed.otlp_collector import Received, collecting
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]


async def test_a_trace_goes_on_after_correlator_and_responder_were_killed(
    kafka: Kafka, tmp_path: Path
) -> None:
    with collecting() as collector:
        tracing = {"FAULTLINE_TRACING__ENDPOINT": collector.url, "FAULTLINE_TRACING__SAMPLE_RATIO": "1"}
        async with ShadowPipeline.running(kafka, tmp_path, **tracing) as pipeline:
            await pipeline.know([*map(node, NODES), JOB, *map(pod, range(4))], at=ago(600))
            pipeline.start("detector", "correlator", "responder")
            await pipeline.send(RAW_NODE_LOGS, [shippers.off_bus(TRAINING[1])])

            async def planned() -> bool:
                return bool(await pipeline.runs()) and await pipeline.is_planned()

            await eventually(planned, "the first fault has a run")

            async def sent_so_far() -> bool:
                wanted = [of_run(run.incident, run.id)[:2] for run in await pipeline.runs()]
                wanted += [of_incident(name)[:2] for name in await pipeline.incidents()]
                return set(wanted) <= collector.by_ids().keys()

            # A killed process loses what it has not sent yet.
            await eventually(sent_so_far, "the collector has the first fault and its run")
            for name in ("correlator", "responder"):
                pipeline.kill(name)
            # Read by the detector while nobody correlates; decided by the successors.
            await pipeline.send(RAW_NODE_LOGS, [shippers.off_bus(NODES[13])])
            pipeline.revive()

            async def both() -> bool:
                return (
                    len(await pipeline.incidents()) == 2
                    and len({r.incident for r in await pipeline.runs()}) == 2
                )

            await eventually(both, "both faults have runs")
            runs = {run.incident: run for run in await pipeline.runs()}

            async def sent() -> bool:
                spans = collector.by_ids()
                wanted = [
                    ids[:2] for name, run in runs.items() for ids in (of_run(name, run.id), of_incident(name))
                ]
                return set(wanted) <= spans.keys() and all(
                    _batches(spans, of_incident(name)[:2]) for name in runs
                )

            # Three processes send each its own.
            await eventually(
                sent, "the collector has both faults, their runs, and the batches they were read in"
            )
            spans = collector.by_ids()
        for name, run in runs.items():
            first = spans[of_incident(name)[:2]]
            assert first.attributes[semconv.INCIDENT] == name
            assert spans[of_run(name, run.id)[:2]].parent_id == first.span_id
            assert first.attributes[semconv.EVIDENCE][0].startswith("raw.node-logs:")


def _batches(spans: Mapping[tuple[str, str], Received], incident: tuple[str, str]) -> list[Received]:
    """The detector's batches that an incident is linked to."""
    links = [spans[link] for link in spans[incident].links if link in spans]
    return [span for span in links if span.name == "process raw"]
