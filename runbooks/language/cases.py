"""Cases that test a runbook, in YAML beside it: an incident in short form, and the expected plan.

    cases:
      - name: the job is moved
        incident: {family: gpu_off_bus, root: {node: node-03, gpu: "0000:1b:00"}, jobs: [PyTorchJob/research/llm]}
        expect:
          runbook: gpu-off-bus
          steps: [ticket, cordon, ...]
          verdicts: {cordon: would}
          values: {drain: {deadline_s: 600}}

`earlier` are past incidents, for a runbook that is an escalation step. `case_result.py` runs a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from runbooks.language.values import StrictModel
from runbooks.language.yaml_source import faulty
from streams.config.settings import ResponderSettings
from streams.model.entity import Entity, Gpu, JobRef, canonical_pci
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.incident import Audience, Certainty, Impact, Incident, IncidentState, incident_id
from streams.model.kinds import WorkloadClass
from streams.model.run import Mode
from streams.model.signal import Severity

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLUSTER = "test"
JobName = Annotated[str, Field(pattern=r"^[^/]+/[^/]+/[^/]+$", description="KIND/NAMESPACE/NAME")]
FactValue = str | int | float | bool | tuple[int, ...] | tuple[str, ...]


class RootFixture(StrictModel):
    """The root cause, with those of its names that are known."""

    node: str | None = None
    gpu: str | None = Field(None, description="PCI address or UUID")
    nic: str | None = None
    switch: str | None = None
    port: str | None = None
    job: JobName | None = None
    rack: str | None = None
    storage: str | None = None


class IncidentFixture(StrictModel):
    """An incident in short form."""

    family: str
    root: RootFixture = Field(default_factory=RootFixture)
    severity: Severity = Severity.CRITICAL
    certainty: Certainty = Certainty.DECISIVE
    audience: Audience = Audience.ON_CALL
    jobs: tuple[JobName, ...] = ()
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    ranks: int = 0
    flaps: int = 0
    facts: Mapping[str, FactValue] = Field(default_factory=dict)


class Earlier(StrictModel):
    """A past incident that is over. The run for it counts for escalation."""

    hours_ago: float = Field(gt=0, le=90 * 24)
    incident: IncidentFixture


class NodeFixture(StrictModel):
    """A node, by what differs from a healthy, schedulable one."""

    pool: str | None = None
    leaf: str | None = None
    rack: str | None = None
    ready: bool = True
    unschedulable: bool = False
    maintenance: bool = False
    managed: bool = True
    control_plane: bool = False
    gpus: int = 8


class JobFixture(StrictModel):
    """Where a job's pods are, and what differs from a running job."""

    nodes: tuple[str, ...] = ()
    finished: bool = False
    failed: bool = False
    suspended: bool = False
    managed: bool = True
    workload: WorkloadClass = WorkloadClass.TRAINING
    lever: str | None = Field(None, description="by what it is stopped, e.g. suspend")
    immovable: str | None = Field(None, description="why it cannot be stopped and started again")
    cost: str | None = Field(None, description="what stopping and starting costs it")
    costs_retries: int | None = Field(None, description="how many of its restarts that costs")
    retries_left: int | None = None
    heals_within_s: float | None = Field(
        None, description="its own controller replaces lost pods within so long"
    )
    checkpoint_by: str | None = Field(None, description="how it is asked for a checkpoint, e.g. annotation")
    checkpoint_within_s: float | None = Field(None, description="within how many seconds it saves then")
    restarted: bool = Field(False, description="its pods were scheduled after the fault")


class InventoryFixture(StrictModel):
    """Nodes and jobs by name. Nodes that a job is on need not be named again."""

    nodes: Mapping[str, NodeFixture | None] = Field(default_factory=dict)
    jobs: Mapping[JobName, JobFixture] = Field(default_factory=dict)


class Expected(StrictModel):
    """The expected result. What is left out is not checked; what is given must match exactly."""

    runbook: str | None = Field(description="null when none may be taken")
    mode: Mode | None = None
    steps: tuple[str, ...] | None = Field(None, description="ids of the planned steps, in order")
    verdicts: Mapping[str, Literal["would", "needs_approval", "refused", ""]] = Field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict, description="by planned step")
    said: str | None = Field(None, description="what the timeline must say, when no plan can be made")


class Case(StrictModel):
    """One case."""

    name: str = Field(min_length=1, max_length=200)
    incident: IncidentFixture
    earlier: tuple[Earlier, ...] = Field((), max_length=20)
    inventory: InventoryFixture | None = None
    settings: ResponderSettings = Field(default_factory=ResponderSettings, description="of the responder")
    node_work: bool = Field(True, description="whether resets, reboots and validations are set up")
    expect: Expected


class Cases(StrictModel):
    """A file of cases. `inventory` is for those that bring none."""

    inventory: InventoryFixture | None = None
    cases: tuple[Case, ...] = Field(min_length=1, max_length=200)

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        names = [case.name for case in self.cases]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise faulty([(("cases", number, "name"), f"there are two cases {name!r}", 0, 0)])
        return self


def incident_of(fixture: IncidentFixture) -> Incident:
    """The incident, just opened, in the cluster `test`."""
    jobs = tuple(_job(name) for name in fixture.jobs)
    root = Entity(
        CLUSTER,
        **fixture.root.model_dump(exclude={"gpu", "job"}),
        gpu=_gpu(fixture.root.gpu) if fixture.root.gpu else None,
        job=_job(fixture.root.job) if fixture.root.job else None,
    )
    nodes = fixture.nodes or ((fixture.root.node,) if fixture.root.node else ())
    return Incident(
        id=incident_id(CLUSTER, root, fixture.family, 1),
        cluster=CLUSTER,
        family=fixture.family,
        root=root,
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=fixture.severity,
        certainty=fixture.certainty,
        audience=fixture.audience,
        title=f"{fixture.family} on {root}",
        reason="told by a case",
        fault_at=NOW,
        opened_at=NOW,
        updated_at=NOW,
        jobs=jobs,
        nodes=nodes,
        impact=Impact(jobs=len(jobs), nodes=len(nodes), gpus=fixture.gpus, ranks=fixture.ranks),
        facts=dict(fixture.facts),
        flaps=fixture.flaps,
    )


def facts_of_inventory(fixture: InventoryFixture, about: Incident) -> Iterator[Fact]:
    """Nodes, jobs and a pod of each job on each of its nodes. Where no node is given, sixteen healthy spare ones are added."""
    nodes = {name: node or NodeFixture() for name, node in fixture.nodes.items()}
    jobs = dict(fixture.jobs)
    for job in about.jobs:
        jobs.setdefault(job.key, JobFixture(nodes=(about.root.node,) if about.root.node else ()))
    named = [about.root.node, *about.nodes, *(node for job in jobs.values() for node in job.nodes)]
    spare = [] if fixture.nodes else [f"spare-{number:02}" for number in range(16)]
    for name in [*(name for name in named if name), *spare]:
        nodes.setdefault(name, NodeFixture())
    for name, node in sorted(nodes.items()):
        known = node.model_dump()
        yield NodeFact(
            CLUSTER, name, f"uid-{name}", NOW, ready_since=NOW, gpus_allocatable=node.gpus, **known
        )
    for name, placed in sorted(jobs.items()):
        ref = _job(name)
        yield JobFact(CLUSTER, ref, NOW, **placed.model_dump(exclude={"nodes", "restarted"}))
        for number, node_name in enumerate(placed.nodes):
            pod = f"{ref.name}-{number}"
            yield PodFact(
                CLUSTER,
                ref.namespace,
                pod,
                f"uid-{pod}",
                NOW,
                node=node_name,
                job=ref,
                phase="Running",
                gpus=8,
                workload=placed.workload,
                scheduled_at=NOW + timedelta(minutes=1) if placed.restarted else None,
            )


def _gpu(name: str) -> Gpu:
    pci = canonical_pci(name)
    return Gpu(pci=pci) if pci else Gpu(uuid=name)


def _job(name: str) -> JobRef:
    kind, namespace, own = name.split("/")
    return JobRef(kind, namespace, own)
