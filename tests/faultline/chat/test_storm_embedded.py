"""Hundreds of incidents at once in the chat: what matters most is told first, what is over is left out, and no work explodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faultline.chat import thread_sources
from faultline.chat.thread_plan import wanted
from sandbox.emulated import broker
from sandbox.fake_services.slack import SlackStandin
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, RUNS, partition_of
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.entity import Entity
from streams.model.incident import Certainty, Incident, IncidentState, incident_id
from streams.model.pulse import Pulse
from streams.model.run import EffectRecord, EffectState, StepState
from streams.model.signal import Severity
from tests.connectors.chat import thread_documents
from tests.faultline.chat.test_chat_embedded import chatting, seen

pytestmark = pytest.mark.embedded

COUNT = 120


def node_down(number: int, **changes: Any) -> Incident:
    now = utc_now()
    root = Entity("c1", node=f"node-{number:04}")
    return thread_documents.incident(
        id=incident_id("c1", root, "node_down", 1),
        family="node_down",
        root=root,
        severity=Severity.ERROR,
        certainty=Certainty.LIKELY,
        title=f"node-{number:04} is not ready",
        proofs=(),
        fault_at=now,
        opened_at=now,
        updated_at=now,
        **changes,
    )


async def test_the_grave_one_is_told_first_and_what_was_over_untouched_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = utc_now()
    passed_by = [
        node_down(n, state=IncidentState.RESOLVED, closed_at=now - timedelta(minutes=5))
        for n in range(COUNT, 2 * COUNT)
    ]
    acted_on = passed_by[0]
    grave = thread_documents.incident(fault_at=now, opened_at=now, updated_at=now)
    incidents = [*passed_by, *(node_down(n) for n in range(COUNT)), grave]
    run = thread_documents.run(acted_on, cordon=StepState.DONE)
    closing = EffectRecord("k1", "cordon_node", thread_documents.NODE, EffectState.CONFIRMED, now, now)
    run = replace(run, steps=(replace(run.steps[0], effect=closing), *run.steps[1:]))
    worked_out = 0

    def counted(*arguments: Any) -> Any:
        nonlocal worked_out
        worked_out += 1
        return wanted(*arguments)

    monkeypatch.setattr(thread_sources, "wanted", counted)
    async with broker.running(log=tmp_path / "broker.log") as embedded, SlackStandin() as server:
        producer = await clients.started(clients.producer(embedded.settings), embedded.settings)
        partition = partition_of("c1", embedded.settings.cluster_partitions)
        for incident in incidents:
            await producer.send(
                INCIDENTS.name, encode(incident), key=incident.id.encode(), partition=partition
            )
        await producer.send_and_wait(RUNS.name, encode(run), key=run.id.encode(), partition=partition)
        async with chatting(embedded.settings, server, Pulse()):
            await seen(lambda: len(server.roots()) >= COUNT + 2, "all that matter have a thread")
        await producer.stop()
    roots = [root.text for root in server.roots()]
    assert len(roots) == COUNT + 2, "the open ones, the grave one, and the one that was acted on"
    assert "fell off the bus" in roots[0]
    assert not [text for text in roots if any(one.title in text for one in passed_by[1:])]
    # Each message is worked out a few times, not once for every message of all the others.
    assert worked_out < 12 * len(incidents)
