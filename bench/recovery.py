"""From a fault to a job that trains again, on five clocks: `bench/recovery.py [--runs N] [--kinds KIND …] [--quick]`.

A real broker, a real API server with its scheduler and controllers, the real training operator, 100 simulated nodes of eight
GPUs, and a job of 64 pods that fills 64 of them. LeaderWorkerSets are moved by a simulation of their controller. The fault: a
GPU of one of its nodes falls off the bus (XID 79), and at the same moment the kubelet reports the node NotReady, for whoever
goes by that. Each way of recovery has the same cluster, the same kind of job and the same fault:

  faultline  all processes, mode `auto`, shipped runbooks: it acts on the line
  by hand    a script knows at once: it closes a node, stops the job, and starts it again. What this takes is what operator,
             scheduler and kubelets take; what Faultline takes besides is its own
  the loop   no Faultline: the node controller taints the node, pods that tolerate it for `--tolerates` seconds are evicted, and
             their controller makes them anew. The default is 300 s. Ranks that were not evicted are taken to join the new
             ones at once: in truth they hang until a collective times out, 10 minutes with PyTorch's default

Figures, in s after the fault's line (its Kafka timestamp): `detected` (the signal is written), `decided` (the run), `closed` (the
API server received the cordon; for the loop: the node is tainted), `running` (all 64 pods run off the node), `first_step`. Also
`own`: `running` minus what the same stop and start by hand took just before, and where it goes: `to_stop` from the line to the
request that stops the job, `to_start` from when its pods were gone to the request that starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.end_to_end import Site, site
from bench.figures import Figure, progress, report
from bench.recovery_job import KINDS, NOT_READY, PLURALS, Job, now
from connectors.kubernetes.client import Cluster, path_of
from streams.config.connector_settings import KubernetesSettings
from streams.kafka.topics import INCIDENTS, RUNS, SIGNALS
from streams.model.clock import from_millis
from streams.model.codec import decode
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from tests.deploy.manifests import COMPONENT_DIR
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.testbed.control_plane import ControlPlane
from tests.testbed.definitions import LEADER_WORKER_SETS
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

NODES = 100
CLOCKS = ("detected", "decided", "closed", "running", "first_step")
DEFAULT_TOLERATION_S = 300

Times = Mapping[str, float]


async def by_faultline(site: Site, control_plane: ControlPlane, job: Job) -> Times:
    """The fault's line, and how far Faultline's answer has come by which time. Before it the same is done by hand."""
    hand_off = _a_node(job)
    closing = path_of("v1", "nodes", name=hand_off)
    await job.cluster.patch(closing, {"spec": {"unschedulable": True}})
    stopped_s, started_s = await job.stop(hand_off)
    await job.cluster.patch(closing, {"spec": {"unschedulable": None}})
    bad, job.bad = _a_node(job), None
    training = asyncio.create_task(job.train(site.installation), name="training")
    mark = control_plane.audit.mark()
    try:
        before = set(job.pods)
        at = await site.send(shippers.off_bus(bad))
        job.bad = bad
        await asyncio.to_thread(control_plane.annotate, "node", bad, "ready=false")
        await job.until(lambda: job.whole_at is not None, "Faultline has moved it")
        whole = job.whole_at
        assert whole is not None
        await eventually(_later(job, whole), "a step is made")
        first = min(step for step in job.steps if step >= whole)
    finally:
        training.cancel()
        with suppress(asyncio.CancelledError):
            await training
    marks = await _stations(site.installation, bad)
    writes = control_plane.audit.writes(since=mark, code=200)
    closed = [w.at for w in writes if w.resource == "nodes" and w.name == bad and _closes(w.body)]
    plural = PLURALS[job.kind][1]
    touches = [w.at for w in writes if w.resource == plural and w.namespace == job.namespace]
    moved = [job.gone[uid] for uid in before if uid in job.gone]
    clocks = {
        "detected": marks[0],
        "decided": marks[1],
        "closed": closed[0],
        "running": whole,
        "first_step": first,
    }
    found = {name: (when - at).total_seconds() for name, when in clocks.items()}
    found |= {"to_stop": (touches[0] - at).total_seconds(), "hand_stop": stopped_s, "hand_start": started_s}
    if job.kind != "LeaderWorkerSet":
        resumed = next(when for when in touches if when > touches[0])
        found["to_start"] = (resumed - max(moved)).total_seconds()
    return found | {"own": found["running"] - stopped_s - started_s}


async def by_the_loop(control_plane: ControlPlane, job: Job) -> Times:
    """The node turns NotReady, and Kubernetes does what it does by itself."""
    bad = _a_node(job)
    there = {uid for uid, pod in job.pods.items() if pod.node == bad}
    at, job.bad = now(), bad
    await asyncio.to_thread(control_plane.annotate, "node", bad, "ready=false")

    async def tainted() -> datetime | None:
        node = await job.cluster.get(path_of("v1", "nodes", name=bad))
        keys = {(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or []}
        return now() if (NOT_READY, "NoExecute") in keys else None

    closed = await eventually(tainted, "the node is tainted")
    await job.until(lambda: job.whole_at is not None, "its controller has moved the pods", timeout_s=600)
    whole = job.whole_at
    assert whole is not None
    decided = min(job.deleted[uid] for uid in there)
    clocks = {"detected": closed, "decided": decided, "closed": closed, "running": whole, "first_step": whole}
    return {name: (when - at).total_seconds() for name, when in clocks.items()}


def _a_node(job: Job) -> str:
    """One of the nodes that the job's pods are on; of a LeaderWorkerSet always that of a worker, for a leader takes longer."""
    return max((pod.name.count("-"), str(pod.node)) for pod in job.pods.values())[1]


def _later(job: Job, than: datetime) -> Callable[[], Awaitable[bool]]:
    async def made() -> bool:
        return any(step >= than for step in job.steps)

    return made


def _closes(body: object) -> bool:
    return isinstance(body, dict) and bool((body.get("spec") or {}).get("unschedulable"))


async def _stations(installation: Installation, bad: str) -> tuple[datetime, datetime]:
    """When the signal of the node's fault, and the run about it, were written."""
    signals = [
        from_millis(record.timestamp)
        for record in await installation.records(SIGNALS)
        for told in (decode(SignalBatch, record.value).signals if record.value else ())
        if told.kind == "gpu.xid" and told.entity.node == bad
    ]
    incidents = {
        incident.id
        for record in await installation.records(INCIDENTS)
        if record.value and (incident := decode(Incident, record.value)).root.node == bad
    }
    runs = [
        from_millis(record.timestamp)
        for record in await installation.records(RUNS)
        if record.value and decode(Run, record.value).incident in incidents
    ]
    return min(signals), min(runs)


async def measure(kinds: Sequence[str], runs: int, tolerates_s: int, folder: Path) -> dict[str, list[Times]]:
    """All runs, by `WAY KIND`."""
    found: dict[str, list[Times]] = {}
    with Kafka.running(for_load=True) as kafka, ControlPlane.running(node_grace_s=600) as control_plane:
        progress("broker and control plane are up")
        control_plane.define(LEADER_WORKER_SETS)
        settings = KubernetesSettings(kubeconfig=control_plane.kubeconfig())
        async with await Cluster.connect(settings) as cluster:
            pool = "train"
            control_plane.add_nodes(pool, NODES)
            for kind in kinds:
                for number in range(runs):
                    async with Job.running(cluster, kind, pool, tolerates_s) as job:
                        times = await by_the_loop(control_plane, job)
                    _told(found, f"the loop, {kind}", number, times)
                    _mend(control_plane, str(job.bad))
            async with site(folder, kafka, control_plane) as running:
                control_plane.kubectl("apply", "-f", str(COMPONENT_DIR / "jobs-lws" / "rbac.yaml"))
                for kind in kinds:
                    for number in range(runs):
                        async with Job.running(cluster, kind, pool, tolerates_s) as job:
                            times = await by_faultline(running, control_plane, job)
                        _told(found, f"faultline, {kind}", number, times)
    return found


def _mend(control_plane: ControlPlane, node: str) -> None:
    control_plane.annotate("node", node, "ready-")
    control_plane.kubectl("wait", "--for=condition=Ready", "--timeout=60s", f"node/{node}")


def _told(found: dict[str, list[Times]], what: str, number: int, times: Times) -> None:
    found.setdefault(what, []).append(times)
    progress(f"{what} {number}: " + ", ".join(f"{name} {value:.2f}" for name, value in times.items()))


def show(found: Mapping[str, Sequence[Times]], tolerates_s: int) -> None:
    """One table: min / median / max of each clock, in s after the fault."""
    title = f"s after the fault: min / median / max (the loop: tolerated {tolerates_s} s, by default {DEFAULT_TOLERATION_S} s)"
    columns = [*CLOCKS, "hand_stop", "hand_start", "own", "to_stop", "to_start"]
    table = Table("", *columns, title=title)
    for what, rows in found.items():
        cells = []
        for name in columns:
            values = [row[name] for row in rows if name in row]
            told = (min(values), median(values), max(values)) if values else ()
            cells.append(" / ".join(f"{value:.1f}" for value in told))
        table.add_row(what, *cells)
    Console(stderr=True, width=200).print(table)


def figures(found: Mapping[str, Sequence[Times]]) -> dict[str, Figure]:
    """The same, for `report`."""
    told: dict[str, Figure] = {}
    for what, rows in found.items():
        names = list(dict.fromkeys(name for row in rows for name in row))
        values = {name: [row[name] for row in rows if name in row] for name in names}
        told[what] = {f"{name}_{of}_s": f(v) for name, v in values.items() for of, f in _OF.items()} | {
            "runs": len(rows)
        }
    return told


_OF: Mapping[str, Callable[[Sequence[float]], float]] = {"min": min, "median": median, "max": max}


def main() -> None:
    parser = argparse.ArgumentParser(description="From a fault to a job that trains again, on five clocks.")
    parser.add_argument("--runs", type=int, default=3, help="runs of each way and kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument(
        "--tolerates", type=int, default=10, help="s that pods tolerate a node that is not ready"
    )
    parser.add_argument("--quick", action="store_true", help="one run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as folder:
        runs = 1 if options.quick else options.runs
        found = asyncio.run(measure(options.kinds, runs, options.tolerates, Path(folder)))
    show(found, options.tolerates)
    report(figures(found) | {"tolerates_s": options.tolerates}, packages=("aiokafka", "faust-streaming"))


if __name__ == "__main__":
    main()
