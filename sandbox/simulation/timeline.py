"""The cluster at work while a campaign runs: who stands where, who says what, and what the API server shows.

A fault or a look-alike is played on it at a time: it says lines, moves jobs and notes the truth. Places in use are kept apart, so
that two faults meet only where a scenario means them to.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson

from sandbox.simulation import driver_logs, framework_logs, kube
from sandbox.simulation.scenario import Scenario
from sandbox.simulation.shippers import RECORDER, Said
from sandbox.simulation.topology import GPUS, Leaf, Node, SimulatedCluster
from sandbox.simulation.truth import Truth
from sandbox.simulation.workload import Job, Pod
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS
from streams.model.watch import ObjectChange

PERSON_AFTER = (90.0, 400.0)
"""Seconds until somebody has seen a broken node and closed it."""
REPAIR_AFTER = timedelta(minutes=50)
"""Then another server stands in its place."""


class Stage:
    """Everything of one run."""

    def __init__(
        self, scenario: Scenario, cluster: SimulatedCluster, rng: random.Random, begin: datetime
    ) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.rng = rng
        self.begin = begin
        self.truth = Truth()
        self.said: list[Said] = []
        self.changes: list[ObjectChange] = []
        self.jobs: list[Job] = []
        self.closed: dict[str, datetime] = {}
        """Nodes that a person has closed, and when they are replaced."""
        self._busy: dict[str, datetime] = {}
        self._introduced: set[str] = set()
        self.first_cabling = cluster.cabling()
        self.cabled = frozenset(cluster.nodes)
        """Nodes that the cabling file knows: nobody writes down the servers that replace others."""
        self.end = begin
        for node in cluster.nodes.values():
            self._show(begin, "ADDED", kube.node(cluster, node, begin - timedelta(days=9)))

    # What is said.

    def kernel(
        self, node: Node, at: datetime, *lines: str, vital: bool = False, age: timedelta = timedelta()
    ) -> None:
        """Lines of a node's kernel log, sent at `at` and written `age` before."""
        for number, text in enumerate(lines):
            moment = at + timedelta(milliseconds=number)
            self._say(Said(moment, RAW_NODE_LOGS, node.name, "kernel", text, vital=vital, age=age))

    def xid(self, node: Node, gpu: int, at: datetime, *lines: str, vital: bool = True) -> None:
        """Lines of the driver about one GPU; before the first it introduces the GPU."""
        if node.gpu_uuid(gpu) not in self._introduced:
            self._introduced.add(node.gpu_uuid(gpu))
            self.kernel(node, at, *driver_logs.introduction(node, gpu))
        self.kernel(node, at + timedelta(milliseconds=5), *lines, vital=vital)

    def daemon(self, node: Node, at: datetime, program: str, text: str, *, vital: bool = False) -> None:
        """A line of a program of the host."""
        self._say(Said(at, RAW_NODE_LOGS, node.name, program, text, vital=vital))

    def pod(self, pod: Pod, at: datetime, *lines: str, vital: bool = False) -> None:
        """Lines of a training container: a runtime makes a record of each, whatever the program wrote at once."""
        for number, text in enumerate(line for block in lines for line in block.split("\n")):
            moment = at + timedelta(milliseconds=number)
            said = Said(
                moment, RAW_JOB_LOGS, f"{pod.namespace}/{pod.name}", "pytorch", text, vital, pod.about
            )
            self._say(said)

    def upload(self, pod: Pod, at: datetime, document: Mapping[str, Any]) -> None:
        """A document that a sidecar sends as it is."""
        text = orjson.dumps(document).decode()
        self._say(Said(at, RAW_JOB_LOGS, f"{pod.namespace}/{pod.name}", RECORDER, text, pod=pod.about))

    def switch(self, leaf: Leaf, at: datetime, program: str, text: str, *, vital: bool = False) -> None:
        """A line of a switch's syslog."""
        self._say(Said(at, RAW_FABRIC, leaf.name, program, text, vital=vital))

    def sample(self, node: Node, at: datetime, metric: str, value: float, /, **labels: str) -> None:
        """One sample of a node's exporter. Scrapes are monitored themselves: no sample is lost alone."""
        self._say(Said(at, RAW_METRICS, node.name, metric, vital=True, labels=labels, value=value))

    def event(
        self,
        at: datetime,
        kind: str,
        name: str,
        reason: str,
        message: str,
        *,
        namespace: str = "",
        uid: str = "",
        component: str = "node-controller",
        host: str = "",
        warning: bool = True,
        vital: bool = False,
    ) -> None:
        """A Kubernetes Event."""
        about = {
            "kind": kind, "namespace": namespace, "name": name, "uid": uid or name, "reason": reason,
            "component": component, "host": host, "type": "Warning" if warning else "Normal",
        }  # fmt: skip
        self._say(Said(at, RAW_K8S_EVENTS, component, component, message, vital, event=about))

    def _say(self, said: Said) -> None:
        self.said.append(said)
        self.end = max(self.end, said.at)

    def _show(
        self, at: datetime, change: Literal["ADDED", "MODIFIED", "DELETED"], thing: kube.Object
    ) -> None:
        self.changes.append(ObjectChange(at, change, thing))
        self.end = max(self.end, at)

    # Who is free.

    def occupy(self, until: datetime, nodes: Iterable[Node] = (), job: Job | None = None) -> None:
        """Nothing else happens there before `until`."""
        for node in nodes:
            self._busy[node.name] = max(until, self._busy.get(node.name, until))
        if job is not None:
            job.busy_until = max(until, job.busy_until or until)
            self.occupy(until, job.nodes)

    def release(self, job: Job, at: datetime) -> None:
        """Something may happen to a job again from `at` on, although its last fault still echoes."""
        job.busy_until = min(job.busy_until or at, at)
        for node in job.nodes:
            self._busy[node.name] = min(at, self._busy.get(node.name, at))

    def calm(self, node: Node, at: datetime) -> bool:
        """Whether nothing happens on a node."""
        return (
            node.name in self.cluster.nodes
            and node.name not in self.closed
            and self._busy.get(node.name, at) <= at
        )

    def calm_jobs(self, at: datetime, *, pods: int = 1) -> list[Job]:
        """Jobs that have run undisturbed for ten minutes."""
        settled = at - timedelta(minutes=10)
        return [
            job
            for job in self.jobs
            if not job.finished
            and len(job.pods) >= pods
            and (job.busy_until or at) <= at
            and (job.since or at) <= settled
            and all(self.calm(node, at) for node in job.nodes)
        ]

    def calm_job(self, at: datetime, *, pods: int = 2) -> Job | None:
        """Any of them, None when there is none."""
        found = self.calm_jobs(at, pods=pods)
        return self.rng.choice(found) if found else None

    def idle_nodes(self, at: datetime) -> list[Node]:
        """Nodes without a job on which nothing happens."""
        taken = {node.name for job in self.jobs if not job.finished for node in job.nodes}
        return [n for n in self.cluster.nodes.values() if n.name not in taken and self.calm(n, at)]

    def jobs_on(self, nodes: Iterable[Node]) -> list[Job]:
        """Running jobs with a pod on any of the nodes."""
        names = {node.name for node in nodes}
        return [job for job in self.jobs if not job.finished and any(n.name in names for n in job.nodes)]

    # Jobs.

    def start(self, job: Job, nodes: Sequence[Node], at: datetime, *, pending: bool = False) -> None:
        """Place a job's pods and let it run; the API server shows them at once. `pending` pods run when `run` says so."""
        job.attempt += 1
        job.since = at
        job.pods = []
        for index, node in enumerate(nodes):
            name = kube.pod_name(job.kind, job.name, index, job.attempt)
            address = f"10.{128 + node.number // 250 % 100}.{node.number % 250}.{job.attempt % 250 + 2}"
            args = (job.kind, job.namespace, job.name, name, index, job.attempt, node.name, address, at)
            thing = kube.pod(*args)
            uid = thing["metadata"]["uid"]
            job.pods.append(Pod(job.namespace, name, uid, node, index * GPUS, address, thing))
            self._show(at, "ADDED", kube.pending(thing) if pending else thing)
        if job.tells_init and not pending:
            self._tell_init(job, at + timedelta(seconds=20))

    def run(self, job: Job, at: datetime) -> None:
        """Pods that were pending run."""
        job.since = at
        for pod in job.pods:
            self._show(at, "MODIFIED", pod.thing)

    def add_job(self, job: Job, nodes: Sequence[Node], at: datetime) -> None:
        """Create a job object and start it."""
        self.jobs.append(job)
        self._show(at, "ADDED", kube.job(job.kind, job.namespace, job.name, len(nodes)))
        self.start(job, nodes, at)

    def stop(
        self,
        job: Job,
        at: datetime,
        *,
        phase: str = "Failed",
        exit_code: int = 134,
        gone_s: float = 5,
        still: datetime | None = None,
    ) -> None:
        """End the pods of the present start; they are deleted a little later. `still`: since when they stood still."""
        self._progress(job, still or at)
        for pod in job.pods:
            self._show(at, "MODIFIED", kube.ended(pod.thing, phase, at, exit_code))
            self._show(at + timedelta(seconds=gone_s), "DELETED", kube.ended(pod.thing, phase, at, exit_code))

    def restart(self, job: Job, at: datetime, avoid: Iterable[Node] = ()) -> None:
        """Start a stopped job again, with spare nodes in place of those to avoid; it ends for good when there are too few."""
        bad = {node.name for node in avoid}
        spare = [node for node in self.idle_nodes(at) if node.name not in bad]
        self.rng.shuffle(spare)
        nodes = []
        for node in job.nodes:
            healthy = (
                node.name in self.cluster.nodes and node.name not in self.closed and node.name not in bad
            )
            if not healthy and not spare:
                job.finished = True
                self._show(
                    at, "MODIFIED", kube.job(job.kind, job.namespace, job.name, len(job.pods), ended="Failed")
                )
                return
            nodes.append(node if healthy else spare.pop())
        self.start(job, nodes, at)
        self.occupy(at + timedelta(minutes=2), job=job)

    def finish(self, job: Job, at: datetime) -> None:
        """The job has done its work."""
        self.stop(job, at, phase="Succeeded", exit_code=0, gone_s=30)
        job.finished = True
        self._show(
            at, "MODIFIED", kube.job(job.kind, job.namespace, job.name, len(job.pods), ended="Complete")
        )

    def replace_job(self, old: Job, nodes: Sequence[Node], at: datetime) -> None:
        """The scheduler gives the nodes of a finished job to a new one of the same shape."""
        free = [node for node in nodes if node.name in self.cluster.nodes and node.name not in self.closed]
        if len(free) < len(nodes):
            return
        number = len(self.jobs) + 1
        name = f"{old.name.rpartition('-')[0]}-{number:03d}"
        job = replace(old, name=name, attempt=0, pods=[], since=None, step=0, busy_until=None, finished=False)
        self.add_job(job, nodes, at)

    def settle(self) -> None:
        """Let running jobs tell their progress up to the end."""
        for job in self.jobs:
            if not job.finished:
                self._progress(job, self.end)

    def _progress(self, job: Job, until: datetime) -> None:
        """The iterations that the present start has logged before `until`: the last rank prints them, as in Megatron."""
        every = timedelta(seconds=self.scenario.jobs.progress_s)
        step_ms = self.scenario.jobs.step_s * 1000
        at = (job.since or until) + timedelta(seconds=60)
        while at < until:
            moved = int(every.total_seconds() / self.scenario.jobs.step_s)
            job.step += moved
            self.pod(
                job.pods[-1],
                at,
                framework_logs.iteration(at, job.step, 900_000, step_ms * self.rng.uniform(0.98, 1.03)),
            )
            at += every

    def _tell_init(self, job: Job, at: datetime) -> None:
        for pod in job.pods:
            for rank in pod.ranks:
                gpu = rank % GPUS
                bus = pod.node.gpu_pci(gpu).split(":")[1] + "000"
                comm = 0x7F0000000000 + rank * 4096
                line = framework_logs.init_line(
                    pod.name, pod.pid(rank), rank, job.layout.world, gpu, bus, comm
                )
                self.pod(pod, at + timedelta(seconds=gpu * 0.01), line)

    # Nodes.

    def node_changes(
        self, node: Node, at: datetime, *, ready: str = "True", spec: dict[str, Any] | None = None
    ) -> None:
        """A new state of a node's object."""
        self._show(at, "MODIFIED", kube.node(self.cluster, node, at, ready=ready, more=spec))

    def not_ready(self, node: Node, at: datetime, *, status: str = "Unknown") -> None:
        """The node controller gives a node up (`Unknown`), or its kubelet says so itself (`False`)."""
        taint = {
            "key": "node.kubernetes.io/unreachable" if status == "Unknown" else "node.kubernetes.io/not-ready"
        }
        self.node_changes(node, at, ready=status, spec={"taints": [taint | {"effect": "NoSchedule"}]})
        text = f"Node {node.name} status is now: NodeNotReady"
        self.event(at, "Node", node.name, "NodeNotReady", text, vital=True)

    def ready_again(self, node: Node, at: datetime) -> None:
        """The kubelet reports again."""
        self.node_changes(node, at, ready="True")
        self.says_ready(node, at)

    def says_ready(self, node: Node, at: datetime) -> None:
        """The kubelet's event."""
        text = f"Node {node.name} status is now: NodeReady"
        self.event(
            at,
            "Node",
            node.name,
            "NodeReady",
            text,
            component="kubelet",
            host=node.name,
            warning=False,
            vital=True,
        )

    def send_away(self, node: Node, at: datetime) -> datetime:
        """A person closes a broken node, and later another server takes its place. Returns when it is closed."""
        closed_at = at + timedelta(seconds=self.rng.uniform(*PERSON_AFTER))
        self.closed[node.name] = closed_at + REPAIR_AFTER
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        self.node_changes(node, closed_at, spec={"unschedulable": True, "taints": [taint]})
        text = f"Node {node.name} status is now: NodeNotSchedulable"
        self.event(
            closed_at, "Node", node.name, "NodeNotSchedulable", text, component="kubelet", warning=False
        )
        return closed_at

    def bring_back(self, at: datetime) -> None:
        """Put new servers where broken ones were taken out before `at`."""
        for name, due in sorted(self.closed.items(), key=lambda entry: entry[1]):
            if due <= at and name in self.cluster.nodes:
                old = self.cluster.nodes[name]
                self._show(due, "DELETED", kube.node(self.cluster, old, due))
                new = self.cluster.replace(old)
                self._show(due + timedelta(seconds=30), "ADDED", kube.node(self.cluster, new, due))
                del self.closed[name]
