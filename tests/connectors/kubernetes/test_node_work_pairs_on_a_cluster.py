"""Nodes of a job measured in pairs: real Jobs of two pods, placed on their two nodes by the real scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, NoLease, Refused, Waiting
from connectors.diagnostics.reading import Limits
from connectors.kubernetes.annotations import WORK_NODE, annotations_of
from connectors.kubernetes.client import path_of
from connectors.kubernetes.node_work_pairs import PairDiagnosis
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_templates import Template
from streams.config.connector_settings import NodeWorkSettings
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld
from tests.connectors.kubernetes.node_jobs import a_template
from tests.connectors.responding import until_over

pytestmark = pytest.mark.cluster

JOB = Target("PyTorchJob", "train", "team-a")


def diagnosis(world: KubeWorld) -> PairDiagnosis:
    limits = Limits(at_least={"busbw_avg_gb_s": 40.0})
    diagnostic = Diagnostic("pair", Template("diagnose_nodes", a_template()), "nccl-tests", limits)
    return PairDiagnosis(world.cluster, NodeWorkSettings(namespace=world.namespace), diagnostic)


async def some_nodes(world: KubeWorld, count: int) -> list[str]:
    nodes = [await world.add_node(kubelet=True) for _ in range(count)]
    for node in nodes:
        await world.patch_node(node, {"metadata": {"labels": {"kubernetes.io/hostname": node}}})
    return nodes


async def measure(world: KubeWorld, slow: str) -> None:
    """What the programs in the pods do: a pair with the slow node measures little, as soon as both of its pods run."""
    pods = path_of("v1", "pods", namespace=world.namespace)
    version = str((await world.cluster.get(pods))["metadata"]["resourceVersion"])
    told: set[str] = set()
    async for event in world.cluster.watch(pods, version):
        pod = event["object"]
        about = pod["metadata"]
        if event["type"] == "BOOKMARK" or pod["status"].get("phase") != "Running" or about["uid"] in told:
            continue
        told.add(about["uid"])
        value = 9.0 if slow in annotations_of(pod)[WORK_NODE].split(",") else 46.0
        marks = {"message": f"# Avg bus bandwidth : {value}", "outcome": "complete"}
        said = {f"testbed.faultline.dev/{name}": text for name, text in marks.items()}
        await world.cluster.patch(f"{pods}/{about['name']}", {"metadata": {"annotations": said}})


@pytest.fixture
async def nodes(world: KubeWorld) -> AsyncIterator[list[str]]:
    nodes = await some_nodes(world, 4)
    programs = asyncio.create_task(measure(world, nodes[2]))
    yield nodes
    programs.cancel()
    with suppress(asyncio.CancelledError):
        await programs


async def test_the_slow_node_is_named_by_all_of_its_partners(world: KubeWorld, nodes: list[str]) -> None:
    connector = diagnosis(world)
    effect = world.effect("diagnose_nodes", JOB, nodes=",".join(nodes))
    assert isinstance(await connector.lookup(effect), Absent)
    outcome = await until_over(connector, effect)
    assert isinstance(outcome, Done), outcome
    assert outcome.result["slow"] == (nodes[2],)
    assert outcome.result["measured"] == 6
    assert isinstance(await connector.lookup(effect), AlreadyDone)
    assert len(world.writes(resource="jobs", verb="create", code=201)) == 6
    on: dict[str, set[str]] = {}
    for pod in await world.pods():
        on.setdefault(annotations_of(pod)[WORK_NODE], set()).add(pod["spec"]["nodeName"])
    assert all(set(pair.split(",")) == placed for pair, placed in on.items())


async def test_nothing_is_measured_while_something_uses_the_gpus(world: KubeWorld) -> None:
    nodes = await some_nodes(world, 2)
    pod = await world.add_pod(nodes[1])
    effect = world.effect("diagnose_nodes", JOB, nodes=",".join(nodes))
    outcome = await diagnosis(world).apply(effect, NoLease())
    assert isinstance(outcome, Blocked)
    assert pod in outcome.reason
    assert world.writes(resource="jobs", verb="create") == []


async def test_jobs_of_a_diagnosis_that_a_person_deleted_end_it(world: KubeWorld) -> None:
    nodes = await some_nodes(world, 2)
    connector, effect = diagnosis(world), world.effect("diagnose_nodes", JOB, nodes=",".join(nodes))
    begun = await connector.apply(effect, NoLease())
    assert isinstance(begun, Waiting)
    (job,) = await world.cluster.list_all(path_of("batch/v1", "jobs", namespace=world.namespace))
    path = path_of("batch/v1", "jobs", namespace=world.namespace, name=job["metadata"]["name"])
    await world.cluster.delete(path, propagation="Background")
    again = type(effect)(
        **{name: getattr(effect, name) for name in effect.__slots__} | {"prior": begun.result}
    )
    outcome = await connector.apply(again, NoLease())
    assert isinstance(outcome, Blocked)
    assert outcome.by_person


async def test_one_node_cannot_be_compared(world: KubeWorld) -> None:
    outcome = await diagnosis(world).apply(world.effect("diagnose_nodes", JOB, nodes="gpu-1"), NoLease())
    assert isinstance(outcome, Refused)
