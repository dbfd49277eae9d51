"""Jobs that another controller holds for us: commands to Volcano, and both ways of Kueue. The controllers are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tests.testbed
from connectors.jobs.kueue_topology import assigned_nodes
from connectors.jobs.kueue_workload import is_active, is_admitted
from connectors.jobs.suspension import suspend_annotations_of
from connectors.kubernetes.client import Object, path_of
from streams.job_kinds.kind import Lever
from streams.job_kinds.volcano_job import phase, retry_count
from streams.model.entity import JobRef
from streams.model.facts import JobFact
from tests.crash_matrix.history import Touch
from tests.crash_matrix.worlds import GPUS, JOB, World
from tests.testbed import workloads
from tests.testbed.audit import Write
from tests.testbed.simulators.kueue import VERSION, Kueue, local_queue, queued
from tests.testbed.simulators.volcano import JOBS, Volcano, volcano_job
from tests.testbed.waiting import eventually

_CRDS = Path(tests.testbed.__file__).parent / "crds"
DEFINITIONS = [
    _CRDS / f"{name}.yaml"
    for name in ("volcano-job", "volcano-command", "kueue-workload", "kueue-localqueue")
]
OPERATOR_RIGHTS = ("jobs-volcano", "jobs-kueue")
ON_VOLCANO = ("command", "command_back")


def operator_touches(writes: Sequence[Write], namespace: str) -> Iterator[Touch]:
    """Requests by which a job in this namespace is stopped and started; the evictions of its pods are told with the nodes."""
    for write in writes:
        if write.namespace != namespace:
            continue
        body = write.body or {}
        if write.resource == "commands" and write.verb == "create":
            verb = {"AbortJob": "suspend", "ResumeJob": "free"}[body["action"]]
            yield Touch(write.at, verb, "job", "", write.code == 201)
        elif write.resource == "workloads" and "active" in (body.get("spec") or {}):
            verb = "free" if body["spec"]["active"] else "suspend"
            yield Touch(write.at, verb, "job", "", write.code == 200)


@dataclass
class OperatedWorld(World):
    """A job in a namespace of its own, with the controller that runs it."""

    wanted: int = field(init=False)
    """Pods of the job. Kueue replaces a node only of a job that has more than one."""

    async def build(self) -> None:
        """Start the controller, submit the job, and wait until all of it runs."""
        self.wanted, self.namespace = (2 if self.book == "replaced" else 1), self.name
        for number in range(self.wanted + 1):
            await self._add_node(f"{self.name}-{number}")
        await self.admin.create(path_of("v1", "namespaces"), {"metadata": {"name": self.name}})
        if self.book in ON_VOLCANO:
            await self._operators.enter_async_context(Volcano(self.admin, self.name).running())
            made = volcano_job(JOB, self.name, pool=self.name, pods=1, gpus=GPUS)
        else:
            queues = path_of(VERSION, "localqueues", namespace=self.name)
            await self.admin.create(queues, local_queue("team", self.name))
            kueue = await self._operators.enter_async_context(Kueue(self.admin, self.name).running())
            kueue.replaces = True if self.book == "replaced" else None
            made = queued(
                workloads.indexed_job(JOB, self.name, pool=self.name, pods=self.wanted, gpus=GPUS, grace_s=1)
            )
        job = await self.admin.create(path_of(self._version, "jobs", namespace=self.name), made)
        kind, lever = ("VolcanoJob", Lever.COMMAND) if self.book in ON_VOLCANO else ("Job", Lever.QUEUE)
        self.job = JobRef(kind, self.name, JOB, job["metadata"]["uid"])
        self.facts.append(JobFact(self.name, self.job, datetime.now(UTC), lever=lever))
        pods = await eventually(self._all_run, "the job runs")
        self.bad = str(pods[0]["spec"]["nodeName"])
        self.roles |= {pod["metadata"]["uid"]: f"pod {n}" for n, pod in enumerate(pods)}
        others = [node for node in self.nodes if node != self.bad]
        self.roles |= {self.bad: "bad"} | {node: f"other {n}" for n, node in enumerate(others, start=1)}

    async def end(self) -> Mapping[str, Any]:
        """How nodes and job stand; a job of Volcano tells how often it was started again."""
        found = await self._ends_of_nodes()
        pods = await eventually(self._all_run, "the job runs again")
        on_bad = sum(pod["spec"]["nodeName"] == self.bad for pod in pods)
        if found["bad node"][0] == "closed":
            found["pods"] = (len(pods), f"{on_bad} on the bad node")
        job = await self.admin.get(self._job_path)
        if self.book in ON_VOLCANO:
            found["job"] = (phase(job), retry_count(job), *_marks(job))
        else:
            workload = await self._workload()
            found["workload"] = (is_active(workload), is_admitted(workload), *_marks(workload))
        return found

    async def _workload(self) -> Object:
        (one,) = await self.admin.list_all(path_of(VERSION, "workloads", namespace=self.namespace))
        return one

    async def _all_run(self) -> list[Object] | None:
        """Its pods in the order of their names, once all of them run and its controller has seen it."""
        pods = await self._pods()
        fine = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        if len(fine) != self.wanted or len(pods) != self.wanted:
            return None
        if self.book in ON_VOLCANO:
            seen = phase(await self.admin.get(self._job_path)) == "Running"
        else:
            workload = await self._workload()
            there = {str(pod["spec"]["nodeName"]) for pod in pods}
            seen = is_admitted(workload) and (self.book != "replaced" or assigned_nodes(workload) == there)
        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"])) if seen else None

    async def _pods(self) -> list[Object]:
        return await self.admin.list_all(path_of("v1", "pods", namespace=self.namespace))

    @property
    def _version(self) -> str:
        return JOBS if self.book in ON_VOLCANO else "batch/v1"

    @property
    def _job_path(self) -> str:
        return path_of(self._version, "jobs", namespace=self.namespace, name=JOB)


def _marks(thing: Object) -> tuple[str, str]:
    marks = suspend_annotations_of(thing)
    return "held" if marks.held else "not held", "marked" if marks.suspended else "unmarked"
