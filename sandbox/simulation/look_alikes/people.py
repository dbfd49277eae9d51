"""Look-alikes that operators, users and controllers cause: restarts, maintenance, jobs that end or are stopped."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.look_alikes.kinds import Play, killed_program, register_flood
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.workload import Job, Pod

MAINTENANCE = {
    "unschedulable": True,
    "taints": [{"key": "faultline.dev/maintenance", "value": "firmware", "effect": "NoSchedule"}],
}
"""The spec of a node that an operator has cordoned for maintenance."""


def _job_on(sim: Simulation, node: Node, at: datetime, *, most_pods: int = 8) -> Job | None:
    """The free job on a node, if it is no larger than that."""
    jobs = [job for job in sim.free_jobs(at) if node in job.nodes and len(job.pods) <= most_pods]
    return jobs[0] if jobs else None


def _cordon(sim: Simulation, node: Node, at: datetime) -> None:
    sim.show_node(node, at, spec=MAINTENANCE)
    sim.node_status_event(node, at, "NodeNotSchedulable")


def _reboot(sim: Simulation, node: Node, down: datetime, back: datetime) -> None:
    """A cordoned node is down until `back`, and uncordoned a minute later."""
    sim.show_node(node, down, ready="Unknown", spec=MAINTENANCE)
    sim.node_status_event(node, down, "NodeNotReady")
    sim.show_node(node, back, spec=MAINTENANCE)
    sim.node_status_event(node, back, "NodeReady", host=node.name)
    sim.show_node(node, back + timedelta(minutes=1))
    sim.reserve(back + timedelta(minutes=8), [node])


def _channel_teardown(sim: Simulation, pod: Pod, gpu: int, at: datetime) -> None:
    pid = pod.pid(pod.rank + gpu)
    sim.xid(pod.node, gpu, at, 45, driver_logs.channel(gpu), pid=pid, vital=False)


def _kubelet_restart(sim: Simulation, node: Node, at: datetime) -> None:
    """A kubelet is restarted: its node is not ready for seconds, its pods go on."""
    sim.not_ready(node, at, status="False")
    sim.daemon(node, at, "systemd[1]", "Stopping Kubernetes Kubelet...")
    sim.ready_again(node, at + seconds(sim.rng.uniform(4, 18)))
    sim.event(
        at + seconds(3), "Node", node.name, "Starting", "Starting kubelet.",
        component="kubelet", host=node.name, warning=False,
    )  # fmt: skip


def _maintenance(sim: Simulation, node: Node, at: datetime) -> None:
    """An idle node is cordoned on purpose, rebooted and uncordoned."""
    if node not in sim.idle_nodes(at):
        register_flood(sim, node, at)
        return
    back = at + timedelta(minutes=sim.rng.uniform(5, 9))
    _cordon(sim, node, at)
    text = f"Node {node.name} has been rebooted, boot id: 0c1f2a3b"
    sim.event(back, "Node", node.name, "Rebooted", text, component="kubelet", host=node.name)
    _reboot(sim, node, at + timedelta(minutes=2), back)


def _maintenance_drain(sim: Simulation, node: Node, at: datetime) -> None:
    """A node with a job is drained on purpose: its pods are evicted, the job starts again elsewhere, the node reboots."""
    job = _job_on(sim, node, at)
    if job is None or not sim.idle_nodes(at):
        register_flood(sim, node, at)
        return
    pod = job.pods[job.nodes.index(node)]
    peers = [other for other in job.pods if other is not pod][:2]
    _cordon(sim, node, at)
    out = at + seconds(20)
    sim.event(
        out, "Pod", pod.name, "TaintManagerEviction", f"Marking for deletion Pod {pod.key}",
        namespace=pod.namespace, uid=pod.uid, component="taint-eviction-controller", warning=False,
    )  # fmt: skip
    sim.pod(pod, out + seconds(0.5), framework_logs.sigterm_received(out))
    for peer in peers:
        moment, gpu = out + seconds(sim.rng.uniform(2, 5)), sim.rng.randrange(GPUS)
        pid = peer.pid(peer.rank + gpu)
        sim.pod(peer, moment, framework_logs.connection_closed(peer.name, pid, gpu, moment, pod.address))
    sim.stop(job, out + seconds(9), exit_code=143)
    sim.restart(job, out + seconds(80), [node])
    _reboot(sim, node, at + timedelta(minutes=3), at + timedelta(minutes=sim.rng.uniform(7, 11)))


def _preempted(sim: Simulation, node: Node, at: datetime) -> None:
    """The scheduler takes a job's nodes for a more important one; it runs again a little later."""
    job = _job_on(sim, node, at)
    if job is None:
        killed_program(sim, node, at)
        return
    for pod in job.pods:
        text = f"Preempted by pod 7f0c1d2e-0000-4000-8000-00000000c0de on node {pod.node.name}"
        sim.event(
            at, "Pod", pod.name, "Preempted", text,
            namespace=pod.namespace, uid=pod.uid, component="default-scheduler",
        )  # fmt: skip
        sim.pod(pod, at + seconds(sim.rng.uniform(0, 1)), framework_logs.sigterm_received(at))
    sim.stop(job, at + seconds(6), exit_code=143)
    sim.restart(job, at + timedelta(minutes=4))


def _job_done(sim: Simulation, node: Node, at: datetime) -> None:
    """A job completes: its channels are torn down, sockets close, its pods succeed."""
    job = _job_on(sim, node, at, most_pods=4)
    if job is None or sum(not other.finished for other in sim.jobs) < 4:
        killed_program(sim, node, at)
        return
    for pod in job.pods:
        gpu = sim.rng.randrange(GPUS)
        _channel_teardown(sim, pod, gpu, at + seconds(sim.rng.uniform(0, 2)))
        sim.pod(pod, at, "INFO training finished, final checkpoint written")
    sim.reserve(at + timedelta(minutes=4), job.nodes)
    nodes = job.nodes
    sim.finish(job, at + seconds(3))
    sim.replace_job(job, nodes, at + timedelta(minutes=3))


def _restarted_by_hand(sim: Simulation, node: Node, at: datetime) -> None:
    """A user stops a job and starts it again: every rank gets SIGTERM, channels are torn down."""
    job = _job_on(sim, node, at)
    if job is None:
        killed_program(sim, node, at)
        return
    for pod in job.pods:
        sim.pod(pod, at + seconds(sim.rng.uniform(0, 1)), framework_logs.sigterm_received(at))
        gpu = sim.rng.randrange(GPUS)
        _channel_teardown(sim, pod, gpu, at + seconds(sim.rng.uniform(0.5, 2)))
    sim.stop(job, at + seconds(4), exit_code=143)
    sim.restart(job, at + seconds(70))


KINDS: dict[str, Play] = {
    "kubelet_restart": _kubelet_restart,
    "maintenance": _maintenance,
    "maintenance_drain": _maintenance_drain,
    "preempted_job": _preempted,
    "job_done": _job_done,
    "restarted_by_hand": _restarted_by_hand,
}
