"""Faults of jobs: ranks that stop without a word, and a job's own code, data and memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.faults.kinds import Kind, write_down
from sandbox.simulation.job_failure import again, crash, hang, launcher, report, teardown
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.wait_for import standstill
from sandbox.simulation.workload import Job


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _nested(job: Job) -> bool:
    return job.layout.tensor > 1 or job.layout.pipeline > 1


def _silent(kind: str, *, whole_node: bool = False, nested: bool = False, pipeline: bool = False) -> Kind:
    """Ranks stop in their host program (a lock, a page that never comes) and say nothing; no hardware says anything either."""

    def play(stage: Stage, at: datetime) -> bool:
        jobs = [
            job for job in stage.calm_jobs(at, pods=2)
            if (not nested or job.layout.tensor > 1) and (not pipeline or job.layout.pipeline > 1)
        ]  # fmt: skip
        if not jobs:
            return False
        job = stage.rng.choice(jobs)
        pod = stage.rng.choice(job.pods)
        stopped = list(pod.ranks) if whole_node else [stage.rng.choice(list(pod.ranks))]
        place = stage.rng.randrange(2) if nested or pipeline else None
        nodes = job.nodes
        # Before 2.2 a line names the rank inside its group only: which of a node's ranks is missing cannot be told.
        untold = framework_logs.Speaker(job.release, 0).number < (2, 2) and _nested(job)
        until = hang(stage, job, at, stopped, place=place, avoid=[pod.node])
        write_down(
            stage, kind, at, until, "silent_node", TrueRoot(node=pod.node.name), jobs=[job], nodes=nodes,
            may_cordon=[pod.node], accepted=("hang",) if untold else (),
            roots=(TrueRoot(job=job.ref),) if untold else (),
            note=f"torch {job.release}, tensor {job.layout.tensor}, pipeline {job.layout.pipeline}, ranks {stopped}",
        )  # fmt: skip
        return True

    return play


def _own(stage: Stage, kind: str, at: datetime, until: datetime, job: Job, nodes: list[Node]) -> None:
    """The truth about a fault of a job's own: its root is the job, and nothing may be closed."""
    write_down(stage, kind, at, until, "application", TrueRoot(job=job.ref), jobs=[job], nodes=nodes)


def _illegal_address(stage: Stage, at: datetime) -> bool:
    """A kernel of the job reads where nothing is mapped, on every node within a second."""
    job = stage.calm_job(at)
    if job is None:
        return False
    rng = stage.rng
    for pod in job.pods:
        rank = rng.choice(list(pod.ranks))
        gpu, pid, moment = rank % GPUS, pod.pid(rank), at + _seconds(rng.uniform(0, 1.5))
        body = driver_logs.memory_fault(rng.randrange(7), rng.randrange(14), rng.randrange(2**16))
        stage.xid(pod.node, gpu, moment, driver_logs.xid(pod.node, gpu, 31, body, pid=pid))
        stage.xid(
            pod.node,
            gpu,
            moment + _seconds(0.2),
            driver_logs.xid(pod.node, gpu, 43, f"Ch {gpu + 8:08x}", pid=pid),
            vital=False,
        )
        stage.pod(
            pod,
            moment + _seconds(0.5),
            framework_logs.cuda_error(rank, "an illegal memory access was encountered"),
        )
    nodes = job.nodes
    teardown(stage, job, at + _seconds(6))
    _own(stage, "illegal_address", at, again(stage, job, at + _seconds(12)), job, nodes)
    return True


def _user_exception(stage: Stage, at: datetime) -> bool:
    """An exception of the job's own on every rank of one pod, or of all."""
    job = stage.calm_job(at, pods=1)
    if job is None:
        return False
    rng = stage.rng
    error = rng.choice((
        "ValueError: Expected input batch_size (16) to match target batch_size (15).",
        "KeyError: 'input_ids'",
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1",
        "AssertionError: loss is not finite at step 88102",
    ))  # fmt: skip
    nodes = job.nodes
    for pod in job.pods:
        for rank in pod.ranks[:2]:
            moment = at + _seconds(rng.uniform(0, 1.0))
            trace = ("Traceback (most recent call last):", '  File "/app/train.py", line 412, in step', error)
            stage.pod(pod, moment, *(f"[rank{rank}]: {text}" for text in trace))
        launcher(stage, job, at + _seconds(2), pod.rank, 1)
    teardown(stage, job, at + _seconds(4))
    _own(stage, "user_exception", at, again(stage, job, at + _seconds(9)), job, nodes)
    return True


def _host_oom(stage: Stage, at: datetime) -> bool:
    """A rank's process outgrows the memory of its container and the kernel kills it."""
    job = stage.calm_job(at)
    if job is None:
        return False
    rng = stage.rng
    pod = rng.choice(job.pods)
    rank = rng.choice(list(pod.ranks))
    pid = pod.pid(rank)
    stage.kernel(
        pod.node, at,
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd,"
        f"oom_memcg=/kubepods.slice/kubepods-pod{pod.uid},task=python3,pid={pid},uid=0",
        f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:412345678kB, anon-rss:212345678kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:512kB oom_score_adj:999",
        vital=True,
    )  # fmt: skip
    nodes = job.nodes
    until = crash(stage, job, at + _seconds(0.5), rank, None, exit_code=-9)
    _own(stage, "host_oom", at, until, job, nodes)
    return True


def _cuda_oom(stage: Stage, at: datetime) -> bool:
    """Too large a batch: CUDA has no memory left."""
    job = stage.calm_job(at)
    if job is None:
        return False
    rank = stage.rng.randrange(job.layout.world)
    words = (
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU {rank % GPUS} has a "
        "total capacity of 79.11 GiB of which 1.20 GiB is free."
    )
    nodes = job.nodes
    until = crash(stage, job, at, rank, words, exit_code=1)
    _own(stage, "cuda_oom", at, until, job, nodes)
    return True


def _data_stuck(stage: Stage, at: datetime) -> bool:
    """A data loader gives up waiting for its workers."""
    job = stage.calm_job(at)
    if job is None:
        return False
    rank = stage.rng.randrange(job.layout.world)
    nodes = job.nodes
    words = f"[rank{rank}]: RuntimeError: DataLoader timed out after 120 seconds"
    until = crash(stage, job, at, rank, words, exit_code=1)
    _own(stage, "data_stuck", at, until, job, nodes)
    return True


def _mismatch(stage: Stage, at: datetime) -> bool:
    """Ranks take different branches: at the same place of the sequence some run another collective than the others."""
    jobs = [j for j in stage.calm_jobs(at, pods=2) if framework_logs.Speaker(j.release, 0).number >= (2, 3)]
    if not jobs:
        return False
    job = stage.rng.choice(jobs)
    rng, steps = stage.rng, stage.rng.randrange(500, 90_000)
    last = len(job.layout.program[0]) - 1
    # The whole world has come to the loss; half of it broadcasts where the others reduce.
    waits = standstill(job.layout, {0: last})
    waits[0] = replace(waits[1], rank=0)
    odd = (
        set(range(0, job.layout.world, 2))
        if rng.random() < 0.5
        else {r for p in job.pods[: len(job.pods) // 2] for r in p.ranks}
    )
    down = at
    for rank, wait in sorted(waits.items()):
        op = replace(wait.op, kind="BROADCAST") if rank in odd else wait.op
        ran = job.timeout + _seconds(rng.uniform(0.01, 1))
        moment = at + _seconds(rng.uniform(-0.5, 0.5)) + ran
        who = framework_logs.Speaker(job.release, rank)
        ms = int(ran.total_seconds() * 1000)
        lines = framework_logs.timed_out(
            who, replace(wait, op=op), steps, moment, int(job.timeout.total_seconds() * 1000), ms
        )
        stage.pod(job.pod_of(rank), moment, *lines, vital=True)
        down = max(down, moment)
    nodes = job.nodes
    teardown(stage, job, down + _seconds(2))
    until = again(stage, job, down + _seconds(8), still=at)
    _own(stage, "mismatched_collective", at, until, job, nodes)
    return True


def _kernel_stuck(stage: Stage, at: datetime) -> bool:
    """A GPU's collective kernel never ends. Its host goes on enqueuing, so its watchdog speaks like everybody's: nobody can
    tell from what ranks say which of them it is.
    """
    job = stage.calm_job(at)
    if job is None:
        return False
    rng, steps = stage.rng, stage.rng.randrange(500, 90_000)
    last = len(job.layout.program[0]) - 1
    waits = standstill(job.layout, {0: last})
    waits[0] = replace(waits[1], rank=0)
    down = at + job.timeout
    for rank in sorted(waits):
        down = max(down, report(stage, job, at, rank, waits[rank], steps))
    nodes = job.nodes
    teardown(stage, job, down + _seconds(2))
    until = again(stage, job, down + _seconds(rng.uniform(6, 12)), still=at)
    write_down(stage, "kernel_stuck", at, until, "hang", TrueRoot(job=job.ref), jobs=[job], nodes=nodes)
    return True


KINDS: dict[str, Kind] = {
    "kernel_stuck": _kernel_stuck,
    "silent_rank": _silent("silent_rank"),
    "silent_node": _silent("silent_node", whole_node=True),
    "tensor_rank_hang": _silent("tensor_rank_hang", nested=True),
    "pipeline_stage_stuck": _silent("pipeline_stage_stuck", pipeline=True, whole_node=True),
    "illegal_address": _illegal_address,
    "user_exception": _user_exception,
    "host_oom": _host_oom,
    "cuda_oom": _cuda_oom,
    "data_stuck": _data_stuck,
    "mismatched_collective": _mismatch,
}
