"""The view on the embedded broker: everything written before is in it when it is ready, and what is written after follows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from faultline.live_view.decisions import Decisions
from faultline.live_view.follow import follow
from faultline.live_view.view import KEPT_FOR, LiveView
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, RUNS, TIMELINE, Topic, partition_of
from streams.model.clock import to_millis, utc_now
from streams.model.codec import encode
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import ConfigError, Temporary
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import IncidentState
from streams.model.pulse import Pulse
from tests.connectors.chat import thread_documents
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded

NOW = utc_now()
INCIDENT = thread_documents.incident(fault_at=NOW, opened_at=NOW, updated_at=NOW)


@asynccontextmanager
async def following(settings: KafkaSettings, view: LiveView) -> AsyncIterator[Pulse]:
    pulse = Pulse()
    running = asyncio.create_task(follow(settings, view, pulse=pulse))
    try:
        await seen(lambda: view.ready or running.done(), "the view is complete")
        yield pulse
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def seen(condition: Callable[[], object], what: str) -> None:
    async def look() -> object:
        return condition()

    await eventually(look, what)


async def tell(
    settings: KafkaSettings, *documents: tuple[Topic, str, object], at: datetime | None = None
) -> None:
    client = await clients.started(clients.producer(settings), settings)
    try:
        place = partition_of("c1", settings.cluster_partitions)
        for topic, key, document in documents:
            value = document if isinstance(document, bytes | None) else encode(document)
            stamp = None if at is None else to_millis(at)
            await client.send_and_wait(
                topic.name, value, key=key.encode(), partition=place, timestamp_ms=stamp
            )
    finally:
        await client.stop()


async def test_what_was_written_before_and_after_the_start_is_in_the_view(tmp_path: Path) -> None:
    run, node = thread_documents.run(INCIDENT), NodeFact("c1", "node-07", "u-7", NOW, gpus=8)
    entry = TimelineEntry(INCIDENT.id, "c1", NOW, "responder", "run.began", "began", {"command": "cmd-1"})
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        await tell(
            kafka.settings,
            *((INCIDENTS, INCIDENT.id, replace(INCIDENT, revision=number)) for number in range(1, 50)),
            (INCIDENTS, "inc-garbage", b"\xff no document"),
            (RUNS, run.id, run),
            (RUNS, "run-gone", replace(run, id="run-gone")),
            (RUNS, "run-gone", None),
            (INVENTORY, "c1/node/node-07", FactRecord(node)),
            (CONTROLS, "c1", Control("c1", revision=3)),
            (TIMELINE, INCIDENT.id, entry),
        )
        view = LiveView()
        async with following(kafka.settings, view) as pulse:
            assert pulse.is_ready
            known = view.incident(INCIDENT.id)
            assert known is not None
            assert known.revision == 49
            assert [one.id for one in view.runs(INCIDENT.id)] == [run.id]
            assert view.nodes("c1")["node-07"].gpus == 8
            assert view.control("c1").revision == 3
            assert [one.text for one in view.timeline(INCIDENT.id)] == ["began"]
            assert len(await view.answers("cmd-1", 0)) == 1

            with view.changes() as changes:
                await tell(kafka.settings, (INCIDENTS, INCIDENT.id, replace(INCIDENT, revision=50)))
                assert await changes.wait() == (INCIDENT.id,)


async def test_what_was_over_long_ago_is_shown_only_if_it_still_holds_a_node(tmp_path: Path) -> None:
    long_ago = NOW - KEPT_FOR - timedelta(days=1)
    over = replace(INCIDENT, state=IncidentState.RESOLVED, updated_at=long_ago, closed_at=long_ago)
    other = replace(over, id="inc-" + "b" * 16)
    node = NodeFact("c1", "node-07", "u-7", NOW, unschedulable=True, owner_incident=over.id)
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        for one in (over, other):
            await tell(kafka.settings, (INCIDENTS, one.id, one), at=long_ago)
        # Written last and read first.
        await tell(kafka.settings, (INVENTORY, "c1/node/node-07", FactRecord(node)))
        view = LiveView()
        async with following(kafka.settings, view):
            assert view.incident(over.id) == over
            assert view.incident(other.id) is None


async def test_a_command_is_answered_through_the_view(tmp_path: Path) -> None:
    command = Command("cmd-1", INCIDENT.id, "c1", Verb.ACK, "ann", NOW)
    answer = TimelineEntry(INCIDENT.id, "c1", NOW, "ann", "incident.acked", "ann looks", {"command": "cmd-1"})
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        view = LiveView()
        decisions = Decisions(kafka.settings, view)
        await decisions.start()
        async with following(kafka.settings, view):
            unanswered = await decisions.decide(command, 0)
            assert (unanswered.accepted, "stored" in unanswered.text) == (None, True)
            deciding = asyncio.create_task(decisions.decide(command, 60))
            await tell(kafka.settings, (TIMELINE, INCIDENT.id, answer))
            decision = await deciding
            assert (decision.accepted, decision.text) == (True, "ann looks")
        await decisions.close()


async def test_a_command_that_kafka_does_not_take_is_refused_for_now(tmp_path: Path) -> None:
    command = Command("cmd-1", INCIDENT.id, "c1", Verb.ACK, "ann", NOW)
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        decisions = Decisions(kafka.settings, LiveView(), timeout_s=0.3)
        await decisions.start()
        await decisions.send(command)
        await kafka.down()
        for _ in range(3):
            with pytest.raises(Temporary):
                await decisions.send(command)
        await kafka.up()

        async def taken() -> bool:
            try:
                await decisions.send(command)
            except Temporary:
                return False
            return True

        await eventually(taken, "Kafka takes commands again")
        await decisions.close()


async def test_a_command_before_the_start_is_a_mistake(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        decisions = Decisions(kafka.settings, LiveView())
        with pytest.raises(RuntimeError, match="before `start`"):
            await decisions.send(Command("cmd-1", INCIDENT.id, "c1", Verb.ACK, "ann", NOW))


async def test_a_topic_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        settings = kafka.settings.model_copy(update={"topic_prefix": "other-"})
        with pytest.raises(ConfigError, match="other-controls does not exist"):
            await follow(settings, LiveView(), pulse=Pulse())
