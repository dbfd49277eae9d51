"""The responder on the embedded broker, where offsets of a transaction are not kept: reading everything again is harmless."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runbooks.engine.process import Responder
from runbooks.language.loader import load_text
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.topics import COMMANDS, INCIDENTS, INVENTORY, SIGNALS, partition_of
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.conversation import Command, Verb
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Certainty
from streams.model.run import Mode, Run, RunState
from tests.runbooks.engine.responder_child import BOOK, FolderWorld
from tests.runbooks.herd import calls, over, run_of
from tests.runbooks.scenes import CLUSTER, JOB, incident
from tests.runbooks.topics import committed, write
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.embedded]


async def test_a_second_life_reads_everything_again_and_repeats_nothing(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        settings = embedded.settings
        partition = partition_of(CLUSTER, settings.cluster_partitions)
        about = incident(certainty=Certainty.LIKELY, updated_at=utc_now(), opened_at=utc_now(), jobs=(JOB,))
        node = NodeFact(CLUSTER, "node-03", "uid-3", utc_now(), gpus=8)
        await write(settings, INVENTORY, partition, (node.key, encode(FactRecord(node))))
        await write(settings, INCIDENTS, partition, (about.id, encode(about)))
        await lived(settings, tmp_path, RunState.AWAITING_APPROVAL)
        run = await run_of(settings, partition)
        assert run is not None
        yes = Command("c1", about.id, CLUSTER, Verb.APPROVE, "ada", utc_now(), digest=run.plan.digest)
        await write(settings, COMMANDS, partition, (about.id, encode(yes)))
        await lived(settings, tmp_path, RunState.SUCCEEDED)
        made, reported = calls(tmp_path), await committed(settings, SIGNALS, partition)
        await lived(settings, tmp_path, RunState.SUCCEEDED)
        assert calls(tmp_path) == made
        assert await committed(settings, SIGNALS, partition) == reported
        assert len(made) == 5


async def lived(settings: KafkaSettings, folder: Path, until: RunState) -> Run:
    """One life of a responder, until the run stands so and everything written has been read."""
    policy = ResponderSettings(mode=Mode.AUTO, lease_s=5.0)
    passed: list[str] = []
    responder = Responder(
        settings, policy, [FolderWorld(folder)], [load_text(BOOK, "book.yaml")], at=passed.append
    )
    task = asyncio.create_task(responder.run())
    partition = partition_of(CLUSTER, settings.cluster_partitions)

    async def stands() -> Run | None:
        if task.done():
            task.result()
        run = await run_of(settings, partition)
        # Who has no partition yet has nothing left to read either.
        has_read = passed.count("taken_up") >= settings.cluster_partitions
        done = run is not None and run.state is until and has_read
        return run if done and (until is not RunState.SUCCEEDED or await over(settings, partition)) else None

    try:
        return await eventually(stands, f"the run is {until}")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
