"""What a cluster of 10,000 nodes costs in cores and memory: `bench/budget.py [--nodes N] [--pods N] [--lines-per-s N] [--quick]`.

Every process of Faultline by its command, on a real broker and a real API server (etcd and the server alone: the bench plays the
controllers; nodes and pods are as `bench/api.py` makes them). Lines come at a steady rate: half of nodes, a quarter progress of
pods, a quarter DCGM samples of as many nodes, and Events and lines of switches; 20 a second are XIDs that close nothing. Pods
change beside it.

Figures, for each process: `cpu_…` in cores (seconds of CPU a second, over `--seconds`), `rss_…_mb` at the end, `peak_…_mb`.
`start_cpu_s` is what all of them worked until they were ready and the inventory had told everything; `behind` are raw records
that are not read at the end. `cores` and `memory_gb` are Faultline's own processes together: over the budget (4 cores, 8 GB), or
with more than two seconds' lines behind, it ends with 1. Broker, API server and etcd stand beside it and are not in the budget.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from time import monotonic

import orjson

from bench.api import NAMESPACE, NO_AUDIT, PODS_OF_A_JOB, PODS_ON_A_NODE, Topic, _churn, fill, memory_mb
from bench.detector_process import spent_cpu_s
from bench.figures import Figure, progress, report
from connectors.kubernetes.client import Cluster
from streams.config.connector_settings import KubernetesSettings
from tests.end_to_end.installation import ROOT
from tests.soak.mixed import evidence
from tests.soak.mixed.site import LABELS, Site
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

CORES, MEMORY_GB = 4.0, 8.0
"""The budget of all of Faultline's processes together. Set before it was measured."""
BEHIND_S = 2.0
"""At most so many seconds of lines may be unread at the end."""
TALKING_PODS = 2_000
CHURN_PER_S = 20.0


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Figure]:
    """Fill the cluster, start everything, look at it under load."""
    with Kafka.running(for_load=True) as kafka:
        plane = ControlPlane(folder / "kubernetes")
        try:
            plane.prepare()
            # The bodies of all objects would be written to disk a second time.
            plane._site.audit_policy.write_text(json.dumps(NO_AUDIT))
            for name in ("etcd", "kube-apiserver"):
                plane.start_component(name)
            settings = KubernetesSettings(kubeconfig=plane.kubeconfig(), timeout_s=60)
            async with await Cluster.connect(settings) as admin, Site.at(kafka, plane, folder) as site:
                site.has_clocks = (
                    False  # a clock that is asked through a library costs CPU that is not Faultline's
                )
                begun = monotonic()
                jobs = await fill(admin, options.nodes, options.pods)
                pods = len(jobs) * PODS_OF_A_JOB
                progress(f"{options.nodes} nodes and {pods} pods after {monotonic() - begun:.0f} s")
                async with Topic(site) as topic:
                    found = await _start(site, topic, options.nodes + pods + len(jobs))
                return found | await _under_load(options, site, admin, plane, kafka, pods)
        finally:
            plane.stop()


async def _start(site: Site, topic: Topic, expected: int) -> dict[str, Figure]:
    begun = monotonic()
    site.start_all()

    async def ready() -> bool:
        if await topic.count() < expected:
            return False
        return set((await asyncio.to_thread(site.probe, "/ready")).values()) == {200}

    await eventually(ready, "everything is told and every process is ready", timeout_s=900)
    cpu = {name: spent_cpu_s(pid) for name, pid in site.pids().items()}
    progress(f"ready after {monotonic() - begun:.0f} s")
    return {"start_s": monotonic() - begun, "start_cpu_s": sum(cpu.values())}


async def _under_load(
    options: argparse.Namespace, site: Site, admin: Cluster, plane: ControlPlane, kafka: Kafka, pods: int
) -> dict[str, Figure]:
    file = site.folder / "pods.json"
    file.write_bytes(orjson.dumps([_pod(n, options.nodes) for n in range(min(pods, TALKING_PODS))]))
    wanted = {
        "bootstrap": site.kafka_settings.bootstrap,
        "topic_prefix": site.kafka_settings.topic_prefix,
        "partitions": site.kafka_settings.raw_partitions,
        "lines_per_s": options.lines_per_s,
        "nodes": [f"gpu-{n:05}" for n in range(options.nodes)],
        "pods": str(file),
        "metrics_nodes": options.nodes,
        "report": str(site.folder / "load.json"),
    }
    spec = site.folder / "load-wanted.json"
    spec.write_text(json.dumps(wanted))
    command = [sys.executable, "-m", "tests.soak.mixed.load", f"@{spec}"]
    churning = asyncio.create_task(_churn(admin, pods, CHURN_PER_S))
    writer = Child("load", command, log=site.folder / "logs" / "load.log", cwd=ROOT)
    try:
        await asyncio.sleep(options.warm_s)  # caches fill; what follows is the steady state
        pids = site.pids()
        others = {name: plane.component(name).pid for name in ("kube-apiserver", "etcd")} | {
            "kafka": kafka.pid
        }
        before, begun = {n: spent_cpu_s(pid) for n, pid in (pids | others).items()}, monotonic()
        await asyncio.sleep(options.seconds)  # the measurement itself
        lasted = monotonic() - begun
        cpu = {n: (spent_cpu_s(pid) - before[n]) / lasted for n, pid in (pids | others).items()}
        memory = {n: memory_mb(pid) for n, pid in (pids | others).items()}
        behind = await evidence.lag(site)
    finally:
        writer.kill()
        churning.cancel()
        with suppress(asyncio.CancelledError):
            await churning
    found: dict[str, Figure] = {f"cpu_{n}": used for n, used in cpu.items()}
    found |= {f"rss_{n}_mb": rss for n, (rss, _) in memory.items()}
    found |= {f"peak_{n}_mb": peak for n, (_, peak) in memory.items()}
    return found | {
        "cores": sum(cpu[n] for n in pids),
        "memory_gb": sum(memory[n][0] for n in pids) / 1024,
        "peak_gb": sum(memory[n][1] for n in pids) / 1024,
        "behind": behind,
        "processes": len(pids),
        "nodes": options.nodes,
        "pods": pods,
        "lines_per_s": options.lines_per_s,
    }


def _pod(number: int, nodes: int) -> tuple[str, str, str]:
    job, index = divmod(number, PODS_OF_A_JOB)
    return NAMESPACE, f"train-{job}-{index}", f"gpu-{number // PODS_ON_A_NODE % nodes:05}"


def over(found: dict[str, Figure]) -> dict[str, Figure]:
    """What is over the budget."""
    limits = {"cores": CORES, "memory_gb": MEMORY_GB, "processes": len(LABELS)}
    limits["behind"] = BEHIND_S * float(str(found["lines_per_s"]))
    return {name: found[name] for name, most in limits.items() if not float(str(found[name])) <= most}


def main() -> int:
    parser = argparse.ArgumentParser(description="Cores and memory of all processes on a large cluster.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--lines-per-s", type=float, default=5_000.0)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long it is measured")
    parser.add_argument("--warm-s", type=float, default=60.0, help="under load before that")
    parser.add_argument("--quick", action="store_true", help="500 nodes, 2,560 pods, 1,000 lines/s, 20 s")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.pods, options.lines_per_s = 500, 2_560, 1_000.0
        options.seconds, options.warm_s = 20.0, 10.0
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as folder:
        found = asyncio.run(measure(options, Path(folder)))
    too_much = over(found)
    report(found | {"over_budget": too_much}, packages=("aiokafka",))
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
