"""Suspending and resuming hold to the contract, with real controllers acting on the switch and with the emulated ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from connectors.base import Connector, Effect
from connectors.jobs.suspension import RESUMED, SUSPENDED
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.annotations import INCIDENT
from connectors.kubernetes.client import Object
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed import workloads

everywhere = pytest.mark.parametrize(
    ("either_world", "kind"),
    [
        pytest.param("real", "Job", marks=[pytest.mark.cluster, pytest.mark.nightly]),
        pytest.param("real", "PyTorchJob", marks=pytest.mark.cluster),
        *(
            pytest.param("real", kind, marks=[pytest.mark.cluster, pytest.mark.nightly])
            for kind in ("TFJob", "XGBoostJob", "PaddleJob")
        ),
        pytest.param("emulated", "PyTorchJob", marks=[pytest.mark.embedded, pytest.mark.nightly]),
    ],
    indirect=["either_world"],
)


class JobCase(Case):
    """An effect on one training job of two pods."""

    action = ""
    deadline_s = 120.0

    def __init__(self, world: KubeWorld, kind: str, version: str | None = None) -> None:
        super().__init__(world.proxy)
        self.world = world
        self.kind = kind
        self.path = jobs_at(kind, world.namespace, "train", version=version)

    def effect(self) -> Effect:
        return self.world.effect(self.action, Target(self.kind, "train", self.world.namespace))

    def connector(self) -> Connector:
        return TrainingJobs(self.world.through_proxy())

    async def snapshot(self) -> object:
        job = await self.world.cluster.get(self.path)
        return job["spec"], job["metadata"].get("annotations")

    async def foreign_change(self) -> None:
        job = await self.world.cluster.get(self.path)
        is_suspended = KNOWN[self.kind].is_suspended(job)
        await self.world.cluster.patch(self.path, KNOWN[self.kind].suspend(not is_suspended))

    def taken(self) -> list[Object]:
        """The annotations of the patches that the server took from Faultline."""
        return [patch["metadata"]["annotations"] for patch in self.world.taken("PATCH", self.path)]


class SuspendCase(JobCase):
    action = "suspend_job"

    async def changes(self) -> int:
        keys = [mark.get(SUSPENDED) for mark in self.taken()]
        return keys.count("key-1") - keys.count(None)


class ResumeCase(JobCase):
    action = "resume_job"

    async def changes(self) -> int:
        return [mark.get(RESUMED) for mark in self.taken()].count("key-1")


async def job(kind: str, world: KubeWorld) -> Object:
    """A job of two pods, and a node with room for both."""
    await world.add_node(kubelet=True)
    pool = world.namespace
    if kind == "Job":
        return workloads.indexed_job("train", world.namespace, pool=pool, pods=2, gpus=1)
    return workloads.kubeflow_job(kind, "train", world.namespace, pool=pool, workers=1, gpus=1)


def stopped(kind: str, made: Object) -> Object:
    """The job as an earlier effect of the same incident has left it."""
    made["metadata"]["annotations"] = {INCIDENT: "inc-1", SUSPENDED: "key-0"}
    made["spec"] |= KNOWN[kind].suspend(True)["spec"]
    return made


async def created(world: KubeWorld, kind: str, made: Object, *, pods: int = 0) -> None:
    """Create the job, and wait until so many pods run."""
    await world.cluster.create(jobs_at(kind, world.namespace, version=made["apiVersion"]), made)
    if pods:
        await world.all_run(pods)


@everywhere
class TestSuspendJob(ConnectorContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld, kind: str) -> AsyncIterator[Case]:
        await created(either_world, kind, await job(kind, either_world), pods=2)
        case = SuspendCase(either_world, kind)
        yield case
        await either_world.cluster.delete(case.path, propagation="Background")


@everywhere
class TestResumeJob(EffectContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld, kind: str) -> AsyncIterator[Case]:
        await created(either_world, kind, stopped(kind, await job(kind, either_world)))
        case = ResumeCase(either_world, kind)
        yield case
        await either_world.cluster.delete(case.path, propagation="Background")
