"""Two clusters on one broker, with the same cluster name and the same node names: nothing of one reaches the other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streams.kafka.topics import RAW_NODE_LOGS
from tests.end_to_end import shippers
from tests.end_to_end.shadow_pipeline import ROOT, ShadowPipeline, ago
from tests.faultline.replay.test_replay import JOB, NODES, TRAINING, node, pod
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

PROCESSES = ("detector", "correlator", "responder")


async def test_incidents_runs_and_the_kill_switch_of_one_never_reach_the_other(
    kafka: Kafka, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    async with (
        ShadowPipeline.running(kafka, folders[0]) as first,
        ShadowPipeline.running(kafka, folders[1]) as second,
    ):
        for one in (first, second):
            await one.know([*map(node, NODES), JOB, *map(pod, range(4))], at=ago(600))
            one.start(*PROCESSES)
        await first.send(RAW_NODE_LOGS, [shippers.off_bus(TRAINING[1])])

        async def planned() -> bool:
            return bool(await first.runs()) and await first.is_planned()

        await eventually(planned, "the first one has a run")
        code, _ = await first.faultline("guard", "kill", "--reason", "a test of two installations")
        assert code == 0
        await second.send(RAW_NODE_LOGS, [shippers.off_bus(NODES[13])])

        async def also() -> bool:
            return bool(await second.runs()) and await second.is_planned()

        await eventually(also, "the second one has a run")
        assert (await first.is_switched_off(), await second.is_switched_off()) == (True, False)
        roots = [{one.root.node for one in (await of.incidents()).values()} for of in (first, second)]
        assert roots == [{TRAINING[1]}, {NODES[13]}]


async def test_a_process_of_another_cluster_does_not_start_on_topics_that_are_bound(
    kafka: Kafka, tmp_path: Path
) -> None:
    async with ShadowPipeline.running(kafka, tmp_path) as pipeline:
        pipeline.start("responder")

        async def answers() -> bool:
            return not await pipeline.is_switched_off() and "partition ready" in _log(tmp_path, "responder")

        await eventually(answers, "the responder has its partitions")
        stranger = Child(
            "stranger",
            [sys.executable, "-m", "faultline", "run", "responder"],
            log=tmp_path / "logs" / "stranger.log",
            env={**pipeline._environment(), "FAULTLINE_CLUSTER": "west"},
            cwd=ROOT,
        )
        try:

            async def ended() -> bool:
                return stranger.exit_code is not None

            await eventually(ended, "the stranger ends")
            assert stranger.exit_code == 2, stranger.tail()
            assert "east" in stranger.tail()
        finally:
            stranger.stop()


def _log(folder: Path, name: str) -> str:
    path = folder / "logs" / f"{name}.log"
    return path.read_text() if path.exists() else ""
