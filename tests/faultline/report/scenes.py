"""Incidents as they stand when they are drawn and reported: one that ended by itself, one that a person slept on, a large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from streams.model.checkpoint import Checkpoint
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import NodeFact
from streams.model.incident import (
    Candidate,
    Certainty,
    Impact,
    Incident,
    IncidentState,
    Progress,
    Proof,
    incident_id,
)
from streams.model.run import (
    Approval,
    EffectRecord,
    EffectState,
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunOutcome,
    RunState,
    StepRecord,
    StepState,
    Target,
    run_id,
)
from streams.model.signal import Attribute, Evidence, Severity

FAULT = datetime(2026, 3, 3, 3, 4, 12, tzinfo=UTC)
CLUSTER = "west"
LLM = JobRef("PyTorchJob", "research", "llm", "uid-llm")
EVAL = JobRef("Job", "research", "eval", "uid-eval")
ROOT = Entity(CLUSTER, node="gpu-03", gpu=Gpu(pci="0000:9d:00", uuid="GPU-5f3a", index=4))


def at(seconds: float) -> datetime:
    """So many seconds after the fault."""
    return FAULT + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Scene:
    """The documents of one incident."""

    incident: Incident
    runs: tuple[Run, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    nodes: Mapping[str, NodeFact] = field(default_factory=dict)
    now: datetime = FAULT + timedelta(minutes=20)


def node(name: str, **changes: Any) -> NodeFact:
    number = int("".join(filter(str.isdigit, name)) or 0)
    return replace(
        NodeFact(
            CLUSTER, name, f"uid-{name}", FAULT, gpus=8, gpus_allocatable=8,
            leaf=f"leaf-{number // 16:02}", rack=f"r{number // 16:02}",
        ),
        **changes,
    )  # fmt: skip


def incident(root: Entity = ROOT, family: str = "gpu_off_bus", **changes: Any) -> Incident:
    made = Incident(
        id=incident_id(CLUSTER, root, family, 1),
        cluster=CLUSTER,
        family=family,
        root=root,
        incarnation=1,
        revision=6,
        state=IncidentState.RESOLVED,
        severity=Severity.CRITICAL,
        certainty=Certainty.DECISIVE,
        title=f"GPU fell off the bus on {root.node}",
        reason=f"{root} left the PCIe bus (XID 79); every rank on it is lost and its job waits for them",
        fault_at=FAULT,
        opened_at=at(6),
        updated_at=at(262),
        closed_at=at(262),
        jobs=(LLM,),
        nodes=("gpu-01", "gpu-02", "gpu-03", "gpu-04"),
        impact=Impact(jobs=1, nodes=4, gpus=32, gpu_hours_per_hour=32.0, ranks=32),
        facts={"xid": 79, "repeats": 2, "repeats_days": ("2026-02-11", "2026-02-27")},
        proofs=PROOFS,
        candidates=(
            Candidate(root, family, True, "hardware evidence", "XID 79 is the device's own"),
            Candidate(
                Entity(CLUSTER, node="gpu-02"), "silent_node", False, "first to fail",
                "its ranks only waited for those of gpu-03",
            ),
        ),
        progress=(Progress(LLM, at(212), 48220),),
    )  # fmt: skip
    return replace(made, **changes)


PROOFS = (
    Proof(
        "s1", "gpu.xid", ROOT, FAULT, "cause", "XID 79 GPU_HAS_FALLEN_OFF_THE_BUS on GPU 0000:9d:00 on gpu-03",
        (Evidence("raw.node-logs", 2, 4711, "<4>NVRM: Xid (PCI:0000:9d:00): 79, GPU has fallen off the bus."),),
    ),
    Proof(
        "s2", "gpu.xid", ROOT, at(1), "context", "XID 45 PREEMPTIVE_REMOVAL on GPU 0000:9d:00 on gpu-03",
        (Evidence("raw.node-logs", 2, 4712, "NVRM: Xid (PCI:0000:9d:00): 45, Ch 00000008"),),
    ),
    Proof(
        "s3", "nccl.timeout", Entity(CLUSTER, node="gpu-02", job=LLM, rank=13), at(60), "symptom",
        "rank 13 waited 60 s in collective 48213",
        (Evidence("raw.job-logs", 0, 99, "[rank13]: Watchdog caught collective operation timeout"),), 24,
    ),
)  # fmt: skip


def step(
    name: str, action: str, target: Target, begin: float | None, end: float | None,
    state: StepState = StepState.DONE, *, destructive: bool = False, result: Mapping[str, Attribute] | None = None,
    reason: str = "", approval: bool = False,
) -> tuple[PlannedStep, StepRecord]:  # fmt: skip
    effect = None
    if begin is not None and action not in ("await_progress", "ask", "verify_job"):
        done = end is not None and state is StepState.DONE
        effect = EffectRecord(
            f"key-{name}", action, target, EffectState.CONFIRMED if done else EffectState.WAITING, at(begin),
            at(begin + 30), 1, result or {}, confirmed_at=at(end) if done and end is not None else None,
        )  # fmt: skip
    record = StepRecord(
        name, state, effect,
        started_at=at(begin) if begin is not None else None,
        finished_at=at(end) if end is not None else None,
        reason=reason,
    )  # fmt: skip
    return PlannedStep(name, action, target, {}, destructive, approval=approval), record


NODE = Target("Node", "gpu-03", uid="uid-gpu-03")
JOB = Target(LLM.kind, LLM.name, LLM.namespace, LLM.uid)


def run(
    about: Incident, steps: Sequence[tuple[PlannedStep, StepRecord]], *, mode: Mode = Mode.AUTO,
    book: str = "gpu-off-bus", decided: float = 7, ended: float | None = 212,
    state: RunState = RunState.SUCCEEDED, outcome: RunOutcome = RunOutcome.SUCCEEDED,
    approvals: tuple[Approval, ...] = (), reason: str = "",
) -> Run:  # fmt: skip
    return Run(
        id=run_id(about.id, book, 4),
        incident=about.id,
        incarnation=1,
        cluster=about.cluster,
        plan=Plan(book, 4, mode, tuple(planned for planned, _ in steps), "ca467aeeba2c26ce"),
        state=state,
        steps=tuple(record for _, record in steps),
        created_at=at(decided),
        updated_at=at(ended or decided),
        finished_at=at(ended) if ended is not None else None,
        outcome=outcome,
        approvals=approvals,
        reason=reason,
    )


def line(
    about: Incident, seconds: float, event: str, text: str, actor: str = "responder", **attributes: Attribute
) -> TimelineEntry:
    return TimelineEntry(about.id, about.cluster, at(seconds), actor, event, text, attributes)


def healed() -> Scene:
    """A GPU falls off the bus; its job runs again three and a half minutes later, and nobody had to do a thing."""
    about = incident(checkpoints=(Checkpoint(LLM, at(-1380), at(-1380), 48000, 32),))
    ticket = Target("Incident", about.id)
    steps = (
        step("ticket", "open_ticket", ticket, 7, 9, result={"ticket": "GPU-61", "url": "https://jira.example.test/browse/GPU-61"}),
        step("cordon", "cordon_node", NODE, 7, 8, destructive=True),
        step("suspend", "suspend_job", JOB, 8, 41, destructive=True),
        step("drain", "drain_node", NODE, 41, 55, destructive=True),
        step("resume", "resume_job", JOB, 55, 56),
        step("verify", "verify_job", JOB, 56, 171),
        step("progress", "await_progress", JOB, 171, 212),
    )  # fmt: skip
    one = run(about, steps)
    lines = (
        line(about, 6, "incident.opened", f"{about.title}: {about.reason}", "correlator"),
        line(about, 7, "run.planned", "runbook gpu-off-bus with 7 steps, in mode auto", run=one.id),
        line(about, 262, "incident.resolved", "verifying → resolved", "correlator"),
    )
    nodes = {name: node(name) for name in (*about.nodes, "gpu-20")}
    return Scene(about, (one,), lines, nodes)


def slept_on() -> Scene:
    """A GPU needs a reset that only a person may approve; it happens at night."""
    about = incident(
        family="gpu_memory", title="Uncorrectable memory error on gpu-03", state=IncidentState.RESOLVED,
        closed_at=at(26300), updated_at=at(26300), facts={"xid": 94},
    )  # fmt: skip
    steps = (
        step("cordon", "cordon_node", NODE, 7, 8, destructive=True),
        step("suspend", "suspend_job", JOB, 8, 30, destructive=True),
        step("resume", "resume_job", JOB, 30, 31),
        step("verify", "verify_job", JOB, 31, 120),
        step("progress", "await_progress", JOB, 120, 212),
        step("reset", "reset_gpu", NODE, 26000, 26090, destructive=True, approval=True),
        step("uncordon", "uncordon_node", NODE, 26090, 26092),
    )
    approval = Approval(
        "reset", True, "ada (U024BE7LH)", at(25990), "ca467aeeba2c26ce", "no job is on it", "slack"
    )
    one = run(about, steps, book="gpu-memory", ended=26092, approvals=(approval,))
    lines = (
        line(about, 6, "incident.opened", about.title, "correlator"),
        line(about, 7, "run.planned", "runbook gpu-memory with 7 steps, in mode auto", run=one.id),
        line(
            about, 213, "step.awaiting_approval", "reset_gpu Node gpu-03 needs approval: the runbook requires it",
            run=one.id, step="reset",
        ),
        line(
            about, 3000, "observed.node_tainted", "node gpu-03 was tainted: maintenance=yes:NoSchedule",
            act="node_tainted", kind="Node", name="gpu-03", at="2026-03-03T03:54:12Z",
        ),
        line(about, 25940, "person.ack", "acknowledged by ada (U024BE7LH)", "ada (U024BE7LH)", via="slack"),
        line(
            about, 25990, "person.approved", "ada (U024BE7LH) approved the plan ca467aee: no job is on it",
            "ada (U024BE7LH)", via="slack", run=one.id,
        ),
    )  # fmt: skip
    nodes = {name: node(name) for name in about.nodes}
    return Scene(about, (one,), lines, nodes, now=at(26400))


def large(count: int) -> Scene:
    """A leaf switch is down, and so many nodes with it; nothing may act on it alone."""
    names = tuple(f"gpu-{number:03}" for number in range(count))
    root = Entity(CLUSTER, switch="leaf-01")
    jobs = tuple(JobRef("PyTorchJob", "team-speech", f"asr-{n:03}") for n in range(min(count // 3, 30)))
    about = incident(
        root, "fabric_fault", title="Fabric fault at switch leaf-01", nodes=names, jobs=jobs,
        state=IncidentState.OPEN, closed_at=None, updated_at=at(300),
        reason="8 of 10 neighbours of switch leaf-01 lost their links to it within a minute",
        impact=Impact(jobs=len(jobs), nodes=count, gpus=8 * count, gpu_hours_per_hour=8.0 * count), progress=(),
    )  # fmt: skip
    steps = [
        step(
            f"cordon:{name}",
            "cordon_node",
            Target("Node", name),
            None,
            None,
            StepState.WOULD,
            destructive=True,
        )
        for name in names
    ]
    one = run(
        about, steps, mode=Mode.SHADOW, book="fabric-fault", ended=7, state=RunState.SHADOWED,
        outcome=RunOutcome.SHADOWED,
    )  # fmt: skip
    # Of every tenth node the inventory does not know where it stands.
    nodes = {
        name: node(name) if number % 10 else node(name, leaf=None, rack=None)
        for number, name in enumerate(names)
    }
    return Scene(about, (one,), (), nodes, now=at(600))


EVIL = 'x"><script>alert(1)</script>&\x1b[31m\u202eevil\ufffe\n' + "ü漢🙂" * 400


def hostile() -> Scene:
    """Every text that comes from outside is hostile, and far too long."""
    root = Entity(CLUSTER, node=f"gpu-{EVIL}", gpu=Gpu(pci=EVIL))
    job = JobRef(EVIL, EVIL, EVIL)
    about = incident(
        root, title=EVIL, reason=EVIL, jobs=(job,), nodes=(f"gpu-{EVIL}", EVIL), cluster=EVIL,
        candidates=(Candidate(root, EVIL, True, EVIL, EVIL), Candidate(root, EVIL, False, EVIL, EVIL)),
        proofs=tuple(replace(proof, summary=EVIL, entity=root, evidence=(Evidence(EVIL, 0, 1, EVIL),)) for proof in PROOFS),
        facts={"xid": EVIL}, progress=(),
    )  # fmt: skip
    steps = (step(EVIL, EVIL, Target(EVIL, EVIL, EVIL), 7, 9, StepState.FAILED, reason=EVIL),)
    one = run(about, steps, book=EVIL, outcome=RunOutcome.FAILED, state=RunState.FAILED, reason=EVIL)
    lines = (
        line(about, 30, "person.stopped", EVIL, EVIL, via=EVIL),
        line(about, 31, "observed.node_cordoned", EVIL, EVIL),
    )
    nodes = {about.nodes[0]: replace(node("gpu-3", leaf=EVIL, rack=EVIL, pool=EVIL), name=EVIL)}
    return Scene(about, (one,), lines, nodes)


SCENES = {
    "healed": healed,
    "slept-on": slept_on,
    "forty-nodes": lambda: large(40),
    "thousand-nodes": lambda: large(1000),
    "hostile": hostile,
}
