"""Hundreds of incidents at once in the chat: what matters most is told first, what is over is left out, and no work explodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faultline.chat import thread_sources
from faultline.chat.summaries import MANY
from faultline.chat.thread_plan import wanted
from sandbox.emulated import broker
from sandbox.fake_services.slack import SlackStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, RUNS, TIMELINE, partition_of
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.incident import Certainty, Incident, IncidentState, incident_id
from streams.model.pulse import Pulse
from streams.model.run import EffectRecord, EffectState, Mode, Run, StepState
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
            await seen(lambda: len(told(server)) == COUNT + 1, "all that matter are told")
            await seen(lambda: len(server.roots()) >= 2, "also what was over and acted on")
        await producer.stop()
    roots = [root.text for root in server.roots()]
    assert len(roots) == 2, "the storm, and the one that was over and acted on"
    assert f"{COUNT + 1} incidents in c1" in roots[0]
    assert acted_on.title in roots[1]
    assert "fell off the bus" in told(server)[0]
    assert not [text for text in told(server) if any(one.title in text for one in passed_by)]
    # Each message is worked out a few times, not once for every message of all the others.
    assert worked_out < 12 * len(incidents)


async def test_a_rack_going_down_is_one_thread_that_outlives_a_restart_and_ends(tmp_path: Path) -> None:
    incidents = [node_down(n) for n in range(40)]
    ended = [replace(one, revision=2, state=IncidentState.RESOLVED, closed_at=utc_now()) for one in incidents]
    asked = thread_documents.run(
        incidents[7], Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL, ticket=StepState.PENDING
    )
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
    ):
        await write(*incidents[:20])
        async with chatting(embedded.settings, server, Pulse()):
            await seen(lambda: len(told(server)) == 20, "the first half is told")
        await write(*incidents[20:])
        async with chatting(embedded.settings, server, Pulse()):
            await seen(lambda: len(told(server)) == 40, "the second half is told in the same thread")
            assert len(server.roots()) == 1
            await write(asked)
            await seen(lambda: len(server.roots()) == 2, "who has to decide finds it in the channel")
            await write(*ended)
            await seen(lambda: "40 resolved" in server.roots()[0].text, "the end is told")
            await seen(lambda: sum("resolved" in text for text in told(server)) == 40, "of each of them")
    summary, own = server.roots()
    assert [reply.text for reply in server.thread(own.ts) if "pproval needed" in reply.text]
    assert [text for text in told(server) if "a thread of its own" in text]
    keys = [message.key for message in server.channels["C0INCIDENTS"] if not message.deleted]
    assert len(keys) == len(set(keys))
    assert summary.edits < 30, "its counts are edited in together"


async def test_a_summary_that_a_person_deletes_is_posted_anew_with_all_its_incidents(tmp_path: Path) -> None:
    incidents = [node_down(n) for n in range(6)]
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
    ):
        await write(*incidents)
        async with chatting(embedded.settings, server, Pulse()):
            await seen(lambda: len(told(server)) == 6, "all are told")
            (old,) = server.roots()
            server.delete(old.ts)
            await write(node_down(6))
            await seen(lambda: len(server.roots()) == 1 and len(told(server)) == 7, "all are told anew")
    assert server.roots()[0].ts != old.ts


async def test_a_flood_that_arrives_while_it_is_told_is_one_thread(tmp_path: Path) -> None:
    flood = [node_down(n) for n in range(300)]
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
        chatting(embedded.settings, server, Pulse()),
    ):
        for start in range(0, len(flood), 30):
            await write(*flood[start : start + 30])
        await seen(lambda: len(server.channels["C0INCIDENTS"]) > len(flood), "all of it is told")
    # Whatever is told before the fifth arrives has a thread of its own.
    assert len(server.roots()) <= MANY


async def test_four_at_once_are_four_threads(tmp_path: Path) -> None:
    async with (
        broker.running(log=tmp_path / "broker.log") as embedded,
        SlackStandin() as server,
        writing(embedded.settings) as write,
    ):
        await write(*(node_down(n) for n in range(4)))
        async with chatting(embedded.settings, server, Pulse()):
            await seen(lambda: len(server.roots()) == 4, "each has its own")


def told(server: SlackStandin) -> list[str]:
    """What the first thread says of each incident, in the order of the replies."""
    roots = server.roots()
    return [reply.text for reply in server.thread(roots[0].ts)] if roots else []


@asynccontextmanager
async def writing(settings: KafkaSettings) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    producer = await clients.started(clients.producer(settings), settings)
    partition = partition_of("c1", settings.cluster_partitions)

    async def write(*documents: Incident | Run | TimelineEntry) -> None:
        for document in documents:
            match document:
                case Incident():
                    topic, key = INCIDENTS, document.id
                case Run():
                    topic, key = RUNS, document.id
                case TimelineEntry():
                    topic, key = TIMELINE, document.incident
            await producer.send(topic.name, encode(document), key=key.encode(), partition=partition)
        await producer.flush()

    try:
        yield write
    finally:
        await producer.stop()
