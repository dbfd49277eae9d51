"""What a live pipeline decides, killed again and again and with a shipper that was cut off, a replay decides too."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from faultline.replay.against import Production, Revisions, Verdict, compared
from faultline.replay.capture import Capture
from faultline.replay.decisions import ceilings
from faultline.replay.explanations import Explanations
from faultline.replay.replay import From, replay_capture
from runbooks.engine.dry_run import ACTIONS
from runbooks.language.loader import load
from runbooks.language.schema import TICKETS
from streams.config.settings import ResponderSettings
from streams.kafka.topics import RAW_JOB_LOGS, RAW_NODE_LOGS
from streams.model.incident import Incident
from streams.model.run import Mode
from tests.end_to_end import shippers
from tests.end_to_end.shadow_pipeline import ShadowPipeline, ago
from tests.faultline.replay.test_replay import JOB, NODES, TRAINING, node, pod
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

NOISE = "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed"


async def test_a_replay_decides_what_a_pipeline_decided_that_was_killed_again_and_again(
    kafka: Kafka, tmp_path: Path
) -> None:
    async with ShadowPipeline.running(kafka, tmp_path) as pipeline:
        await pipeline.know([*map(node, NODES), JOB, *map(pod, range(4))], at=ago(600))
        pipeline.start("detector", "correlator", "responder")
        await _story(pipeline)
        end = datetime.now(UTC)
        capture = await pipeline.captured(end)
    for source in From:
        await asyncio.to_thread(_decides_the_same, capture, source)


async def _story(pipeline: ShadowPipeline) -> None:
    bad, ecc, link, cut_off = TRAINING[1], NODES[12], NODES[13], NODES[14]
    cut_off_at = datetime.now(UTC)
    await pipeline.send(RAW_NODE_LOGS, [shippers.kernel(ecc, NOISE) for _ in range(200)])
    await pipeline.send(RAW_NODE_LOGS, [shippers.off_bus(bad)])
    await pipeline.send(RAW_NODE_LOGS, [shippers.teardown(host) for host in TRAINING])
    held_back = [shippers.off_bus(cut_off, "0000:1b:00")]
    await _there(pipeline, bad)
    pipeline.kill("detector")
    await pipeline.send(RAW_NODE_LOGS, [_double_bit(ecc)])
    ranks = [shippers.watchdog("ml", f"train-{n // 8}", NODES[n // 8], n) for n in range(32)]
    await pipeline.send(RAW_JOB_LOGS, ranks[:20])
    pipeline.revive()
    await pipeline.send(RAW_JOB_LOGS, ranks[20:])
    await _there(pipeline, ecc)
    pipeline.kill("correlator")
    pipeline.kill("detector")
    await pipeline.send(RAW_NODE_LOGS, [_nvlink(link)] * 3)
    pipeline.revive()
    await _there(pipeline, link)
    # The shipper of one node comes back: its lines, and the times that it gave them, are a minute old.
    await pipeline.send(RAW_NODE_LOGS, held_back, stamped=cut_off_at, partition=0)
    pipeline.kill("correlator")
    pipeline.revive()
    await _there(pipeline, cut_off)
    pipeline.kill("responder")
    pipeline.revive()
    await pipeline.send(RAW_NODE_LOGS, [shippers.off_bus(NODES[15], "0000:5d:00")])
    await _there(pipeline, NODES[15])
    await eventually(pipeline.is_planned, "all that was decided is planned for")


def _double_bit(host: str) -> dict[str, object]:
    return shippers.kernel(
        host,
        "NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been "
        "detected on GPU in the framebuffer at partition 2, subpartition 0.",
    )


def _nvlink(host: str) -> dict[str, object]:
    return shippers.kernel(
        host,
        "NVRM: Xid (PCI:0000:3b:00): 74, pid=77, name=python, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0, 0x0, "
        "0x0, 0x0, 0x0)",
    )


async def _there(pipeline: ShadowPipeline, host: str) -> Incident:
    async def found() -> Incident | None:
        pipeline.revive()
        return next((i for i in (await pipeline.incidents()).values() if i.root.node == host), None)

    return await eventually(found, f"an incident of {host}")


def _decides_the_same(capture: Capture, source: From) -> None:
    books, settings, revisions = load(), ResponderSettings(), Revisions()
    production = Production.of(capture)
    assert production.had_no_tickets
    decided = replay_capture(
        capture, runbooks=books, actions=frozenset(ACTIONS - TICKETS), source=source, until=capture.meta.end,
        watcher=revisions,
    )  # fmt: skip
    explanations = Explanations(production.runs, books)
    found = compared(capture, production, decided, revisions, ceilings(books, settings), explanations)
    assert len(found) == 5
    assert [one for one in found if one.verdict is not Verdict.SAME] == []
    assert {run.plan.mode for run in production.runs} == {Mode.SHADOW}
