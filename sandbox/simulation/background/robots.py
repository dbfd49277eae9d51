"""Work by robots and people: patch waves, kured, autoscalers, driver upgrades, cordons with a reason, a slow API server."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import kube
from sandbox.simulation.background.kinds import Play, end_pod, make_pod, pod_event, some_uid, suffix
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import Node
from streams.model.clock import rfc3339

WAVE = 4
"""Nodes that a patch wave takes one after the other."""
REASONS = (
    "swapping DIMM A7, CHG-4417",
    "reserved for burn-in of new NICs",
    "BIOS update, back this afternoon",
    "bench for the compiler team until tonight",
)


def _patch(sim: Simulation, node: Node, at: datetime, by: str, why: str) -> datetime:
    """One node is closed, emptied, rebooted and opened again. Returns when."""
    begin = at - seconds(50)
    if sim.kubernetes:
        pod = make_pod(sim, node, begin, "research", f"scratch-{suffix(sim)}", gpus=1)
        pod_event(sim, pod, at + seconds(9), "Killing", "Stopping container main")
        end_pod(sim, pod, at + seconds(39), 143, gone_s=1)
    down = at + seconds(sim.rng.uniform(80, 110))
    back = down + seconds(sim.rng.uniform(180, 420))
    sim.close(node, at, by=by, why=why)
    sim.reboot(node, down, back, by=by)
    opened = back + seconds(sim.rng.uniform(30, 90))
    sim.reopen(node, opened)
    sim.occupy(node, begin, opened)
    return opened


def _patch_wave(sim: Simulation, node: Node, at: datetime) -> None:
    """The operating systems of several nodes are patched, one after the other."""
    end = at + seconds(3600)
    nodes = [other for other in sim.general if other is not node and sim.calm(other, at, end)]
    for each in [node, *sim.rng.sample(nodes, min(len(nodes), WAVE - 1))]:
        at = _patch(sim, each, at, "os-patch", "os patch wave 2026-10") + seconds(20)


def _kured(sim: Simulation, node: Node, at: datetime) -> None:
    """kured reboots a node that asks for it."""
    sim.daemon(node, at - seconds(40), "kured", 'level=info msg="Reboot required"')
    _patch(sim, node, at, "kured", "kured: reboot required")


def _autoscaler(sim: Simulation, node: Node, at: datetime) -> None:
    """An autoscaler adds a node that is NotReady while it comes up, uses it for a while, and takes it away again."""
    rng = sim.rng
    new = sim.cluster.spare(node, rfc3339(at))
    bare = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    sim.show(at, "ADDED", kube.node(sim.cluster, new, at, ready="False", more=bare))
    text = f"Node {new.name} event: Registered Node {new.name} in Controller"
    sim.event(at + seconds(1), "Node", new.name, "RegisteredNode", text, warning=False)
    up = at + seconds(rng.uniform(35, 140))
    sim.show_node(new, up)
    sim.node_status_event(new, up, "NodeReady", host=new.name)
    leaves = up + timedelta(minutes=rng.uniform(10, 60))
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    sim.show_node(new, leaves, spec={"taints": [taint]})
    sim.event(
        leaves, "Node", new.name, "DisruptionTerminating", "Disrupting Node: Underutilized", component="karpenter",
        warning=False,
    )  # fmt: skip
    gone = leaves + seconds(rng.uniform(60, 150))
    sim.show_node(new, gone - seconds(20), ready="Unknown", spec={"taints": [taint], "unschedulable": True})
    sim.show(gone, "DELETED", kube.node(sim.cluster, new, gone))
    text = f"Node {new.name} event: Removing Node {new.name} from Controller"
    sim.event(gone, "Node", new.name, "RemovingNode", text, warning=False)


def _driver_upgrade(sim: Simulation, node: Node, at: datetime) -> None:
    """The GPU operator replaces a node's driver: for some minutes the node has no GPU to give."""
    label = "nvidia.com/gpu-driver-upgrade-state"
    back = at + seconds(sim.rng.uniform(150, 260))
    sim.close(node, at, by="gpu-operator", why="driver upgrade", labels={label: "cordon-required"})
    closed = {"unschedulable": True, "taints": [kube.UNSCHEDULABLE]}
    sim.show_node(node, at + seconds(30), spec=closed, gpus=0, labels={label: "pod-restart-required"})
    sim.kernel(node, at + seconds(40), "nvidia-uvm: Unloaded the UVM driver.", "nvidia-modeset: Unloading")
    sim.kernel(
        node, at + seconds(70),
        f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver}.90.07  Fri May 31 09:35:42 UTC 2024",
    )  # fmt: skip
    sim.reopen(node, back, labels={label: "upgrade-done"})
    sim.occupy(node, at, back)


def _person_cordon(sim: Simulation, node: Node, at: datetime) -> None:
    """A person closes a node for reasons of their own, and opens it hours later."""
    sim.close(node, at, by="oncall-2", why=sim.rng.choice(REASONS))
    opened = at + timedelta(minutes=sim.rng.uniform(30, 118))
    sim.reopen(node, opened)
    sim.occupy(node, at, opened)


def _api_blip(sim: Simulation, node: Node, at: datetime) -> None:
    """The API server answers late for seconds: kubelets say so, nobody becomes NotReady."""
    nodes = list(sim.cluster.nodes.values())
    for each in sim.rng.sample(nodes, max(2, len(nodes) // 8)):
        text = (
            '"Error updating node status, will retry" err="error getting node \\"' + each.name + '\\": Get '
            '\\"https://10.0.0.1:6443/api/v1/nodes/'
            + each.name
            + '?timeout=10s\\": context deadline exceeded"'
        )
        sim.daemon(each, at + seconds(sim.rng.uniform(0, 12)), "kubelet", text)
    sim.event(
        at + seconds(5), "Lease", "kube-scheduler", "LeaderElection", f"kube-scheduler_{some_uid(sim)} became leader",
        namespace="kube-system", component="default-scheduler", warning=False,
    )  # fmt: skip


KINDS: dict[str, Play] = {
    "patch_wave": _patch_wave,
    "kured": _kured,
    "autoscaler": _autoscaler,
    "driver_upgrade": _driver_upgrade,
    "person_cordon": _person_cordon,
    "api_blip": _api_blip,
}
