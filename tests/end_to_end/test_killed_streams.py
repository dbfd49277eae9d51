"""Detector and correlator killed again and again under load: no signal is lost, and there is one incident."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streams.kafka.topics import RAW_NODE_LOGS
from streams.model.incident import IncidentState
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.end_to_end.once import done_once
from tests.end_to_end.test_killed_responder import QUICK
from tests.end_to_end.training import PODS, RANKS_PER_POD, Training
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]

BURSTS, LINES_PER_BURST = 8, 250
NOISE = "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed"


async def test_killed_under_load_they_lose_no_signal_and_tell_one_incident(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        Installation.running(kafka, control_plane, tmp_path, **QUICK) as installation,
        Training.running(installation, control_plane) as training,
    ):
        bad = next(iter(training.before.values()))
        mark = control_plane.audit.mark()
        installation.start()

        async def burst(number: int) -> None:
            """Teardown on all nodes, line after line, in noise that is dropped."""
            pids = range(10_000 + number * LINES_PER_BURST, 10_000 + (number + 1) * LINES_PER_BURST)
            nodes = list(training.before.values())
            lines = [shippers.teardown(nodes[pid % PODS], pid=pid) for pid in pids]
            noise = [shippers.kernel(node, NOISE) for node in nodes for _ in range(50)]
            await installation.send(RAW_NODE_LOGS, [*noise, *lines])

        async def got_on(least: int) -> bool:
            """Some of what was sent has come through: so the next death is in the middle of the work."""
            installation.revive()
            return await _told(installation) >= least

        for number in range(BURSTS):
            before = await _told(installation)
            sending = asyncio.create_task(burst(number))
            if number == BURSTS // 2:
                await training.lose_gpu(bad)
            await eventually(lambda: got_on(before + 1), f"burst {number} comes through")  # noqa: B023
            for name in ("detector", "correlator"):
                installation.child(name).kill()
            await sending

        async def all_there() -> bool:
            installation.revive()
            return await _told(installation) >= BURSTS * LINES_PER_BURST

        await eventually(all_there, "every line is told or counted")
        incident = await installation.incident_that(
            lambda i: i.family == "gpu_off_bus" and i.state is IncidentState.RESOLVED,
            "the job trains again",
            timeout_s=150,
        )
        await done_once(installation, training, incident, mark)
        signals = await installation.signals()
        ranks = [int(str(s.attributes["rank"])) for s in signals if s.kind == "nccl.timeout"]
        assert set(ranks) == set(range(PODS * RANKS_PER_POD))


async def _told(installation: Installation) -> int:
    """How many lines of teardown are told of. A signal that was written twice is one."""
    teardown = {
        signal.id: signal.count
        for signal in await installation.signals()
        if signal.kind == "gpu.xid" and signal.attributes.get("xid") == 45
    }
    return sum(teardown.values())
