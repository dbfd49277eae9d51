"""What schedulers and kubelets report all day: pulls that back off, pods that wait, are preempted, evicted or mount late."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import kube
from sandbox.simulation.background.kinds import (
    Play,
    delete_pod,
    end_pod,
    make_pod,
    owner,
    pod_event,
    some_uid,
    suffix,
)
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import Node
from sandbox.simulation.workload import Pod

_AGENTS = ("dcgm-exporter", "fluent-bit", "node-exporter", "kube-proxy")
_KUBELET = (
    '"Probe failed" probeType="Readiness" pod="inference/chat-api-{n:x}" output="HTTP probe failed with statuscode: 503"',
    '"SyncLoop (PLEG): event for pod" pod="ci/build-{n:x}" event={{"Type":"ContainerDied"}}',
    '"Image garbage collection succeeded" freed={n}000000',
    '"Error syncing pod, skipping" err="failed to \\"StartContainer\\" with CrashLoopBackOff: back-off 40s" pod="ci/build-{n:x}"',
    '"Failed to update stats for container" containerName="/system.slice/run-{n:x}.scope" err="unable to determine device info"',
    '"RemoveContainer" containerID="{n:x}"',
)


def _image_pull(sim: Simulation, node: Node, at: datetime) -> None:
    """A registry limits the rate, so a pull fails, backs off and succeeds."""
    name = f"prep-{suffix(sim)}"
    pod = make_pod(sim, node, at, "research", name, starts_s=105)
    text = 'Failed to pull image "registry.example/prep:7": rpc error: code = Unknown desc = 429 Too Many Requests'
    pod_event(sim, pod, at + seconds(8), "Failed", text, warning=True)
    pod_event(sim, pod, at + seconds(9), "Failed", "Error: ErrImagePull", warning=True)
    pod_event(sim, pod, at + seconds(30), "BackOff", 'Back-off pulling image "registry.example/prep:7"')
    pod_event(
        sim, pod, at + seconds(100), "Pulled", 'Successfully pulled image "registry.example/prep:7" in 41.2s'
    )
    end_pod(sim, pod, at + seconds(sim.rng.uniform(150, 230)))


def _pending(sim: Simulation, node: Node, at: datetime) -> None:
    """A pod waits for GPUs, for minutes or for hours, while the scheduler says so again and again."""
    rng, count = sim.rng, len(sim.cluster.nodes)
    name = f"{rng.choice(('eval', 'sweep', 'notebook'))}-{suffix(sim)}"
    by = owner(sim, "batch/v1", "Job", name)
    thing = kube.tenant_pod(
        "research", f"{name}-{suffix(sim)}", some_uid(sim), None, "", at, gpus=rng.choice((1, 2, 8)), owner=by
    )
    sim.show(at, "ADDED", kube.unscheduled(thing, at))
    waits = timedelta(minutes=rng.uniform(3, 200))
    text = (
        f"0/{count} nodes are available: {count - 3} Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint "
        "{dedicated: system}. preemption: 0/" + f"{count} nodes are available."
    )
    moment = at + seconds(1)
    while moment < at + waits:
        sim.event(
            moment, "Pod", thing["metadata"]["name"], "FailedScheduling", text, namespace="research",
            uid=thing["metadata"]["uid"], component="default-scheduler",
        )  # fmt: skip
        moment += timedelta(minutes=5)
    placed = thing | {"spec": thing["spec"] | {"nodeName": node.name}}
    pod = Pod("research", thing["metadata"]["name"], thing["metadata"]["uid"], node, 0, "10.199.0.9", placed)
    runs = at + waits
    if rng.random() < 0.5 or not sim.is_general(node) or not sim.calm(node, runs, runs + seconds(460)):
        sim.show(at + waits, "DELETED", kube.unscheduled(thing, at))  # its owner gave up
        return
    pod_event(
        sim,
        pod,
        at + waits,
        "Scheduled",
        f"Successfully assigned {pod.key} to {node.name}",
        by="default-scheduler",
    )
    sim.show(at + waits + seconds(6), "MODIFIED", placed)
    end_pod(sim, pod, at + waits + seconds(rng.uniform(60, 400)))


def _preempted(sim: Simulation, node: Node, at: datetime) -> None:
    """A pod of low priority makes room for a more important one."""
    name = f"lowprio-{suffix(sim)}"
    pod = make_pod(sim, node, at, "research", name, gpus=1)
    moment = at + seconds(sim.rng.uniform(100, 700))
    text = f"Preempted by pod {some_uid(sim)} on node {node.name}"
    pod_event(sim, pod, moment, "Preempted", text, by="default-scheduler")
    delete_pod(sim, pod, moment + seconds(0.5))


def _evicted(sim: Simulation, node: Node, at: datetime) -> None:
    """A pod writes more scratch data than its node has to give and is evicted."""
    name = f"etl-{suffix(sim)}"
    pod = make_pod(sim, node, at, "batch", name)
    moment = at + seconds(sim.rng.uniform(100, 700))
    text = "The node was low on resource: ephemeral-storage. Threshold quantity: 53687091200, available: 51124Mi."
    pod_event(sim, pod, moment, "Evicted", text, warning=True)
    end_pod(sim, pod, moment + seconds(1), 137, why="Error")


def _mount_retry(sim: Simulation, node: Node, at: datetime) -> None:
    """A volume is there a moment later than its pod."""
    name = f"prep-{suffix(sim)}"
    pod = make_pod(sim, node, at, "research", name, starts_s=35)
    text = 'MountVolume.SetUp failed for volume "cfg" : failed to sync configmap cache: timed out waiting for the condition'
    pod_event(sim, pod, at + seconds(2), "FailedMount", text, warning=True)
    end_pod(sim, pod, at + seconds(sim.rng.uniform(60, 160)))


def _agent_restart(sim: Simulation, node: Node, at: datetime) -> None:
    """An agent of the node, an exporter say, gets a new version."""
    agent = sim.rng.choice(_AGENTS)
    for moment, reason, text in (
        (at, "Killing", f"Stopping container {agent}"),
        (at + seconds(9), "Started", f"Started container {agent}"),
    ):
        sim.event(
            moment, "Pod", f"{agent}-{suffix(sim)}", reason, text, namespace="kube-system", component="kubelet",
            host=node.name, warning=False,
        )  # fmt: skip


def _kubelet_chatter(sim: Simulation, node: Node, at: datetime) -> None:
    """Lines of a kubelet about pods of users."""
    sim.daemon(node, at, "kubelet", sim.rng.choice(_KUBELET).format(n=sim.rng.randrange(2**24)))


KINDS: dict[str, Play] = {
    "image_pull": _image_pull,
    "pending": _pending,
    "preempted": _preempted,
    "evicted": _evicted,
    "mount_retry": _mount_retry,
    "agent_restart": _agent_restart,
    "kubelet_chatter": _kubelet_chatter,
}
