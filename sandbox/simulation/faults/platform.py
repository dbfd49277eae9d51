"""Faults of the platform: images that cannot be pulled, volumes that do not come, devices that a plugin gives up."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation.faults.kinds import Kind, write_down
from sandbox.simulation.timeline import Stage
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job


def _restarting(stage: Stage, at: datetime) -> Job | None:
    """A calm job whose pods are to be started anew: a new version, say."""
    return stage.calm_job(at, pods=1)


def _pods_fail(kind: str, reason: str, message: str, *, every: bool) -> Kind:
    """A job is started again and its pods do not come up, some attempts long."""

    def play(stage: Stage, at: datetime) -> bool:
        job = _restarting(stage, at)
        if job is None:
            return False
        nodes = job.nodes
        stage.stop(job, at - timedelta(seconds=40), exit_code=143)
        stage.start(job, nodes, at - timedelta(seconds=10), pending=True)
        until = at + timedelta(minutes=5)
        pods = job.pods if every else job.pods[:1]
        for attempt in range(4):
            for pod in pods:
                moment = at + timedelta(seconds=attempt * 45 + stage.rng.uniform(0, 6))
                text = message.format(pod=pod.name, number=attempt)
                stage.event(
                    moment, "Pod", pod.name, reason, text, namespace=pod.namespace, uid=pod.uid,
                    component="kubelet", host=pod.node.name, vital=True,
                )  # fmt: skip
        stage.run(job, until)
        write_down(
            stage, kind, at, until, "platform_fault", TrueRoot(job=job.ref), jobs=[job], nodes=nodes,
        )  # fmt: skip
        return True

    return play


def _device_plugin(stage: Stage, at: datetime) -> bool:
    """The device plugin gives up a GPU and pods that were promised it are refused. The driver says nothing."""
    idle = stage.idle_nodes(at)
    if not idle:
        return False
    node = stage.rng.choice(idle)
    gpu = stage.rng.randrange(8)
    text = f"'nvidia.com/gpu' device marked unhealthy: {node.gpu_uuid(gpu)}"
    stage.daemon(node, at, "nvidia-device-plugin", text, vital=True)
    message = (
        "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, "
        "which is unexpected"
    )
    for attempt in range(3):
        moment = at + timedelta(seconds=30 + attempt * 40)
        name = f"probe-{node.number}-{attempt}"
        stage.event(
            moment, "Pod", name, "UnexpectedAdmissionError", message, namespace="research",
            component="kubelet", host=node.name, vital=True,
        )  # fmt: skip
    until = stage.send_away(node, at + timedelta(minutes=2))
    write_down(
        stage, "device_plugin", at, until, "platform_fault", TrueRoot(node=node.name), nodes=[node],
        may_cordon=[node], accepted=("gpu_fault",),
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "image_pull": _pods_fail(
        "image_pull", "Failed",
        'Failed to pull image "registry.example/training:24.09": rpc error: code = NotFound desc = '
        "failed to pull and unpack image",
        every=True,
    ),
    "volume": _pods_fail(
        "volume", "FailedMount",
        'MountVolume.SetUp failed for volume "datasets" : rpc error: code = DeadlineExceeded desc = context deadline exceeded',
        every=True,
    ),
    "device_plugin": _device_plugin,
}  # fmt: skip
