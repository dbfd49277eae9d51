"""The correlator on a real broker: killed again and again, beside a second one, and nothing is lost or told twice."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from streams.config.settings import CorrelatorSettings
from streams.correlate import Config, Engine
from streams.kafka import provisioning
from streams.kafka.topics import CHANGELOG
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate import test_order
from tests.streams.correlate.emitter import Stage, present, stage
from tests.streams.correlate.world import at
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import PATIENCE_S, eventually
from tests.tiers import sample

pytestmark = pytest.mark.kafka

CONFIG = Config.of(
    CorrelatorSettings(tick_s=0.2, hang_settle_s=2.0, application_settle_s=1.0, node_settle_s=5.0)
)
TELLERS = (
    test_order.off_bus_story,
    test_order.silent_story,
    test_order.storm_story,
    test_order.application_story,
    test_order.two_faults_story,
)


@pytest_asyncio.fixture
async def scene(kafka: Kafka, tmp_path: Path) -> AsyncIterator[Stage]:
    settings = kafka.settings("correlate", cluster_partitions=3, session_timeout_ms=6000)
    await provisioning.apply(settings)
    with present():
        async with stage(settings, tmp_path) as found:
            yield found


def stories(count: int) -> Iterator[tuple[str, list[Fact], list[Signal]]]:
    """A cluster for each, told by turns."""
    for i in range(count):
        facts, signals = TELLERS[i % len(TELLERS)]()
        name = f"cluster-{i}"
        yield (
            name,
            [replace(fact, cluster=name) for fact in facts],
            [replace(s, entity=replace(s.entity, cluster=name)) for s in signals],
        )


def undisturbed(name: str, facts: list[Fact], signals: list[Signal]) -> list[object]:
    """What an engine says that sees everything at once and is left alone."""
    engine = Engine(name, {}, CONFIG)
    told = [engine.on_fact(fact.key, fact, at(0)) for fact in facts]
    told += [engine.on_signals(signals, at(620)), engine.on_tick(at(655))]
    return standing([i for changes in told for i in changes.incidents])


def standing(told: list[Incident]) -> list[object]:
    latest = {i.id: i for i in told}
    kept = [
        i
        for i in latest.values()
        if i.state is not IncidentState.MERGED and not i.reason.startswith("Withdrawn")
    ]
    return sorted((test_order.essence(i) for i in kept), key=str)


async def ends_with(scene: Stage, expected: dict[str, list[object]], *, timeout_s: float) -> None:
    """Wait until every cluster has the expected incidents; what differs at the deadline is told in full."""

    def found() -> dict[str, list[object]]:
        return {name: standing([i for i in scene.published if i.cluster == name]) for name in expected}

    async def the_same() -> bool:
        await scene.read()
        return found() == expected

    with suppress(TimeoutError):
        await eventually(the_same, "the same incidents", timeout_s=timeout_s)
    assert found() == expected, "\n".join(
        f"{i.updated_at} {i.id}#{i.revision} {i.state} {i.reason}" for i in scene.published
    )


PATIENT = {"hang_settle_s": 20.0, "application_settle_s": 20.0, "node_settle_s": 30.0}
"""As an installation waits: longer than a restart takes, or the evidence of a job would be judged while half of it is untold."""


@pytest.mark.parametrize(
    "label", sample(["before_store", "after_store", "after_publish", "anywhere"], "after_store")
)
async def test_killed_under_load_it_ends_with_the_same_incidents(scene: Stage, label: str) -> None:
    chance = random.Random(label)
    played = list(stories(5))
    expected = {name: undisturbed(name, facts, signals) for name, facts, signals in played}
    for _, facts, _ in played:
        await scene.tell(*facts)
    waiting = [(signals, chance.randint(4, 16)) for _, _, signals in played]
    batches = [signals[i : i + size] for signals, size in waiting for i in range(0, len(signals), size)]
    chance.shuffle(batches)
    for attempt in range(4):
        mine, batches = batches[: len(batches) // (4 - attempt)], batches[len(batches) // (4 - attempt) :]
        wishes: dict[str, object] = {"settle": PATIENT}
        if label != "anywhere":
            wishes |= {"die_at": f"correlator:{label}", "after": chance.randint(3, 40)}
        with scene.correlator(**wishes) as child:
            for batch in mine:
                await scene.see(*batch)
                await scene.read()
            if label == "anywhere":
                await scene.ticked(chance.randint(1, 8))
            else:
                assert child.wait(timeout_s=120) == -signal.SIGKILL
    with scene.correlator(settle=PATIENT):
        await ends_with(scene, expected, timeout_s=240)
    assert scene.buried == []
    for name in {i.id for i in scene.published}:
        revisions = [i.revision for i in scene.published if i.id == name]
        assert sorted(set(revisions)) == list(range(1, max(revisions) + 1))


async def test_a_second_correlator_takes_over_what_the_killed_one_held(scene: Stage) -> None:
    played = list(stories(5))
    expected = {name: undisturbed(name, facts, signals) for name, facts, signals in played}
    with scene.correlator(settle=PATIENT) as one, scene.correlator(settle=PATIENT) as other:
        for _, facts, signals in played:
            await scene.tell(*facts)
            await scene.see(*signals[: len(signals) // 2])

        async def some() -> bool:
            return len(await scene.latest()) >= 3

        await eventually(some, "both work")
        one.kill()
        for _, _, signals in played:
            await scene.see(*signals[len(signals) // 2 :])
        await ends_with(scene, expected, timeout_s=240)
        assert other.exit_code is None
        taken: list[dict[str, Any]] = []

        async def it_has_all() -> bool:
            lines = [json.loads(line) for line in other.log.read_text().splitlines() if line.startswith("{")]
            taken[:] = [line for line in lines if line["event"] == "partitions taken over"]
            return bool(taken[-1]["partitions"] == [0, 1, 2])

        await eventually(it_has_all, "the other has all partitions")
        assert taken[-1]["rows_read"] < await scene.end(CHANGELOG) / 2, "it had followed the state all along"


async def test_a_frozen_correlator_that_comes_back_stores_nothing(scene: Stage) -> None:
    played = list(stories(5))
    expected = {name: undisturbed(name, facts, signals) for name, facts, signals in played}
    for _, facts, _ in played:
        await scene.tell(*facts)
    with scene.correlator(settle=PATIENT, freeze_at="correlator:before_store", after=7) as frozen:
        for _, _, signals in played:
            for signal_ in signals:
                await scene.see(signal_)

        async def it_is_frozen() -> bool:
            return frozen.is_stopped

        async def it_notices() -> bool:
            return "nothing is stored" in frozen.tail(1000)

        await eventually(it_is_frozen, "it is frozen")
        with scene.correlator(settle=PATIENT) as other:
            await ends_with(scene, expected, timeout_s=240)
            frozen.signal(signal.SIGCONT)
            await eventually(it_notices, "it notices")
            other.kill()
        with scene.correlator(settle=PATIENT):
            await scene.ticked(20)
            frozen.kill()
            await scene.ticked(20)
            await ends_with(scene, expected, timeout_s=PATIENCE_S)
