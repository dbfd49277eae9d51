"""Nodes that lose a GPU, the jobs on them, and the runs that deal with it: what a responder under measurement reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from connectors.base import Done
from runbooks.engine.run.machine import advance, begin
from runbooks.engine.run.outcomes import concluded
from runbooks.engine.run.plan import plan
from runbooks.engine.run.transition import RunContext
from runbooks.language.loader import load_text
from runbooks.language.schema import Runbook
from streams.config.settings import BlastRadius, Breaker, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.codec import encode
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.incident import Certainty, Impact, Incident, IncidentState, Proof, incident_id
from streams.model.run import Mode, Run
from streams.model.signal import Evidence, Severity

CLUSTER = "bench"
ACTIONS = frozenset(
    {"open_ticket", "cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job", "uncordon_node"}
)
POLICY = ResponderSettings(
    mode=Mode.AUTO,
    blast_radius=BlastRadius(max_nodes=100_000, max_share=1.0, max_per_window=1_000_000),
    breaker=Breaker(failures=100_000, mass_min_nodes=100_000),
    tickets_per_10_min=1_000_000,
)
"""Limits are computed, and wide enough to hold nobody."""

BOOK = load_text(
    """\
id: bench-gpu-off-bus
revision: 1
owner: bench
mode: auto
priority: 1000
description: as the shipped one, without the half minute that a job which prints no progress is given
match: incident.family == "gpu_off_bus" && incident.root.node != ""
steps:
  - {id: ticket, action: open_ticket, target: incident, on_failure: continue}
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon], undo: true}
  - {id: drain, action: drain_node, target: root_node, needs: [cordon, suspend], on_failure: continue}
  - {id: resume, action: resume_job, target: jobs, needs: [suspend, drain]}
  - {id: verify, action: verify_job, target: jobs, needs: [resume]}
  - {id: progress, action: await_progress, target: jobs, needs: [verify], params: {settle_s: 0}}
""",
    "bench.yaml",
)


def node(number: int) -> str:
    """A node's name; all have the same length, so that copies of documents are as large as their original."""
    return f"node-{number:05}"


def job(number: int) -> JobRef:
    """The job on the nodes `2 * number` and `2 * number + 1`."""
    return JobRef("PyTorchJob", "research", f"job-{number:05}", f"uid-job-{number:05}")


def facts(nodes: int, now: datetime) -> Iterator[Fact]:
    """Nodes of eight GPUs, and one job on every two of them."""
    for number in range(nodes):
        yield NodeFact(CLUSTER, node(number), f"uid-{number}", now, gpus=8, gpus_allocatable=8, pool="h100")
        yield PodFact(
            CLUSTER, "research", f"job-{number // 2:05}-worker-{number % 2}", f"uid-pod-{number}", now,
            node=node(number), job=job(number // 2), phase="Running", ready=True, gpus=8,
        )  # fmt: skip
        if number % 2 == 0:
            yield JobFact(CLUSTER, job(number // 2), now, pods=2, world=16)


def incident(number: int, now: datetime, incarnation: int = 1) -> Incident:
    """A GPU of node `2 * number` has fallen off the bus, and the job there stands still."""
    root = Entity(CLUSTER, node=node(2 * number), gpu=Gpu(pci="0000:1b:00"))
    return Incident(
        id=incident_id(CLUSTER, root, "gpu_off_bus", incarnation),
        cluster=CLUSTER,
        family="gpu_off_bus",
        root=root,
        incarnation=incarnation,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.CRITICAL,
        certainty=Certainty.DECISIVE,
        title=f"GPU 0000:1b:00 of {root.node} has fallen off the bus",
        reason="XID 79 on the node, and the watchdogs of the other ranks of its job",
        fault_at=now - timedelta(seconds=30),
        opened_at=now,
        updated_at=now,
        jobs=(job(number),),
        nodes=(node(2 * number), node(2 * number + 1)),
        impact=Impact(jobs=1, nodes=2, gpus=16, gpu_hours_per_hour=16.0, ranks=16),
        facts={"xid": 79, "xids": "79", "action": "RESTART_BM"},
        proofs=tuple(_proof(root, rank, now) for rank in range(8)),
    )


def _proof(root: Entity, rank: int, now: datetime) -> Proof:
    line = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8123, OpType=ALLREDUCE, "
        "NumelIn=26214400, NumelOut=26214400, Timeout(ms)=600000) ran for 600009 milliseconds before timing out."
    )
    return Proof(
        f"sig-{rank:016}", "nccl.timeout", root, now, "symptom", f"rank {rank} waited 600 s",
        (Evidence("raw.job-logs", 0, rank, line),),
    )  # fmt: skip


class Past:
    """A cluster with a history: runs that are over, their nodes in service again, and runs in the middle of a call."""

    def __init__(self, nodes: int, finished: int, running: int, now: datetime) -> None:
        self.nodes, self.now = nodes, now
        self._finished, self._running = finished, running
        self._view = ClusterView(CLUSTER)
        for fact in facts(nodes, now - timedelta(days=30)):
            self._view.put(fact)

    def facts(self) -> Iterator[Fact]:
        """Every node as it is now: closed where a run is at work."""
        closed = {about.root.node: about.id for about in self._open()}
        for fact in facts(self.nodes, self.now):
            if isinstance(fact, NodeFact) and fact.name in closed:
                yield replace(fact, unschedulable=True, owner_incident=closed[fact.name])
            else:
                yield fact

    def documents(self) -> Iterator[tuple[str, bytes, str, bytes]]:
        """Id and document of each incident, id and document of its run, as the journal holds them."""
        long_ago = self.now - timedelta(days=10)
        about = incident(0, long_ago)
        made = replace(self._run(about, until=""), incident_revision=5)
        told = encode(replace(about, state=IncidentState.RESOLVED, revision=5, closed_at=long_ago))
        run = encode(made)
        for number in range(self._finished):
            name, of = f"inc-{number:016x}", f"run-{number:016x}"
            names = {
                about.id.encode(): name.encode(),
                made.id.encode(): of.encode(),
                node(0).encode(): node(number % self.nodes).encode(),
                b"job-00000": f"job-{number % self.nodes // 2:05}".encode(),
            }
            yield name, _renamed(told, names), of, _renamed(run, names)
        for about in self._open():
            now = self._run(about, until="suspend_job")
            yield about.id, encode(about), now.id, encode(now)

    def storm(self, count: int) -> Iterator[tuple[str, bytes, str, bytes]]:
        """As `documents`, of so many runs in the middle of a call, several on a node: what a storm leaves behind."""
        about = incident(0, self.now - timedelta(seconds=60), incarnation=3)
        made = self._run(about, until="suspend_job")
        told, run = encode(about), encode(made)
        for number in range(count):
            name, of = f"inc-{number:016x}", f"run-{number:016x}"
            names = {
                about.id.encode(): name.encode(),
                made.id.encode(): of.encode(),
                node(0).encode(): node(number % self.nodes).encode(),
                b"job-00000": f"job-{number % self.nodes // 2:05}".encode(),
            }
            yield name, _renamed(told, names), of, _renamed(run, names)

    def _open(self) -> Sequence[Incident]:
        minute_ago = self.now - timedelta(seconds=60)
        return [incident(number, minute_ago, incarnation=2) for number in range(self._running)]

    def _run(self, about: Incident, until: str) -> Run:
        """A run whose calls all went well, up to a call of `until` that nobody saw the end of, or up to its own end."""
        now = about.updated_at
        run = begin(about, plan(about, BOOK, self._view, Mode.AUTO), now).run
        while not run.state.is_over:
            turn = advance(run, RunContext(about, self._view, (), POLICY, ACTIONS), now)
            run = turn.run
            if any(call.effect.action == until for call in turn.calls):
                return run
            for call in turn.calls:
                run = concluded(run, call.step, call.kind, Done({"prior": "none"}, "done"), now).run
        return run


def _renamed(document: bytes, names: dict[bytes, bytes]) -> bytes:
    for old, new in names.items():
        document = document.replace(old, new)
    return document


def runbooks(shipped: Sequence[Runbook]) -> tuple[Runbook, ...]:
    """The shipped ones with the bench's own before them."""
    return (BOOK, *shipped)
