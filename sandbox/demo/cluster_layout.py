"""The demo's cluster: 16 nodes of 8 GPUs on four leaf switches, three training jobs on 12 of them, four nodes to spare.

Node `gpu-N` is attached to leaf `(N - 1) % 4 + 1` with each of its eight NICs, so every leaf carries a node of every job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from connectors.kubernetes.client import path_of
from sandbox.simulation import kube
from sandbox.simulation.topology import GPU_BUSES, GPUS

CLUSTER = "demo"
NODES = 16
LEAVES = 4
PODS = 4
"""Pods of each job, a whole node each."""
NVIDIA_PCI = tuple(f"{bus}:00" for bus in GPU_BUSES)
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
    """The topology file: every access port of every leaf, and two uplinks each."""
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
    amount = {kube.GPU: str(GPUS), "cpu": "192", "memory": "2Ti"}
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
    """A pod of a DaemonSet, which a drain must leave in place."""
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
    yield _job("PyTorchJob", "team-language", "llm-pretrain")
    yield _job("Job", "team-speech", "asr-large")
    yield _job("PyTorchJob", "team-research", "moe-scaling")


def _job(kind: str, namespace: str, name: str) -> tuple[str, Object]:
    spec = kube.job(kind, namespace, name, PODS)["spec"]
    if kind == "Job":
        spec["suspend"] = False
    api_version, plural = ("batch/v1", "jobs") if kind == "Job" else ("kubeflow.org/v1", "pytorchjobs")
    annotations = {"faultline.dev/owner": f"{namespace}@example.test"}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    return path_of(api_version, plural, namespace=namespace), {"metadata": metadata, "spec": spec}
