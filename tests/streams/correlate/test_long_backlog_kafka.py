"""On a real broker: a correlator that was away for hours. What is older than it keeps is judged as it is read, and not lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streams.kafka import provisioning
from streams.model.incident import Incident
from tests.streams.correlate import world
from tests.streams.correlate.emitter import stage
from tests.streams.correlate.world import FOUR, cluster, xid
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

AWAY = timedelta(hours=3)
MINUTES_APART = 10


async def test_a_fault_of_hours_ago_opens_its_incident_when_the_correlator_is_back(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka.settings("away", session_timeout_ms=6000)
    await provisioning.apply(settings)
    monkeypatch.setattr(world, "START", datetime.now(UTC).replace(microsecond=0) - AWAY)
    async with stage(settings, tmp_path) as scene:
        await scene.tell(*cluster({"llama": FOUR}))
        written = [xid("n1", 79, 0)]
        written += [xid("n2", 43, minute * 60) for minute in range(0, 180, MINUTES_APART)]
        for signal in written:
            await scene.see(signal, at=signal.observed_at)
        with scene.correlator():

            async def opened() -> Incident | None:
                return next((i for i in (await scene.latest()).values() if i.family == "gpu_off_bus"), None)

            incident = await eventually(opened, "the incident of three hours ago")
    assert incident.root.node == "n1"
    assert incident.opened_at - incident.fault_at < timedelta(minutes=1)
