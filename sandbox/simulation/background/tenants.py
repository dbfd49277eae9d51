"""Programs of users: notebooks, batch and Spark pods, inference, builds, CronJobs. They fail and are started again all day."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation import driver_logs, kube
from sandbox.simulation.background.kinds import (
    Play,
    delete_pod,
    end_pod,
    make_pod,
    owner,
    pod_event,
    restart_container,
    suffix,
)
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node

CUDA_ERRORS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.25 GiB. GPU 0 has a total capacity of 79.11 GiB",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA error: device-side assert triggered",
    "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
)


def program_xid(sim: Simulation, node: Node, at: datetime, process: str) -> None:
    """A program reads past its memory (13 or 31) or is killed (43, 45): codes of the program, not of the GPU."""
    rng, gpu, pid = sim.rng, sim.rng.randrange(GPUS), sim.rng.randrange(5_000, 900_000)
    code = rng.choice((13, 31, 43, 45, 45))
    bodies = {
        13: driver_logs.warp_exception(rng.randrange(7), rng.randrange(9)),
        31: driver_logs.memory_fault(rng.randrange(7), rng.randrange(14), rng.randrange(2**16)),
    }
    body = bodies.get(code, driver_logs.channel(gpu))
    sim.xid(node, gpu, at, code, body, pid=pid, process=process, vital=False)
    if code == 13:
        text = "Graphics Exception: ESR 0x50df30=0x107000e 0x50df34=0x20 0x50df28=0xf81eb60 0x50df2c=0x1174"
        sim.xid(node, gpu, at + seconds(0.02), 13, text, pid=pid, process=process, vital=False)
    if code in bodies:
        ended = driver_logs.channel(gpu)
        sim.xid(node, gpu, at + seconds(0.4), 43, ended, pid=pid, process=process, vital=False)


def _user_program(sim: Simulation, node: Node, at: datetime) -> None:
    """A script on a shared node crashes."""
    program_xid(sim, node, at, sim.rng.choice(("python3", "pt_main_thread", "ipykernel_laun", "julia")))


def _notebook(sim: Simulation, node: Node, at: datetime) -> None:
    """A notebook that runs out of memory now and then, and is culled once it is idle."""
    rng = sim.rng
    name = f"nb-{rng.choice(('kim', 'lee', 'ortiz', 'sato', 'weber'))}{rng.randrange(40)}-{suffix(sim, 3)}"
    by = owner(sim, "apps/v1", "StatefulSet", name)
    labels = {"notebook-name": name, "app": name}
    pod = make_pod(
        sim,
        node,
        at,
        "notebooks",
        f"{name}-0",
        gpus=1,
        container="notebook",
        labels=labels,
        by=by,
        starts_s=8,
    )
    lasts, chance = rng.uniform(400, 2500), rng.random()
    moment = at + seconds(lasts * 0.5)
    if chance < 0.7:
        sim.pod(
            pod,
            moment,
            "Traceback (most recent call last):",
            '  File "<ipython-input-14>", line 3, in <module>',
        )
        sim.pod(pod, moment + seconds(0.01), rng.choice(CUDA_ERRORS))
    if chance < 0.25:
        program_xid(sim, node, moment - seconds(0.5), "ipykernel_laun")
    if 0.25 <= chance < 0.5:
        restart_container(sim, pod, moment + seconds(2), 137)
        text = "Memory cgroup out of memory: Killed process 48113 (python3) total-vm:98112332kB, anon-rss:33544432kB"
        sim.kernel(node, moment + seconds(1.5), text)
    ends = at + seconds(lasts)
    sim.event(
        ends, "Notebook", name, "Culled", "Notebook has been idle for 30 minutes, culling", namespace="notebooks",
        component="notebook-controller", warning=False,
    )  # fmt: skip
    delete_pod(sim, pod, ends + seconds(2))


def _batch(sim: Simulation, node: Node, at: datetime) -> None:
    """A Job of one pod with a GPU, a sweep's trial say, that fails and is retried until it succeeds or has failed too often."""
    rng = sim.rng
    name = f"{rng.choice(('sweep', 'eval', 'embed', 'distill'))}-{suffix(sim, 4)}"
    thing = kube.tenant_job("research", name, at, {"parallelism": 1, "completions": 1, "backoffLimit": 3})
    sim.show(at, "ADDED", thing)
    tries, moment = rng.choice((1, 1, 2, 3, 4)), at
    for attempt in range(tries):
        good = attempt == tries - 1 and tries < 4
        by = owner(sim, "batch/v1", "Job", name) | {"uid": thing["metadata"]["uid"]}
        labels = {"batch.kubernetes.io/job-name": name}
        pod = make_pod(sim, node, moment, "research", f"{name}-{suffix(sim)}", gpus=1, labels=labels, by=by)
        ends = moment + seconds(rng.uniform(20, 150))
        if not good:
            sim.pod(
                pod,
                ends - seconds(1),
                rng.choice((*CUDA_ERRORS, "FileNotFoundError: [Errno 2] No such file: 'cfg.yaml'")),
            )
        end_pod(sim, pod, ends, 0 if good else rng.choice((1, 1, 137, 139)))
        moment = ends + seconds(10 * 2**attempt)
    last = "Complete" if tries < 4 else "Failed"
    if tries == 4:
        sim.event(
            moment, "Job", name, "BackoffLimitExceeded", "Job has reached the specified backoff limit",
            namespace="research", component="job-controller",
        )  # fmt: skip
    sim.show(moment, "MODIFIED", kube.concluded(thing, last))
    sim.show(moment + seconds(90), "DELETED", kube.concluded(thing, last))


def _spark(sim: Simulation, node: Node, at: datetime) -> None:
    """An executor of a Spark application: killed for its memory or given up by its driver as often as not."""
    rng, app = sim.rng, f"etl-{suffix(sim, 6)}"
    by = owner(sim, "v1", "Pod", f"{app}-driver")
    labels = {"spark-role": "executor", "spark-app-selector": f"spark-{suffix(sim, 8)}"}
    name = f"{app}-exec-{rng.randrange(1, 40)}"
    pod = make_pod(sim, node, at, "batch", name, container="spark-kubernetes-executor", labels=labels, by=by)
    ends, code = at + seconds(rng.uniform(40, 400)), rng.choice((0, 1, 137, 137, 143))
    if code == 143:
        sim.pod(pod, ends - seconds(1), "ERROR CoarseGrainedExecutorBackend: RECEIVED SIGNAL TERM")
    if code == 137:
        pod_event(
            sim,
            pod,
            ends,
            "OOMKilling",
            "Memory cgroup out of memory: Killed process 7713 (java)",
            warning=True,
        )
    end_pod(sim, pod, ends, code)


def _inference(sim: Simulation, node: Node, at: datetime) -> None:
    """A deployment rolls or scales: new replicas fail their probes until the model is loaded, some crash once, old ones go."""
    rng, app = sim.rng, sim.rng.choice(("chat-api", "rerank", "asr-live", "guard"))
    replicas = f"{app}-{suffix(sim, 9)}"
    by = owner(sim, "apps/v1", "ReplicaSet", replicas)
    count = rng.randrange(1, 4)
    sim.event(
        at, "Deployment", app, "ScalingReplicaSet", f"Scaled up replica set {replicas} from 0 to {count}",
        namespace="inference", component="deployment-controller", warning=False,
    )  # fmt: skip
    for _ in range(count):
        begin = at + seconds(rng.uniform(0, 10))
        name = f"{replicas}-{suffix(sim)}"
        pod = make_pod(
            sim,
            node,
            begin,
            "inference",
            name,
            gpus=1,
            container="server",
            labels={"app": app},
            by=by,
            starts_s=15,
        )
        for probe in range(rng.randrange(4)):
            text = "Readiness probe failed: HTTP probe failed with statuscode: 503"
            pod_event(sim, pod, begin + seconds(30 + 10 * probe), "Unhealthy", text, warning=True)
        if rng.random() < 0.2:
            crashed = begin + seconds(rng.uniform(80, 300))
            sim.pod(
                pod,
                crashed - seconds(1),
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            )
            restart_container(sim, pod, crashed, rng.choice((1, 137, 139)))
            pod_event(
                sim,
                pod,
                crashed + seconds(2),
                "BackOff",
                "Back-off restarting failed container server",
                warning=True,
            )
        delete_pod(sim, pod, begin + seconds(rng.uniform(600, 2300)))


def _build(sim: Simulation, node: Node, at: datetime) -> None:
    """A build of the CI, which fails one time in three."""
    rng = sim.rng
    name = f"build-{suffix(sim, 8)}"
    pod = make_pod(sim, node, at, "ci", name, container="build", labels={"app": "runner"})
    ends, code = at + seconds(rng.uniform(60, 500)), rng.choice((0, 0, 0, 0, 1, 2, 137))
    text = f"make: *** [Makefile:{rng.randrange(20, 99)}: test] Error {code}" if code else "build ok"
    sim.pod(pod, ends - seconds(1), text)
    end_pod(sim, pod, ends, code)


def _cron_job(sim: Simulation, node: Node, at: datetime) -> None:
    """A CronJob's run: seconds long, without a GPU, one in five fails."""
    rng = sim.rng
    name = f"{rng.choice(('quota-report', 'cache-warm', 'db-backup', 'token-refresh'))}-{int(at.timestamp()) // 60}"
    thing = kube.tenant_job("cron", name, at, {"backoffLimit": 0})
    sim.show(at, "ADDED", thing)
    by = owner(sim, "batch/v1", "Job", name) | {"uid": thing["metadata"]["uid"]}
    labels = {"batch.kubernetes.io/job-name": name}
    pod = make_pod(sim, node, at, "cron", f"{name}-{suffix(sim)}", labels=labels, by=by)
    failed, ends = rng.random() < 0.2, at + seconds(25)
    end_pod(sim, pod, ends, int(failed))
    if failed:
        text = "Job has reached the specified backoff limit"
        sim.event(
            ends, "Job", name, "BackoffLimitExceeded", text, namespace="cron", component="job-controller"
        )
    done = kube.concluded(thing, "Failed" if failed else "Complete")
    sim.show(ends + seconds(1), "MODIFIED", done)
    sim.show(ends + seconds(60), "DELETED", done)


KINDS: dict[str, Play] = {
    "user_program": _user_program,
    "notebook": _notebook,
    "batch": _batch,
    "spark": _spark,
    "inference": _inference,
    "build": _build,
    "cron_job": _cron_job,
}
