"""Look-alikes that people and controllers make: restarts, maintenance, jobs that end or are stopped."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.look_alikes.kinds import Play, killed_program, register_flood
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _kubelet_restart(stage: Stage, node: Node, at: datetime) -> None:
    """A kubelet is restarted: its node is not ready for seconds, its pods go on."""
    stage.not_ready(node, at, status="False")
    stage.daemon(node, at, "systemd[1]", "Stopping Kubernetes Kubelet...")
    stage.ready_again(node, at + _seconds(stage.rng.uniform(4, 18)))
    stage.event(
        at + _seconds(3),
        "Node",
        node.name,
        "Starting",
        "Starting kubelet.",
        component="kubelet",
        host=node.name,
        warning=False,
    )


def _maintenance(stage: Stage, node: Node, at: datetime) -> None:
    """An idle node is closed on purpose, restarted and opened again."""
    if node not in stage.idle_nodes(at):
        register_flood(stage, node, at)
        return
    back = at + timedelta(minutes=stage.rng.uniform(5, 9))
    taint = {"key": "faultline.dev/maintenance", "value": "firmware", "effect": "NoSchedule"}
    stage.node_changes(node, at, spec={"unschedulable": True, "taints": [taint]})
    text = f"Node {node.name} status is now: NodeNotSchedulable"
    stage.event(at, "Node", node.name, "NodeNotSchedulable", text, component="kubelet", warning=False)
    down = at + timedelta(minutes=2)
    stage.node_changes(node, down, ready="Unknown", spec={"unschedulable": True, "taints": [taint]})
    stage.event(
        down, "Node", node.name, "NodeNotReady", f"Node {node.name} status is now: NodeNotReady", vital=True
    )
    stage.event(
        back,
        "Node",
        node.name,
        "Rebooted",
        f"Node {node.name} has been rebooted, boot id: 0c1f2a3b",
        component="kubelet",
        host=node.name,
    )
    stage.node_changes(node, back, spec={"unschedulable": True, "taints": [taint]})
    stage.says_ready(node, back)
    stage.node_changes(node, back + timedelta(minutes=1))
    stage.occupy(back + timedelta(minutes=8), [node])


def _maintenance_drain(stage: Stage, node: Node, at: datetime) -> None:
    """A node with a job is emptied on purpose: its pods are evicted, the job starts again elsewhere, the node restarts."""
    jobs = [job for job in stage.calm_jobs(at) if node in job.nodes and len(job.pods) <= 8]
    if not jobs or not stage.idle_nodes(at):
        register_flood(stage, node, at)
        return
    job = jobs[0]
    pod = job.pods[job.nodes.index(node)]
    peers = [other for other in job.pods if other is not pod][:2]
    taint = {"key": "faultline.dev/maintenance", "value": "firmware", "effect": "NoSchedule"}
    closed = {"unschedulable": True, "taints": [taint]}
    stage.node_changes(node, at, spec=closed)
    text = f"Node {node.name} status is now: NodeNotSchedulable"
    stage.event(at, "Node", node.name, "NodeNotSchedulable", text, component="kubelet", warning=False)
    out = at + _seconds(20)
    text = f"Marking for deletion Pod {pod.namespace}/{pod.name}"
    stage.event(
        out, "Pod", pod.name, "TaintManagerEviction", text, namespace=pod.namespace, uid=pod.uid,
        component="taint-eviction-controller", warning=False,
    )  # fmt: skip
    stage.pod(pod, out + _seconds(0.5), framework_logs.told_to_end(out))
    for peer in peers:
        moment = out + _seconds(stage.rng.uniform(2, 5))
        gpu = stage.rng.randrange(GPUS)
        stage.pod(
            peer,
            moment,
            framework_logs.closed(peer.name, peer.pid(peer.rank + gpu), gpu, moment, pod.address),
        )
    stage.stop(job, out + _seconds(9), exit_code=143)
    stage.restart(job, out + _seconds(80), [node])
    down, back = at + timedelta(minutes=3), at + timedelta(minutes=stage.rng.uniform(7, 11))
    stage.node_changes(node, down, ready="Unknown", spec=closed)
    stage.event(
        down, "Node", node.name, "NodeNotReady", f"Node {node.name} status is now: NodeNotReady", vital=True
    )
    stage.node_changes(node, back, spec=closed)
    stage.says_ready(node, back)
    stage.node_changes(node, back + timedelta(minutes=1))
    stage.occupy(back + timedelta(minutes=8), [node])


def _preempted(stage: Stage, node: Node, at: datetime) -> None:
    """The scheduler takes a job's nodes for a more important one; it runs again a little later."""
    jobs = [job for job in stage.calm_jobs(at, pods=1) if node in job.nodes and len(job.pods) <= 8]
    if not jobs:
        killed_program(stage, node, at)
        return
    job = jobs[0]
    for pod in job.pods:
        text = f"Preempted by pod 7f0c1d2e-0000-4000-8000-00000000c0de on node {pod.node.name}"
        stage.event(
            at,
            "Pod",
            pod.name,
            "Preempted",
            text,
            namespace=pod.namespace,
            uid=pod.uid,
            component="default-scheduler",
        )
        stage.pod(pod, at + _seconds(stage.rng.uniform(0, 1)), framework_logs.told_to_end(at))
    stage.stop(job, at + _seconds(6), exit_code=143)
    stage.restart(job, at + timedelta(minutes=4))


def _job_done(stage: Stage, node: Node, at: datetime) -> None:
    """A job has done its work: its channels are torn down, sockets close, its pods are complete."""
    jobs = [job for job in stage.calm_jobs(at, pods=1) if node in job.nodes]
    running = [job for job in stage.jobs if not job.finished]
    if not jobs or len(running) < 4 or len(jobs[0].pods) > 4:
        killed_program(stage, node, at)
        return
    job = jobs[0]
    for pod in job.pods:
        gpu = stage.rng.randrange(GPUS)
        line = driver_logs.xid(pod.node, gpu, 45, f"Ch {gpu + 8:08x}", pid=pod.pid(pod.rank + gpu))
        stage.xid(pod.node, gpu, at + _seconds(stage.rng.uniform(0, 2)), line, vital=False)
        stage.pod(pod, at, "INFO training finished, final checkpoint written")
    stage.occupy(at + timedelta(minutes=4), job.nodes)
    nodes = job.nodes
    stage.finish(job, at + _seconds(3))
    stage.replace_job(job, nodes, at + timedelta(minutes=3))


def _restarted_by_hand(stage: Stage, node: Node, at: datetime) -> None:
    """A user stops a job and starts it again: every rank gets SIGTERM, channels are torn down."""
    jobs = [job for job in stage.calm_jobs(at, pods=1) if node in job.nodes]
    if not jobs or len(jobs[0].pods) > 8:
        killed_program(stage, node, at)
        return
    job = jobs[0]
    for pod in job.pods:
        stage.pod(pod, at + _seconds(stage.rng.uniform(0, 1)), framework_logs.told_to_end(at))
        gpu = stage.rng.randrange(GPUS)
        line = driver_logs.xid(pod.node, gpu, 45, f"Ch {gpu + 8:08x}", pid=pod.pid(pod.rank + gpu))
        stage.xid(pod.node, gpu, at + _seconds(stage.rng.uniform(0.5, 2)), line, vital=False)
    stage.stop(job, at + _seconds(4), exit_code=143)
    stage.restart(job, at + _seconds(70))


KINDS: dict[str, Play] = {
    "kubelet_restart": _kubelet_restart,
    "maintenance": _maintenance,
    "maintenance_drain": _maintenance_drain,
    "preempted_job": _preempted,
    "job_done": _job_done,
    "restarted_by_hand": _restarted_by_hand,
}
