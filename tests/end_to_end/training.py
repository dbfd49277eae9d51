"""A training job on nodes of its own, which prints iterations for as long as it runs, and what was done to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from streams.kafka.topics import RAW_JOB_LOGS, RAW_NODE_LOGS
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.testbed import workloads
from tests.testbed.audit import Write
from tests.testbed.control_plane import ControlPlane, KubectlFailed, unique
from tests.testbed.waiting import eventually

PODS = 4
RANKS_PER_POD = 8
RESOURCES = {"PyTorchJob": "pytorchjobs", "Job": "jobs"}


class Training:
    """One job of four pods with eight ranks each, in a pool and a namespace of its own. Build it with `running`."""

    def __init__(self, installation: Installation, control_plane: ControlPlane, kind: str) -> None:
        self.installation = installation
        self.control_plane = control_plane
        self.kind = kind
        self.pool = unique("pool")
        self.namespace = unique("ml")
        self.nodes: list[str] = []
        self.before: dict[str, str] = {}
        """Pods and their nodes when the story begins, in the order of their ranks."""
        self._hung: set[str] = set()

    @classmethod
    @asynccontextmanager
    async def running(
        cls,
        installation: Installation,
        control_plane: ControlPlane,
        kind: str = "Job",
        *,
        nodes: int = 6,
        gpus: int = 8,
        grace_s: int = 30,
    ) -> AsyncIterator[Self]:
        """The job with all its pods placed; while the block lasts, those that run and do not hang print iterations."""
        self = cls(installation, control_plane, kind)
        self.nodes = control_plane.add_nodes(self.pool, nodes, gpus=gpus)
        control_plane.kubectl("create", "namespace", self.namespace)
        make = workloads.pytorch_job if kind == "PyTorchJob" else workloads.indexed_job
        control_plane.create(make("train", self.namespace, pool=self.pool, grace_s=grace_s))

        async def whole() -> dict[str, str] | None:
            found = await asyncio.to_thread(self.placed)
            return found if len(found) == PODS else None

        self.before = dict(sorted((await eventually(whole, "four pods run")).items()))
        task = asyncio.create_task(self._train())
        try:
            yield self
        finally:
            has_ended = task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            control_plane.kubectl("delete", "namespace", self.namespace, "--wait=false")
            control_plane.remove_pool(self.pool)
            if has_ended:
                # It prints for as long as it is let. So this raises what ended it, which is why the test failed, if it did.
                await task

    async def _train(self) -> None:
        pods: list[dict[str, Any]] = []
        for step in range(1000, 100_000):
            try:
                pods = await asyncio.to_thread(self._running)
            except KubectlFailed:
                pass  # what runs goes on, also while an API server that is short of time does not answer
            lines = [
                shippers.iteration(self.namespace, pod["metadata"]["name"], pod["spec"]["nodeName"], step)
                for pod in pods
                if pod["metadata"]["uid"] not in self._hung
            ]
            await self.installation.send(RAW_JOB_LOGS, lines)
            await asyncio.sleep(1)  # the pace of the training loop, not a wait for anything

    def placed(self) -> dict[str, str]:
        """The job's running pods and their nodes."""
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self._running()}

    def _running(self) -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.control_plane.get("pods", "--namespace", self.namespace)
            if pod["metadata"]["name"].startswith("train")
            and pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
        ]

    @property
    def name(self) -> str:
        """The job as incidents name it."""
        return f"{self.namespace}/train"

    @property
    def resource(self) -> str:
        """The API resource of the job."""
        return RESOURCES[self.kind]

    def closed(self) -> list[str]:
        """Nodes of the pool that take no new pods."""
        nodes = self.control_plane.get("nodes", "--selector", f"{workloads.POOL}={self.pool}")
        return [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")]

    async def hang(self) -> None:
        """From now on the pods that run make no progress any more."""
        self._hung = {pod["metadata"]["uid"] for pod in await asyncio.to_thread(self._running)}

    async def lose_gpu(self, bad: str) -> None:
        """XID 79 on one node, teardown on all, timeouts on all ranks."""
        await self.hang()
        await self.installation.send(RAW_NODE_LOGS, [shippers.off_bus(bad)])
        await self.installation.send(
            RAW_NODE_LOGS, [shippers.teardown(node) for node in self.before.values()]
        )
        await self.time_out()

    async def time_out(self, silent: str | None = None) -> None:
        """A watchdog line of every rank, but of those on the `silent` node."""
        for number, (pod, node) in enumerate(self.before.items()):
            if node != silent:
                ranks = range(number * RANKS_PER_POD, (number + 1) * RANKS_PER_POD)
                lines = [shippers.watchdog(self.namespace, pod, node, rank) for rank in ranks]
                await self.installation.send(RAW_JOB_LOGS, lines)

    def touched(self, since: int) -> list[str]:
        """What Faultline was allowed to change of this job and its nodes, in order, as `verb resource name`."""
        return [
            f"{w.verb} {w.resource}{'/' + w.subresource if w.subresource else ''} {w.name}"
            for w in self.writes(since)
            if w.code in (200, 201)
        ]

    def writes(self, since: int) -> list[Write]:
        """Every request of Faultline's that was to change something of this job or its nodes."""
        return [
            w
            for w in self.control_plane.audit.writes(since=since)
            if w.user.startswith("system:serviceaccount:faultline:")
            and (w.namespace == self.namespace or w.name in self.nodes)
        ]

    def switched(self, since: int) -> list[bool]:
        """What the job's suspend switch was set to by Faultline, in order."""
        return [_suspends(w.body or {}) for w in self.writes(since) if w.resource == self.resource]


def _suspends(patch: dict[str, Any]) -> bool:
    spec = patch["spec"]
    return bool(spec["suspend"] if "suspend" in spec else spec["runPolicy"]["suspend"])
