"""From a cordon back to the log line, in what a collector was sent: the whole pipeline as processes, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from connectors.kubernetes.client import path_of
from sandbox.demo import shippers, stack
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, RUNS, Topic
from streams.telemetry import semconv
from streams.telemetry.trace_context import TraceContext, extract, of_incident
from tests.testbed.otlp_collector import Collector, Received, collecting
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded

NODE = "gpu-03"
SHIPPER = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True, "vendor=1")
OFF_BUS = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


async def test_a_cordon_leads_back_to_the_line_that_caused_it(tmp_path: Path) -> None:
    with collecting() as collector:
        sections = {"tracing": {"endpoint": collector.url, "sample_ratio": 0.0}}
        async with stack.running(tmp_path, sections=sections) as running:
            await _write(running)

            async def cordoned() -> bool:
                node = await running.api.get(path_of("v1", "nodes", name=NODE))
                return bool(node["spec"].get("unschedulable"))

            await eventually(cordoned, "the node is cordoned")

            async def sent() -> bool:
                posts = [
                    one for one in _of_chat(collector) if one.attributes[semconv.ACTION] == "open_thread"
                ]
                return bool(collector.named("apply cordon_node") and posts)

            await eventually(sent, "the collector has the cordon and the thread")
            of_incidents, of_runs = await _headers(running, INCIDENTS), await _headers(running, RUNS)
    spans = collector.by_ids()
    cordon = collector.named("apply cordon_node")[0]
    run = spans[cordon.trace_id, cordon.parent_id]
    incident = spans[run.trace_id, run.parent_id]
    name = incident.attributes[semconv.INCIDENT]
    assert run.name.startswith("start run ")
    assert incident.name == "open incident gpu_off_bus"
    assert incident.ids == of_incident(name)[:2]
    linked = [spans[link] for link in incident.links]
    step = _one(linked, "process signals")
    batch = _one(linked, "process raw")
    assert batch.ids in step.links
    assert SHIPPER[:2] in batch.links
    assert batch.attributes[semconv.DESTINATION] == "raw.node-logs"
    places = incident.attributes[semconv.EVIDENCE]
    assert any(place.startswith("raw.node-logs:") for place in places), places
    thread = next(one for one in _of_chat(collector) if one.attributes[semconv.ACTION] == "open_thread")
    assert (thread.trace_id, thread.parent_id) == incident.ids
    components = {one.resource[semconv.SERVICE_NAME] for one in (batch, step, cordon, thread)}
    assert components == {
        "faultline-detector",
        "faultline-correlator",
        "faultline-responder",
        "faultline-chat",
    }
    # Records that a reader of the topics finds carry the same.
    assert incident.ids in {context[:2] for context in of_incidents}
    assert run.ids in {context[:2] for context in of_runs}
    # With a ratio of nothing, only what a traced record led to and what is always traced was sent.
    assert len(collector.named("process raw")) == 1
    _check_logs(tmp_path, incident)


def _check_logs(folder: Path, incident: Received) -> None:
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    lines = [orjson.loads(line) for line in logs.splitlines() if line.startswith("{")]
    calls = [line for line in lines if line["event"] == "call" and line["action"] == "cordon_node"]
    assert calls
    for line in calls:
        assert line["incident"] == incident.attributes[semconv.INCIDENT]
        assert line["trace_id"] == incident.trace_id
        assert line["run"].startswith("run-")
        assert line["process"] == "responder"
        assert isinstance(line["partition"], int)


def _of_chat(collector: Collector) -> list[Received]:
    return [
        one
        for one in collector.by_ids().values()
        if one.resource[semconv.SERVICE_NAME] == "faultline-chat" and semconv.INCIDENT in one.attributes
    ]


def _one(spans: Iterable[Received], name: str) -> Received:
    found = [one for one in spans if one.name == name]
    assert len(found) == 1, [one.name for one in spans]
    return found[0]


async def _write(running: stack.Stack) -> None:
    producer = await clients.started(clients.producer(running.kafka), running.kafka)
    try:
        for text, headers in ((OFF_BUS, SHIPPER.headers), ("usb 1-1: new high-speed USB device", ())):
            record = shippers.kernel_line(NODE, text, datetime.now(UTC))
            await producer.send_and_wait(
                clients.topic_name(running.kafka, record.topic),
                record.value,
                key=record.key.encode() if record.key else None,
                headers=list(headers),
            )
    finally:
        await producer.stop()


async def _headers(running: stack.Stack, topic: Topic) -> list[TraceContext]:
    found = []
    for partition in range(running.kafka.cluster_partitions):
        latest = await clients.read_to_end(running.kafka, topic, partition)
        found += [extract(record.headers) for record in latest.values()]
    return [context for context in found if context is not None]
