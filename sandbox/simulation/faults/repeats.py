"""Jobs that crash again and again: because of a host that logs nothing, their own code, or a node on which none starts."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import framework_logs
from sandbox.simulation.faults.kinds import Kind, record_truth
from sandbox.simulation.job_failure import crash, restart_job
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

CRASHES = 3
_ERRORS = (
    "CUDA error: unspecified launch failure",
    "CUDA error: an illegal instruction was encountered",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
)


def _gap(sim: Simulation) -> timedelta:
    return timedelta(minutes=sim.rng.uniform(9, 16))


def _lemon(sim: Simulation, at: datetime) -> bool:
    """Each time the rank that fails first is on the same host, with another error; nothing in the host's own log says why."""
    job = sim.free_job(at, pods=3)
    if job is None:
        return False
    node, nodes, moment = sim.rng.choice(job.nodes), job.nodes, at
    for turn in range(CRASHES):
        rank = nodes.index(node) * GPUS + sim.rng.randrange(GPUS)
        text = f"[rank{rank}]: RuntimeError: {_ERRORS[turn]}"
        avoid = [node] if turn == CRASHES - 1 else ()
        until = crash(sim, job, moment, rank, text, exit_code=1, avoid=avoid)
        moment = until + _gap(sim)
    record_truth(
        sim, "lemon_host", at, until, "silent_node", TrueRoot(node=node.name), jobs=[job], nodes=nodes,
        may_cordon=[node], accepted=("host_fault", "gpu_fault", "application", "hang"),
        note="the third crash of which it is the first to fail",
    )  # fmt: skip
    return True


def _program(sim: Simulation, at: datetime) -> bool:
    """A program crashes three times with the same error, each time first on another node: one fault, of the program."""
    job = sim.free_job(at, pods=3)
    if job is None:
        return False
    nodes, moment = job.nodes, at
    for pod in sim.rng.sample(range(len(nodes)), CRASHES):
        rank = pod * GPUS + sim.rng.randrange(GPUS)
        text = f"[rank{rank}]: AssertionError: router z-loss is not finite in layer 41"
        until = crash(sim, job, moment, rank, text, exit_code=1)
        moment = until + _gap(sim)
    record_truth(
        sim, "program_crashes", at, until, "application", TrueRoot(job=job.ref), jobs=[job], nodes=nodes,
        note="three crashes of one signature",
    )  # fmt: skip
    return True


def _fails_to_start(sim: Simulation, job: Job, at: datetime, rank: int) -> datetime:
    """A start ends within a minute: one rank cannot initialise CUDA, the others never meet it."""
    pod = job.pod_of(rank)
    sim.pod(
        pod, at,
        f"[rank{rank}]: RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
        vital=True,
    )  # fmt: skip
    sim.pod(
        pod, at + seconds(1), framework_logs.process_failed(at, rank % GPUS, pod.pid(rank), 1), vital=True
    )
    return at + seconds(8)


def _start(sim: Simulation, at: datetime) -> bool:
    """A job is started again on a node whose fabric manager is gone: no start gets past CUDA's initialisation there."""
    job = sim.free_job(at, pods=2)
    if job is None:
        return False
    node, nodes = sim.rng.choice(job.nodes), job.nodes
    rank = nodes.index(node) * GPUS
    sim.daemon(
        node, at - seconds(20), "nv-fabricmanager[1311]",
        "detected unrecoverable NVSwitch error, fabric manager is exiting", vital=True,
    )  # fmt: skip
    moment = restart_job(sim, job, at, by_hand=True)
    for turn in range(CRASHES):
        ended = _fails_to_start(sim, job, moment + seconds(40), rank)
        moment = restart_job(sim, job, ended, [node] if turn == CRASHES - 1 else (), stalled=at)
    record_truth(
        sim, "start_failure", at, moment, "gpu_fault", TrueRoot(node=node.name), jobs=[job], nodes=nodes,
        may_cordon=[node], accepted=("gpu_nvlink", "host_fault", "platform_fault"),
        note="the job's starts fail on it",
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "lemon_host": _lemon,
    "program_crashes": _program,
    "start_failure": _start,
}
