"""A cluster on a bad night: incidents in every state, runs the engine itself has made, and a responder that answers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from faultline.live_view.decisions import Decision
from faultline.live_view.view import LiveView
from runbooks.engine.run.human_decisions import decided
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control, Freeze, Switch
from streams.model.conversation import Command, TimelineEntry
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import JobFact, NodeFact, NodeWork, PodFact
from streams.model.incident import Candidate, Certainty, Impact, Incident, IncidentState, Proof, incident_id
from streams.model.run import EffectState, Mode, Run
from streams.model.signal import Evidence, Severity
from tests.runbooks.scenes import Play

NOW = datetime(2026, 3, 3, 3, 12, 40, tzinfo=UTC)
EAST = "gpu-east-1"
LLM = JobRef("PyTorchJob", "research", "llm-pretrain", "uid-llm")
EVAL = JobRef("Job", "research", "eval-nightly", "uid-eval")
ROOT = Entity(EAST, node="gpu-17", gpu=Gpu(pci="0000:9d:00", uuid="GPU-5f3a", index=4))
ASKS = ResponderSettings(mode=Mode.APPROVE)
HOSTILE = "<img src=x onerror=document.title='owned'>"
SCRIPT = "<script>document.title='owned'</script>\u202eexe.txt\x1b[31m"


def before(minutes: float) -> datetime:
    """So many minutes before now."""
    return NOW - timedelta(minutes=minutes)


def node(number: int, **changes: object) -> NodeFact:
    made = NodeFact(
        EAST,
        f"gpu-{number:02}",
        f"uid-{number}",
        before(600),
        gpus=8,
        gpus_allocatable=8,
        pool="h100",
        leaf=f"leaf-{number // 16 + 1:02}",
        rack=f"r{number // 8 + 1:02}",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


CANDIDATES = (
    Candidate(
        ROOT,
        "gpu_off_bus",
        True,
        "hardware evidence",
        "XID 79 is the device's own word, before any rank failed",
    ),
    Candidate(
        Entity(EAST, node="gpu-16"),
        "silent_node",
        False,
        "first to fail",
        "its watchdog fired first, but it only waited for rank 20 on gpu-17",
    ),
    Candidate(
        Entity(EAST, switch="leaf-02", port="Ethernet12"),
        "fabric_fault",
        False,
        "shared place",
        "no counter of the port moved, and the other nodes behind it are well",
    ),
)


def proofs(at: datetime) -> tuple[Proof, ...]:
    xid = "<4>NVRM: Xid (PCI:0000:9d:00): 79, pid=28114, name=python3, GPU has fallen off the bus."
    watchdog = (
        "[rank13]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48213, OpType=ALLREDUCE)"
    )
    waits = Entity(EAST, node="gpu-16", job=LLM, rank=13)
    early = at - timedelta(seconds=72)
    return (
        Proof("s1", "gpu.xid", ROOT, early, "cause", "XID 79: the GPU has fallen off the bus",
              (Evidence("raw.node-logs", 2, 4711, xid),)),
        Proof("s2", "gpu.xid", ROOT, early + timedelta(seconds=1), "context", "XID 45: its process was removed",
              (Evidence("raw.node-logs", 2, 4712, "NVRM: Xid (PCI:0000:9d:00): 45, pid=28114, Ch 00000008"),)),
        Proof("s3", "nccl.timeout", waits, at, "symptom", "rank 13 waited 60 s in collective 48213",
              (Evidence("raw.job-logs", 0, 99, watchdog),), 24),
    )  # fmt: skip


def incident(
    root: Entity = ROOT, family: str = "gpu_off_bus", opened: float = 8, **changes: object
) -> Incident:
    made = Incident(
        id=incident_id(root.cluster, root, family, 1),
        cluster=root.cluster,
        family=family,
        root=root,
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.CRITICAL,
        certainty=Certainty.DECISIVE,
        title=f"GPU fell off the bus on {root.node}",
        reason=f"{root} left the PCIe bus (XID 79). Its ranks are lost, and 31 others wait for them in one collective.",
        fault_at=before(opened + 1.2),
        opened_at=before(opened),
        updated_at=before(opened),
        jobs=(LLM,),
        nodes=("gpu-15", "gpu-16", "gpu-17", "gpu-18"),
        impact=Impact(jobs=1, nodes=4, gpus=32, gpu_hours_per_hour=32.0, ranks=32),
        facts={"xid": 79},
        proofs=proofs(before(opened)),
        candidates=CANDIDATES,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def inventory() -> ClusterView:
    """What the responder knows: 64 nodes, and the job's pods on four of them."""
    view = ClusterView(EAST)
    for number in range(64):
        view.put(node(number))
    view.put(JobFact(EAST, LLM, before(600)))
    for rank, number in enumerate((15, 16, 17, 18)):
        name = f"llm-{rank}"
        view.put(PodFact(EAST, "research", name, f"p{rank}", before(600), node=f"gpu-{number}", job=LLM))
    return view


@dataclass
class Night:
    """A view with incidents in it, and a responder in one: the engine's own rules decide, and the answers go to the view."""

    view: LiveView = field(default_factory=LiveView)
    now: datetime = NOW
    policy: ResponderSettings = ASKS
    answers: bool = True
    fails: Exception | None = None
    tried: list[Command] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    """Those of them that were stored."""
    _offsets: count[int] = field(default_factory=lambda: count(1))
    _plays: dict[str, Play] = field(default_factory=dict)

    def clock(self) -> datetime:
        return self.now

    def tell(
        self,
        about: str,
        event: str,
        text: str,
        actor: str = "responder",
        at: datetime | None = None,
        **more: str,
    ) -> None:
        entry = TimelineEntry(about, EAST, at or self.now, actor, event, text, more)
        self.view.take_entry(entry, next(self._offsets))

    def open(self, about: Incident, *, until: str | None = None) -> Play:
        """An incident whose run asks a person, or (`until`) has a call of that action in flight."""
        self.view.take_incident(about)
        settings = self.policy if until is None else ResponderSettings(mode=Mode.AUTO)
        play = Play(about, settings, inventory(), now=about.opened_at)
        play.play(until=until)
        self._plays[about.id] = play
        at = about.opened_at
        self.tell(about.id, "incident.opened", about.reason[:200], "correlator", at)
        self.tell(about.id, "run.started", f"runbook {play.run.plan.runbook} takes it up", at=at)
        self._take(play)
        return play

    async def decide(self, command: Command, wait_s: float) -> Decision:
        """As `Decisions` does, with no Kafka between."""
        self.tried.append(command)
        if self.fails is not None:
            raise self.fails
        self.commands.append(command)
        if not self.answers:
            return Decision(command)
        play = self._plays[command.incident]
        play.now = self.now
        result = play.take(decided(play.run, command, self.policy, self.now))
        for note in result.notes:
            entry = TimelineEntry(
                command.incident,
                EAST,
                self.now,
                note.actor or "responder",
                note.event,
                note.text,
                note.attributes,
            )
            self.view.take_entry(entry, next(self._offsets))
        play.tick()
        self._take(play)
        return Decision(command, await self.view.answers(command.id, 0))

    def goes_on(self, about: Incident) -> None:
        """The calls in flight succeed, and the incident is being mitigated."""
        play = self._plays[about.id]
        play.play(until="verify_job")
        self._take(play)
        known = self.view.incident(about.id)
        assert known is not None
        self.view.take_incident(replace(known, state=IncidentState.MITIGATING, revision=known.revision + 1))

    def _take(self, play: Play) -> None:
        self.view.take_run(play.run.id, play.run)


def asking(night: Night) -> Incident:
    """An incident whose plan waits for approval."""
    about = incident(state=IncidentState.AWAITING_HUMAN)
    night.open(about)
    return about


def bad_night() -> Night:
    """Everything at once, as the pictures of the documentation show it."""
    night = Night()
    view = night.view
    for number in range(64):
        view.take_fact(f"{EAST}/node/gpu-{number:02}", node(number))
    for job in (LLM, EVAL):
        view.take_fact(f"{EAST}/job/{job.key}", JobFact(EAST, job, NOW, owner="team-llm", pods=4))
    asking(night)
    nic = Entity(EAST, node="gpu-31", nic="mlx5_3")
    night.open(
        incident(nic, "nic_link", 41, title="Link of mlx5_3 flaps on gpu-31", severity=Severity.ERROR,
                 certainty=Certainty.LIKELY, state=IncidentState.MITIGATING, nodes=("gpu-31",), jobs=(EVAL,),
                 impact=Impact(1, 1, 8, 8.0), flaps=5, candidates=(), facts={}, proofs=(),
                 reason="mlx5_3 on gpu-31 lost its link five times in 40 min; the switch port reports the same moments"),
    )  # fmt: skip
    night.tell(night.view.find("")[1], "person.ack", "acknowledged by Bo", "Bo (bo@example.test)", before(30))
    switch = Entity(EAST, switch="leaf-03", port="Ethernet48")
    view.take_incident(
        incident(switch, "pfc_storm", 95, title="PFC storm from Ethernet48 of leaf-03", severity=Severity.ERROR,
                 state=IncidentState.AWAITING_HUMAN, nodes=(), jobs=(LLM, EVAL), impact=Impact(2), candidates=(),
                 facts={}, proofs=(), reason="pause frames grew at one port while its neighbours stood still"),
    )  # fmt: skip
    hot = Entity(EAST, node="gpu-40", gpu=Gpu(index=2))
    view.take_incident(
        incident(hot, "power_cooling", 12, title="Thermal slowdown on gpu-40", severity=Severity.WARNING,
                 certainty=Certainty.WEAK, nodes=("gpu-40",), jobs=(),
                 impact=Impact(), candidates=(), facts={}, proofs=(), reason="its clocks were held back for 4 min"),
    )  # fmt: skip
    contained(night)
    for number in range(6):
        over = Entity(EAST, node=f"gpu-{50 + number}", gpu=Gpu(index=number))
        closed = before(380 + 90 * number)
        view.take_incident(
            incident(over, "gpu_memory", 400 + 90 * number, title=f"Uncorrectable ECC error on gpu-{50 + number}",
                     state=IncidentState.RESOLVED, closed_at=closed, nodes=(f"gpu-{50 + number}",), candidates=()),
        )  # fmt: skip
    down = node(44, ready=False, gpus_allocatable=0)
    worked = node(45, unschedulable=True, work=NodeWork("a person", "maintenance", "held"))
    for fact in (down, worked, node(33, gpus_allocatable=7)):
        view.take_fact(f"{EAST}/node/{fact.name}", fact)
    until = NOW + timedelta(hours=2)
    freeze = Freeze("pool:a100", "Ada Byron (ada@example.test)", before(50), "driver rollout", until)
    view.take_control(Control(EAST, 3, freezes=(freeze,)))
    view.ready = True
    return night


def contained(night: Night) -> None:
    """An incident that is over, whose node stays cordoned until it is repaired."""
    root = Entity(EAST, node="gpu-09", gpu=Gpu(pci="0000:1b:00"))
    about = incident(root, opened=300, nodes=("gpu-09",), candidates=())
    run = _with_ticket(night.open(about, until="verify_job").run)
    night.view.take_run(run.id, run)
    closed = replace(about, state=IncidentState.RESOLVED, closed_at=before(280), revision=9)
    night.view.take_incident(closed)
    taint = f"faultline.dev/incident={about.id}:NoSchedule"
    held = node(9, unschedulable=True, owner_incident=about.id, taints=(taint,))
    night.view.take_fact(f"{EAST}/node/gpu-09", held)


def _with_ticket(run: Run) -> Run:
    told = {"ticket": "GPU-61", "url": "https://tickets.example.test/browse/GPU-61"}
    steps = [
        replace(one, effect=replace(one.effect, state=EffectState.CONFIRMED, result=told))
        if one.effect is not None and one.effect.action == "open_ticket"
        else one
        for one in run.steps
    ]
    return replace(run, steps=tuple(steps))


def hostile(night: Night) -> Incident:
    """An incident whose every text tries something, and whose reason is 5 MB long."""
    job = JobRef("PyTorchJob", "research", HOSTILE)
    root = Entity(EAST, node=HOSTILE)
    line = Evidence("raw.job-logs", 1, 7, SCRIPT + "x" * 100_000)
    proof = Proof("s9", "unknown", root, before(3), "cause", SCRIPT, (line,))
    about = incident(
        root,
        "unknown",
        3,
        title=SCRIPT,
        reason=HOSTILE * 120_000,
        jobs=(job,),
        nodes=(HOSTILE,),
        proofs=(proof,),
        candidates=(Candidate(root, "unknown", True, HOSTILE, SCRIPT),),
    )
    night.view.take_incident(about)
    night.tell(about.id, "person.note", HOSTILE * 1000, SCRIPT, url="javascript:alert(1)")
    night.view.take_control(Control(EAST, 9, kill_switch=Switch(HOSTILE, before(1), SCRIPT)))
    return about


def many(night: Night, incidents: int, nodes: int = 0) -> Sequence[Incident]:
    """So many open incidents, each with a run that asks, and so many nodes."""
    for number in range(nodes):
        fact = replace(node(number % 64), name=f"n-{number:04}", uid=f"u-{number}", rack=f"r{number // 8:03}")
        night.view.take_fact(f"{EAST}/node/{fact.name}", fact)
    pattern = Play(incident(), ASKS, inventory(), now=before(8))
    pattern.play()
    made = []
    for number in range(incidents):
        root = Entity(EAST, node=f"n-{number:04}", gpu=Gpu(index=number % 8))
        about = incident(
            root, opened=8 + number / 10, nodes=(f"n-{number:04}",), state=IncidentState.AWAITING_HUMAN
        )
        night.view.take_incident(about)
        run = replace(pattern.run, id=f"run-{number:016x}", incident=about.id)
        night.view.take_run(run.id, run)
        made.append(about)
    return made
