"""Faults of jobs: ranks that stop without logging anything, and a job's own code, data and memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.faults.kinds import Kind, record_truth
from sandbox.simulation.job_failure import crash, hang, launcher, report, restart_job, teardown
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.wait_for import Wait, standstill
from sandbox.simulation.workload import Job

TRIES = 3


def _silent(kind: str, *, whole_node: bool = False, nested: bool = False, pipeline: bool = False) -> Kind:
    """Ranks stop in their host program (a lock, a page that never comes): neither they nor any hardware logs anything."""

    def play(sim: Simulation, at: datetime) -> bool:
        jobs = [
            job for job in sim.free_jobs(at, pods=2)
            if (not nested or job.layout.tensor > 1) and (not pipeline or job.layout.pipeline > 1)
        ]  # fmt: skip
        if not jobs:
            return False
        job = sim.rng.choice(jobs)
        pod = sim.rng.choice(job.pods)
        stopped = list(pod.ranks) if whole_node else [sim.rng.choice(list(pod.ranks))]
        place = sim.rng.randrange(2) if nested or pipeline else None
        nodes = job.nodes
        cut = job.layout.tensor > 1 or job.layout.pipeline > 1
        # Before 2.2 a line names the rank inside its group only: which of a node's ranks is missing cannot be told.
        ambiguous = cut and framework_logs.RankLog(job.release, 0).version < (2, 2)
        until = hang(sim, job, at, stopped, place=place, avoid=[pod.node])
        record_truth(
            sim, kind, at, until, "silent_node", TrueRoot(node=pod.node.name), jobs=[job], nodes=nodes,
            may_cordon=[pod.node], accepted=("hang",) if ambiguous else (),
            roots=(TrueRoot(job=job.ref),) if ambiguous else (),
            note=f"torch {job.release}, tensor {job.layout.tensor}, pipeline {job.layout.pipeline}, ranks {stopped}",
        )  # fmt: skip
        return True

    return play


def _own(
    kind: str,
    play: Callable[[Simulation, Job, datetime], datetime],
    *,
    family: str = "application",
    pods: int = 2,
    since: tuple[int, int] = (2, 0),
) -> Kind:
    """A fault of a job itself, from PyTorch `since` on: its root is the job, and no node may be cordoned."""

    def inject(sim: Simulation, at: datetime) -> bool:
        jobs = sim.free_jobs(at, pods=pods)
        jobs = [job for job in jobs if framework_logs.RankLog(job.release, 0).version >= since]
        if not jobs:
            return False
        job = sim.rng.choice(jobs)
        nodes = job.nodes
        until = play(sim, job, at)
        record_truth(sim, kind, at, until, family, TrueRoot(job=job.ref), jobs=[job], nodes=nodes)
        return True

    return inject


def _illegal_address(sim: Simulation, job: Job, at: datetime) -> datetime:
    """A kernel of the job reads where nothing is mapped, on every node within a second."""
    rng = sim.rng
    for pod in job.pods:
        rank = rng.choice(list(pod.ranks))
        gpu, pid, moment = rank % GPUS, pod.pid(rank), at + seconds(rng.uniform(0, 1.5))
        body = driver_logs.memory_fault(rng.randrange(7), rng.randrange(14), rng.randrange(2**16))
        sim.xid(pod.node, gpu, moment, 31, body, pid=pid)
        sim.xid(pod.node, gpu, moment + seconds(0.2), 43, driver_logs.channel(gpu), pid=pid, vital=False)
        error = framework_logs.cuda_error(rank, "an illegal memory access was encountered")
        sim.pod(pod, moment + seconds(0.5), error)
    teardown(sim, job, at + seconds(6))
    return restart_job(sim, job, at + seconds(12))


def _user_exception(sim: Simulation, job: Job, at: datetime) -> datetime:
    """An exception of the job's own code on ranks of every pod."""
    error = sim.rng.choice((
        "ValueError: Expected input batch_size (16) to match target batch_size (15).",
        "KeyError: 'input_ids'",
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1",
        "AssertionError: loss is not finite at step 88102",
    ))  # fmt: skip
    for pod in job.pods:
        for rank in pod.ranks[:2]:
            moment = at + seconds(sim.rng.uniform(0, 1.0))
            trace = ("Traceback (most recent call last):", '  File "/app/train.py", line 412, in step', error)
            sim.pod(pod, moment, *(f"[rank{rank}]: {text}" for text in trace))
        launcher(sim, job, at + seconds(2), pod.rank, 1)
    teardown(sim, job, at + seconds(4))
    return restart_job(sim, job, at + seconds(9))


def _host_oom(sim: Simulation, job: Job, at: datetime) -> datetime:
    """A rank's process outgrows the memory of its container and the kernel kills it."""
    pod = sim.rng.choice(job.pods)
    rank = sim.rng.choice(list(pod.ranks))
    pid = pod.pid(rank)
    cgroups = f"cpuset=cri-containerd,oom_memcg=/kubepods.slice/kubepods-pod{pod.uid}"
    if pod.slurm is not None:
        cgroup = f"/system.slice/slurmstepd.scope/job_{pod.slurm['job_id']}"
        cgroups = f"cpuset=user,oom_memcg={cgroup},task_memcg={cgroup}/step_0/user/task_{pod.slurm['task']}"
    sim.kernel(
        pod.node, at,
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),{cgroups},task=python3,pid={pid},uid=0",
        f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:412345678kB, anon-rss:212345678kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:512kB oom_score_adj:999",
        vital=True,
    )  # fmt: skip
    return crash(sim, job, at + seconds(0.5), rank, None, exit_code=-9)


def _cuda_oom(sim: Simulation, job: Job, at: datetime) -> datetime:
    """Too large a batch: CUDA has no memory left."""
    rank = sim.rng.randrange(job.layout.world)
    text = (
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU {rank % GPUS} has a "
        "total capacity of 79.11 GiB of which 1.20 GiB is free."
    )
    return crash(sim, job, at, rank, text, exit_code=1)


def _data_stuck(sim: Simulation, job: Job, at: datetime) -> datetime:
    """A data loader gives up waiting for its workers."""
    rank = sim.rng.randrange(job.layout.world)
    text = f"[rank{rank}]: RuntimeError: DataLoader timed out after 120 seconds"
    return crash(sim, job, at, rank, text, exit_code=1)


def _all_wait_for_the_loss(job: Job) -> dict[int, Wait]:
    """Every rank, rank 0 included, has come to the last collective of the step, and none gets through."""
    waits = standstill(job.layout, {0: len(job.layout.program[0]) - 1})
    waits[0] = replace(waits[1], rank=0)
    return waits


def _mismatch(sim: Simulation, job: Job, at: datetime) -> datetime:
    """Ranks take different branches: half of them broadcast where the others reduce."""
    rng, steps = sim.rng, sim.rng.randrange(500, 90_000)
    odd = (
        set(range(0, job.layout.world, 2))
        if rng.random() < 0.5
        else {r for p in job.pods[: len(job.pods) // 2] for r in p.ranks}
    )
    down, timeout_ms = at, int(job.timeout.total_seconds() * 1000)
    for rank, wait in sorted(_all_wait_for_the_loss(job).items()):
        op = replace(wait.op, kind="BROADCAST") if rank in odd else wait.op
        ran = job.timeout + seconds(rng.uniform(0.01, 1))
        moment = at + seconds(rng.uniform(-0.5, 0.5)) + ran
        log, ran_ms = framework_logs.RankLog(job.release, rank), int(ran.total_seconds() * 1000)
        lines = framework_logs.timed_out(log, replace(wait, op=op), steps, moment, timeout_ms, ran_ms)
        sim.pod(job.pod_of(rank), moment, *lines, vital=True)
        down = max(down, moment)
    teardown(sim, job, down + seconds(2))
    return restart_job(sim, job, down + seconds(8), stalled=at)


def _kernel_stuck(sim: Simulation, job: Job, at: datetime) -> datetime:
    """A GPU's collective kernel never ends. Its host goes on enqueuing, so its watchdog fires like all others: what the ranks
    log does not tell which of them it is.
    """
    steps = sim.rng.randrange(500, 90_000)
    down = at + job.timeout
    for rank, wait in sorted(_all_wait_for_the_loss(job).items()):
        down = max(down, report(sim, job, at, rank, wait, steps))
    teardown(sim, job, down + seconds(2))
    return restart_job(sim, job, down + seconds(sim.rng.uniform(6, 12)), stalled=at)


def _again_and_again(
    play: Callable[[Simulation, Job, datetime], datetime],
) -> Callable[[Simulation, Job, datetime], datetime]:
    """The same at each of three tries: what the first retry gets over is a look-alike, and nobody's fault."""

    def tries(sim: Simulation, job: Job, at: datetime) -> datetime:
        for _ in range(TRIES):
            until = play(sim, job, at)
            at = until + seconds(sim.rng.uniform(100, 240))
        return until

    return tries


KINDS: dict[str, Kind] = {
    "kernel_stuck": _own("kernel_stuck", _kernel_stuck, family="hang"),
    "silent_rank": _silent("silent_rank"),
    "silent_node": _silent("silent_node", whole_node=True),
    "tensor_rank_hang": _silent("tensor_rank_hang", nested=True),
    "pipeline_stage_stuck": _silent("pipeline_stage_stuck", pipeline=True, whole_node=True),
    "illegal_address": _own("illegal_address", _illegal_address),
    "user_exception": _own("user_exception", _again_and_again(_user_exception), pods=1),
    "host_oom": _own("host_oom", _host_oom),
    "cuda_oom": _own("cuda_oom", _again_and_again(_cuda_oom)),
    "data_stuck": _own("data_stuck", _again_and_again(_data_stuck)),
    "mismatched_collective": _own("mismatched_collective", _mismatch, since=(2, 3)),
}
