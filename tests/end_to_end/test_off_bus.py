"""The mission once, on the real thing: a log line becomes a cordoned node, a ticket, a thread and a resumed job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.model.incident import IncidentState
from streams.topics import RAW_JOB_LOGS, RAW_NODE_LOGS
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.testbed import workloads
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.cluster, pytest.mark.timeout(240)]

AUTO = {"FAULTLINE_RESPONDER__MODE": "auto", "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_SHARE": "1"}


def placed(control_plane: ControlPlane, namespace: str) -> dict[str, str]:
    """Running pods and their nodes."""
    pods = control_plane.get("pods", "--namespace", namespace)
    running = [
        p
        for p in pods
        if p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")
    ]
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in running}


@asynccontextmanager
async def training(
    installation: Installation, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[None]:
    """While it lasts, the pods that run print iterations, as a training loop does."""

    async def train() -> None:
        for step in range(1000, 100_000):
            lines = [
                shippers.iteration(namespace, pod, node, step)
                for pod, node in (await asyncio.to_thread(placed, control_plane, namespace)).items()
            ]
            await installation.send(RAW_JOB_LOGS, lines)
            await asyncio.sleep(1)  # the pace of the training loop, not a wait for anything

    task = asyncio.create_task(train())
    try:
        yield
    finally:
        task.cancel()


def job(kind: str, namespace: str, pool: str) -> dict[str, Any]:
    make = workloads.pytorch_job if kind == "PyTorchJob" else workloads.indexed_job
    return make("train", namespace, pool=pool)


@pytest.mark.parametrize("kind", ["PyTorchJob", "Job"])
async def test_a_gpu_off_the_bus_ends_in_a_job_that_trains_on_other_nodes(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path, kind: str
) -> None:
    pool, namespace = unique("pool"), unique("ml")
    nodes = control_plane.add_nodes(pool, 6)
    control_plane.kubectl("create", "namespace", namespace)
    control_plane.create(job(kind, namespace, pool))
    before = await eventually(lambda: _all_placed(control_plane, namespace), "four pods run")
    bad = sorted(before.values())[1]
    mark = control_plane.audit.mark()

    async with Installation.running(kafka, control_plane, tmp_path, **AUTO) as installation:
        installation.start()
        async with training(installation, control_plane, namespace):
            await installation.send(RAW_NODE_LOGS, [shippers.off_bus(bad)])
            await installation.send(RAW_NODE_LOGS, [shippers.teardown(node) for node in before.values()])
            for number, (pod, node) in enumerate(sorted(before.items())):
                lines = [shippers.watchdog(namespace, pod, node, number * 8 + rank) for rank in range(8)]
                await installation.send(RAW_JOB_LOGS, lines)
            incident = await installation.incident("gpu_off_bus", state=IncidentState.RESOLVED, timeout_s=150)

        assert incident.root.node == bad
        assert [str(found) for found in incident.jobs] == [f"{namespace}/train"]
        assert len(await installation.incidents()) == 1
        after = placed(control_plane, namespace)
        assert len(after) == 4
        assert bad not in after.values()
        (run,) = await installation.runs(incident)
        assert run.state.value == "succeeded"
        await _thread_says_resolved(installation)

        (root,) = installation.slack.roots()
        (issue,) = installation.jira.issues
        assert bad in issue.summary
        assert bad in root.text

    closed = [n for n in nodes if control_plane.get("node", n)["spec"].get("unschedulable")]
    assert closed == [bad]
    writes = [
        w
        for w in control_plane.audit.writes(since=mark)
        if w.user.startswith("system:serviceaccount:faultline:")
    ]
    assert {w.user for w in writes} == {"system:serviceaccount:faultline:responder"}
    assert [(w.resource, w.code) for w in writes if w.resource == "nodes"] == [("nodes", 200)]
    resource = "pytorchjobs" if kind == "PyTorchJob" else "jobs"
    assert [w.code for w in writes if w.resource == resource] == [200, 200]
    control_plane.remove_pool(pool)


async def _all_placed(control_plane: ControlPlane, namespace: str) -> dict[str, str] | None:
    found = await asyncio.to_thread(placed, control_plane, namespace)
    return found if len(found) == 4 else None


async def _thread_says_resolved(installation: Installation) -> None:
    async def resolved() -> bool:
        return any("resolved" in root.text.lower() for root in installation.slack.roots())

    await eventually(resolved, "the thread's root says that the incident is resolved")
