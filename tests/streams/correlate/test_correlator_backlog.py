"""A correlator that was away: one partition catches up for long, and the others live on meanwhile."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from streams.kafka import provisioning
from streams.kafka.topics import partition_of
from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate import world
from tests.streams.correlate.emitter import Stage, present, stage
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

PARTITIONS = 3
RECORDS, PODS_OF_A_RECORD = 640, 2
SILENCE_S = 8.0
"""Much less than the backlog takes."""
SLOW_S = 0.3
"""For up to eight records at once."""

BUSY = next(f"busy-{i}" for i in range(99) if partition_of(f"busy-{i}", PARTITIONS) == 0)
IDLE = next(f"idle-{i}" for i in range(99) if partition_of(f"idle-{i}", PARTITIONS) == 1)


@pytest_asyncio.fixture
async def scene(kafka: Kafka, tmp_path: Path) -> AsyncIterator[Stage]:
    settings = kafka.settings("backlog", cluster_partitions=PARTITIONS, session_timeout_ms=6000)
    await provisioning.apply(settings)
    with present():
        async with stage(settings, tmp_path) as found:
            yield found


def of(cluster: str, signal: Signal) -> Signal:
    return replace(signal, entity=replace(signal.entity, cluster=cluster))


async def incident_of(scene: Stage, cluster: str, what: str) -> Incident:
    async def it_is_told() -> bool:
        return any(i.cluster == cluster for i in (await scene.latest()).values())

    await eventually(it_is_told, what)
    return next(i for i in scene.published if i.cluster == cluster)


async def test_others_are_decided_while_one_partition_catches_up_and_nothing_is_given_up(
    scene: Stage,
) -> None:
    await scene.tell(*(replace(world.node_fact("node-1"), cluster=name) for name in (BUSY, IDLE)))
    for number in range(RECORDS):
        pods = range(number * PODS_OF_A_RECORD, (number + 1) * PODS_OF_A_RECORD)
        await scene.see(*(of(BUSY, world.progress(f"job-{pod}", number, pod)) for pod in pods))
    await scene.see(of(BUSY, world.off_bus("node-1", 600)))
    with scene.correlator(slow_s=SLOW_S, silence_s=SILENCE_S) as child:

        async def it_tells_how_far_it_is() -> bool:
            assert child.exit_code is None, child.tail()
            return "catching up" in child.log.read_text()

        await eventually(it_tells_how_far_it_is, "it tells that it is behind")
        await scene.see(of(IDLE, world.off_bus("node-1", 600)))
        await incident_of(scene, IDLE, "the other cluster's incident")
        assert not any(i.cluster == BUSY for i in scene.published), "the backlog was over before"
        await incident_of(scene, BUSY, "the incident at the end of the backlog")
        assert child.exit_code is None, child.tail()
        told = re.findall(r'"progress": *"([\d,]+) of [\d,]+ records, about', child.log.read_text())
        assert told
    assert scene.buried == []
