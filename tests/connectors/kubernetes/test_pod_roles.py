"""What a pod is to a drain, and what keeps it, decided from the object alone."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.kubernetes.annotations import MANAGED, NODE_WORK
from connectors.kubernetes.client import Object
from connectors.kubernetes.local_volumes import is_bound_to_a_node
from connectors.kubernetes.pod_roles import (
    MIRROR,
    NOBODY,
    OPT_OUT,
    SLURM,
    WORKLOAD,
    DrainPolicy,
    Role,
    kept_by,
    role_of,
    scratch,
    tolerates_cordon,
)
from tests.connectors.objects import merged, pod

GANG = {"scheduling.k8s.io/group-name": "g"}


def owned(kind: str, **more: Any) -> Object:
    return pod("p", ownerReferences=[{"kind": kind, "name": "o", "uid": "u", "controller": True}], **more)


def without_gpus(one: Object) -> Object:
    return merged(one, {"spec": {"containers": [{"name": "main"}]}})  # type: ignore[no-any-return]


CRITICAL = {"spec": {"priorityClassName": "system-cluster-critical"}}


@pytest.mark.parametrize(
    ("one", "role"),
    [
        (owned("PyTorchJob"), Role.TRAINING),
        (owned("Job"), Role.TRAINING),
        (owned("ReplicaSet", annotations=GANG), Role.TRAINING),
        (owned("StatefulSet", labels={"leaderworkerset.sigs.k8s.io/name": "chat"}), Role.SERVICE),
        (owned("StatefulSet", labels={WORKLOAD: "training"}), Role.TRAINING),
        (owned("Job", labels={WORKLOAD: "inference"}), Role.SERVICE),
        (owned("RayCluster", labels={"ray.io/cluster": "c"}), Role.TRAINING),
        (
            owned(
                "RayCluster",
                labels={"ray.io/cluster": "c", "ray.io/originated-from-crd": "RayService"},
            ),
            Role.SERVICE,
        ),
        (without_gpus(owned("ReplicaSet", annotations=GANG)), Role.SERVICE),
        (owned("ReplicaSet"), Role.SERVICE),
        (pod("p", ownerReferences=[]), Role.BARE),
        (owned("DaemonSet"), Role.SYSTEM),
        (pod("p", annotations={MIRROR: "x"}, ownerReferences=[]), Role.SYSTEM),
        (owned("Job", labels={NODE_WORK: "reset_gpu"}), Role.SYSTEM),
        (merged(owned("ReplicaSet", namespace="kube-system"), CRITICAL), Role.SYSTEM),
        (merged(owned("ReplicaSet"), CRITICAL), Role.SERVICE),
        (owned("ReplicaSet", namespace="kube-system"), Role.SERVICE),
    ],
)
def test_a_pod_is_what_its_owner_and_its_marks_say(one: Object, role: Role) -> None:
    assert role_of(one) is role


def slurmd(*states: str) -> Object:
    """A slurmd of Slinky whose node of Slurm is in these states."""
    told = [{"type": f"SlurmNodeState{state}", "status": "True"} for state in states]
    told.append({"type": "SlurmNodeStateDown", "status": "False"})
    return merged(SLURMD, {"status": {"conditions": told}})  # type: ignore[no-any-return]


SLURMD = pod(
    "slurmd",
    ownerReferences=[
        {"apiVersion": "slinky.slurm.net/v1", "kind": "NodeSet", "name": "n", "uid": "u", "controller": True}
    ],
)


@pytest.mark.parametrize(
    ("one", "policy", "by"),
    [
        (pod("p"), DrainPolicy(), ""),
        (pod("p", ownerReferences=[]), DrainPolicy(), NOBODY),
        (pod("p", ownerReferences=[]), DrainPolicy(bare=True), ""),
        (
            pod("p", labels={MANAGED: "false"}),
            DrainPolicy(bare=True, protected=True, local_data="all"),
            OPT_OUT,
        ),
        (SLURMD, DrainPolicy(protected=True), SLURM),
        (
            merged(pod("p"), {"spec": {"containers": [{"name": "slurmd"}]}}),
            DrainPolicy(protected=True),
            SLURM,
        ),
        (slurmd("Idle"), DrainPolicy(), SLURM),
        (slurmd("Allocated", "Drain"), DrainPolicy(bare=True, protected=True, local_data="all"), SLURM),
        (slurmd("Mixed", "Drain"), DrainPolicy(), SLURM),
        (slurmd("Idle", "Completing", "Drain"), DrainPolicy(), SLURM),
        (slurmd("Idle", "Drain", "Undrain"), DrainPolicy(), SLURM),
        (slurmd("Idle", "Drain"), DrainPolicy(), ""),
        (
            pod("p", annotations={"karpenter.sh/do-not-disrupt": "true"}),
            DrainPolicy(),
            "the annotation karpenter.sh/do-not-disrupt",
        ),
        (pod("p", annotations={"karpenter.sh/do-not-disrupt": "true"}), DrainPolicy(protected=True), ""),
        (pod("p", annotations={"karpenter.sh/do-not-disrupt": "false"}), DrainPolicy(), ""),
    ],
)
def test_what_keeps_a_pod_is_up_to_its_marks_and_the_policy(
    one: Object, policy: DrainPolicy, by: str
) -> None:
    assert kept_by(one, policy) == by


def volumes(*of: Object, **metadata: Any) -> Object:
    return merged(pod("p", **metadata), {"spec": {"volumes": list(of)}})  # type: ignore[no-any-return]


DISK, MEMORY = {"name": "disk", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}
NVME = {"name": "nvme", "hostPath": {"path": "/mnt/nvme"}}
INFINIBAND = {"name": "ib", "hostPath": {"path": "/dev/infiniband"}}
SOCKET = {"name": "sock", "hostPath": {"path": "/mnt/csi.sock", "type": "Socket"}}
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


@pytest.mark.parametrize(
    ("one", "left"),
    [
        (volumes(DISK, MEMORY, NVME, INFINIBAND, SOCKET), ["disk", "nvme"]),
        (volumes(DISK, NVME, annotations={SAFE: "disk"}), ["nvme"]),
        (volumes(DISK, annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}), []),
        (
            merged(
                volumes(NVME),
                {"spec": {"containers": [{"volumeMounts": [{"name": "nvme", "readOnly": True}]}]}},
            ),
            [],
        ),
    ],
)
def test_scratch_is_what_a_pod_may_have_written_on_the_nodes_disk(one: Object, left: list[str]) -> None:
    assert scratch(one) == left
    assert bool(kept_by(one, DrainPolicy(local_data="keep"))) is bool(left)
    assert kept_by(one, DrainPolicy()) == ""


def test_a_volume_that_only_this_node_has_keeps_its_pod_unless_everything_may_go() -> None:
    assert kept_by(pod("p"), DrainPolicy(), "data-0") == "data in its local volumes (data-0)"
    assert kept_by(pod("p"), DrainPolicy(local_data="all"), "data-0") == ""


def affinity(key: str) -> Object:
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "values": ["a"]}]}]}}


@pytest.mark.parametrize(
    ("spec", "bound"),
    [
        ({"local": {"path": "/mnt/a"}}, True),
        ({"csi": {}, "nodeAffinity": affinity("kubernetes.io/hostname")}, True),
        ({"csi": {}, "nodeAffinity": affinity("topology.kubernetes.io/zone")}, False),
        ({"nfs": {}}, False),
    ],
)
def test_a_volume_is_bound_to_a_node_by_its_kind_or_its_affinity(spec: Object, bound: bool) -> None:
    assert is_bound_to_a_node({"spec": spec}) is bound


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, False),
    ],
)
def test_only_a_toleration_of_the_cordon_brings_a_pod_back(toleration: Object, tolerates: bool) -> None:
    assert tolerates_cordon(merged(pod("p"), {"spec": {"tolerations": [toleration]}})) is tolerates
