"""Diagnostics on request, on a real API server: idle nodes only, and the gate opens for a node that has passed."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_preflight import Preflight
from connectors.kubernetes.work_templates import PREFLIGHT
from tests.connectors.kube_world import KubeWorld
from tests.connectors.kubernetes.node_jobs import new_boot
from tests.connectors.kubernetes.test_work_session_on_a_cluster import GOOD, a_diagnostic, bandwidth

pytestmark = pytest.mark.cluster

TAINT = {"key": PREFLIGHT, "value": "required", "effect": "NoSchedule"}
OTHER = {"key": "example.com/mine", "effect": "PreferNoSchedule"}


def preflight(world: KubeWorld, *diagnostics: Diagnostic, **more: Any) -> Preflight:
    return Preflight(world.cluster, world.namespace, diagnostics or GOOD, **more)


async def at_the_gate(world: KubeWorld) -> str:
    node = await world.add_node(kubelet=True)
    await new_boot(world, node, "boot-1")
    await world.patch_node(node, {"spec": {"taints": [OTHER, TAINT]}})
    return node


async def taints(world: KubeWorld, node: str) -> set[str]:
    return {taint["key"] for taint in (await world.node(node))["spec"].get("taints") or []}


async def test_a_node_at_the_gate_is_let_in_after_it_has_passed(world: KubeWorld) -> None:
    node = await at_the_gate(world)
    one = preflight(world, a_diagnostic("loopback", bandwidth(455)), gate=True)
    assert node in await one.waiting()
    verdict = await one.run(node)
    assert (verdict.passed, verdict.released) == (True, True), verdict
    assert verdict.diagnostics == ("loopback: passed, busbw_avg_gb_s 455",)
    assert await taints(world, node) == {OTHER["key"]}
    assert node not in await one.waiting()


async def test_a_node_that_fails_stays_outside(world: KubeWorld) -> None:
    node = await at_the_gate(world)
    verdict = await preflight(world, a_diagnostic("slow", bandwidth(99)), gate=True).run(node)
    assert not verdict.passed
    assert "at least 400 expected" in verdict.reason
    assert PREFLIGHT in await taints(world, node)


async def test_without_the_gate_nothing_but_its_jobs_is_changed(world: KubeWorld) -> None:
    node = await at_the_gate(world)
    assert (await preflight(world, a_diagnostic("loopback", bandwidth(455))).run(node)).passed
    assert PREFLIGHT in await taints(world, node)


async def test_a_node_in_use_is_not_tested(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    pod = await world.add_pod(node)
    verdict = await preflight(world).run(node)
    assert not verdict.passed
    assert pod in verdict.reason
    assert world.writes(resource="jobs", verb="create") == []
    assert "no node" in (await preflight(world).run("nowhere")).reason
