"""Who works on a node, by the marks on its object."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.names import NodeLabels
from streams.inventory.node_work import node_marks, node_work
from streams.inventory.nodes import node_fact
from streams.model.codec import decode, encode
from streams.model.facts import NodeFact
from tests.streams.inventory.objects import AT, node


def marked(
    *, taint: str = "", value: str = "", cordoned: bool = False, own: tuple[str, ...] = (), **metadata: Any
) -> NodeFact:
    shown = node(**metadata)
    if taint:
        shown["spec"]["taints"] = [{"key": taint, "value": value, "effect": "NoSchedule"}]
    if cordoned:
        shown["spec"]["unschedulable"] = True
    return node_fact("c1", shown, AT, NodeLabels(work=own))


SET: dict[str, dict[str, Any]] = {
    "GPU operator": {"labels": {"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}},
    "network operator": {"labels": {"nvidia.com/ofed-driver-upgrade-state": "drain-required"}},
    "MIG manager": {"labels": {"nvidia.com/mig.config.state": "rebooting"}},
    "NVSentinel": {"labels": {"dgxc.nvidia.com/nvsentinel-state": "remediating"}},
    "kured": {"annotations": {"weave.works/kured-reboot-in-progress": "2026-03-01T02:00:00Z"}},
    "machine-config operator": {"annotations": {"machineconfiguration.openshift.io/state": "Working"}},
    "cluster-autoscaler": {"taint": "ToBeDeletedByClusterAutoscaler", "value": "1772359200"},
    "Karpenter": {"taint": "karpenter.sh/disruption", "value": "disrupting"},
    "medik8s": {"taint": "medik8s.io/remediation", "value": "self-node-remediation"},
    "node maintenance operator": {"taint": "medik8s.io/drain"},
    "Cluster API": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}},
    "the cloud": {"labels": {"cloud.google.com/active-node-maintenance": "ONGOING"}},
    "a person": {"annotations": {"faultline.dev/maintenance": "firmware"}},
    "Slurm": {"annotations": {"nodeset.slinky.slurm.net/node-cordon-reason": "kernel update"}},
    "somebody": {"cordoned": True},
    "a mark of this site": {"labels": {"acme.io/state": "service"}, "own": ("acme.io/state=service",)},
}


@pytest.mark.parametrize("by", SET)
def test_a_mark_says_who_works_on_the_node(by: str) -> None:
    fact = marked(**SET[by])
    assert fact.worked_on is not None
    assert fact.worked_on.by == by
    assert fact.maintenance is not SET[by].get("cordoned", False)
    assert decode(NodeFact, encode(fact)) == fact


@pytest.mark.parametrize(
    "unset",
    [
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}},
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-required"}},  # it waits for its turn
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "upgrade-failed"}},
        {"labels": {"nvidia.com/mig.config.state": "success"}},
        {"annotations": {"weave.works/kured-most-recent-reboot-needed": "2026-03-01T02:00:00Z"}},
        {"annotations": {"machineconfiguration.openshift.io/state": "Done"}},
        {"annotations": {"faultline.dev/maintenance": "false"}},
        {"labels": {"cloud.google.com/scheduled-maintenance-time": "1772500000"}},  # days ahead
        {"labels": {"acme.io/state": "ready"}, "own": ("acme.io/state=service",)},
        {"taint": "nvidia.com/gpu", "value": "present"},
        {"cordoned": True, "annotations": {"faultline.dev/incident": "inc-1"}},
    ],
)
def test_what_says_that_nobody_works_on_it_is_no_mark(unset: dict[str, Any]) -> None:
    fact = marked(**unset)
    assert (fact.worked_on, fact.maintenance) == (None, False)


def test_a_kubelet_that_shuts_down_in_order_says_so() -> None:
    shown = node(ready="False")
    shown["status"]["conditions"][0] |= {"reason": "KubeletNotReady", "message": "node is shutting down"}
    work = node_fact("c1", shown, AT).work
    assert work is not None
    assert (work.mark, work.ends) == ("Ready", "back")


def test_a_mark_that_a_person_takes_off_counts_before_a_robots() -> None:
    shown = node(
        annotations={"faultline.dev/maintenance": "yes", "weave.works/kured-reboot-in-progress": "t"}
    )
    work = node_fact("c1", shown, AT).work
    assert work is not None
    assert work.ends == "held"


def test_a_record_of_an_older_inventory_is_still_maintenance() -> None:
    old = decode(
        NodeFact,
        '{"cluster":"c","name":"n","uid":"u","observed_at":"2026-03-01T12:00:00Z","maintenance":true}',
    )
    assert old.worked_on is not None
    assert old.worked_on.ends == "held"


def test_every_mark_is_in_the_table_once() -> None:
    keys = [(m.label, m.annotation, m.taint, m.condition) for m in node_marks()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("reason", "works"), [("bad DIMM", True), ("faultline inc-1: XID 79", False)], ids=["theirs", "ours"]
)
def test_a_reason_for_slurm_operator_is_somebodys_work_unless_we_wrote_it(reason: str, works: bool) -> None:
    found = {
        "metadata": {"name": "n", "annotations": {"nodeset.slinky.slurm.net/node-cordon-reason": reason}}
    }
    assert (node_work(found) is not None) is works
