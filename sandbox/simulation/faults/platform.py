"""Faults of the platform: images that cannot be pulled, volumes that cannot be mounted, GPUs that a device plugin rejects."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation.faults.kinds import Kind, record_truth
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS
from sandbox.simulation.truth import TrueRoot


def _pods_fail(kind: str, reason: str, message: str) -> Kind:
    """A job is started again, with a new version say, and its pods do not come up for some attempts."""

    def play(sim: Simulation, at: datetime) -> bool:
        job = sim.free_job(at, pods=1)
        if job is None:
            return False
        nodes = job.nodes
        sim.stop(job, at - seconds(40), exit_code=143)
        sim.start(job, nodes, at - seconds(10), pending=True)
        until = at + timedelta(minutes=8)
        for attempt in range(9):  # what a kubelet gets over within minutes is nobody's fault
            for pod in job.pods:
                moment = at + seconds(attempt * 45 + sim.rng.uniform(0, 6))
                sim.event(
                    moment, "Pod", pod.name, reason, message, namespace=pod.namespace, uid=pod.uid,
                    component="kubelet", host=pod.node.name, vital=True,
                )  # fmt: skip
        sim.run(job, until)
        root = TrueRoot(job=job.ref)
        record_truth(sim, kind, at, until, "platform_fault", root, jobs=[job], nodes=nodes)
        return True

    return play


def _device_plugin(sim: Simulation, at: datetime) -> bool:
    """The device plugin marks a GPU unhealthy and pods that were given it are rejected. The driver logs nothing."""
    idle = sim.idle_nodes(at)
    if not idle:
        return False
    node = sim.rng.choice(idle)
    gpu = sim.rng.randrange(GPUS)
    text = f"'nvidia.com/gpu' device marked unhealthy: {node.gpu_uuid(gpu)}"
    sim.daemon(node, at, "nvidia-device-plugin", text, vital=True)
    message = (
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, "
        "which is unexpected"
    )
    for attempt in range(3):
        moment = at + seconds(30 + attempt * 40)
        name = f"probe-{node.number}-{attempt}"
        sim.event(
            moment, "Pod", name, "UnexpectedAdmissionError", message, namespace="research",
            component="kubelet", host=node.name, vital=True,
        )  # fmt: skip
    until = sim.cordon_and_replace(node, at + timedelta(minutes=2))
    record_truth(
        sim, "device_plugin", at, until, "platform_fault", TrueRoot(node=node.name), nodes=[node],
        may_cordon=[node], accepted=("gpu_fault",),
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "image_pull": _pods_fail(
        "image_pull", "Failed",
        'Failed to pull image "registry.example/training:24.09": rpc error: code = NotFound desc = '
        "failed to pull and unpack image",
    ),
    "volume": _pods_fail(
        "volume", "FailedMount",
        'MountVolume.SetUp failed for volume "datasets" : rpc error: code = DeadlineExceeded desc = context deadline exceeded',
    ),
    "device_plugin": _device_plugin,
}  # fmt: skip
