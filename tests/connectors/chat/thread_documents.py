"""Incidents and runs as the other processes write them, for tests of what is told about them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from streams.model.entity import Entity, Gpu, JobRef
from streams.model.incident import Certainty, Impact, Incident, IncidentState, Proof, incident_id
from streams.model.run import (
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunState,
    StepRecord,
    StepState,
    Target,
    run_id,
)
from streams.model.signal import Evidence, Severity

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ROOT = Entity("c1", node="node-07", gpu=Gpu(pci="0000:1b:00"))
JOB = JobRef("PyTorchJob", "research", "llm-70b")
NODE = Target("Node", "node-07", uid="u-7")


def incident(cluster: str = "c1", **changes: object) -> Incident:
    root = replace(ROOT, cluster=cluster)
    made = Incident(
        id=incident_id(cluster, root, "gpu_off_bus", 1),
        cluster=cluster,
        family="gpu_off_bus",
        root=root,
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.CRITICAL,
        certainty=Certainty.DECISIVE,
        title="GPU fell off the bus",
        reason="XID 79 on GPU 0000:1b:00 of node-07; 3 victims explained",
        fault_at=NOW - timedelta(minutes=1),
        opened_at=NOW,
        updated_at=NOW,
        jobs=(JOB,),
        nodes=("node-07", "node-08"),
        impact=Impact(jobs=1, nodes=2, gpus=16, gpu_hours_per_hour=16.0),
        proofs=(
            Proof(
                "s1",
                "gpu.xid",
                root,
                NOW - timedelta(minutes=1),
                "cause",
                "XID 79",
                (
                    Evidence(
                        "raw.node-logs", 0, 7, "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
                    ),
                ),
            ),
            Proof("s2", "nccl.timeout", Entity(cluster, job=JOB), NOW, "symptom", "NCCL timeout", count=16),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def run(of: Incident, mode: Mode = Mode.AUTO, **states: StepState) -> Run:
    """A run of two steps, `cordon` and `ticket`; `states` says how far each is."""
    steps = (
        PlannedStep(
            "cordon", "cordon_node", NODE, {}, True, approval=mode is Mode.APPROVE, describe="Cordon node-07"
        ),
        PlannedStep("ticket", "open_ticket", Target("Ticket", of.id), {}, False, describe="Open a ticket"),
    )
    records = tuple(
        StepRecord(
            step.id,
            state := states.get(step.id, StepState.PENDING),
            started_at=None if state is StepState.PENDING else NOW,
            finished_at=NOW + timedelta(seconds=3) if state is StepState.DONE else None,
        )
        for step in steps
    )
    return Run(
        id=run_id(of.id, "gpu-off-bus", 1),
        incident=of.id,
        incarnation=of.incarnation,
        cluster=of.cluster,
        plan=Plan("gpu-off-bus", 1, mode, steps, digest="d1" * 16, why="family is gpu_off_bus"),
        state=RunState.RUNNING,
        steps=records,
        created_at=NOW,
        updated_at=NOW,
    )
