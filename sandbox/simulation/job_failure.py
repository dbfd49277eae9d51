"""How a training job goes down: ranks that hang until their watchdogs fire, or processes that end and take the others down."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, flight_recorder, framework_logs
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.wait_for import Wait, standstill
from sandbox.simulation.workload import SLURM, Job

POLL_S = 1.0
"""The watchdog checks its work about once a second."""


def hang(
    sim: Simulation,
    job: Job,
    at: datetime,
    stopped: Iterable[int],
    *,
    place: int | None = None,
    avoid: Iterable[Node] = (),
) -> datetime:
    """These ranks stop at `at`; the others wait until their timeout, report it and abort. Returns when the job runs again.

    Ranks that stopped in their host program have nothing pending, so their own watchdog sees no timeout and logs
    nothing, as if they were dead. `place` is the index of the collective in their step before which they stopped.
    """
    waits = _waits(sim, job, stopped, place)
    down = at + job.timeout
    steps = sim.rng.randrange(500, 90_000)
    for rank, wait in sorted(waits.items()):
        down = max(down, report(sim, job, at, rank, wait, steps))
        if job.dumps:
            _dump(sim, job, at, wait, steps)
    if job.desync and waits:
        first = _by_depth(waits)[0]
        report_text = framework_logs.desync(job.release, first, sorted(stopped), steps, down)
        sim.pod(job.pod_of(first.rank), down, report_text, rank=first.rank)
    teardown(sim, job, down + seconds(2), spared=stopped)
    return restart_job(sim, job, down + seconds(8), avoid, stalled=at)


def crash(
    sim: Simulation,
    job: Job,
    at: datetime,
    rank: int,
    error: str | None,
    *,
    exit_code: int = -6,
    avoid: Iterable[Node] = (),
) -> datetime:
    """A rank ends with an exception (`error`) or a signal; its neighbours see sockets close, the launchers end the rest."""
    rng, pod = sim.rng, job.pod_of(rank)
    if error is not None:
        where = f'File "/app/train.py", line {rng.randrange(90, 900)}, in step'
        trace = f"Traceback (most recent call last):\n  {where}\n{error}"
        sim.pod(pod, at + seconds(0.3), trace, rank=rank)
    launcher(sim, job, at + seconds(1.5), rank, exit_code)
    waits = _waits(sim, job, [rank], None)
    for wait in [w for w in _by_depth(waits) if job.pod_of(w.rank) is not pod][:6]:
        other, moment = job.pod_of(wait.rank), at + seconds(rng.uniform(1.8, 6))
        gpu = wait.rank % GPUS
        sim.pod(
            other,
            moment,
            framework_logs.connection_closed(other.name, other.pid(wait.rank), gpu, moment, pod.address),
            rank=wait.rank,
        )
        log = framework_logs.RankLog(job.release, wait.rank)
        sim.pod(other, moment + seconds(0.2), framework_logs.remote_error(log, wait, moment), rank=wait.rank)
    down = at + seconds(rng.uniform(9, 25))
    teardown(sim, job, down, spared={rank})
    return restart_job(sim, job, down + seconds(6), avoid, stalled=at)


def teardown(sim: Simulation, job: Job, at: datetime, *, spared: Iterable[int] = ()) -> None:
    """What an aborting job logs on every node: channels torn down, signals sent, segments freed."""
    rng, dead = sim.rng, set(spared)
    for pod in job.pods:
        moment = at + seconds(rng.uniform(0, 3))
        alive = [rank for rank in pod.ranks if rank not in dead]
        if not alive:
            continue
        for rank in rng.sample(alive, min(len(alive), rng.choice((0, 1, 2)))):
            gpu, pid = rank % GPUS, pod.pid(rank)
            for code in (43, 45) if rng.random() < 0.4 else (45,):
                sim.xid(pod.node, gpu, moment, code, driver_logs.channel(gpu), pid=pid, vital=False)
        if rng.random() < 0.3:
            sim.kernel(pod.node, moment, driver_logs.PEERMEM_TEARDOWN)
        if rng.random() < 0.5:
            sim.pod(pod, moment, framework_logs.sigterm_sent(moment, pod.pid(alive[0])))


def restart_job(
    sim: Simulation,
    job: Job,
    at: datetime,
    avoid: Iterable[Node] = (),
    *,
    stalled: datetime | None = None,
    by_hand: bool = False,
) -> datetime:
    """The controller deletes the job's pods and starts it again once its bad nodes are cordoned. Returns when.

    `stalled` is since when it has made no progress: it logs no iteration after that. `by_hand` moves one that still runs.
    """
    if job.kind == SLURM and by_hand:
        sim.slurmctld(at - seconds(1), f"_slurm_rpc_requeue: JobId={job.number} by uid 0")
    if job.kind == "PyTorchJob":
        text = f"PyTorchJob {job.name} is restarting because {len(job.pods)} Worker replica(s) failed."
        sim.event(
            at, "PyTorchJob", job.name, "PyTorchJobRestarting", text,
            namespace=job.namespace, component="pytorchjob-controller",
        )  # fmt: skip
    sim.stop(job, at, stalled=stalled, exit_code=143 if by_hand else 134)
    back = at + seconds(sim.rng.uniform(60, 200))
    cordons = [sim.cordon_and_replace(node, at) for node in avoid]
    back = max([back, *(cordoned_at + seconds(20) for cordoned_at in cordons)])
    sim.restart(job, back, avoid)
    sim.reserve(back + timedelta(minutes=3), job=job)
    return back


def retries(
    sim: Simulation, job: Job, at: datetime, unreachable: Iterable[int], nics: Iterable[int] | None = None
) -> datetime:
    """Sends to ranks that cannot be reached go unanswered, which ring neighbours on the same rail log. Returns the last time.

    The transport gives up after 7 retries of its timeout: about 7.5 s, from NCCL 2.23 on 30 s. `nics` limits it to some rails.
    """
    rng, gone = sim.rng, set(unreachable)
    patience_s = 7.5 if framework_logs.RankLog(job.release, 0).version < (2, 5) else 30.0
    rails = set(range(GPUS) if nics is None else nics)
    last = at
    if len(job.pods) < 2:
        return last
    for index, pod in enumerate(job.pods):
        for rank in pod.ranks:
            rail = rank % GPUS
            if rail not in rails or rank in gone:
                continue
            for other in (job.pods[index - 1], job.pods[(index + 1) % len(job.pods)]):
                if other is not pod and other.rank + rail in gone and rng.random() < 0.8:
                    moment = at + seconds(patience_s + rng.uniform(0, 3))
                    last = max(last, moment)
                    pid, address = pod.pid(rank), pod.address
                    line = framework_logs.retry_exceeded(pod.name, pid, rail, address, other.address)
                    if pod.node.fabric == "efa":
                        line = framework_logs.unreachable_peer(pod.name, pid, rail, pod.node.nic(rail))
                    sim.pod(pod, moment, line, vital=True, rank=rank)
    return last


def _waits(sim: Simulation, job: Job, stopped: Iterable[int], place: int | None) -> dict[int, Wait]:
    ranks = sorted(stopped)
    spot = sim.rng.randrange(len(job.layout.program[ranks[0]])) if place is None else place
    return standstill(job.layout, dict.fromkeys(ranks, spot))


def report(sim: Simulation, job: Job, at: datetime, rank: int, wait: Wait, steps: int) -> datetime:
    """One rank's watchdog: the later a rank began to wait, the later it fires."""
    started = at + timedelta(
        seconds=min(wait.depth * 0.3, sim.scenario.jobs.step_s) + sim.rng.uniform(-0.4, 0.4)
    )
    ran = job.timeout + seconds(sim.rng.uniform(0.005, POLL_S))
    moment = started + ran
    log = framework_logs.RankLog(job.release, rank)
    timeout_ms, ran_ms = int(job.timeout.total_seconds() * 1000), int(ran.total_seconds() * 1000)
    pod = job.pod_of(rank)
    sim.pod(pod, moment, *framework_logs.timed_out(log, wait, steps, moment, timeout_ms, ran_ms), rank=rank)
    if rank % GPUS == 0:
        sim.pod(pod, moment + seconds(1), *framework_logs.aborting(log, wait, moment), rank=rank)
    return moment


def _by_depth(waits: dict[int, Wait]) -> list[Wait]:
    """Those that waited longest first."""
    return sorted(waits.values(), key=lambda wait: (wait.depth, wait.rank))


def _dump(sim: Simulation, job: Job, at: datetime, wait: Wait, steps: int) -> None:
    """A rank's flight recorder, sent some seconds after its watchdog fired."""
    pod = job.pod_of(wait.rank)
    timeout_ms = int(job.timeout.total_seconds() * 1000)
    moment = at + job.timeout + seconds(sim.rng.uniform(3, 12))
    about = {"rank": wait.rank, "host": pod.node.name, "namespace": pod.namespace, "pod_name": pod.name}
    sim.upload(pod, moment, {**about, "dump": flight_recorder.dump(job.layout, wait, steps, timeout_ms)})


def launcher(sim: Simulation, job: Job, at: datetime, rank: int, exit_code: int) -> None:
    """The launcher of a pod finds that a process of its own has ended."""
    pod = job.pod_of(rank)
    sim.pod(pod, at, framework_logs.process_failed(at, rank % GPUS, pod.pid(rank), exit_code), vital=True)
