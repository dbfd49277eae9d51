"""A simulated cluster during one campaign: where jobs run, which nodes are free, and what is emitted meanwhile.

A fault or a look-alike is played on it at a time: it emits lines, moves jobs and records the truth. Nodes and jobs in use are
reserved, so that two faults meet only where a scenario means them to.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

from sandbox.simulation import framework_logs, kube
from sandbox.simulation.output import ClusterOutput, seconds
from sandbox.simulation.scenario import Scenario
from sandbox.simulation.topology import GPUS, Node, SimulatedCluster
from sandbox.simulation.truth import Truth
from sandbox.simulation.workload import SLURM, Job, Pod
from streams.model.clock import rfc3339

CORDON_AFTER_S = (90.0, 400.0)
"""Until an operator has noticed a broken node and cordoned it."""
REPAIR_AFTER = timedelta(minutes=50)
"""Then another server takes its place."""


CLOSED = {"unschedulable": True, "taints": [kube.UNSCHEDULABLE]}
"""The spec of a cordoned node."""
QUIET_BEFORE = timedelta(minutes=2)
"""Nothing that would be taken for a symptom begins on a node so shortly before a fault."""
LOOK_ALIKE = timedelta(minutes=20)
"""The longest of them is over by then."""


class Simulation(ClusterOutput):
    """The state of one campaign. A node or job is free when no fault or look-alike is in progress on it."""

    def __init__(
        self, scenario: Scenario, cluster: SimulatedCluster, rng: random.Random, begin: datetime
    ) -> None:
        super().__init__(begin, kubernetes="kubernetes" in cluster.site.features)
        self.scenario = scenario
        self.cluster = cluster
        self.rng = rng
        self.begin = begin
        self.truth = Truth()
        self.jobs: list[Job] = []
        self.cordoned: dict[str, datetime] = {}
        """Nodes that an operator has cordoned, and when they are replaced."""
        self.general: tuple[Node, ...] = ()
        """Nodes for everybody who trains nothing."""
        self._busy: dict[str, datetime] = {}
        self._taken: defaultdict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
        """When something of the background has nodes for itself."""
        self.first_cabling = cluster.cabling()
        self.cabled = frozenset(cluster.nodes)
        """Nodes in the topology file: it is not updated for servers that replace others."""
        for node in cluster.nodes.values():
            self.show(begin, "ADDED", kube.node(cluster, node, begin - timedelta(days=9)))

    def reserve(self, until: datetime, nodes: Iterable[Node] = (), job: Job | None = None) -> None:
        """Keep nodes, and a job with its nodes, from other faults until then."""
        for node in nodes:
            self._busy[node.name] = max(until, self._busy.get(node.name, until))
        if job is not None:
            job.busy_until = max(until, job.busy_until or until)
            self.reserve(until, job.nodes)

    def release(self, job: Job, at: datetime) -> None:
        """Let another fault hit a job from `at` on, although symptoms of its last one may still show."""
        job.busy_until = min(job.busy_until or at, at)
        for node in job.nodes:
            self._busy[node.name] = min(at, self._busy.get(node.name, at))

    def in_service(self, node: Node) -> bool:
        """Whether a node is neither cordoned nor replaced."""
        return node.name in self.cluster.nodes and node.name not in self.cordoned

    def is_free(self, node: Node, at: datetime) -> bool:
        """Whether a node is in service and free."""
        return self.in_service(node) and self._busy.get(node.name, at) <= at

    def free_jobs(self, at: datetime, *, pods: int = 1) -> list[Job]:
        """Free jobs of at least that many pods that have run for ten minutes."""
        settled = at - timedelta(minutes=10)
        return [
            job
            for job in self.jobs
            if not job.finished
            and len(job.pods) >= pods
            and (job.busy_until or at) <= at
            and (job.since or at) <= settled
            and all(self.is_free(node, at) for node in job.nodes)
        ]

    def free_job(self, at: datetime, *, pods: int = 2) -> Job | None:
        """Any of them, None when there is none."""
        found = self.free_jobs(at, pods=pods)
        return self.rng.choice(found) if found else None

    def idle_nodes(self, at: datetime) -> list[Node]:
        """Free nodes without a job that are not for general use."""
        taken = {node.name for job in self.jobs if not job.finished for node in job.nodes}
        taken |= {node.name for node in self.general}
        return [n for n in self.cluster.nodes.values() if n.name not in taken and self.is_free(n, at)]

    def has(self, feature: str) -> bool:
        """Whether the site has something: `kubernetes`, `slurm`, `roce`, `rack` … (`Site.features`)."""
        return feature in self.cluster.site.features

    def is_general(self, node: Node) -> bool:
        """Whether a node is for general use."""
        return node in self.general

    def calm(self, node: Node, begin: datetime, end: datetime) -> bool:
        """Whether no fault or look-alike touches a node in that time, which lies in the past of the campaign."""
        if not self.in_service(node):
            return False
        hit = [(fault.at, fault.until) for fault in self.truth.faults if node.name in fault.nodes]
        hit += [(it.at, it.at + LOOK_ALIKE) for it in self.truth.look_alikes if it.place == node.name]
        return not any(
            start - QUIET_BEFORE < end and begin < stop + QUIET_BEFORE
            for start, stop in hit + self._taken[node.name]
        )

    def occupy(self, node: Node, begin: datetime, end: datetime) -> None:
        """Keep a node from the rest of the background in that time."""
        self._taken[node.name].append((begin, end))

    def jobs_on(self, nodes: Iterable[Node]) -> list[Job]:
        """Running jobs with a pod on any of the nodes."""
        names = {node.name for node in nodes}
        return [job for job in self.jobs if not job.finished and any(n.name in names for n in job.nodes)]

    def start(self, job: Job, nodes: Sequence[Node], at: datetime, *, pending: bool = False) -> None:
        """Place a job's pods and let it run; the API server shows them at once. `pending` pods wait for `run`."""
        job.attempt += 1
        job.since = at
        job.pods = []
        job.launcher = self._launch(job, nodes[0], at, pending=pending) if job.kind in kube.LAUNCHED else None
        for index, node in enumerate(nodes):
            if job.kind == SLURM:
                about = {"job_id": job.number, "job_name": job.name, "task": str(index)}
                task = kube.tenant_pod("", node.name, "", node.name, node.address, at)
                job.pods.append(Pod("", node.name, "", node, index * GPUS, node.address, task, about))
                continue
            name = kube.pod_name(job.kind, job.name, index, job.attempt)
            address = f"10.{128 + node.number // 250 % 100}.{node.number % 250}.{job.attempt % 250 + 2}"
            args = (job.kind, job.namespace, job.name, name, index, job.attempt, node.name, address, at)
            thing = kube.pod(*args)
            uid = thing["metadata"]["uid"]
            job.pods.append(
                Pod(job.namespace, name, uid, node, index * GPUS, address, thing, speaker=job.launcher)
            )
            self.show(at, "ADDED", kube.pending(thing) if pending else thing)
        if job.kind == SLURM:
            names = ",".join(node.name for node in nodes)
            text = (
                f"sched: Allocate JobId={job.number} NodeList={names} #CPUs={96 * len(nodes)} Partition=train"
            )
            self.slurmctld(at, text)
        if job.logs_init and not pending:
            self._log_init(job, at + seconds(20))

    def _launch(self, job: Job, node: Node, at: datetime, *, pending: bool) -> Pod:
        """The pod that prints what the others print, beside the first of them."""
        address = f"10.{128 + node.number // 250 % 100}.{node.number % 250}.1"
        thing = kube.launcher(job.kind, job.namespace, job.name, job.attempt, node.name, address, at)
        self.show(at, "ADDED", kube.pending(thing) if pending else thing)
        about = thing["metadata"]
        return Pod(job.namespace, about["name"], about["uid"], node, 0, address, thing)

    def run(self, job: Job, at: datetime) -> None:
        """Let pending pods run."""
        job.since = at
        for pod in (*job.pods, *([job.launcher] if job.launcher else [])):
            self.show(at, "MODIFIED", pod.thing)

    def add_job(self, job: Job, nodes: Sequence[Node], at: datetime) -> None:
        """Create a job object and start it."""
        self.jobs.append(job)
        self._show_job(at, "ADDED", job, len(nodes))
        self.start(job, nodes, at)

    def stop(
        self, job: Job, at: datetime,
        *, phase: str = "Failed", exit_code: int = 134, gone_s: float = 5, stalled: datetime | None = None,
    ) -> None:  # fmt: skip
        """End the pods of the current start; they are deleted `gone_s` later. The job logs no step after `stalled`."""
        self._log_progress(job, stalled or at)
        job.stopped_at = at
        if job.kind == SLURM:
            status = 0 if phase == "Succeeded" else exit_code
            for pod in job.pods if status else ():
                task = pod.about["task"]
                self.pod(
                    pod, at, f"srun: error: {pod.node.name}: task {task}: Exited with exit code {status}"
                )
            self.slurmctld(at, f"_job_complete: JobId={job.number} WEXITSTATUS {status}")
            if status:
                self.slurmctld(at, f"_job_complete: requeue JobId={job.number} per user/system request")
            return
        for pod in (*job.pods, *([job.launcher] if job.launcher else [])):
            self.show(at, "MODIFIED", kube.ended(pod.thing, phase, at, exit_code))
            self.show(at + seconds(gone_s), "DELETED", kube.ended(pod.thing, phase, at, exit_code))

    def restart(self, job: Job, at: datetime, avoid: Iterable[Node] = ()) -> None:
        """Start a stopped job again, with idle nodes in place of those to avoid; it fails for good when there are too few."""
        bad = {node.name for node in avoid}
        spare = [node for node in self.idle_nodes(at) if node.name not in bad]
        self.rng.shuffle(spare)
        nodes = []
        for node in job.nodes:
            healthy = self.in_service(node) and node.name not in bad
            if not healthy and not spare:
                job.finished = True
                self._show_job(at, "MODIFIED", job, len(job.pods), ended="Failed")
                return
            nodes.append(node if healthy else spare.pop())
        self.start(job, nodes, at)
        self.reserve(at + timedelta(minutes=2), job=job)

    def finish(self, job: Job, at: datetime) -> None:
        """Let a job complete."""
        self.stop(job, at, phase="Succeeded", exit_code=0, gone_s=30)
        job.finished = True
        self._show_job(at, "MODIFIED", job, len(job.pods), ended="Complete")

    def replace_job(self, old: Job, nodes: Sequence[Node], at: datetime) -> None:
        """Give the nodes of a finished job to a new one of the same shape, if all are in service."""
        if not all(map(self.in_service, nodes)):
            return
        name = f"{old.name.rpartition('-')[0]}-{len(self.jobs) + 1:03d}"
        number = str(48_001 + len(self.jobs))
        job = replace(
            old,
            name=name,
            number=number,
            attempt=0,
            pods=[],
            launcher=None,
            since=None,
            step=0,
            busy_until=None,
            finished=False,
            stopped_at=None,
        )
        self.add_job(job, nodes, at)

    def log_progress_to_end(self) -> None:
        """Let running jobs log their steps up to the end of the campaign."""
        for job in self.jobs:
            if not job.finished:
                self._log_progress(job, self.end)

    def show_node(
        self, node: Node, at: datetime, *, ready: str = "True", spec: dict[str, Any] | None = None,
        gpus: int = GPUS, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """A new state of a node's object."""
        thing = kube.node(
            self.cluster, node, at, ready=ready, more=spec, gpus=gpus, labels=labels, annotations=annotations
        )
        self.show(at, "MODIFIED", thing)

    def close(
        self, node: Node, at: datetime, *, by: str, why: str, labels: Mapping[str, str] | None = None
    ) -> None:
        """A robot or a person takes a node out of use on purpose."""
        notes = {"ops.example/cordoned-by": by, "ops.example/cordon-reason": why}
        self.show_node(node, at, spec=CLOSED, labels=labels, annotations=notes)
        self.node_status_event(node, at, "NodeNotSchedulable", host=node.name)
        self._slurm(at, f"update_node: node {node.name} reason set to: {why}")
        self._slurm(at, f"update_node: node {node.name} state set to DRAINED")

    def reopen(self, node: Node, at: datetime, *, labels: Mapping[str, str] | None = None) -> None:
        """A closed node is put to use again."""
        self.show_node(node, at, labels=labels)
        self.node_status_event(node, at, "NodeSchedulable", host=node.name)
        self._slurm(at, f"update_node: node {node.name} state set to IDLE")

    def reboot(self, node: Node, down: datetime, back: datetime, *, by: str) -> None:
        """A closed node shuts down in order and comes back, still closed."""
        self.daemon(node, down - seconds(3), "systemd-logind[1302]", f"System is rebooting ({by}).")
        self.daemon(node, down - seconds(1), "systemd[1]", "Reached target System Reboot.")
        self._slurm(back, f"Node {node.name} now responding")
        lost = down + seconds(self.rng.uniform(40, 55))
        self.show_node(node, lost, ready="Unknown", spec=CLOSED)
        self.node_status_event(node, lost, "NodeNotReady")
        self.kernel(
            node, back - seconds(35),
            "Linux version 5.15.0-122-generic (buildd@lcy02-amd64-034) (gcc 11.4.0)",
            f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver}.90.07  Fri May 31 09:35:42 UTC 2024",
            "EXT4-fs (md0): mounted filesystem with ordered data mode. Opts: (null)",
        )  # fmt: skip
        self.event(
            back, "Node", node.name, "Rebooted", f"Node {node.name} has been rebooted, boot id: {node.number:08x}-4c1f",
            component="kubelet", host=node.name,
        )  # fmt: skip
        self.show_node(node, back, spec=CLOSED)
        self.node_status_event(node, back, "NodeReady", host=node.name)

    def not_ready(self, node: Node, at: datetime, *, status: str = "Unknown") -> None:
        """The node controller has lost a kubelet (`Unknown`), or the kubelet reports it itself (`False`)."""
        text = f"error: Nodes {node.name} not responding, setting DOWN"
        self._slurm(at + seconds(self.rng.uniform(100, 250)), text)
        taint = {
            "key": "node.kubernetes.io/unreachable" if status == "Unknown" else "node.kubernetes.io/not-ready"
        }
        self.show_node(node, at, ready=status, spec={"taints": [taint | {"effect": "NoSchedule"}]})
        self.node_status_event(node, at, "NodeNotReady")

    def ready_again(self, node: Node, at: datetime) -> None:
        """The kubelet, or Slurm's daemon, reports again."""
        self._slurm(at, f"Node {node.name} now responding")
        self.show_node(node, at)
        self.node_status_event(node, at, "NodeReady", host=node.name)

    def cordon_and_replace(self, node: Node, at: datetime) -> datetime:
        """An operator cordons a broken node, and later another server takes its place. Returns when it is cordoned."""
        cordoned_at = at + seconds(self.rng.uniform(*CORDON_AFTER_S))
        self.cordoned[node.name] = cordoned_at + REPAIR_AFTER
        self.show_node(node, cordoned_at, spec=CLOSED)
        self.node_status_event(node, cordoned_at, "NodeNotSchedulable")
        self._slurm(cordoned_at, f"update_node: node {node.name} reason set to: broken, see hall ticket")
        self._slurm(cordoned_at, f"update_node: node {node.name} state set to DRAINED")
        return cordoned_at

    def install_replacements(self, at: datetime) -> None:
        """Put new servers in the place of broken ones that were due before `at`."""
        for name, due in sorted(self.cordoned.items(), key=lambda entry: entry[1]):
            if due <= at and name in self.cluster.nodes:
                old = self.cluster.nodes[name]
                self.show(due, "DELETED", kube.node(self.cluster, old, due))
                new = self.cluster.replace(old, rfc3339(due))
                self.show(due + seconds(30), "ADDED", kube.node(self.cluster, new, due))
                del self.cordoned[name]

    def _slurm(self, at: datetime, text: str) -> None:
        if self.has("slurm"):
            self.slurmctld(at, text, vital=True)

    def _show_job(
        self,
        at: datetime,
        change: Literal["ADDED", "MODIFIED"],
        job: Job,
        pods: int,
        ended: str | None = None,
    ) -> None:
        if job.kind != SLURM:
            self.show(at, change, kube.job(job.kind, job.namespace, job.name, pods, ended=ended))

    def _log_progress(self, job: Job, until: datetime) -> None:
        """The iterations that the current start has logged before `until`: the last rank prints them, as in Megatron."""
        every = seconds(self.scenario.jobs.progress_s)
        step_ms = self.scenario.jobs.step_s * 1000
        at = (job.since or until) + seconds(60)
        while at < until:
            job.step += int(every.total_seconds() / self.scenario.jobs.step_s)
            took_ms = step_ms * self.rng.uniform(0.98, 1.03)
            self.pod(job.pods[-1], at, framework_logs.iteration(at, job.step, 900_000, took_ms))
            at += every

    def _log_init(self, job: Job, at: datetime) -> None:
        for pod in job.pods:
            for rank in pod.ranks:
                gpu, comm = rank % GPUS, 0x7F0000000000 + rank * 4096
                bus = pod.node.gpu_pci(gpu).split(":")[1] + "000"
                line = framework_logs.init_line(
                    pod.name, pod.pid(rank), rank, job.layout.world, gpu, bus, comm
                )
                self.pod(pod, at + seconds(gpu * 0.01), line, rank=rank)
