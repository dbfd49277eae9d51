"""Whom a drain concerns and when it must not begin, decided from the objects alone."""

from __future__ import annotations

import pytest

from connectors.base import Blocked, Outcome, Refused
from connectors.kubernetes.annotations import MANAGED
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import cordon
from connectors.kubernetes.drain import may_drain
from connectors.kubernetes.drain_scope import drained_pods
from connectors.kubernetes.pod_roles import MIRROR
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged, node, pod

DRAIN = effect("drain_node", Target("Node", "gpu-07", uid="uid-gpu-07"))
CLOSED = made(node(), cordon(node(), effect("cordon_node", Target("Node", "gpu-07"))))
DAEMON = [{"kind": "DaemonSet", "name": "dcgm", "uid": "u", "controller": True}]


def without_gpu(name: str) -> Object:
    found = pod(name)
    del found["spec"]["containers"][0]["resources"]
    return found


@pytest.mark.parametrize(
    ("one", "only", "drained"),
    [
        (pod("training"), "gpu", True),
        (pod("training"), "all", True),
        (without_gpu("proxy"), "gpu", False),
        (without_gpu("proxy"), "all", True),
        (pod("dcgm", ownerReferences=DAEMON), "all", False),
        (pod("mirror", annotations={MIRROR: "x"}), "all", False),
        (pod("done", phase="Succeeded"), "all", False),
        (pod("crashed", phase="Failed"), "all", False),
        (pod("starting", phase="Pending"), "gpu", True),
    ],
)
def test_only_pods_that_a_drain_concerns_are_drained(one: Object, only: str, drained: bool) -> None:
    assert bool(drained_pods([one], only).count) is drained


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "amd.com/gpu"]
)
@pytest.mark.parametrize("where", ["limits", "requests"])
def test_a_gpu_pod_is_known_by_what_it_asks_for(resource: str, where: str) -> None:
    one = without_gpu("training")
    one["spec"]["containers"][0]["resources"] = {where: {resource: "1"}}
    assert drained_pods([one], "gpu").staying == (one,)


def test_a_pod_on_its_way_out_is_waited_for_and_not_evicted_again() -> None:
    going = pod("going", deletionTimestamp="2026-01-01T00:00:00Z")
    sorted_out = drained_pods([going, pod("staying")], "gpu")
    assert sorted_out.leaving == (going,)
    assert len(sorted_out.staying) == 1


@pytest.mark.parametrize(
    ("of", "outcome"),
    [
        (node(), Refused),
        (merged(CLOSED, {"spec": {"unschedulable": None}}), Blocked),
        (merged(CLOSED, {"spec": {"taints": None}}), Blocked),
        (merged(CLOSED, {"metadata": {"labels": {MANAGED: "false"}}}), Refused),
        (merged(CLOSED, {"metadata": {"uid": "of-another-machine"}}), Refused),
        (CLOSED, None),
        (node(unschedulable=True), None),
    ],
)
def test_a_node_is_drained_only_while_it_is_closed_and_meant(
    of: Object, outcome: type[Outcome] | None
) -> None:
    found = may_drain(of, DRAIN)
    assert found is None if outcome is None else isinstance(found, outcome)
