"""Records of every topic that is archived, as the processes write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from streams.kafka.topics import (
    COMMANDS,
    CONTROLS,
    INCIDENTS,
    INVENTORY,
    RUNS,
    SIGNALS,
    TIMELINE,
)
from streams.model.codec import encode
from streams.model.control import Control, ControlChange, Switch
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import FactRecord, NodeFact, PodFact
from streams.model.incident import Certainty, Incident, IncidentState, incident_id
from streams.model.record import RawRecord
from streams.model.run import Mode, Plan, PlannedStep, Run, RunState, StepRecord, Target
from streams.model.signal import Evidence, Severity, Signal, SignalBatch, signal

CLUSTER = "gpu-east-1"
T0 = datetime(2026, 9, 1, 22, 0, tzinfo=UTC)
JOB = JobRef("PyTorchJob", "research", "llm", "uid-1")


def xid(number: int, node: str = "gpu-0007", at: datetime = T0, code: int = 79) -> Signal:
    """One XID of a GPU; each number is another one."""
    return signal(
        "gpu.xid",
        Entity(CLUSTER, node=node, gpu=Gpu("0000:1b:00", "GPU-5f2c", 3), job=JOB),
        severity=Severity.CRITICAL,
        occurred_at=at,
        observed_at=at,
        attributes={"xid": code, "pid": number},
        evidence=[Evidence("raw.node-logs", 3, number, f"NVRM: Xid (PCI:0000:1b:00): {code}, pid={number}")],
    )


def batch(offset: int, *signals: Signal, at: datetime = T0, partition: int = 0) -> RawRecord:
    """A record of `signals`."""
    value = encode(SignalBatch(CLUSTER, signals))
    return RawRecord(SIGNALS.name, partition, offset, at, CLUSTER.encode(), value)


def node(
    offset: int, name: str, *, pool: str | None = "train", at: datetime = T0, ready: bool = True
) -> RawRecord:
    """A node of the inventory."""
    fact = NodeFact(CLUSTER, name, f"uid-{name}", at, ready=ready, gpus=8, pool=pool)
    return RawRecord(INVENTORY.name, 0, offset, at, fact.key.encode(), encode(FactRecord(fact)))


def pod(offset: int, name: str, node_name: str, at: datetime = T0) -> RawRecord:
    """A pod of the job."""
    fact = PodFact(CLUSTER, "research", name, f"uid-{name}", at, node=node_name, job=JOB, phase="Running")
    return RawRecord(INVENTORY.name, 0, offset, at, fact.key.encode(), encode(FactRecord(fact)))


def gone(offset: int, topic: str, key: str, at: datetime = T0) -> RawRecord:
    """A tombstone, with the header that the responder gives it."""
    return RawRecord(topic, 0, offset, at, key.encode(), None, (("faultline-run", b"run-1"),))


def incident(
    offset: int,
    node_name: str = "gpu-0007",
    family: str = "gpu_off_bus",
    at: datetime = T0,
    revision: int = 1,
    state: IncidentState = IncidentState.OPEN,
) -> RawRecord:
    """One revision of an incident whose root is a GPU."""
    root = Entity(CLUSTER, node=node_name, gpu=Gpu("0000:1b:00"))
    one = Incident(
        incident_id(CLUSTER, root, family, int(at.timestamp())),
        CLUSTER,
        family,
        root,
        int(at.timestamp()),
        revision,
        state,
        Severity.CRITICAL,
        Certainty.DECISIVE,
        "GPU fell off the bus",
        "XID 79",
        fault_at=at,
        opened_at=at,
        updated_at=at + timedelta(seconds=revision),
        jobs=(JOB,),
        nodes=(node_name,),
    )
    return RawRecord(INCIDENTS.name, 0, offset, at, one.id.encode(), encode(one))


def run(offset: int, at: datetime = T0) -> RawRecord:
    """A run that cordons a node."""
    step = PlannedStep("cordon", "cordon_node", Target("Node", "gpu-0007"), {}, destructive=True)
    one = Run(
        "run-1",
        "inc-1",
        1,
        CLUSTER,
        Plan("gpu-off-bus", 1, Mode.AUTO, (step,), "digest"),
        RunState.RUNNING,
        (StepRecord("cordon"),),
        at,
        at,
    )
    return RawRecord(RUNS.name, 0, offset, at, one.id.encode(), encode(one))


def entry(offset: int, event: str, at: datetime = T0, **attributes: str) -> RawRecord:
    """A line of an incident's timeline."""
    one = TimelineEntry("inc-1", CLUSTER, at, "responder", event, "what happened", attributes)
    return RawRecord(TIMELINE.name, 0, offset, at, b"inc-1", encode(one))


def command(offset: int, at: datetime = T0) -> RawRecord:
    """A person gives a node back."""
    one = Command("cmd-1", "", CLUSTER, Verb.RELEASE, "ada", at, scope="node:gpu-0007")
    return RawRecord(COMMANDS.name, 0, offset, at, b"", encode(one))


def control(offset: int, at: datetime = T0) -> RawRecord:
    """The kill switch is engaged."""
    change = ControlChange(at, "ada", "control.killed", "kill switch engaged")
    one = Control(CLUSTER, 1, kill_switch=Switch("ada", at), changes=(change,))
    return RawRecord(CONTROLS.name, 0, offset, at, CLUSTER.encode(), encode(one))


def one_of_each(first: int = 0) -> list[RawRecord]:
    """A record of every topic, with offsets from `first`."""
    return [
        batch(first, xid(1), xid(2)),
        node(first, "gpu-0007"),
        incident(first),
        run(first),
        entry(first, "step.refused", action="cordon_node", rule="blast radius", step="cordon"),
        command(first),
        control(first),
    ]
