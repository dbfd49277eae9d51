"""Sessions of diagnostics on a real API server: real Jobs, their pods' real termination messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Connector, Done, Effect, NoLease, Refused, Waiting
from connectors.diagnostics.reading import Limits
from connectors.kubernetes.node_work import NodeWork
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_session import session_job_name
from connectors.kubernetes.work_templates import Template
from streams.config.connector_settings import NodeWorkSettings
from streams.model.facts import NodeWork as OthersWork
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld
from tests.connectors.kubernetes.node_jobs import a_template, jobs_path, new_boot
from tests.connectors.responding import until_over
from tests.contract.case import Case
from tests.contract.suite import EffectContract

pytestmark = pytest.mark.cluster

LEASE = NoLease()
WANTED = Limits(at_least={"busbw_avg_gb_s": 400})


def a_diagnostic(name: str, message: str = "", *, outcome: str | None = "complete") -> Diagnostic:
    job = a_template(outcome=outcome, message=message)
    return Diagnostic(name, Template("validate_node", job), "nccl-tests", WANTED)


def bandwidth(value: float) -> str:
    return f"# Avg bus bandwidth    : {value}"


GOOD = (a_diagnostic("loopback", bandwidth(455)), a_diagnostic("all-reduce", bandwidth(430)))


def session(world: KubeWorld, *diagnostics: Diagnostic, others: OthersWork | None = None) -> NodeWork:
    settings = NodeWorkSettings(namespace=world.namespace)
    return NodeWork(world.cluster, settings, {}, diagnostics=diagnostics, others=lambda _: others)


async def closed(world: KubeWorld) -> Effect:
    target = Target("Node", await world.add_node(kubelet=True))
    await new_boot(world, target.name, "boot-1")
    await NodeConnector(world.cluster).apply(world.effect("cordon_node", target), LEASE)
    return world.effect("validate_node", target)


async def test_all_diagnostics_are_passed_one_after_the_other_and_told_with_figures(world: KubeWorld) -> None:
    effect = await closed(world)
    connector = session(world, *GOOD)
    outcome = await until_over(connector, effect)
    assert isinstance(outcome, Done), outcome
    assert outcome.result["loopback.busbw_avg_gb_s"] == 455
    assert outcome.result["all-reduce.busbw_avg_gb_s"] == 430
    assert [w.name for w in world.writes(resource="jobs", verb="create", code=201)] == [
        session_job_name(effect, one) for one in GOOD
    ]
    assert isinstance(await connector.lookup(effect), AlreadyDone)


async def test_a_slow_node_fails_although_its_job_completed_and_the_rest_is_not_begun(
    world: KubeWorld,
) -> None:
    effect = await closed(world)
    outcome = await until_over(session(world, a_diagnostic("slow", bandwidth(212)), *GOOD), effect)
    assert isinstance(outcome, Refused)
    assert "busbw_avg_gb_s is 212, at least 400 expected" in outcome.reason
    assert len(world.writes(resource="jobs", verb="create", code=201)) == 1


async def test_a_boot_during_the_session_ends_it(world: KubeWorld) -> None:
    effect = await closed(world)
    connector = session(world, a_diagnostic("endless", outcome=None), *GOOD)
    assert isinstance(await connector.apply(effect, LEASE), Waiting)
    await new_boot(world, effect.target.name, "boot-2")
    outcome = await connector.apply(effect, LEASE)
    assert isinstance(outcome, Refused)
    assert "booted anew" in outcome.reason


async def test_a_job_of_the_session_that_a_person_deleted_ends_it(world: KubeWorld) -> None:
    effect = await closed(world)
    connector = session(world, a_diagnostic("endless", outcome=None), *GOOD)
    begun = await connector.apply(effect, LEASE)
    assert isinstance(begun, Waiting)
    (job,) = await world.cluster.list_all(jobs_path(world))
    await world.cluster.delete(jobs_path(world, job["metadata"]["name"]), propagation="Background")
    outcome = await connector.apply(replace(effect, prior=begun.result), LEASE)
    assert isinstance(outcome, Blocked)
    assert outcome.by_person
    assert len(world.writes(resource="jobs", verb="create", code=201)) == 1


async def test_nothing_is_begun_while_somebody_else_works_on_the_node(world: KubeWorld) -> None:
    effect = await closed(world)
    theirs = OthersWork("NVSentinel", "dgxc.nvidia.com/nvsentinel-state")
    outcome = await session(world, *GOOD, others=theirs).apply(effect, LEASE)
    assert isinstance(outcome, Blocked)
    assert outcome.by == "NVSentinel"
    assert world.writes(resource="jobs", verb="create") == []
    assert isinstance(await session(world, *GOOD).lookup(effect), Absent)


class SessionCase(Case):
    """A session of one diagnostic, so that it is one change."""

    deadline_s = 120.0

    def __init__(self, world: KubeWorld, effect: Effect) -> None:
        super().__init__(world.proxy)
        self.world, self._effect = world, effect

    def effect(self) -> Effect:
        return self._effect

    def connector(self) -> Connector:
        settings = NodeWorkSettings(namespace=self.world.namespace)
        return NodeWork(self.world.through_proxy(), settings, {}, diagnostics=GOOD[:1])

    async def changes(self) -> int:
        return len(self.world.taken("POST", jobs_path(self.world)))

    async def snapshot(self) -> object:
        jobs = await self.world.cluster.list_all(jobs_path(self.world))
        return [(job["metadata"]["name"], job["metadata"]["uid"]) for job in jobs]


class TestSession(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld) -> Case:
        return SessionCase(world, await closed(world))
