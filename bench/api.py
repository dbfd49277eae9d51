"""A cluster of 10,000 nodes and 50,000 pods on a real API server: `bench/api.py [--nodes N] [--pods N] [--quick]`.

etcd and the API server alone: nobody else works on the objects, so that all figures are Faultline's. Nodes and pods are as
large as those of a GPU cluster (images, conditions, environment, managed fields); pods belong to Jobs of 64.

Figures:
  `startup_s`             from the start of the process `inventory` until the facts of all objects are on its topic;
                          `startup_cpu_s` is what it worked for that, on a machine with other work
  `rss_mb`, `rss_peak_mb` its memory then, and the most it has had
  `lag_p50_ms`, `lag_p99_ms`   from before a node is changed until its fact is written, with `--churn` other changes a second
  `calls_per_incident`    requests of the responder's connectors for one incident: a node closed, its job of 64 pods stopped,
                          started and verified, the node drained and opened; `…_objects` and `…_mb` are what they returned
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Any

import orjson
from aiokafka import TopicPartition

from bench.detector_process import spent_cpu_s
from bench.figures import Figure, progress, report
from connectors.base import Done, Effect
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.config.connector_settings import KubernetesSettings
from streams.kafka import clients
from streams.kafka.topics import INVENTORY
from streams.model.run import Target
from tests.connectors.responding import until_over
from tests.end_to_end.installation import Installation
from tests.testbed import workloads
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

PODS_OF_A_JOB = 64
PODS_ON_A_NODE = 5
NAMESPACE = "ml"
NODES, PODS = path_of("v1", "nodes"), path_of("v1", "pods", namespace=NAMESPACE)
JOBS = path_of("batch/v1", "jobs", namespace=NAMESPACE)
AT_ONCE = 48
CHANGES = 200
NOW = "2026-03-01T12:00:00Z"
GROUPS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "GpuUnhealthy", "NetworkUnavailable")


def node(number: int) -> Object:
    """A node as kubelet and device plugins report it."""
    made: Object = workloads.gpu_node(f"gpu-{number:05}", pool="train")
    made["metadata"]["labels"] |= {f"nvidia.com/gpu.label-{n}": f"value-{n}" for n in range(25)}
    images = [
        {"names": [f"registry.example/team/image-{n}@sha256:{n:064}"], "sizeBytes": n} for n in range(30)
    ]
    made["status"] |= {
        "conditions": [
            {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "Kubelet", "message": kind * 3,
             "lastTransitionTime": NOW, "lastHeartbeatTime": NOW}
            for kind in GROUPS
        ],
        "images": images,
        "nodeInfo": dict.fromkeys(
            ("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
             "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"), "value",
        ),
    }  # fmt: skip
    return made


def pod(number: int, job: Object, nodes: int) -> Object:
    """A pod of a training job, placed."""
    index = number % PODS_OF_A_JOB
    name = job["metadata"]["name"]
    env = [{"name": f"SETTING_{n}", "value": f"some value of setting {n}"} for n in range(25)]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/job-completion-index": str(index)}
    return {
        "metadata": {"name": f"{name}-{index}", "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "nodeName": f"gpu-{number // PODS_ON_A_NODE % nodes:05}",
            "restartPolicy": "Never",
            "containers": [
                {"name": "train", "image": "training:1", "env": env, "command": ["torchrun", *("--flag=value",) * 10],
                 "resources": {"limits": {workloads.GPU: "1"}}}
            ],
        },
    }  # fmt: skip


RUNNING: Object = {
    "status": {
        "phase": "Running",
        "startTime": NOW,
        "podIP": "10.1.2.3",
        "conditions": [{"type": t, "status": "True", "lastTransitionTime": NOW} for t in ("Ready", "PodScheduled")],
        "containerStatuses": [
            {"name": "train", "ready": True, "restartCount": 0, "image": "training:1", "imageID": "sha256:0",
             "state": {"running": {"startedAt": NOW}}}
        ],
    }
}  # fmt: skip


async def at_once(calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Make all calls, so many at a time; their results in order."""
    waiting = list(enumerate(calls))
    waiting.reverse()
    results: dict[int, Any] = {}

    async def work() -> None:
        while waiting:
            number, call = waiting.pop()
            results[number] = await call()
            if len(results) % 10_000 == 0:
                progress(f"{len(results)} objects made")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return [results[number] for number in sorted(results)]


async def fill(admin: Cluster, nodes: int, pods: int) -> list[Object]:
    """Make all objects; returns the Jobs."""
    await admin.create(path_of("v1", "namespaces"), {"metadata": {"name": NAMESPACE}})
    await at_once(lambda n=n: admin.create(NODES, node(n)) for n in range(nodes))  # type: ignore[misc]
    made = [
        workloads.indexed_job(f"train-{n}", NAMESPACE, pool="train", pods=PODS_OF_A_JOB, gpus=1)
        for n in range(pods // PODS_OF_A_JOB)
    ]
    jobs: list[Object] = await at_once(lambda job=job: admin.create(JOBS, job) for job in made)  # type: ignore[misc]

    async def one(number: int) -> None:
        thing = pod(number, jobs[number // PODS_OF_A_JOB], nodes)
        await admin.create(PODS, thing)
        await admin.patch(f"{PODS}/{thing['metadata']['name']}/status", RUNNING)

    await at_once(lambda n=n: one(n) for n in range(len(jobs) * PODS_OF_A_JOB))  # type: ignore[misc]
    return jobs


class Topic:
    """The inventory topic of an installation, read from outside."""

    def __init__(self, installation: Installation) -> None:
        self._settings = installation.kafka_settings
        self._name = clients.topic_name(self._settings, INVENTORY)

    async def __aenter__(self) -> Topic:
        self._client = clients.consumer(self._settings, group=None, fetch_max_wait_ms=20)
        await clients.started(self._client, self._settings)
        self._places = [TopicPartition(self._name, n) for n in range(self._settings.cluster_partitions)]
        self._client.assign(self._places)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    async def count(self) -> int:
        """How many records there are."""
        return sum((await self._client.end_offsets(self._places)).values())

    async def from_now_on(self) -> None:
        """Read only what comes from here on."""
        await self._client.seek_to_end(*self._places)

    async def next_of(self, key: bytes) -> int:
        """The timestamp of the next record whose key ends so, in ms."""
        while True:
            for records in (await self._client.getmany(timeout_ms=200)).values():
                for record in records:
                    if record.key.endswith(key):
                        return int(record.timestamp)


def memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory of a process, and the most it has had."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    )
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024


async def start_up(installation: Installation, topic: Topic, expected: int) -> dict[str, Figure]:
    """Start the inventory on the full cluster."""
    begun = monotonic()
    installation.start("inventory")

    async def all_told() -> bool:
        return await topic.count() >= expected

    await eventually(all_told, "the facts of all objects are told", timeout_s=900)
    took = monotonic() - begun
    rss, peak = memory_mb(installation.pids()["inventory"])
    cpu = spent_cpu_s(installation.pids()["inventory"])
    progress(f"inventory: {expected} facts after {took:.1f} s, {cpu:.1f} s of CPU, at most {peak:.0f} MB")
    return {"startup_s": took, "startup_cpu_s": cpu, "rss_mb": rss, "rss_peak_mb": peak}


async def lag(admin: Cluster, topic: Topic, nodes: int, pods: int, churn: float) -> dict[str, Figure]:
    """How long a change of a node is on its way to the topic."""
    await topic.from_now_on()
    other = asyncio.create_task(_churn(admin, pods, churn))
    waits: list[float] = []
    try:
        for number in range(CHANGES):
            name = f"gpu-{number * 37 % nodes:05}"
            begun = datetime.now(UTC).timestamp() * 1e3
            await admin.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})
            waits.append(await topic.next_of(name.encode()) - begun)
            await admin.patch(f"{NODES}/{name}", {"spec": {"unschedulable": None}})
            await topic.next_of(name.encode())
    finally:
        other.cancel()
        with suppress(asyncio.CancelledError):
            await other
    cut = quantiles(waits, n=100, method="inclusive")
    return {"lag_p50_ms": cut[49], "lag_p99_ms": cut[98], "churn_per_s": churn}


async def _churn(admin: Cluster, pods: int, per_s: float) -> None:
    number = 0
    while True:
        name = f"train-{number // PODS_OF_A_JOB}-{number % PODS_OF_A_JOB}"
        number = (number + 7919) % pods
        await admin.patch(f"{PODS}/{name}/status", {"status": {"message": f"note {number}"}})
        await asyncio.sleep(1 / per_s)


class Counted(Cluster):
    """A client that counts its requests and what they return."""

    calls: Counter[str]
    objects: int = 0
    size: int = 0

    async def _call(self, method: str, path: str, *more: Any, **named: Any) -> Object:
        answer = await super()._call(method, path, *more, **named)
        kind = path.partition("?")[0].split("/v1/")[-1].split("/")
        self.calls[
            f"{method} {'list ' if 'items' in answer else ''}{kind[2] if kind[0] == 'namespaces' else kind[0]}"
        ] += 1
        self.objects += len(answer.get("items", (1,)))
        self.size += len(orjson.dumps(answer))
        return answer


async def one_incident(
    control_plane: ControlPlane, admin: Cluster, job: Object, nodes: int
) -> dict[str, Figure]:
    """What the responder's connectors ask of the server for one incident, on a job whose controller the bench plays."""
    settings = KubernetesSettings(kubeconfig=control_plane.kubeconfig(), timeout_s=30)
    async with await Counted.connect(settings) as client:
        assert isinstance(client, Counted)
        client.calls = Counter()
        name, bad = job["metadata"]["name"], "gpu-00000"
        target = Target("Job", name, NAMESPACE, job["metadata"]["uid"])
        there, training = NodeConnector(client), TrainingJobs(client)

        async def do(action: str, about: Target, **params: str | bool) -> None:
            effect = Effect(f"key-{action}", action, about, "c1", "inc-1", "run-1", action, params)
            outcome = await until_over(there if action in there.actions else training, effect)
            assert isinstance(outcome, Done) or action == "drain_node", (action, outcome)

        playing = asyncio.create_task(_control(admin, name, nodes))
        try:
            await do("cordon_node", Target("Node", bad))
            await do("suspend_job", target)
            await do("resume_job", target)
            await do("verify_job", target)
            await do("drain_node", Target("Node", bad), only="gpu")
            await do("uncordon_node", Target("Node", bad))
        finally:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing
    told: dict[str, Figure] = dict(client.calls)
    return {
        "calls_per_incident": client.calls.total(),
        "calls_per_incident_objects": client.objects,
        "calls_per_incident_mb": client.size / 2**20,
        "calls": told,
    }


async def _control(admin: Cluster, name: str, nodes: int) -> None:
    """The Job controller, scheduler and kubelets of one job: its pods go when it is suspended and come anew elsewhere."""
    selector = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
    done = False
    while True:
        await asyncio.sleep(0.2)
        job = await admin.get(f"{JOBS}/{name}")
        pods = await admin.list_all(PODS, query=selector)
        seen = any(
            c["type"] == "Suspended" and c["status"] == "True" for c in job["status"].get("conditions") or []
        )
        for one in pods if job["spec"].get("suspend") else ():
            with suppress(Exception):
                await admin._call(
                    "DELETE", f"{PODS}/{one['metadata']['name']}", None, {"gracePeriodSeconds": 0}
                )
        if job["spec"].get("suspend") != seen:
            told = {
                "type": "Suspended",
                "status": str(bool(job["spec"].get("suspend"))),
                "lastTransitionTime": NOW,
            }
            status: Object = {"conditions": [told]}
            if not job["spec"].get("suspend"):
                status["startTime"] = NOW
            await admin.patch(f"{JOBS}/{name}/status", {"status": status})
            done = not job["spec"].get("suspend")
        if done and not pods:
            for number in range(PODS_OF_A_JOB):
                made = pod(number, job, nodes)
                made["spec"]["nodeName"] = f"gpu-{nodes - 1 - number // PODS_ON_A_NODE:05}"
                await admin.create(PODS, made)
                await admin.patch(f"{PODS}/{made['metadata']['name']}/status", RUNNING)


async def measure(nodes: int, pods: int, churn: float, folder: Path) -> dict[str, Figure]:
    """All of it, on one cluster."""
    with Kafka.running(for_load=True) as kafka:
        control_plane = ControlPlane(folder / "kubernetes")
        try:
            control_plane.prepare()
            # The bodies of all objects would be written to disk a second time.
            control_plane._site.audit_policy.write_text(json.dumps(NO_AUDIT))
            for name in ("etcd", "kube-apiserver"):
                control_plane.start_component(name)
            settings = KubernetesSettings(kubeconfig=control_plane.kubeconfig(), timeout_s=60)
            async with (
                await Cluster.connect(settings) as admin,
                Installation.running(kafka, control_plane, folder) as installation,
                Topic(installation) as topic,
            ):
                begun = monotonic()
                jobs = await fill(admin, nodes, pods)
                progress(
                    f"{nodes} nodes and {len(jobs) * PODS_OF_A_JOB} pods after {monotonic() - begun:.0f} s"
                )
                there = len(jobs) * PODS_OF_A_JOB
                found = await start_up(installation, topic, nodes + there + len(jobs))
                found |= await lag(admin, topic, nodes, there, churn)
                found |= await one_incident(control_plane, admin, jobs[0], nodes)
                rss, peak = memory_mb(installation.pids()["inventory"])
                return found | {"rss_later_mb": rss, "rss_peak_later_mb": peak, "nodes": nodes, "pods": there}
        finally:
            control_plane.stop()


NO_AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "None"}]}


def main() -> None:
    parser = argparse.ArgumentParser(description="The inventory and the connectors on a large cluster.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--churn", type=float, default=20.0, help="changes of pods a second beside the lag")
    parser.add_argument("--quick", action="store_true", help="500 nodes and 2,500 pods")
    options = parser.parse_args()
    nodes, pods = (500, 2_560) if options.quick else (options.nodes, options.pods)
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as folder:
        report(asyncio.run(measure(nodes, pods, options.churn, Path(folder))), packages=("aiokafka",))


if __name__ == "__main__":
    main()
