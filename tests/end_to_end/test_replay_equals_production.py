"""What a live pipeline decides, killed again and again and with a shipper that was cut off, a replay decides too."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from streams.kafka.topics import RAW_JOB_LOGS, RAW_NODE_LOGS
from streams.model.clock import rfc3339
from streams.model.conversation import Command, Verb
from streams.model.incident import Incident, IncidentState
from tests.end_to_end import shippers
from tests.end_to_end.shadow_pipeline import CLUSTER, ShadowPipeline, ago
from tests.faultline.replay.test_replay import JOB, NODES, TRAINING, node, pod
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

RESOLVED, CUT_OFF, LAST = NODES[13], NODES[14], NODES[15]
NOISE = "mlx5_core 0000:5c:00.0: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed"


async def test_a_replay_decides_what_a_pipeline_decided_that_was_killed_again_and_again(
    kafka: Kafka, tmp_path: Path
) -> None:
    async with ShadowPipeline.running(kafka, tmp_path) as pipeline:
        await pipeline.know([*map(node, NODES), JOB, *map(pod, range(4))], at=ago(600))
        pipeline.start("detector", "correlator", "responder")
        await _story(pipeline)
        times = ("--from", rfc3339(pipeline.began_at), "--to", rfc3339(datetime.now(UTC)))
        capture = str(tmp_path / "capture")
        assert (await pipeline.faultline("capture", capture, *times, "--lead", "30m"))[0] == 0
        for source in (
            (capture, "--decide-from", "raw"),
            (capture, "--decide-from", "signals"),
            ("kafka", *times),
        ):
            await _decides_the_same(pipeline, source)


async def _decides_the_same(pipeline: ShadowPipeline, source: tuple[str, ...]) -> None:
    code, said = await pipeline.faultline("replay", *source, "--against", "-o", "json")
    compared = [orjson.loads(line) for line in said.splitlines()]
    assert [one for one in compared if one["compared"] != "same"] == [], source
    assert (code, len(compared)) == (0, 5), source
    _, decided = await pipeline.faultline("replay", *source, "-o", "json")
    lines = [orjson.loads(line) for line in decided.splitlines()]
    states = {one["root"]["node"]: one["state"] for one in lines if one["record"] == "incident"}
    assert states[RESOLVED] == "resolved"
    assert states[CUT_OFF] == "open"
    late = next(one["id"] for one in lines if one["record"] == "incident" and one["root"]["node"] == LAST)
    cordons = [one for one in lines if one["record"] == "action" and one["action"] == "cordon_node"]
    assert [one["verdict"] for one in cordons if one["incident"] == late] == ["refused"]


async def _story(pipeline: ShadowPipeline) -> None:
    bad, ecc = TRAINING[1], NODES[12]
    cut_off_at = datetime.now(UTC)
    await pipeline.send(RAW_NODE_LOGS, [shippers.kernel(ecc, NOISE) for _ in range(200)])
    await pipeline.send(RAW_NODE_LOGS, [shippers.off_bus(bad)])
    await pipeline.send(RAW_NODE_LOGS, [shippers.teardown(host) for host in TRAINING])
    held_back = [shippers.off_bus(CUT_OFF, "0000:1b:00")]
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
    await pipeline.send(RAW_NODE_LOGS, [_nvlink(RESOLVED)] * 3)
    pipeline.revive()
    await _resolve(pipeline, await _there(pipeline, RESOLVED))
    # The shipper of one node comes back: its lines, and the times that it gave them, are a minute old.
    await pipeline.send(RAW_NODE_LOGS, held_back, stamped=cut_off_at, partition=0)
    pipeline.kill("correlator")
    pipeline.revive()
    await _there(pipeline, CUT_OFF)
    pipeline.kill("responder")
    pipeline.revive()
    await pipeline.command(_command(Verb.KILL))
    await eventually(pipeline.is_switched_off, "the kill switch is engaged")
    await pipeline.send(RAW_NODE_LOGS, [shippers.off_bus(LAST, "0000:5d:00")])
    await _there(pipeline, LAST)
    await eventually(pipeline.is_planned, "all that was decided is planned for")


def _command(verb: Verb, incident: str = "") -> Command:
    now = datetime.now(UTC)
    return Command(f"cmd-{verb}", incident, CLUSTER, verb, "ops@example.com", now, reason="seen to by hand")


async def _resolve(pipeline: ShadowPipeline, incident: Incident) -> None:
    await pipeline.command(_command(Verb.RESOLVE, incident.id))

    async def resolved() -> bool:
        return (await pipeline.incidents())[incident.id].state is IncidentState.RESOLVED

    await eventually(resolved, "a person's word ends the incident")


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
