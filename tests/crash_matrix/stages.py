"""Where cases are played: a stage has topics, a ticket system and proxies of its own, and plays one case after the other."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import yaml
from aiokafka import AIOKafkaProducer

from connectors.kubernetes.client import Cluster
from runbooks.engine.run.by_hand import shown_digest
from runbooks.engine.run.continuation import continuation
from runbooks.engine.run.plan import plan
from runbooks.language.loader import load
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.redfish import RedfishStandin
from streams.config.connector_settings import KubernetesSettings, NodeWorkSettings
from streams.config.settings import KafkaSettings
from streams.inventory.cluster_view import ClusterView
from streams.kafka import clients
from streams.kafka.topics import (
    ALL,
    COMMANDS,
    DEAD_LETTERS,
    INCIDENTS,
    INVENTORY,
    RUNS,
    SIGNALS,
    TIMELINE,
    Topic,
)
from streams.model.clock import from_millis
from streams.model.codec import decode, encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.facts import FactRecord
from streams.model.incident import Incident, IncidentState, Progress
from streams.model.run import EffectState, Mode, Run, StepState
from streams.model.signal import SignalBatch
from tests.contract.faults import Seen
from tests.crash_matrix.aiming import FAULTS, AimedProxy, jira_writes
from tests.crash_matrix.cases import BY_HAND, CLEARED, ON_SLURM, OPERATED, Case
from tests.crash_matrix.history import (
    Arrived,
    History,
    Touch,
    Version,
    job_touches,
    node_touches,
    object_touches,
    power_touches,
    starts_in,
    ticket_touches,
    work_touches,
)
from tests.crash_matrix.killable_responder import OBJECTS, REPLACES, Life
from tests.crash_matrix.on_operators import DEFINITIONS, OPERATOR_RIGHTS, OperatedWorld, operator_touches
from tests.crash_matrix.on_slurm import NODES_EACH, SlurmCommands, SlurmWorld, slurm_touches
from tests.crash_matrix.process_pool import Nursery
from tests.crash_matrix.topic_recorder import Tape
from tests.crash_matrix.worlds import MAINTENANCE, World, planned
from tests.deploy.manifests import COMPONENT_DIR, NODE_WORK, objects
from tests.runbooks.topics import with_topics
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.definitions import LEADER_WORKER_SETS, serve
from tests.testbed.kafka import Kafka
from tests.testbed.slurm import SlurmCluster
from tests.testbed.waiting import eventually, patience

BOOKS = Path(__file__).parent / "runbooks"
RESPONDER = "system:serviceaccount:faultline:responder"
RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
WORK_NAMESPACE = NodeWorkSettings().namespace
"""Where Jobs that work on nodes are made."""
PATIENCE_S = 180.0
TOPICS = (*(topic for topic in ALL if topic.partitions == "cluster"), DEAD_LETTERS)


class NotPlayed(Exception):
    """A case did not come to its end in time, or not by its plan; the message says how far it came."""


@dataclass
class House:
    """What all stages share. Build it with `open`."""

    kafka: Kafka
    control_plane: ControlPlane
    folder: Path
    admin: Cluster
    nursery: Nursery
    tape: Tape
    producer: AIOKafkaProducer
    server: str
    tls: ssl.SSLContext
    token: str
    slurm: SlurmCluster
    stages: list[Stage] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, kafka: Kafka, control_plane: ControlPlane, folder: Path, count: int
    ) -> AsyncIterator[Self]:
        """A house with `count` stages; all that was started ends with the block."""
        await prepare(control_plane)
        server, authority, token = access(control_plane.kubeconfig(RESPONDER))
        tls = ssl.create_default_context(cafile=authority)
        settings = KafkaSettings(bootstrap=kafka.bootstrap, replication_factor=1, cluster_partitions=1)
        async with AsyncExitStack() as stack:
            made = [await with_topics(kafka.bootstrap, *TOPICS, partitions=1) for _ in range(count)]
            prefixes = [one.topic_prefix for one in made]
            admin = await Cluster.connect(KubernetesSettings(kubeconfig=control_plane.kubeconfig()))
            await stack.enter_async_context(admin)
            nursery = await stack.enter_async_context(Nursery.running())
            tape = await stack.enter_async_context(Tape.running(settings, prefixes))
            producer = await clients.started(clients.producer(settings), settings)
            stack.push_async_callback(producer.stop)
            slurm = stack.enter_context(SlurmCluster.running(NODES_EACH * count))
            house = cls(
                kafka, control_plane, folder, admin, nursery, tape, producer, server, tls, token, slurm
            )
            for prefix in prefixes:
                house.stages.append(await stack.enter_async_context(Stage.standing(house, prefix)))
            yield house


@dataclass
class Stage:
    """One stage; its responder lives on from one case to the next unless it is killed."""

    house: House
    prefix: str
    folder: Path
    jira: JiraStandin
    kubernetes: AimedProxy
    tickets: AimedProxy
    bmc: RedfishStandin
    power: AimedProxy
    slurm: SlurmCommands
    slurm_nodes: tuple[str, ...]

    @property
    def ways(self) -> tuple[AimedProxy | SlurmCommands, ...]:
        """Every way out of the responder, on which faults are played."""
        return (self.kubernetes, self.tickets, self.power, self.slurm)

    @classmethod
    @asynccontextmanager
    async def standing(cls, house: House, prefix: str) -> AsyncIterator[Self]:
        """A stage with its ticket system and its proxies."""
        folder = house.folder / prefix.strip(".")
        folder.mkdir(parents=True)
        async with (
            JiraStandin() as jira,
            AimedProxy(house.server, tls=house.tls) as kubernetes,
            AimedProxy(jira.url, jira_writes) as tickets,
            RedfishStandin() as bmc,
            AimedProxy(bmc.url) as power,
        ):
            for name, text in (("bmc-user", bmc.user), ("bmc-password", bmc.password)):
                (folder / name).write_text(text)
            first = NODES_EACH * len(house.stages)
            nodes = tuple(f"gpu-{first + n}" for n in range(1, NODES_EACH + 1))
            slurm = SlurmCommands.made(folder / "slurm")
            yield cls(house, prefix, folder, jira, kubernetes, tickets, bmc, power, slurm, nodes)

    @property
    def life(self) -> Life:
        """What a responder of this stage needs to know."""
        return Life(
            bootstrap=self.house.kafka.bootstrap,
            prefix=self.prefix,
            kubernetes=self.kubernetes.url,
            kubernetes_token=self.house.token,
            jira=self.tickets.url,
            jira_user=self.jira.user,
            jira_token=self.jira.token,
            books=str(BOOKS),
            folder=str(self.folder),
            slurm=str(self.slurm.folder),
            slurm_config=str(self.house.slurm.config),
        )

    async def play(self, case: Case) -> History:
        """Play a case from its incident to its end.

        Raises:
            NotPlayed: it did not end in time, or the responder never came to a point at which it was to die.
        """
        world = self._world(case.book)
        await world.build()
        if world.bad is not None:
            (self.folder / "bmcs.yaml").write_text(json.dumps({world.bad: self.power.url}))
        self.bmc.powers = world.power_returns
        play = _Play(
            self, case, world, self.house.control_plane.audit.mark(), self.house.tape.mark(self.prefix)
        )
        try:
            async with world.witnessed():
                return await play.through()
        finally:
            await world.remove()

    def _world(self, book: str) -> World:
        admin = self.house.admin
        if book in ON_SLURM:
            return SlurmWorld(admin, book, cluster=self.house.slurm, own=self.slurm_nodes)
        if book in OPERATED:
            return OperatedWorld(admin, book)
        return World(admin, book, work_namespace=WORK_NAMESPACE)


@dataclass
class _Play:
    stage: Stage
    case: Case
    world: World
    audit_mark: int
    tape_mark: Mapping[str, int]
    incident: Incident = field(init=False)
    seen_mark: int = field(init=False)
    power_mark: int = field(init=False)
    slurm_mark: int = field(init=False)
    done: set[str] = field(default_factory=set)
    """What has been told to the responder besides the incident."""
    ended_with: int = -signal.SIGKILL
    _versions: list[Version] = field(default_factory=list)
    _read: int = 0

    async def through(self) -> History:
        stage, house = self.stage, self.stage.house
        self.incident = self.world.incident()
        self.seen_mark, self.power_mark = len(stage.tickets.seen), len(stage.power.seen)
        self.slurm_mark = len(stage.slurm.requests)
        if any("#" in label for labels in self.case.deaths for label in labels):
            await self._end_life()
        part = self._plan().with_suffix(".next")
        part.write_text(json.dumps(self.case.deaths))
        part.replace(self._plan())
        aimed = [way for way in stage.ways if way.aim(self.case.what, self.case.fault)]
        for fact in self.world.facts:
            await self._tell(INVENTORY, fact.key, FactRecord(fact))
        await self._tell(INCIDENTS, self.incident.id, self.incident)
        reviving = asyncio.create_task(self._keep_alive(), name=f"reviving {self.case.name}")
        try:
            async with asyncio.timeout(patience(PATIENCE_S)):
                await house.tape.until(stage.prefix, self._over)
        except TimeoutError as late:
            run = self.versions[-1].run.state if self.versions else "not begun"
            left = self._plan().read_text()
            raise NotPlayed(
                f"not over after {PATIENCE_S:g} s: the run is {run}, deaths to come are {left}"
            ) from late
        finally:
            reviving.cancel()
            await asyncio.gather(reviving, return_exceptions=True)
        if self.case.fault in FAULTS and not any(way.spent for way in aimed):
            raise NotPlayed(f"no request of {self.case.step} came, so {self.case.fault} was not played")
        await house.tape.catch_up(stage.prefix)
        return await self._history()

    async def _keep_alive(self) -> None:
        """Begin a new life whenever one has ended."""
        nursery, name = self.stage.house.nursery, self.stage.prefix
        while True:
            if not nursery.lives(name):
                await nursery.start(name, self.stage.life, self.stage.folder / "log")
            self.ended_with = await nursery.ended(name)
            self.stage.house.tape.nudge(name)
            if self.ended_with != -signal.SIGKILL:
                return

    async def _end_life(self) -> None:
        nursery, name = self.stage.house.nursery, self.stage.prefix
        if nursery.lives(name):
            nursery.signal(name, signal.SIGTERM)
            await nursery.ended(name)

    async def _over(self) -> bool:
        """Say what is to be said at this moment, and whether it is over."""
        if self.ended_with != -signal.SIGKILL:
            log = self.stage.folder / "log"
            raise NotPlayed(f"a responder ended by itself, with {self.ended_with}; see {log}")
        if self.case.book in BY_HAND:
            await self._start_by_hand()
        if not self.versions:
            return False
        run = self.versions[-1].run
        await self._direct(run)
        is_last = self.case.book not in BY_HAND or bool(run.started_by)
        return is_last and not run.has_work and json.loads(self._plan().read_text()) == []

    async def _start_by_hand(self) -> None:
        """What the person says who starts the last run: a runbook that nothing else starts, or a run that ended early."""
        run = self.versions[-1].run if self.versions else None
        match self.case.book:
            case "hand" if self._is_left_to_people() and self._first("by hand"):
                book = next(one for one in load((BOOKS,), shipped=False) if one.id == "hand")
                shown = plan(self.incident, book, self._view(), Mode.AUTO)
                digest = shown_digest(shown, self.incident.id)
                await self._command(Verb.RUN, runbook="hand", digest=digest)
            case "again" if run is not None and not run.started_by:
                asked = any(record.state is StepState.AWAITING_APPROVAL for record in run.steps)
                if asked and self._first("stop"):
                    await self._command(Verb.STOP)
                if not run.has_work and self._first("by hand"):
                    goes_on = continuation(run, self._view(), Mode.AUTO, datetime.now(UTC))
                    await self._command(Verb.CONTINUE, run=run.id, digest=goes_on.plan.digest)
            case "redone" if run is not None and not run.has_work and self._first("by hand"):
                await self.world.end_pods()
                await eventually(self.world.has_no_pods, "the pods are gone")
                goes_on = continuation(run, self._view(), Mode.AUTO, datetime.now(UTC), step="reset")
                await self._command(Verb.REDO, run=run.id, step="reset", digest=goes_on.plan.digest)

    def _is_left_to_people(self) -> bool:
        """Whether the responder has read the incident, and said that no runbook is for it."""
        said = self.stage.house.tape.records(self.stage.prefix, TIMELINE, self.tape_mark[TIMELINE.name])
        mine = (one for one in said if one.key == self.incident.id.encode() and one.value is not None)
        return any(decode(TimelineEntry, one.value).event == "run.none" for one in mine)

    def _view(self) -> ClusterView:
        view = ClusterView(self.incident.cluster)
        for fact in self.world.facts:
            view.put(fact)
        return view

    async def _command(self, verb: Verb, **more: Any) -> None:
        about = self.incident
        made = Command(unique("command"), about.id, about.cluster, verb, "ada", datetime.now(UTC), **more)
        await self._tell(COMMANDS, about.id, made)

    async def _direct(self, run: Run) -> None:
        """What the world says while a run is under way: progress, a person's approval, the end of the incident."""
        asked = any(record.state is StepState.AWAITING_APPROVAL for record in run.steps)
        match self.case.book:
            case "asked" if asked and self._first("approval"):
                await self._command(Verb.APPROVE, digest=run.plan.digest)
            case "again" if asked and run.started_by and self._first("approval"):
                await self._command(Verb.APPROVE, digest=run.plan.digest)
            case book if book in CLEARED and asked and self._first("clear"):
                await self._revise(state=IncidentState.RESOLVED, reason="it was a false alarm")
            case "stay" if self._waits_for_pods(run) and self._first("pods"):
                await self.world.end_pods()
            case "work" if self._waits_for_work(run) and self._first("done"):
                await self._revise(facts=planned(datetime.now(UTC), over=True))
            case "move" if self._resumed(run) and self._first("progress"):
                assert self.world.job is not None
                await self._revise(progress=(Progress(self.world.job, datetime.now(UTC), 100),))

    @staticmethod
    def _resumed(run: Run) -> bool:
        return any(
            record.effect is not None
            and record.effect.action == "resume_job"
            and record.effect.state is EffectState.CONFIRMED
            for record in run.steps
        )

    @staticmethod
    def _waits_for_pods(run: Run) -> bool:
        rows = [record.effect for record in run.steps if record.effect is not None]
        return any(row.reason.startswith("blocked by pods on its GPUs") for row in rows)

    @staticmethod
    def _waits_for_work(run: Run) -> bool:
        waiting = {step.id for step in run.plan.steps if step.action == "await_work"}
        return any(record.id in waiting and record.state is StepState.RUNNING for record in run.steps)

    def _first(self, what: str) -> bool:
        new = what not in self.done
        self.done.add(what)
        return new

    async def _revise(self, **changes: Any) -> None:
        revision = self.incident.revision + 1
        self.incident = replace(self.incident, revision=revision, updated_at=datetime.now(UTC), **changes)
        await self._tell(INCIDENTS, self.incident.id, self.incident)

    async def _tell(self, topic: Topic, key: str, value: object) -> None:
        name = self.stage.prefix + topic.name
        await self.stage.house.producer.send_and_wait(
            name, key=key.encode(), value=encode(value), partition=0
        )

    def _plan(self) -> Path:
        return self.stage.folder / "plan.json"

    @property
    def versions(self) -> Sequence[Version]:
        """The run so far, as committed."""
        tape = self.stage.house.tape
        for record in tape.records(self.stage.prefix, RUNS, self.tape_mark[RUNS.name] + self._read):
            self._read += 1
            if record.value is not None and (run := decode(Run, record.value)).incident == self.incident.id:
                self._versions.append(Version(from_millis(record.timestamp), run))
        return self._versions

    async def _history(self) -> History:
        house, prefix = self.stage.house, self.stage.prefix
        signals = [
            signal
            for record in house.tape.records(prefix, SIGNALS, self.tape_mark[SIGNALS.name])
            for signal in decode(SignalBatch, record.value).signals
            if signal.attributes.get("incident") == self.incident.id
        ]
        timeline = [
            decode(TimelineEntry, record.value)
            for record in house.tape.records(prefix, TIMELINE, self.tape_mark[TIMELINE.name])
            if record.key == self.incident.id.encode()
        ]
        end = {**await self.world.end(), **self._tickets(), **self._run_end()}
        last = self.versions[-1].run.id
        return History(
            versions=tuple(version for version in self.versions if version.run.id == last),
            earlier=tuple(version for version in self.versions if version.run.id != last),
            touches=tuple(self._touches()),
            timeline=tuple(timeline),
            reports=tuple(signal.kind for signal in signals),
            starts=tuple(starts_in(self.stage.folder / "trace", self._keys().__contains__)),
            end=end,
            works=await self.world.works(self.incident.id),
        )

    def _keys(self) -> set[str]:
        """The keys of all effects of the runs, and of what takes them back."""
        latest = {version.run.id: version.run for version in self.versions}.values()
        records = [record for run in latest for record in run.steps]
        rows = [row for record in records for row in (record.effect, record.undo)]
        return {row.key for row in rows if row is not None}

    def _touches(self) -> Sequence[Touch]:
        writes = self.stage.house.control_plane.audit.writes(since=self.audit_mark, user=RESPONDER)
        job = self.world.job
        operated = self.case.book in OPERATED
        jobs = {(job.namespace, job.name): "job"} if job and not operated else {}
        issues = {issue.id: "ticket" if n == 0 else f"copy {n}" for n, issue in enumerate(self._issues())}
        return [
            *node_touches(writes, self.world.roles),
            *job_touches(writes, jobs),
            *work_touches(writes, self.world.roles),
            *object_touches(writes, self.world.roles, self.world.claim),
            *ticket_touches(_arrived(self.stage.tickets.seen[self.seen_mark :]), self.incident.id, issues),
            *(operator_touches(writes, self.world.namespace) if operated else ()),
            *power_touches(_arrived(self.stage.power.seen[self.power_mark :])),
            *slurm_touches(self.stage.slurm.requests[self.slurm_mark :], self.incident.id, self.world.roles),
        ]

    def _issues(self) -> Sequence[Any]:
        return [i for i in self.stage.jira.issues if f"faultline-{self.incident.id}" in i.labels]

    def _tickets(self) -> dict[str, Any]:
        return {"tickets": [(issue.status, len(issue.comments)) for issue in self._issues()]}

    def _run_end(self) -> dict[str, Any]:
        run = self.versions[-1].run
        return {"run": run.outcome} | {
            f"step {record.id.split(':')[0]}": (
                str(record.state),
                str(record.effect.state) if record.effect else "",
                str(record.undo.state) if record.undo else "",
            )
            for record in run.steps
        }


def _arrived(seen: Sequence[Seen]) -> list[Arrived]:
    now, passed = datetime.now(UTC), time.monotonic()
    return [
        Arrived(now - timedelta(seconds=passed - one.at_s), one.method, one.path, one.body, one.served)
        for one in seen
        if one.write
    ]


def grant(control_plane: ControlPlane) -> None:
    """Give the processes the rights that the shipped manifests give them."""
    rights = {"apiVersion": "v1", "kind": "List", "items": [o for o in objects() if o["kind"] in RIGHTS]}
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(rights))
    work = [f"--filename={NODE_WORK / name}" for name in ("namespace.yaml", "rbac.yaml")]
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", *work)


async def prepare(control_plane: ControlPlane) -> None:
    """Have the server take the objects that the books are about."""
    grant(control_plane)
    for feature in ("jobs-lws", "templates", *OPERATOR_RIGHTS):
        control_plane.kubectl("apply", "--server-side", "-f", str(COMPONENT_DIR / feature / "rbac.yaml"))
    control_plane.define(LEADER_WORKER_SETS, *DEFINITIONS)
    async with await Cluster.connect(KubernetesSettings(kubeconfig=control_plane.kubeconfig())) as admin:
        for name in (MAINTENANCE, REPLACES):
            await serve(admin, OBJECTS[name])


def access(kubeconfig: Path) -> tuple[str, Path, str]:
    """Where the server is, the file with who must have certified it, and the user's token."""
    parts = yaml.safe_load(kubeconfig.read_text())
    about, user = parts["clusters"][0]["cluster"], parts["users"][0]["user"]
    return about["server"], Path(about["certificate-authority"]), user["token"]
