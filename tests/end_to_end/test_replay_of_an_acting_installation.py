"""An installation that acts, captured and replayed: what the replay cannot decide again is explained by what was answered."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from streams.model.clock import rfc3339
from streams.model.incident import IncidentState
from tests.end_to_end.installation import ROOT, Installation
from tests.end_to_end.test_off_bus import AUTO
from tests.end_to_end.training import Training
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]


def faultline(installation: Installation, *arguments: str) -> tuple[int, str]:
    """A command with the responder's settings: its exit code and what it prints."""
    ended = subprocess.run(
        [sys.executable, "-m", "faultline", *arguments],
        env={**os.environ, **installation.environment("responder")},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode, ended.stdout


async def test_what_became_of_a_run_that_was_carried_out_is_explained_by_what_connectors_answered(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    begin = datetime.now(UTC)
    async with (
        Installation.running(kafka, control_plane, tmp_path, **AUTO) as installation,
        Training.running(installation, control_plane) as training,
    ):
        bad = list(training.before.values())[1]
        installation.start()
        await training.lose_gpu(bad)
        done = await installation.incident_that(
            lambda i: i.family == "gpu_off_bus" and i.state is IncidentState.RESOLVED,
            "the job trains again",
            timeout_s=250,
        )
        times = ("--from", rfc3339(begin), "--to", rfc3339(datetime.now(UTC)))
        capture = str(tmp_path / "capture")
        assert (await asyncio.to_thread(faultline, installation, "capture", capture, *times))[0] == 0
        for source in ("raw", "signals"):
            code, said = await asyncio.to_thread(
                faultline, installation, "replay", capture, "--against", "--decide-from", source, "-o", "json"
            )
            compared = [orjson.loads(line) for line in said.splitlines()]
            assert [one["incident"] for one in compared] == [done.id]
            differences = compared[0]["differences"]
            assert (code, [one for one in differences if not one["explained"]]) == (0, []), source
            assert all(
                "production did it" in one["explained"] for one in differences if one["aspect"] == "action"
            )
            _, decided = await asyncio.to_thread(
                faultline, installation, "replay", capture, "--decide-from", source, "-o", "json"
            )
            # The replay's own run only planned: that the job trains again is what production's run reported.
            assert orjson.loads(decided.splitlines()[0])["state"] == "resolved", source
