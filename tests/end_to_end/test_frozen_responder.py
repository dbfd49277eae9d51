"""Owners that freeze past their session: others finish the run, and those that wake are fenced and touch nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from streams.model.incident import IncidentState
from tests.end_to_end.installation import END_S, Installation
from tests.end_to_end.once import done_once
from tests.end_to_end.test_killed_responder import QUICK
from tests.end_to_end.training import Training
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]

FREEZE_AT = ("cordon_node:after_intent", "resume_job:after_intent")


async def test_whoever_froze_before_its_call_makes_none_when_it_wakes(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        Installation.running(kafka, control_plane, tmp_path, **QUICK) as installation,
        Training.running(installation, control_plane) as training,
    ):
        bad = list(training.before.values())[2]
        mark = control_plane.audit.mark()
        installation.start("inventory", "detector", "correlator", "chat")
        # Three compete: the first owner freezes at the cordon, the second at the resume, the third ends the run.
        responders = [
            installation.start_crashing("responder", FREEZE_AT, sends="STOP", label=f"responder-{number}")
            for number in range(3)
        ]
        await training.lose_gpu(bad)
        incident = await installation.incident_that(
            lambda i: i.family == "gpu_off_bus" and i.state is IncidentState.RESOLVED,
            "the job trains again",
            timeout_s=250,
        )
        frozen = {
            label: child
            for label in FREEZE_AT
            for child in responders
            if child.pid == installation.crashed_at(label)
        }
        assert [child.is_stopped for child in frozen.values()] == [True, True]
        await done_once(installation, training, incident, mark)
        (run,) = await installation.runs(incident)
        made = _made(installation, control_plane, mark)

        for child in frozen.values():
            os.kill(child.pid, signal.SIGCONT)
        for label, child in frozen.items():
            await eventually(partial(_gave_up, child, label), f"{label}: it finds out")
        # What a woken one still had in the air has landed or was cancelled once it has ended in order.
        assert [await asyncio.to_thread(child.stop, END_S) for child in responders] == [0, 0, 0]
        assert _made(installation, control_plane, mark) == made
        assert await installation.runs(incident) == [run]


def _made(installation: Installation, control_plane: ControlPlane, since: int) -> tuple[int, int]:
    """How many requests have left that were to change something: to the API server, whatever became of them, and to Jira."""
    sent = [w for w in control_plane.audit.writes(since=since) if w.user.endswith(":faultline:responder")]
    tickets = [r for r in installation.jira.calls("/issue") if r.method in ("POST", "PUT")]
    return len(sent), len(tickets)


async def _gave_up(child: Child, label: str) -> bool:
    """It says that it was about to make the call at which it froze, and cannot tell what became of it."""
    lines = child.log.read_text().splitlines()
    said = [json.loads(line) for line in lines if '"event": "call"' in line]
    return (label.split(":")[0], "Unknown") in {(one["action"], one["outcome"]) for one in said}
