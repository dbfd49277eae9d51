"""The demo's cluster: 16 nodes of 8 GPUs on four leaf switches, three training jobs on 12 of them, four nodes to spare.

Node `gpu-N` hangs on leaf `(N - 1) % 4 + 1` with each of its eight NICs, so every leaf carries a node of every job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from connectors.kubernetes.client import path_of

CLUSTER = "demo"
NODES = 16
GPUS = 8
LEAVES = 4
PODS = 4
"""Pods of each job, a whole node each."""
GPU = "nvidia.com/gpu"
NVIDIA_PCI = ("1b:00", "43:00", "52:00", "61:00", "9d:00", "c3:00", "d1:00", "df:00")
"""PCI addresses of the GPUs of every node, by index."""
Object = dict[str, Any]


def node_names() -> list[str]:
    """All nodes."""
    return [f"gpu-{number:02d}" for number in range(1, NODES + 1)]


def leaf_of(node: str) -> str:
    """The leaf switch of a node."""
    return f"leaf-{(int(node.removeprefix('gpu-')) - 1) % LEAVES + 1}"


def neighbours(node: str) -> list[str]:
    """The other nodes on its leaf."""
    return [other for other in node_names() if leaf_of(other) == leaf_of(node) and other != node]


def port_of(node: str, nic: int) -> str:
    """The leaf's port at the other end of a NIC's cable."""
    slot = (int(node.removeprefix("gpu-")) - 1) // LEAVES
    return f"Ethernet{(slot * GPUS + nic) * 4}"


def topology() -> str:
    """The cabling file: every access port of every leaf, and two uplinks each."""
    switches: dict[str, dict[str, Object]] = {}
    for node in node_names():
        ports = switches.setdefault(leaf_of(node), {})
        for nic in range(GPUS):
            ports[port_of(node, nic)] = {"node": node, "nic": f"mlx5_{nic}"}
    for number in range(1, LEAVES + 1):
        for spine in (1, 2):
            far = {"switch": f"spine-{spine}", "port": f"Ethernet{number * 8}"}
            switches[f"leaf-{number}"][f"Ethernet{256 + spine * 8}"] = far
    return yaml.safe_dump(switches, sort_keys=True)


def node(name: str) -> Object:
    """A node as its kubelet would register it."""
    number = int(name.removeprefix("gpu-"))
    amount = {GPU: str(GPUS), "cpu": "192", "memory": "2Ti"}
    labels = {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "h100-8",
        "faultline.dev/pool": "h100",
        "faultline.dev/leaf": leaf_of(name),
        "faultline.dev/rack": f"rack-{(number - 1) // 4 + 1}",
    }
    addresses = [
        {"type": "InternalIP", "address": f"10.64.0.{number}"},
        {"type": "Hostname", "address": name},
    ]
    status = {"capacity": amount, "allocatable": dict(amount), "addresses": addresses}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def exporter_pod(name: str) -> Object:
    """What a drain must leave where it is: a pod of a DaemonSet."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "dcgm-exporter",
        "uid": "d0c0ffee-0000-4000-8000-000000000001",
        "controller": True,
    }
    about = {"name": f"dcgm-exporter-{name}", "namespace": "monitoring", "ownerReferences": [owner]}
    spec = {
        "nodeName": name,
        "containers": [{"name": "exporter", "image": "dcgm-exporter:4"}],
        "tolerations": [{"operator": "Exists"}],
    }
    return {"metadata": about, "spec": spec, "status": {"phase": "Pending"}}


def jobs() -> Iterator[tuple[str, Object]]:
    """The training jobs with the path of their collection, in the order in which they take their nodes."""
    yield _pytorch_job("team-language", "llm-pretrain")
    yield _batch_job("team-speech", "asr-large")
    yield _pytorch_job("team-research", "moe-scaling")


def _template() -> Object:
    container = {
        "name": "pytorch",
        "image": "training:24.08",
        "command": ["torchrun", f"--nproc-per-node={GPUS}", "train.py"],
        "resources": {"limits": {GPU: str(GPUS)}},
    }
    return {"metadata": {}, "spec": {"containers": [container]}}


def _about(namespace: str, name: str) -> Object:
    return {
        "name": name,
        "namespace": namespace,
        "annotations": {"faultline.dev/owner": f"{namespace}@example.test"},
    }


def _pytorch_job(namespace: str, name: str) -> tuple[str, Object]:
    roles = {
        "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": _template()},
        "Worker": {"replicas": PODS - 1, "restartPolicy": "OnFailure", "template": _template()},
    }
    spec = {"nprocPerNode": str(GPUS), "runPolicy": {"suspend": False}, "pytorchReplicaSpecs": roles}
    path = path_of("kubeflow.org/v1", "pytorchjobs", namespace=namespace)
    return path, {"metadata": _about(namespace, name), "spec": spec}


def _batch_job(namespace: str, name: str) -> tuple[str, Object]:
    spec = {
        "parallelism": PODS,
        "completions": PODS,
        "completionMode": "Indexed",
        "suspend": False,
        "template": _template(),
    }
    path = path_of("batch/v1", "jobs", namespace=namespace)
    return path, {"metadata": _about(namespace, name), "spec": spec}
