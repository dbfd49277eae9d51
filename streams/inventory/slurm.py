"""Nodes and jobs of Slurm → the same facts as those of an API server, so that plans and guardrails need not tell them apart.

A job's processes on one node stand for a pod, as in the correlator. Only jobs that hold nodes, or wait for their next start, have
facts, and of those that hold one node and no GPU none: a queue may hold any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from streams.job_kinds.kind import Means
from streams.job_kinds.slurm_job import NO_REQUEUE, SLURM_KIND
from streams.model import slurm
from streams.model.entity import SLURM_JOB, SLURM_UID, JobRef
from streams.model.errors import BadInput
from streams.model.facts import Fact, JobFact, NodeFact, NodeWork, PodFact
from streams.model.hostlists import hosts
from streams.model.kinds import WorkloadClass
from streams.model.slurm import Record, SlurmJob, SlurmNode
from streams.model.slurm_marks import OPTED_OUT, owners_in

TAINT = "faultline.dev/incident"
MAX_NODES = 2_048
"""Nodes of one job; of a larger one only the job itself is told."""


class SlurmFacts:
    """Makes facts of what Slurm's controller says. Of what says the same as the last time it hands out the same facts again.

    `partitions` are those that a node's pool is taken from, the first that it is in; `requeues` says whether Faultline has a way
    to put running jobs back into the queue.
    """

    def __init__(self, cluster: str, partitions: Sequence[str] = (), *, requeues: bool = True) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self._requeues = requeues
        self._known: dict[str, tuple[tuple[object, ...], tuple[Fact, ...]]] = {}

    def __call__(self, nodes: Iterable[Record], jobs: Iterable[Record], at: datetime) -> tuple[Fact, ...]:
        """All facts, as of `at`. Load, free memory and the like change with every look, and are in none."""
        before, self._known = self._known, {}
        for record in nodes:
            self._keep(f"node/{record.get('name')}", record, slurm.NODE_FIELDS, before, at)
        for record in jobs:
            self._keep(f"job/{record.get('job_id')}", record, slurm.JOB_FIELDS, before, at)
        return tuple(fact for _, facts in self._known.values() for fact in facts)

    def _keep(
        self,
        name: str,
        record: Record,
        fields: Sequence[str],
        before: Mapping[str, tuple[tuple[object, ...], tuple[Fact, ...]]],
        at: datetime,
    ) -> None:
        says = tuple(record.get(field) for field in fields)
        known = before.get(name)
        if known is not None and known[0] == says:
            self._known[name] = known
        elif fields is slurm.NODE_FIELDS:
            self._known[name] = says, (node_fact(self._cluster, slurm.node_of(record), at, self._partitions),)
        else:
            self._known[name] = says, tuple(_of_job(self._cluster, record, at, self._requeues))


def node_fact(cluster: str, node: SlurmNode, at: datetime, partitions: Sequence[str] = ()) -> NodeFact:
    """The fact of one node; its pool is a partition, whose nodes its capacity is counted by."""
    owners = owners_in(node)
    named = [name for name in partitions if name in node.partitions] or list(node.partitions)
    work = None
    if "MAINT" in node.states:
        work = NodeWork("a reservation of Slurm", "MAINT", "back")
    elif node.drained and not owners:
        by = node.reason_by or "somebody"
        work = NodeWork(
            by, f"drained: {node.reason[:200]}" if node.reason else "drained", "back", node.reason_at
        )
    return NodeFact(
        cluster=cluster,
        name=node.name,
        uid=f"{SLURM_UID}{node.name}",
        observed_at=at,
        ready=node.ready,
        ready_since=node.reason_at if node.down else None,
        unschedulable=node.drained,
        gpus=node.gpus,
        gpus_allocatable=0 if node.down else node.gpus,
        pool=named[0] if named else None,
        managed=OPTED_OUT not in node.comment,
        work=work,
        aliases=(node.hostname,) if node.hostname not in ("", node.name) else (),
        addresses=(node.address,) if node.address not in ("", node.name, node.hostname) else (),
        taints=(f"{TAINT}={owners[0]}:NoSchedule",) if owners else (),
        owner_incident=",".join(owners) or None,
        boot_id=node.boot_at.isoformat() if node.boot_at else None,
    )


def _of_job(cluster: str, record: Record, at: datetime, requeues: bool) -> Iterator[Fact]:
    job = slurm.job_of(record)
    if not job.gpus and job.node_count < 2:
        return
    if not job.on_nodes and not job.cleaning_up and not job.restarts and not job.ended:
        return  # it has never run
    means = SLURM_KIND.means(record)
    if means.lever is not None and not requeues:
        means = Means(None, NO_REQUEUE)
    ref = JobRef(SLURM_JOB, "", str(job.id), job.uid)
    yield JobFact(
        cluster=cluster,
        job=ref,
        observed_at=at,
        suspended=job.held,
        finished=job.ended,
        failed=job.failed,
        pods=job.node_count or None,
        managed=OPTED_OUT not in job.comment,
        owner=job.user or None,
        workload=WorkloadClass.TRAINING,
        workload_guessed=True,
        lever=means.lever,
        immovable=means.reason or None,
        cost=means.cost or None,
        incarnation=str(job.restarts),
    )
    if job.on_nodes:
        yield from _places(cluster, job, ref, at)


def _places(cluster: str, job: SlurmJob, ref: JobRef, at: datetime) -> Iterator[PodFact]:
    try:
        nodes = hosts(job.nodes)
    except BadInput:
        return
    if len(nodes) > MAX_NODES:
        return
    for position, node in enumerate(nodes):
        yield PodFact(
            cluster,
            # No namespace of Kubernetes is called so.
            SLURM_JOB,
            f"{job.id}.{node}",
            f"{SLURM_UID}{job.id}.{job.restarts}.{node}",
            at,
            node=node,
            job=ref,
            phase="Running" if job.running else "Pending",
            ready=job.running,
            gpus=job.gpus // len(nodes),
            position=position,
            scheduled_at=job.started_at,
            started_at=job.started_at,
            workload=WorkloadClass.TRAINING,
            workload_guessed=True,
        )
