"""How a training job goes down: ranks that hang until their watchdogs speak, or processes that end and pull the others along."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, flight_recorder, framework_logs
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.wait_for import Wait, standstill
from sandbox.simulation.workload import Job

POLL_S = 1.0
"""The watchdog looks at its work about once a second."""


def hang(
    stage: Stage,
    job: Job,
    at: datetime,
    stopped: Iterable[int],
    *,
    quiet: Iterable[int] = (),
    place: int | None = None,
    avoid: Iterable[Node] = (),
    after: timedelta = timedelta(),
) -> datetime:
    """These ranks stop at `at`; the others wait until their timeout, report it and abort. Returns when the job runs again.

    Ranks that stopped in their host program have nothing pending, so their own watchdog sees no timeout: they say nothing,
    like those that are dead. `quiet` ranks say nothing although they wait. `place` is where in their step they stopped,
    `after` how much later than the timeout the job is started again.
    """
    waits = _waits(stage, job, stopped, place)
    down = at + job.timeout
    steps = stage.rng.randrange(500, 90_000)
    mute = set(quiet)
    for rank, wait in sorted(waits.items()):
        if rank not in mute:
            down = max(down, report(stage, job, at, rank, wait, steps))
            if job.dumps:
                _dumps(stage, job, at, wait, steps)
    if job.desync and waits:
        first = min(waits.values(), key=lambda wait: (wait.depth, wait.rank))
        summary = framework_logs.desync(job.release, waits, sorted(stopped), steps, down)
        stage.pod(job.pod_of(first.rank), down, *summary)
    teardown(stage, job, down + timedelta(seconds=2), spared=mute | set(stopped))
    return again(stage, job, down + timedelta(seconds=8) + after, avoid, still=at)


def crash(
    stage: Stage,
    job: Job,
    at: datetime,
    rank: int,
    words: str | None,
    *,
    exit_code: int = -6,
    avoid: Iterable[Node] = (),
) -> datetime:
    """A rank ends with an exception (`words`) or a signal; its neighbours see sockets close, the launchers end the rest."""
    rng, pod = stage.rng, job.pod_of(rank)
    if words is not None:
        stage.pod(
            pod,
            at + timedelta(seconds=0.3),
            f'Traceback (most recent call last):\n  File "/app/train.py", line {rng.randrange(90, 900)}, in step\n{words}',
        )
    launcher(stage, job, at + timedelta(seconds=1.5), rank, exit_code)
    waits = _waits(stage, job, [rank], None)
    near = sorted(waits.values(), key=lambda wait: (wait.depth, wait.rank))
    for wait in [w for w in near if job.pod_of(w.rank) is not pod][:6]:
        other, moment = job.pod_of(wait.rank), at + timedelta(seconds=rng.uniform(1.8, 6))
        gpu = wait.rank % GPUS
        stage.pod(
            other, moment, framework_logs.closed(other.name, other.pid(wait.rank), gpu, moment, pod.address)
        )
        who = framework_logs.Speaker(job.release, wait.rank)
        stage.pod(other, moment + timedelta(seconds=0.2), framework_logs.remote_error(who, wait, moment))
    down = at + timedelta(seconds=rng.uniform(9, 25))
    teardown(stage, job, down, spared={rank})
    return again(stage, job, down + timedelta(seconds=6), avoid, still=at)


def teardown(stage: Stage, job: Job, at: datetime, *, spared: Iterable[int] = ()) -> None:
    """What an aborting job leaves everywhere: channels that are torn down, signals sent, segments freed."""
    rng, dead = stage.rng, set(spared)
    for pod in job.pods:
        moment = at + timedelta(seconds=rng.uniform(0, 3))
        alive = [rank for rank in pod.ranks if rank not in dead]
        if not alive:
            continue
        for rank in rng.sample(alive, min(len(alive), rng.choice((0, 1, 2)))):
            gpu, pid = rank % GPUS, pod.pid(rank)
            for code in (43, 45) if rng.random() < 0.4 else (45,):
                line = driver_logs.xid(pod.node, gpu, code, f"Ch {gpu + 8:08x}", pid=pid)
                stage.xid(pod.node, gpu, moment, line, vital=False)
        if rng.random() < 0.3:
            text = "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
            stage.kernel(pod.node, moment, text)
        if rng.random() < 0.5:
            stage.pod(pod, moment, framework_logs.closing(moment, pod.pid(alive[0])))


def again(
    stage: Stage, job: Job, at: datetime, avoid: Iterable[Node] = (), *, still: datetime | None = None
) -> datetime:
    """The controller takes the job's pods away and starts it anew once its bad nodes are closed. Returns when.

    `still` is since when it stood still: from then on it tells of no iteration.
    """
    if job.kind == "PyTorchJob":
        text = f"PyTorchJob {job.name} is restarting because {len(job.pods)} Worker replica(s) failed."
        stage.event(
            at,
            "PyTorchJob",
            job.name,
            "PyTorchJobRestarting",
            text,
            namespace=job.namespace,
            component="pytorchjob-controller",
        )
    stage.stop(job, at, still=still)
    back = at + timedelta(seconds=stage.rng.uniform(60, 200))
    closings = [stage.send_away(node, at) for node in avoid]
    back = max([back, *(closing + timedelta(seconds=20) for closing in closings)])
    stage.restart(job, back, avoid)
    stage.occupy(back + timedelta(minutes=3), job=job)
    return back


def retries(
    stage: Stage, job: Job, at: datetime, unreachable: Iterable[int], nics: Iterable[int] | None = None
) -> datetime:
    """Sends to ranks that cannot be reached go unanswered: ring neighbours on the same rail say so. Returns the last time.

    The transport gives up after 7 retries of its timeout: about 7.5 s, from NCCL 2.23 on 30 s. `nics` limits it to some rails.
    """
    rng, gone = stage.rng, set(unreachable)
    patience = 7.5 if framework_logs.Speaker(job.release, 0).number < (2, 5) else 30.0
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
                    moment = at + timedelta(seconds=patience + rng.uniform(0, 3))
                    last = max(last, moment)
                    line = framework_logs.retry_exceeded(
                        pod.name, pod.pid(rank), rail, pod.address, other.address
                    )
                    stage.pod(pod, moment, line, vital=True)
    return last


def _waits(stage: Stage, job: Job, stopped: Iterable[int], place: int | None) -> dict[int, Wait]:
    ranks = sorted(stopped)
    spot = stage.rng.randrange(len(job.layout.program[ranks[0]])) if place is None else place
    return standstill(job.layout, dict.fromkeys(ranks, spot))


def report(stage: Stage, job: Job, at: datetime, rank: int, wait: Wait, steps: int) -> datetime:
    """One rank's watchdog: the later a rank came to wait, the later it speaks."""
    started = at + timedelta(
        seconds=min(wait.depth * 0.3, stage.scenario.jobs.step_s) + stage.rng.uniform(-0.4, 0.4)
    )
    ran = job.timeout + timedelta(seconds=stage.rng.uniform(0.005, POLL_S))
    moment = started + ran
    who = framework_logs.Speaker(job.release, rank)
    timeout_ms, ran_ms = int(job.timeout.total_seconds() * 1000), int(ran.total_seconds() * 1000)
    pod = job.pod_of(rank)
    stage.pod(pod, moment, *framework_logs.timed_out(who, wait, steps, moment, timeout_ms, ran_ms))
    if rank % GPUS == 0:
        stage.pod(pod, moment + timedelta(seconds=1), *framework_logs.aborting(who, wait, moment))
    return moment


def _dumps(stage: Stage, job: Job, at: datetime, wait: Wait, steps: int) -> None:
    """A rank's flight recorder, sent some seconds after its watchdog spoke."""
    pod = job.pod_of(wait.rank)
    timeout_ms = int(job.timeout.total_seconds() * 1000)
    moment = at + job.timeout + timedelta(seconds=stage.rng.uniform(3, 12))
    about = {"rank": wait.rank, "host": pod.node.name, "namespace": pod.namespace, "pod_name": pod.name}
    stage.upload(pod, moment, {**about, "dump": flight_recorder.dump(job.layout, wait, steps, timeout_ms)})


def launcher(stage: Stage, job: Job, at: datetime, rank: int, exit_code: int) -> None:
    """The launcher of a pod finds a process of its own ended."""
    pod = job.pod_of(rank)
    stage.pod(pod, at, framework_logs.failed(at, rank % GPUS, pod.pid(rank), exit_code), vital=True)
