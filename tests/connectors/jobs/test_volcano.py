"""A Volcano job is aborted and resumed by commands, each sent once, on a real API server with the real scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tests.testbed
from connectors.base import AlreadyDone, Blocked, Done, NoLease, Refused
from connectors.jobs import command_hold
from connectors.jobs.command_hold import ABORT, COMMAND, RESUME, name_for, undo_key
from connectors.jobs.suspension import SUSPENDED
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.annotations import INCIDENT
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.job_kinds.volcano_job import phase, retry_count
from streams.model.run import Target
from tests.connectors.jobs.job_case import JobCase
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed.simulators.volcano import Volcano, volcano_job
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

CRDS = Path(tests.testbed.__file__).parent / "crds"
LEASE = NoLease()
KIND = "VolcanoJob"


@pytest.fixture
async def volcano(world: KubeWorld) -> AsyncIterator[Volcano]:
    world.real.define(CRDS / "volcano-job.yaml", CRDS / "volcano-command.yaml")
    async with Volcano(world.cluster, world.namespace).running() as controller:
        yield controller
        await world.cluster.delete(jobs_at(KIND, world.namespace, "train"), propagation="Background")


async def running(world: KubeWorld, *, nodes: int = 2, **how: object) -> Target:
    """A job of two pods that runs."""
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    made = volcano_job("train", world.namespace, pool=world.namespace, **how)  # type: ignore[arg-type]
    created = await world.cluster.create(jobs_at(KIND, world.namespace), made)
    await until(world, "Running")
    return Target(KIND, "train", world.namespace, created["metadata"]["uid"])


async def job(world: KubeWorld) -> Object:
    return await world.cluster.get(jobs_at(KIND, world.namespace, "train"))


async def until(world: KubeWorld, *phases: str) -> Object:
    """The job, once it is in one of these phases."""

    async def reached() -> Object | None:
        now = await job(world)
        return now if phase(now) in phases else None

    return await eventually(reached, f"the job is {' or '.join(phases)}")


def commands_at(world: KubeWorld) -> str:
    return path_of("bus.volcano.sh/v1alpha1", "commands", namespace=world.namespace)


async def by_hand(world: KubeWorld, action: str) -> None:
    """A command as a person sends it by `vcctl`, and what it leads to."""
    now = await job(world)
    about = {"name": "train", "uid": now["metadata"]["uid"], "kind": "Job", "apiVersion": now["apiVersion"]}
    body = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": f"train-{action.lower()}-"},
        "action": action,
        "target": about,
    }
    await world.cluster.create(commands_at(world), body)
    if action == ABORT:
        await until(world, "Aborted")
    else:
        await until(world, "Pending", "Running")


# What the simulator does, as the project documents it


@pytest.mark.nightly
async def test_simulated_an_abort_ends_the_pods_and_a_resume_costs_a_retry(
    world: KubeWorld, volcano: Volcano
) -> None:
    await running(world)
    await by_hand(world, ABORT)
    assert await world.pods() == []
    await by_hand(world, RESUME)
    assert retry_count(await until(world, "Running")) == 1


@pytest.mark.nightly
async def test_simulated_the_last_retry_ends_it(world: KubeWorld, volcano: Volcano) -> None:
    await running(world, max_retry=1)
    await by_hand(world, ABORT)
    body = {
        "metadata": {"name": "last"},
        "action": RESUME,
        "target": {"name": "train", "uid": (await job(world))["metadata"]["uid"]},
    }
    await world.cluster.create(
        commands_at(world), {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", **body}
    )
    assert retry_count(await until(world, "Failed")) == 1


# What the lever does


async def test_a_job_is_aborted_leaves_its_closed_node_and_is_resumed_for_one_retry(
    world: KubeWorld, volcano: Volcano
) -> None:
    target = await running(world, nodes=3)
    bad = (await world.pods())[0]["spec"]["nodeName"]
    closed = await NodeConnector(world.cluster).apply(world.effect("cordon_node", Target("Node", bad)), LEASE)
    assert isinstance(closed, Done)
    jobs, stop = TrainingJobs(world.cluster), world.effect("suspend_job", target)
    stopped = await until_over(jobs, stop)
    assert isinstance(stopped, Done), stopped
    assert await world.pods() == []
    assert isinstance(await jobs.lookup(stop), AlreadyDone)
    start = world.effect("resume_job", target, key="resume-1", avoid="node-x")
    started = await until_over(jobs, start)
    assert isinstance(started, Done), started
    assert "may come back to node-x" in started.detail
    assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)
    assert bad not in {pod["spec"]["nodeName"] for pod in await world.pods()}
    assert retry_count(await job(world)) == 1
    assert isinstance(await jobs.apply(stop, LEASE), AlreadyDone), "a late second call sends nothing"
    sent = world.writes(namespace=world.namespace, verb="create", resource="commands", code=201)
    assert len(sent) == 2


async def test_a_command_that_volcano_took_and_forgot_is_told_and_not_sent_again(
    world: KubeWorld, volcano: Volcano, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = await running(world)
    volcano.loses = 1
    monkeypatch.setattr(command_hold, "LOST_S", 1.0)
    jobs, stop = TrainingJobs(world.cluster), world.effect("suspend_job", target)

    async def told() -> Blocked | None:
        outcome = await jobs.apply(stop, LEASE)
        return outcome if isinstance(outcome, Blocked) else None

    blocked = await eventually(told, "the loss is told")
    assert blocked.by == "Volcano"
    assert "It is not sent again" in blocked.reason
    assert len(world.writes(namespace=world.namespace, verb="create", resource="commands", code=201)) == 1
    undone = await jobs.undo(stop, LEASE)
    assert isinstance(undone, Done), undone
    left = (await job(world))["metadata"].get("annotations") or {}
    assert not {SUSPENDED, INCIDENT, COMMAND} & left.keys()
    assert phase(await job(world)) == "Running"


async def test_the_last_retry_is_not_taken_and_what_others_aborted_stays_aborted(
    world: KubeWorld, volcano: Volcano
) -> None:
    target = await running(world, max_retry=2)
    jobs = TrainingJobs(world.cluster)
    await by_hand(world, ABORT)
    for action in ("suspend_job", "resume_job"):
        outcome = await jobs.apply(world.effect(action, target), LEASE)
        assert isinstance(outcome, Blocked), outcome
        assert "not by Faultline" in outcome.reason
    await by_hand(world, RESUME)
    await until(world, "Running")
    refused = await jobs.apply(world.effect("suspend_job", target), LEASE)
    assert isinstance(refused, Refused)
    assert "it has none left" in refused.reason


@pytest.mark.nightly
async def test_a_pod_stuck_on_a_dead_node_is_handed_to_the_drain(world: KubeWorld, volcano: Volcano) -> None:
    target = await running(world, nodes=3)
    dead = (await world.pods())[0]["spec"]["nodeName"]
    await world.silenced(dead)
    nodes, jobs = NodeConnector(world.cluster), TrainingJobs(world.cluster)
    assert isinstance(await nodes.apply(world.effect("cordon_node", Target("Node", dead)), LEASE), Done)
    stopped = await until_over(jobs, world.effect("suspend_job", target))
    assert isinstance(stopped, Done), stopped
    assert stopped.result["nodes"] == (dead,)
    assert isinstance(await until_over(nodes, world.effect("drain_node", Target("Node", dead))), Done)
    assert isinstance(await until_over(jobs, world.effect("resume_job", target, key="resume-1")), Done)
    assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)


class CommandCase(JobCase):
    """An effect on one job of two pods."""

    async def snapshot(self) -> object:
        now = await job(self.world)
        return now["spec"], now["metadata"].get("annotations")

    def sent(self, key: str, action: str) -> int:
        """How many commands of this name were created."""
        taken = self.world.taken("POST", commands_at(self.world))
        return [one["metadata"]["name"] for one in taken].count(name_for(key, action))

    async def foreign_change(self) -> None:
        await by_hand(self.world, ABORT if self.action == "resume_job" else RESUME)


class AbortCase(CommandCase):
    action = "suspend_job"

    async def changes(self) -> int:
        return self.sent("key-1", ABORT) - self.sent(undo_key(self.effect()), RESUME)


class ResumeCase(CommandCase):
    action = "resume_job"

    async def changes(self) -> int:
        return self.sent("key-1", RESUME)


@pytest.mark.nightly
class TestAbort(ConnectorContract):
    @pytest.fixture
    async def case(self, world: KubeWorld, volcano: Volcano) -> Case:
        return AbortCase(world, await running(world, nodes=1))


@pytest.mark.nightly
class TestResume(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld, volcano: Volcano) -> Case:
        target = await running(world, nodes=1)
        await by_hand(world, ABORT)
        marks = {"annotations": {INCIDENT: "inc-1", SUSPENDED: "key-0"}}
        await world.cluster.patch(jobs_at(KIND, world.namespace, "train"), {"metadata": marks})
        return ResumeCase(world, target)
