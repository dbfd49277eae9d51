"""A job of 64 pods for `bench/recovery.py`: made, watched, moved by hand, and printing steps while it runs whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import Gone, NotFound
from streams.kafka.topics import RAW_JOB_LOGS
from streams.model.errors import Temporary
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.testbed import workloads
from tests.testbed.control_plane import unique
from tests.testbed.simulators.lws import LeaderWorkerSets, leader_worker_set
from tests.testbed.waiting import eventually

PODS = 64
KINDS = ("Job", "PyTorchJob", "LeaderWorkerSet")
PLURALS = {
    "Job": ("batch/v1", "jobs"),
    "PyTorchJob": ("kubeflow.org/v1", "pytorchjobs"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
}
NOT_READY = "node.kubernetes.io/not-ready"
STEP_S = 0.5
TELL = 4
"""How many of the pods print: each step is the same for all."""


def now() -> datetime:
    """The time, as everything here is stamped."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Pod:
    """One pod as it was last seen, and since when it is gone or runs."""

    name: str
    node: str | None
    runs: bool
    leaving: bool
    since: datetime


@dataclass
class Job:
    """One job. `pods` are those that are there, by uid."""

    cluster: Cluster
    kind: str
    pool: str
    tolerates_s: int
    namespace: str = field(default_factory=lambda: unique("ml"))
    pods: dict[str, Pod] = field(default_factory=dict)
    gone: dict[str, datetime] = field(default_factory=dict)
    """When each pod that was there was seen to be gone."""
    deleted: dict[str, datetime] = field(default_factory=dict)
    """When each pod was first seen to have been deleted."""
    bad: str | None = None
    """The node on which no pod counts any more."""
    steps: list[datetime] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def running(cls, cluster: Cluster, kind: str, pool: str, tolerates_s: int) -> AsyncIterator[Job]:
        """The job with all of its pods running; it is deleted with the block."""
        job = cls(cluster, kind, pool, tolerates_s)
        await cluster.create(path_of("v1", "namespaces"), {"metadata": {"name": job.namespace}})
        async with AsyncExitStack() as stack:
            if kind == "LeaderWorkerSet":
                await stack.enter_async_context(LeaderWorkerSets.running(cluster, job.namespace))
            watching = asyncio.create_task(job._follow(), name=f"pods of {job.namespace}")
            try:
                await cluster.create(job._path(), job._made())
                await job.until(lambda: job.whole_at is not None, "all pods run")
                yield job
            finally:
                await cluster.delete(job._path("train"), propagation="Background")
                await job.until(lambda: not job.pods, "all pods are gone")
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def _made(self) -> Object:
        if self.kind == "LeaderWorkerSet":
            made = leader_worker_set("train", self.namespace, pool=self.pool, groups=PODS // 2)
            templates = [made["spec"]["leaderWorkerTemplate"]["workerTemplate"]]
        elif self.kind == "PyTorchJob":
            made = workloads.pytorch_job("train", self.namespace, pool=self.pool, workers=PODS - 1)
            templates = [one["template"] for one in made["spec"]["pytorchReplicaSpecs"].values()]
        else:
            made = workloads.indexed_job("train", self.namespace, pool=self.pool, pods=PODS)
            templates = [made["spec"]["template"]]
        waits = {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}
        for template in templates:
            template["spec"]["tolerations"] = [{**waits, "tolerationSeconds": self.tolerates_s}]
        return made

    @property
    def whole_at(self) -> datetime | None:
        """Since when all pods run, none of them on the bad node; None while not."""
        fine = [pod for pod in self.pods.values() if pod.runs and not pod.leaving and pod.node != self.bad]
        return max(pod.since for pod in fine) if len(fine) == PODS else None

    async def stop(self, bad: str) -> tuple[float, float]:
        """Stop and start it by hand, off the bad node; returns how many seconds each took until all of it was so.

        Of a LeaderWorkerSet one pod a group on the node is evicted: that is stop and start in one.
        """
        begun, before = now(), set(self.pods)
        if self.kind == "LeaderWorkerSet":
            there = [pod for pod in self.pods.values() if pod.node == bad]
            self.bad = bad
            for pod in there:
                await self.cluster.evict(self.namespace, pod.name)
            await self.until(lambda: self.whole_at is not None, "its group runs elsewhere")
            whole = self.whole_at
            assert whole is not None
            return 0.0, (whole - begun).total_seconds()
        await self._suspend(True)
        await self.until(lambda: not before & self.pods.keys(), "its pods are gone")
        await eventually(self._suspension_seen, "its controller says so")
        stopped, self.bad = now(), bad
        await self._suspend(False)
        await self.until(lambda: self.whole_at is not None, "all pods run again")
        whole = self.whole_at
        assert whole is not None
        return (stopped - begun).total_seconds(), (whole - stopped).total_seconds()

    async def train(self, installation: Installation) -> None:
        """Print a step every now and then while the job is whole, until cancelled."""
        step = 1000
        while True:
            if self.whole_at is not None:
                step += 1
                told = sorted(self.pods.values(), key=lambda pod: pod.name)[:TELL]
                self.steps.append(now())
                await installation.send(
                    RAW_JOB_LOGS,
                    [shippers.iteration(self.namespace, p.name, str(p.node), step) for p in told],
                )
                await asyncio.sleep(STEP_S)  # the pace of the training loop
            else:
                await self._changed.wait()

    async def until(self, holds: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
        """Wait until something holds of the pods, looked at with each change of theirs.

        Raises:
            TimeoutError: it does not in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self._changed.wait()
        except TimeoutError as late:
            running = sum(pod.runs for pod in self.pods.values())
            raise TimeoutError(f"{self.kind}: {what}: {len(self.pods)} pods, {running} running") from late

    async def _suspend(self, value: bool) -> None:
        spec: dict[str, Any] = {"suspend": value}
        if self.kind == "PyTorchJob":
            spec = {"runPolicy": spec}
        await self.cluster.patch(self._path("train"), {"spec": spec})

    async def _suspension_seen(self) -> bool:
        job = await self.cluster.get(self._path("train"))
        conditions = (job.get("status") or {}).get("conditions") or []
        return any(c["type"] == "Suspended" and c["status"] == "True" for c in conditions)

    def _path(self, name: str | None = None) -> str:
        version, plural = PLURALS[self.kind]
        return path_of(version, plural, namespace=self.namespace, name=name)

    # What is seen of its pods

    _event: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def _changed(self) -> asyncio.Event:
        return self._event

    def _tell(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def _follow(self) -> None:
        path = path_of("v1", "pods", namespace=self.namespace)
        while True:
            pages = [page async for page in self.cluster.list_pages(path)]
            there = [pod for pods, _ in pages for pod in pods]
            for uid in self.pods.keys() - {pod["metadata"]["uid"] for pod in there}:
                self.gone[uid] = now()
                del self.pods[uid]
            for pod in there:
                self._see(pod)
            try:
                async for event in self.cluster.watch(path, pages[-1][1]):
                    if event["type"] == "DELETED":
                        self.pods.pop(event["object"]["metadata"]["uid"], None)
                        self.gone[event["object"]["metadata"]["uid"]] = now()
                        self._tell()
                    elif event["type"] != "BOOKMARK":
                        self._see(event["object"])
            except (Gone, Temporary, NotFound):
                continue  # what came meanwhile is in the next list

    def _see(self, pod: Object) -> None:
        about, uid = pod["metadata"], pod["metadata"]["uid"]
        runs, leaving = pod["status"].get("phase") == "Running", bool(about.get("deletionTimestamp"))
        known = self.pods.get(uid)
        same = known is not None and (known.runs, known.leaving) == (runs, leaving)
        since = known.since if same and known is not None else now()
        if leaving:
            self.deleted.setdefault(uid, now())
        self.pods[uid] = Pod(about["name"], pod["spec"].get("nodeName"), runs, leaving, since)
        self._tell()
