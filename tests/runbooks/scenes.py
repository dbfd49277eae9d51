"""A small cluster, an incident on it, and a world that carries out calls: what the pure tests play with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from connectors.base import Absent, AlreadyDone, Done, Outcome
from runbooks.engine.run.machine import advance, begin
from runbooks.engine.run.outcomes import concluded
from runbooks.engine.run.plan import plan
from runbooks.engine.run.transition import LOOKUPS, Call, RunContext, TransitionResult
from runbooks.language.loader import load
from runbooks.language.schema import Runbook
from runbooks.language.select import select
from streams.config.settings import BlastRadius, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import JobFact, NodeFact, PodFact
from streams.model.incident import Certainty, Incident, IncidentState, Progress, incident_id
from streams.model.run import Mode, Run, RunState, StepState
from streams.model.signal import Severity

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CLUSTER = "c1"
JOB = JobRef("PyTorchJob", "research", "llm", "uid-llm")
OTHER_JOB = JobRef("Job", "research", "eval", "uid-eval")
ROOT = Entity(CLUSTER, node="node-03", gpu=Gpu(pci="0000:1b:00"))
LIBRARY = load()
ACTIONS = frozenset(
    {"cordon_node", "uncordon_node", "drain_node", "suspend_job", "resume_job", "verify_job", "open_ticket"}
)
AUTO = ResponderSettings(mode=Mode.AUTO)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def cluster(nodes: int = 16) -> ClusterView:
    """Nodes `node-00`…; the job has a pod on nodes 2 to 5, the other job on node 5 and 6."""
    view = ClusterView(CLUSTER)
    for i in range(nodes):
        view.put(NodeFact(CLUSTER, f"node-{i:02}", f"uid-{i}", NOW, gpus=8, gpus_allocatable=8))
    for job, placed in ((JOB, (2, 3, 4, 5)), (OTHER_JOB, (5, 6))):
        view.put(JobFact(CLUSTER, job, NOW))
        for rank, i in enumerate(placed):
            view.put(
                PodFact(
                    CLUSTER,
                    job.namespace,
                    f"{job.name}-{rank}",
                    f"p{rank}",
                    NOW,
                    node=f"node-{i:02}",
                    job=job,
                )
            )
    return view


def incident(family: str = "gpu_off_bus", root: Entity = ROOT, **changes: object) -> Incident:
    made = Incident(
        id=incident_id(CLUSTER, root, family, 1),
        cluster=CLUSTER,
        family=family,
        root=root,
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.CRITICAL,
        certainty=Certainty.DECISIVE,
        title=f"{family} on {root}",
        reason="XID 79",
        fault_at=NOW,
        opened_at=NOW,
        updated_at=NOW,
        jobs=(JOB,),
        nodes=("node-03",),
        facts={"xid": 79},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def policy(**changes: object) -> ResponderSettings:
    return AUTO.model_copy(update=changes)


def radius(**changes: object) -> ResponderSettings:
    return policy(blast_radius=BlastRadius().model_copy(update=changes))


@dataclass
class Play:
    """One run against a world that does what it is told; time is moved by the test."""

    about: Incident
    settings: ResponderSettings = AUTO
    view: ClusterView = field(default_factory=cluster)
    others: Sequence[Run] = ()
    actions: frozenset[str] = ACTIONS
    library: Sequence[Runbook] = LIBRARY
    now: datetime = NOW
    notes: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    air: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        choice = select(self.about, self.library)
        assert choice.runbook is not None
        self.runbook = choice.runbook
        bound = plan(self.about, choice.runbook, self.view, self.settings.mode, self.actions)
        self.take(begin(self.about, bound, self.now))

    run: Run = field(init=False)

    @property
    def situation(self) -> RunContext:
        return RunContext(
            self.about,
            self.view,
            self.others,
            self.settings,
            self.actions,
            runbooks=frozenset(book.id for book in self.library),
        )

    def take(self, turn: TransitionResult) -> TransitionResult:
        self.run = turn.run
        self.notes += [f"{n.event} {n.text}" for n in turn.notes]
        self.reports += [r.kind + (f":{r.outcome}" if r.outcome else "") for r in turn.reports]
        self.air += turn.calls
        return turn

    def tick(self, seconds: float = 0.0) -> TransitionResult:
        self.now += timedelta(seconds=seconds)
        return self.take(advance(self.run, self.situation, self.now))

    def answer(self, outcome: Outcome, action: str | None = None) -> Call:
        """Answer the oldest call in the air (of an action) and advance."""
        call = next(c for c in self.air if action in (None, c.effect.action))
        self.air.remove(call)
        if isinstance(outcome, Done) and call.kind not in LOOKUPS:
            before = {"undo": "undo ", "compensate": "back by "}.get(call.kind, "")
            self.made.append(before + call.effect.action)
        self.take(concluded(self.run, call.step, call.kind, outcome, self.now))
        self.tick()
        return call

    def play(self, *, until: str | None = None, limit: int = 60) -> None:
        """Answer every call with success until the run is over, stands still, or a call of `until` is in the air."""
        self.tick()
        for _ in range(limit):
            if until and any(c.effect.action == until for c in self.air):
                return
            if not self.air:
                return
            kind = self.air[0].kind
            self.answer(AlreadyDone() if kind == "lookup" else Absent() if kind in LOOKUPS else Done())

    def progress(self, job: JobRef = JOB, step: int = 100) -> None:
        """The job prints an iteration line now; the incident tells of it in a new revision."""
        self.about = replace(
            self.about,
            revision=self.about.revision + 1,
            progress=(*self.about.progress, Progress(job, self.now, step)),
        )

    def state(self, step: str) -> StepState:
        found = [r.state for r in self.run.steps if r.id.split(":")[0] == step]
        assert len(set(found)) == 1, (step, found)
        return found[0]

    def stands(self) -> RunState:
        """Where the run stands."""
        return self.run.state
