"""A drill through real processes in automatic mode: it passes every hop, and nothing outside Kafka and the chat hears of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from faultline.cli.commands.drill import lines
from faultline.cli.drill import Played, play
from faultline.cli.drill_watch import CLOSED, INCIDENT, PLAN, RAW, RESPONDER, SIGNAL, THREAD
from faultline.cli.read_topics import read_incidents, read_runs_of
from faultline.runtime.settings import load
from sandbox.demo import stack
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, partition_of
from streams.model.codec import encode
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode

pytestmark = pytest.mark.embedded


FORGOTTEN = "inc-00000000000000f0"


async def forgotten(settings: KafkaSettings, like: Incident) -> None:
    """An open incident of a drill that was broken off an hour ago."""
    opened_at = like.opened_at - timedelta(hours=1)
    left = replace(like, id=FORGOTTEN, state=IncidentState.OPEN, opened_at=opened_at, closed_at=None)
    producer = await clients.started(clients.producer(settings), settings)
    try:
        partition = partition_of(like.cluster, settings.cluster_partitions)
        await producer.send_and_wait(
            INCIDENTS.name, encode(left), key=FORGOTTEN.encode(), partition=partition
        )
    finally:
        await producer.stop()


async def test_a_drill_passes_every_hop_of_an_automatic_installation_and_changes_nothing(
    tmp_path: Path,
) -> None:
    async with stack.running(tmp_path) as running:
        settings = load(running.settings_file)
        assert settings.responder.mode is Mode.AUTO
        before = await running.api.list_all("/api/v1/nodes")
        played = await play(settings, 60.0, "eve")
        after = await running.api.list_all("/api/v1/nodes")
        incidents = await read_incidents(running.kafka)
        runs = await read_runs_of(running.kafka, settings.cluster)
        await running.processes["detector"].stop(grace_s=8.0)
        await forgotten(running.kafka, next(iter(incidents.values())))
        stuck = await play(settings, 3.0, "eve")
    assert played.passed, lines(played)
    # The others are read from topics of their own: an incident may be seen before its signal.
    assert [hop.name for hop in played.watch.hops][:2] == [RESPONDER, RAW]
    assert {hop.name for hop in played.watch.hops} == {RESPONDER, RAW, SIGNAL, INCIDENT, PLAN, THREAD, CLOSED}
    (incident,) = incidents.values()
    assert incident.root.node == played.watch.host
    assert incident.state is IncidentState.RESOLVED
    assert {run.plan.mode for run in runs} == {Mode.SHADOW}
    assert all(record.effect is None for run in runs for record in run.steps)
    assert [node["spec"] for node in after] == [node["spec"] for node in before]
    assert not running.jira.issues
    assert [hop.name for hop in stuck.watch.hops] == [RESPONDER, RAW]
    assert (stuck.passed, stuck.failed_at, stuck.left_over) == (False, SIGNAL, (FORGOTTEN,))
    assert "no detector turned the record into a signal" in lines(stuck)[-1]["why"]


async def test_without_a_responder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultline.cli.drill.ANSWER_S", 1.0)
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        settings = load(None).model_copy(update={"kafka": embedded.settings})
        async with asyncio.timeout(60):
            played = await play(settings, 5.0, "eve")
    assert (played.passed, played.failed_at, played.watch.hops) == (False, RESPONDER, [])
    assert lines(played)[-1]["stopped_at"] == RESPONDER
    assert "so nothing was sent" in lines(played)[-1]["why"]
    assert not replace(played, failed_at=CLOSED).passed
    assert isinstance(played, Played)
