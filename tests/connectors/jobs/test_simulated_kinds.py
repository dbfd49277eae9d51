"""Jobs of kinds whose operators are simulated move away from a closed node, and their levers keep to the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from connectors.base import Done, NoLease, Refused, Waiting
from connectors.jobs.suspension import SUSPENDED
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.annotations import INCIDENT
from connectors.kubernetes.client import Object
from connectors.kubernetes.nodes import NodeConnector
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.jobs.simulated import SIMULATED, simulating, without_operators
from tests.connectors.jobs.test_jobs_contract import ResumeCase, SuspendCase
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed.audit import Write
from tests.testbed.control_plane import ControlPlane
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

LEASE = NoLease()
# MPIJobs need a control plane of their own, which takes its time to start.
every_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.nightly if kind == "MPIJob" else ()) for kind in sorted(SIMULATED)],
)


@pytest.fixture(scope="module")
def without_operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with without_operators(tmp_path_factory.mktemp("kubernetes")) as plane:
        yield plane


@pytest.fixture
async def kind_world(request: pytest.FixtureRequest, kind: str) -> AsyncIterator[KubeWorld]:
    plane = request.getfixturevalue("without_operator" if kind == "MPIJob" else "control_plane")
    async with KubeWorld.on(plane.kubeconfig(), plane.silence, plane) as world, simulating(kind, world):
        yield world


async def running_job(world: KubeWorld, kind: str, *, nodes: int) -> tuple[Target, list[Object]]:
    """A job of two pods of a whole node each."""
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    job = SIMULATED[kind].build("train", world.namespace, pool=world.namespace, pods=2)
    made = await world.cluster.create(jobs_at(kind, world.namespace), job)
    pods = await world.all_run(2)
    return Target(kind, "train", world.namespace, made["metadata"]["uid"]), pods


def patches(world: KubeWorld, kind: str) -> list[Write]:
    """What the server was asked to change of the job itself, its status aside."""
    plural = KNOWN[kind].plural
    found = world.writes(namespace=world.namespace, name="train", verb="patch", resource=plural)
    return [one for one in found if not one.subresource]


@every_kind
async def test_a_job_leaves_its_bad_node_and_is_whole_elsewhere(kind_world: KubeWorld, kind: str) -> None:
    world = kind_world
    target, pods = await running_job(world, kind, nodes=3)
    bad, before = pods[0]["spec"]["nodeName"], {pod["metadata"]["uid"] for pod in pods}
    jobs = TrainingJobs(world.cluster)
    cordon = world.effect("cordon_node", Target("Node", bad))
    assert isinstance(await NodeConnector(world.cluster).apply(cordon, LEASE), Done)
    early = await jobs.apply(world.effect("verify_job", target), LEASE)
    assert isinstance(early, Waiting)
    assert f"{bad} (cordoned by Faultline)" in early.detail
    assert isinstance(await until_over(jobs, world.effect("suspend_job", target)), Done)
    assert [pod for pod in await world.pods() if pod["status"]["phase"] == "Running"] == []
    assert KNOWN[kind].is_suspension_seen(await world.cluster.get(jobs_at(kind, world.namespace, "train")))
    resume = world.effect("resume_job", target, key="resume-1", avoid=pods[1]["spec"]["nodeName"])
    assert isinstance(await until_over(jobs, resume), Done)
    back = await until_over(jobs, world.effect("verify_job", target))
    assert isinstance(back, Done), back
    assert back.result["pods"] == 2
    now = await world.all_run(2)
    assert bad not in {pod["spec"]["nodeName"] for pod in now}
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in now)
    # Its operator may write the status in between: such a patch is refused, and made anew.
    taken = [one for one in patches(world, kind) if one.code == 200]
    assert len(taken) == 2, "one to stop it, one to start it"


@every_kind
async def test_one_that_is_managed_elsewhere_or_was_replaced_is_never_patched(
    kind_world: KubeWorld, kind: str
) -> None:
    world, declared = kind_world, KNOWN[kind]
    job = SIMULATED[kind].build("train", world.namespace, pool=world.namespace, pods=2)
    elsewhere = {"managedBy": "kueue.x-k8s.io/multikueue"}
    above = job["spec"] if len(declared.suspend_at) == 2 else job["spec"][declared.suspend_at[1]]
    above |= elsewhere
    made = await world.cluster.create(jobs_at(kind, world.namespace), job)
    target = Target(kind, "train", world.namespace, made["metadata"]["uid"])
    jobs = TrainingJobs(world.cluster)
    foreign = await jobs.apply(world.effect("suspend_job", target), LEASE)
    assert isinstance(foreign, Refused)
    assert "multikueue" in foreign.reason
    assert isinstance(
        await jobs.apply(world.effect("suspend_job", replace(target, uid="old")), LEASE), Refused
    )
    assert not patches(world, kind)


@every_kind
@pytest.mark.nightly
class TestSuspend(ConnectorContract):
    @pytest.fixture
    async def case(self, kind_world: KubeWorld, kind: str) -> Case:
        await kind_world.add_node(kubelet=True)
        job = SIMULATED[kind].build("train", kind_world.namespace, pool=kind_world.namespace, pods=2, gpus=1)
        await kind_world.cluster.create(jobs_at(kind, kind_world.namespace), job)
        await kind_world.all_run(2)
        return SuspendCase(kind_world, kind)


@every_kind
@pytest.mark.nightly
class TestResume(EffectContract):
    @pytest.fixture
    async def case(self, kind_world: KubeWorld, kind: str) -> Case:
        declared = KNOWN[kind]
        job = SIMULATED[kind].build("train", kind_world.namespace, pool=kind_world.namespace, pods=2)
        marks = {INCIDENT: "inc-1", SUSPENDED: "key-0"}
        job["metadata"]["annotations"] = job["metadata"].get("annotations", {}) | marks
        above = job["spec"] if len(declared.suspend_at) == 2 else job["spec"][declared.suspend_at[1]]
        above[declared.suspend_at[-1]] = True
        path = jobs_at(kind, kind_world.namespace)
        await kind_world.cluster.create(path, job)

        async def seen() -> bool:
            return declared.is_suspension_seen(await kind_world.cluster.get(f"{path}/train"))

        await eventually(seen, "its operator has seen that it is to be suspended")
        return ResumeCase(kind_world, kind)
