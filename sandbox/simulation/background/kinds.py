"""What everything in the background shares: how it is played, and pods that are no training job."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime

from sandbox.simulation import kube
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import Node
from sandbox.simulation.workload import Pod

Play = Callable[[Simulation, Node, datetime], None]
"""Plays one item at a time, on a node where the row of `rates.yaml` says so; those of the cluster get any node."""


def suffix(sim: Simulation, length: int = 5) -> str:
    """A generated part of a name."""
    return "".join(sim.rng.choice(kube.ENDINGS) for _ in range(length))


def some_uid(sim: Simulation) -> str:
    """A uid."""
    return str(uuid.UUID(int=sim.rng.getrandbits(128), version=4))


def owner(sim: Simulation, api: str, kind: str, name: str) -> kube.Object:
    """A reference to whatever made a pod."""
    return {"apiVersion": api, "kind": kind, "name": name, "uid": some_uid(sim), "controller": True}


def make_pod(
    sim: Simulation, node: Node, at: datetime, namespace: str, name: str, *,
    gpus: int = 0, container: str = "main", labels: Mapping[str, str] | None = None,
    by: kube.Object | None = None, starts_s: float = 4.0,
) -> Pod:  # fmt: skip
    """A pod that is placed at once and runs `starts_s` later."""
    address = f"10.{200 + node.number // 250 % 50}.{node.number % 250}.{sim.rng.randrange(2, 250)}"
    thing = kube.tenant_pod(
        namespace, name, some_uid(sim), node.name, address, at,
        gpus=gpus, container=container, labels=dict(labels or {}), owner=by,
    )  # fmt: skip
    pod = Pod(namespace, name, thing["metadata"]["uid"], node, 0, address, thing)
    sim.show(at, "ADDED", kube.pending(thing))
    pod_event(
        sim, pod, at, "Scheduled", f"Successfully assigned {pod.key} to {node.name}", by="default-scheduler"
    )
    sim.show(at + seconds(starts_s), "MODIFIED", thing)
    pod_event(sim, pod, at + seconds(starts_s), "Started", f"Started container {container}")
    return pod


def end_pod(
    sim: Simulation, pod: Pod, at: datetime, code: int = 0, *, why: str = "", gone_s: float = 40.0
) -> None:
    """Its container ends, and later the pod is deleted. `why` is the container's reason, by default what the code says."""
    phase = "Succeeded" if code == 0 else "Failed"
    reason = why or ("Completed" if code == 0 else "OOMKilled" if code == 137 else "Error")
    thing = kube.ended(pod.thing, phase, at, code, reason=reason)
    sim.show(at, "MODIFIED", thing)
    sim.show(at + seconds(gone_s), "DELETED", thing)


def restart_container(sim: Simulation, pod: Pod, at: datetime, code: int, count: int = 1) -> None:
    """A container ends and the kubelet starts it again."""
    sim.show(at, "MODIFIED", kube.restarted(pod.thing, at, code, count))


def delete_pod(sim: Simulation, pod: Pod, at: datetime) -> None:
    """Somebody deletes a running pod: it is told to stop, and gone half a minute later."""
    pod_event(sim, pod, at, "Killing", f"Stopping container {pod.container}")
    sim.show(at + seconds(31), "DELETED", kube.ended(pod.thing, "Succeeded", at + seconds(30), 0))


def pod_event(
    sim: Simulation,
    pod: Pod,
    at: datetime,
    reason: str,
    message: str,
    *,
    by: str = "kubelet",
    warning: bool = False,
) -> None:
    """An event of a pod."""
    sim.event(
        at, "Pod", pod.name, reason, message, namespace=pod.namespace, uid=pod.uid, component=by,
        host=pod.node.name if by == "kubelet" else "", warning=warning,
    )  # fmt: skip
