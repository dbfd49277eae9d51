"""A Node object and what is told of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streams.inventory.nodes import node_fact
from streams.model.errors import BadInput
from tests.streams.inventory.objects import AT, node


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"labels": {"network.topology.nvidia.com/leaf": "leaf-3"}}, {"leaf": "leaf-3"}),
        ({"labels": {"faultline.dev/leaf": "l1", "network.topology.nvidia.com/leaf": "l2"}}, {"leaf": "l1"}),
        ({"labels": {"network.topology.nvidia.com/accelerator": "nvl-2"}}, {"nvlink_domain": "nvl-2"}),
        ({"labels": {"nvidia.com/gpu.clique": "9f2c.1"}}, {"nvlink_domain": "9f2c.1"}),
        ({"labels": {"topology.kubernetes.io/rack": "r12"}}, {"rack": "r12"}),
        ({"labels": {"cloud.google.com/gke-nodepool": "a3"}}, {"pool": "a3"}),
        ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, {"control_plane": True}),
        ({"labels": {"karpenter.sh/capacity-type": "spot"}}, {"spot": True}),
        ({"labels": {"karpenter.sh/capacity-type": "on-demand"}}, {"spot": None}),
        ({"labels": {"eks.amazonaws.com/capacityType": "SPOT"}}, {"spot": True}),
        ({"labels": {"faultline.dev/managed": "false"}}, {"managed": False}),
        ({"labels": {"faultline.dev/managed": "true"}}, {"managed": True}),
        ({"annotations": {"faultline.dev/managed": "False"}}, {"managed": False}),
        ({"annotations": {"faultline.dev/maintenance": "firmware"}}, {"maintenance": True}),
        ({"annotations": {"faultline.dev/maintenance": "false"}}, {"maintenance": False}),
        ({"annotations": {"faultline.dev/incident": "inc-1"}}, {"owner_incident": "inc-1"}),
        ({}, {"gpus": 8, "ready": True, "managed": True, "leaf": None, "addresses": ("10.0.0.7",)}),
    ],
)
def test_labels_and_annotations_become_facts(metadata: dict[str, Any], expected: dict[str, Any]) -> None:
    fact = node_fact("c1", node(**metadata), AT)
    assert {name: getattr(fact, name) for name in expected} == expected


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_stopped_answering_is_not_ready(status: str) -> None:
    fact = node_fact("c1", node(ready=status), AT)
    assert (fact.ready, fact.ready_since) == (False, None)


@pytest.mark.parametrize("status", ["False", "Unknown"])
@pytest.mark.parametrize(
    ("made", "joining"), [("2026-03-01T07:59:40Z", True), ("2026-03-01T07:00:00Z", False)]
)
def test_a_node_that_never_was_ready_is_joining(status: str, made: str, joining: bool) -> None:
    assert node_fact("c1", node(ready=status, creationTimestamp=made), AT).joining is joining
    assert not node_fact("c1", node(creationTimestamp=made), AT).joining


def test_a_ready_node_says_since_when() -> None:
    assert node_fact("c1", node(), AT).ready_since == datetime(2026, 3, 1, 8, tzinfo=UTC)


def test_an_unhealthy_device_lowers_what_can_be_allocated() -> None:
    shown = node()
    shown["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    fact = node_fact("c1", shown, AT)
    assert (fact.gpus, fact.gpus_allocatable) == (8, 7)


def test_taints_are_sorted_and_an_announced_shutdown_is_maintenance() -> None:
    shown = node()
    going = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
    shown["spec"] = {
        "unschedulable": True,
        "taints": [{"key": "x", "value": "1", "effect": "NoExecute"}, going],
    }
    fact = node_fact("c1", shown, AT)
    assert fact.taints == ("cloud.google.com/impending-node-termination=:NoSchedule", "x=1:NoExecute")
    assert (fact.unschedulable, fact.maintenance) == (True, True)


def test_an_object_with_nothing_in_it_is_still_a_node() -> None:
    bare = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": None},
        "spec": None,
        "status": {"conditions": None},
    }
    assert node_fact("c1", bare, AT).gpus == 0


def test_an_object_without_a_name_is_refused() -> None:
    with pytest.raises(BadInput, match="name"):
        node_fact("c1", {"kind": "Node", "metadata": {}}, AT)


@pytest.mark.parametrize(
    ("labels", "layout"),
    [
        ({}, None),
        ({"nvidia.com/mig.config": "all-1g.10gb"}, "mig.config=all-1g.10gb"),
        ({"nvidia.com/gpu.deploy.device-plugin": "false"}, "gpu.deploy.device-plugin=false"),
        # What the GPU operator itself writes while it exchanges a driver is no other layout.
        ({"nvidia.com/gpu.deploy.device-plugin": "paused-for-driver-upgrade"}, None),
    ],
)
def test_labels_say_how_the_gpus_of_a_node_are_handed_out(labels: dict[str, str], layout: str | None) -> None:
    shown = node()
    shown["metadata"]["labels"] = labels
    assert node_fact("c1", shown, AT).gpu_layout == layout


def test_a_node_with_mig_instances_of_several_sizes_has_its_gpus_handed_out_as_slices() -> None:
    shown = node()
    shown["status"]["capacity"] |= {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}
    assert node_fact("c1", shown, AT).gpu_layout == "slices"
