"""Responders that compete for partitions while they freeze, die and leave: every effect happens once.

python -m tests.crash_matrix.compete [--effects 10000] [--responders 2 3] [--seed 1]

Real Kafka, and the real API server with its store (no controllers: nothing but the responders writes there, so it is fast
enough); tickets go to the stand-in, which like the real thing makes whatever it is asked to. Each incident takes five effects on
a node of its own. Every few seconds one responder is frozen past its session and its lease, killed, or asked to end. Some
freeze at the worst moment there is: the lease has been asked, and the request has not left. Afterwards the history of each
incident is held against all invariants. The figures are the last line, in JSON; it ends with 1 when anything does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web
from aiokafka import AIOKafkaProducer

from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.cordon_ownership import is_marked
from sandbox.fake_services.jira import JiraStandin
from streams.config.connector_settings import KubernetesSettings
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS, SIGNALS, TIMELINE, Topic, partition_of
from streams.model.clock import from_millis
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Certainty, Incident, IncidentState, incident_id
from streams.model.run import EffectState, Run
from streams.model.signal import Severity, SignalBatch
from tests.crash_matrix.history import (
    Arrived,
    History,
    Start,
    Version,
    node_touches,
    starts_in,
    told,
)
from tests.crash_matrix.history import ticket_touches as touches_of
from tests.crash_matrix.invariants import violations
from tests.crash_matrix.killable_responder import Life
from tests.crash_matrix.process_pool import Nursery
from tests.crash_matrix.stages import RESPONDER, TOPICS, access, grant
from tests.crash_matrix.topic_recorder import Tape
from tests.crash_matrix.worlds import NODES
from tests.runbooks.topics import with_topics
from tests.testbed import workloads
from tests.testbed.audit import Write
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

BOOKS = Path(__file__).parent / "bulk"
EFFECTS = 5
"""Effects of one incident."""
PARTITIONS = 6
IN_FLIGHT = 120
"""Incidents under way at once."""
LEASE_S = 6.0
"""Long enough for a busy machine, shorter than the longest freeze."""
MOST_BLOWS = 60
"""How many blows a long contest takes at most; a short one takes one for every four incidents."""
LONGEST_BLOW_S = 25.0
"""From one blow to the next, where there are two and one is frozen for as long as it gets."""

SESSION_MS = 3000
FROZEN_S = (0.5, 14.0)
"""How long one is frozen: from nothing that anybody notices to well past session and lease."""
BLOWS_S = (4.0, 9.0)
AT_THE_WORST = [["cordon_node:before_request", "uncordon_node:before_request"]]


class TimedJira(JiraStandin):
    """The ticket system, with the time of each request that was to change something."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Arrived] = []

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        at, body = datetime.now(UTC), await request.read()
        answer: web.StreamResponse = await super()._middleware(request, handler)
        if request.method in ("POST", "PUT") and "/search/" not in request.path:
            self.changes.append(Arrived(at, request.method, request.path, body, answer.status))
        return answer


@dataclass(slots=True)
class Figures:
    """What one contest shows. `refused_late` are requests of the past that the API server's condition turned away."""

    responders: int
    incidents: int
    effects: int = 0
    doubled: int = 0
    copies_folded: int = 0
    refused_late: int = 0
    freezes: int = 0
    freezes_before_a_request: int = 0
    kills: int = 0
    ends: int = 0
    takeovers: int = 0
    seconds: float = 0.0
    effects_per_s: float = 0.0
    problems: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)


@dataclass
class Contest:
    """One contest between `responders` over `incidents`, each with five effects."""

    kafka: Kafka
    control_plane: ControlPlane
    folder: Path
    responders: int
    incidents: int
    seed: int = 1
    about: list[Incident] = field(default_factory=list)
    facts: list[NodeFact] = field(default_factory=list)

    async def run(self) -> Figures:
        """Make the nodes, tell of the incidents, deal blows until all runs are over, and judge."""
        grant(self.control_plane)
        settings = await with_topics(self.kafka.bootstrap, *TOPICS, partitions=PARTITIONS)
        figures, mark = Figures(self.responders, self.incidents), self.control_plane.audit.mark()
        kubeconfig = self.control_plane.kubeconfig()
        async with (
            await Cluster.connect(KubernetesSettings(kubeconfig=kubeconfig)) as admin,
            TimedJira() as jira,
            Nursery.running() as nursery,
            Tape.running(settings, [settings.topic_prefix], PARTITIONS) as tape,
        ):
            await self._make(admin)
            try:
                await self._contend(figures, mark, settings, tape, nursery, jira)
                await self._nodes_are_open(admin, figures)
            finally:
                await self._unmake(admin)
        figures.effects_per_s = round(figures.effects / figures.seconds, 1)
        return figures

    async def _contend(
        self,
        figures: Figures,
        mark: int,
        settings: KafkaSettings,
        tape: Tape,
        nursery: Nursery,
        jira: TimedJira,
    ) -> None:
        """Tell of the incidents, deal blows until all runs are over, and judge."""
        producer = await clients.started(clients.producer(settings), settings)
        troop = Troop(nursery, self._lives(settings, jira), random.Random(self.seed), figures)
        try:
            began = time.monotonic()
            await troop.start()
            blows = asyncio.create_task(troop.be_beaten(), name="blows")
            try:
                await self._feed(producer, tape, settings, troop, blows)
            finally:
                blows.cancel()
                await asyncio.gather(blows, return_exceptions=True)
            figures.seconds = round(time.monotonic() - began, 1)
            await troop.come_to_rest()
            await tape.catch_up(settings.topic_prefix)
        finally:
            await producer.stop()
        figures.takeovers = troop.takeovers()
        self._judge(
            figures, tape, settings, jira, self.control_plane.audit.writes(since=mark, user=RESPONDER)
        )

    async def _unmake(self, admin: Cluster) -> None:
        """Take the nodes away: they have no kubelet, and whoever watches this control plane next would see them die."""
        for start in range(0, len(self.facts), 20):
            await asyncio.gather(*(admin.delete(f"{NODES}/{f.name}") for f in self.facts[start : start + 20]))

    async def _make(self, admin: Cluster) -> None:
        """A node and an incident each, spread over as many clusters as there are partitions."""
        names = _clusters()
        pool, turn = unique("compete"), asyncio.Semaphore(20)

        async def node(number: int) -> NodeFact:
            name = f"{pool}-{number}"
            # Without a kubelet: nothing else writes to these nodes all the time.
            wanted: Object = workloads.gpu_node(name, pool=pool)
            wanted["metadata"]["annotations"] = {}
            async with turn:
                made = await admin.create(NODES, wanted)
            return NodeFact(
                names[number % PARTITIONS], name, made["metadata"]["uid"], datetime.now(UTC), gpus=8
            )

        self.facts = await asyncio.gather(*(node(number) for number in range(self.incidents)))

    def _lives(self, settings: KafkaSettings, jira: JiraStandin) -> dict[str, Life]:
        lives: dict[str, Life] = {}
        server, authority, token = access(self.control_plane.kubeconfig(RESPONDER))
        for number in range(self.responders):
            folder = self.folder / f"responder-{number}"
            folder.mkdir(parents=True)
            lives[folder.name] = Life(
                bootstrap=settings.bootstrap,
                prefix=settings.topic_prefix,
                kubernetes=server,
                kubernetes_authority=str(authority),
                kubernetes_token=token,
                jira=jira.url,
                jira_user=jira.user,
                jira_token=jira.token,
                books=str(BOOKS),
                folder=str(folder),
                sends="STOP",
                partitions=PARTITIONS,
                session_timeout_ms=SESSION_MS,
                more={"lease_s": LEASE_S},
            )
        return lives

    async def _feed(
        self,
        producer: AIOKafkaProducer,
        tape: Tape,
        settings: KafkaSettings,
        troop: Troop,
        blows: asyncio.Task[None],
    ) -> None:
        """Tell of the incidents, a bounded number at once, until the run of each is over."""
        prefix = settings.topic_prefix
        per_blow = max(4, self.incidents // MOST_BLOWS)
        troop.struck = lambda: tape.nudge(prefix)

        async def tell(topic: Topic, cluster: str, key: str, value: object) -> None:
            partition = partition_of(cluster, PARTITIONS)
            await producer.send_and_wait(
                prefix + topic.name, key=key.encode(), value=encode(value), partition=partition
            )

        await asyncio.gather(*(tell(INVENTORY, f.cluster, f.key, FactRecord(f)) for f in self.facts))
        over: set[str] = set()
        read = 0

        async def all_over() -> bool:
            nonlocal read
            if blows.done():
                blows.result()
            for record in tape.records(prefix, RUNS, read):
                read += 1
                run = decode(Run, record.value)
                if not run.has_work:
                    over.add(run.incident)
            # No more incidents than there have been blows for: a fast machine would be through before the first.
            wanted = min(self.incidents, per_blow * (1 + troop.blows))
            while len(self.about) < wanted and len(self.about) - len(over) < IN_FLIGHT:
                incident = _incident(self.facts[len(self.about)])
                self.about.append(incident)
                await tell(INCIDENTS, incident.cluster, incident.id, incident)
            return len(over) == self.incidents

        async with asyncio.timeout(120 + self.incidents * (EFFECTS / 4 + LONGEST_BLOW_S / per_blow)):
            await tape.until(prefix, all_over)

    def _judge(
        self,
        figures: Figures,
        tape: Tape,
        settings: KafkaSettings,
        jira: TimedJira,
        writes: Sequence[Write],
    ) -> None:
        """Hold every incident's history against the invariants."""
        found = Counter[str]()
        by_node: defaultdict[str, list[Write]] = defaultdict(list)
        for write in writes:
            by_node[write.name].append(write)
            figures.refused_late += write.code == 409
        by_incident = _by_incident(jira)
        starts: defaultdict[str, list[Start]] = defaultdict(list)
        for trace in sorted(self.folder.glob("*/trace")):
            for start in starts_in(trace, bool):
                starts[start.key].append(start)
        for about, versions, timeline, reports in _told_of(tape, settings, self.about):
            assert about.root.node is not None
            issues = {
                issue.id: "ticket" if n == 0 else f"copy {n}"
                for n, issue in enumerate(_issues(jira, about.id))
            }
            nodes = {about.root.node: "bad"}
            touches = (
                *node_touches(by_node[about.root.node], nodes),
                *touches_of(by_incident[about.id], about.id, issues),
            )
            last = versions[-1].run.steps if versions else ()
            keys = [record.effect.key for record in last if record.effect is not None]
            sent = tuple(start for key in keys for start in starts[key])
            history = History(versions, touches, timeline, reports, sent, {})
            figures.effects += sum(
                record.effect is not None and record.effect.state is EffectState.CONFIRMED for record in last
            )
            said = violations(history)
            found.update(text.split(":")[0] for text in said)
            figures.doubled += sum(text.startswith("one_effect_each") for text in said)
            figures.copies_folded += len(issues) - 1
            if said and len(figures.examples) < 5:
                figures.examples.append("\n".join([*said, told(history)]))
        figures.problems = dict(found)

    async def _nodes_are_open(self, admin: Cluster, figures: Figures) -> None:
        mine = {fact.name for fact in self.facts}
        left = [
            node["metadata"]["name"]
            for node in await admin.list_all(NODES)
            if node["metadata"]["name"] in mine and (node["spec"].get("unschedulable") or is_marked(node))
        ]
        if left:
            figures.problems["left_closed"] = len(left)


@dataclass
class Troop:
    """The responders of a contest, and the blows that are dealt to them."""

    nursery: Nursery
    lives: dict[str, Life]
    chance: random.Random
    figures: Figures
    struck: Callable[[], None] = lambda: None
    """Called with each blow."""
    blows: int = 0
    """How many were dealt so far."""
    _frozen: set[str] = field(default_factory=set)

    async def start(self) -> None:
        """Begin every life."""
        for name in self.lives:
            self._plan(name, [])
            await self._begin(name)

    async def be_beaten(self) -> None:
        """Deal blows, one after the other and some at the same time, until cancelled. One of them is always left in peace."""
        pending: set[asyncio.Task[None]] = set()
        try:
            while True:
                # The pace of the blows, not a wait for anything.
                await asyncio.sleep(self.chance.uniform(*BLOWS_S))
                for task in [task for task in pending if task.done()]:
                    pending.discard(task)
                    task.result()
                free = [name for name in self.lives if name not in self._frozen]
                if len(free) < 2:
                    continue
                name = self.chance.choice(free)
                self._frozen.add(name)
                self.blows += 1
                self.struck()
                pending.add(asyncio.create_task(self._strike(name), name=f"blow at {name}"))
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    async def come_to_rest(self) -> None:
        """Let those that are frozen wake and find out, and end all in order."""
        for name in self.lives:
            self._plan(name, [])
            self.nursery.signal(name, signal.SIGCONT)
        for name in self.lives:
            self.nursery.signal(name, signal.SIGTERM)
        for name in self.lives:
            code = await self.nursery.ended(name)
            assert code in (0, -signal.SIGKILL, -signal.SIGTERM), f"{name} ended with {code}"

    def takeovers(self) -> int:
        """How often a journal was opened."""
        return sum(
            (Path(life.folder) / "log").read_text().count('"document store open"')
            for life in self.lives.values()
        )

    async def _strike(self, name: str) -> None:
        try:
            match self.chance.choice(("freeze", "freeze", "freeze", "worst", "worst", "kill", "end")):
                case "freeze":
                    await self._freeze(name)
                case "worst":
                    await self._freeze_before_a_request(name)
                case "kill":
                    self.figures.kills += 1
                    self.nursery.signal(name, signal.SIGKILL)
                    await self.nursery.ended(name)
                    await self._begin(name)
                case "end":
                    self.figures.ends += 1
                    self.nursery.signal(name, signal.SIGTERM)
                    code = await self.nursery.ended(name)
                    assert code in (0, -signal.SIGTERM), f"{name} ended with {code}"
                    await self._begin(name)
        finally:
            self._frozen.discard(name)

    async def _freeze(self, name: str) -> None:
        self.figures.freezes += 1
        self.nursery.signal(name, signal.SIGSTOP)
        await self._thaw(name)

    async def _freeze_before_a_request(self, name: str) -> None:
        """Freeze it where its lease has been asked and its request has not left.

        It may own nothing and never come there: then it is frozen where it stands, for every blow has to be one.
        """
        self._plan(name, AT_THE_WORST)
        plan = Path(self.lives[name].folder) / "plan.json"

        async def hit() -> bool:
            left: list[list[str]] = json.loads(plan.read_text())
            return not left

        try:
            await eventually(hit, "it comes to a request", timeout_s=3)
        except TimeoutError:
            self._plan(name, [])
            await self._freeze(name)
            return
        self.figures.freezes_before_a_request += 1
        await self._thaw(name)

    async def _thaw(self, name: str) -> None:
        try:
            await asyncio.sleep(self.chance.uniform(*FROZEN_S))  # how long it is frozen
        finally:
            self.nursery.signal(name, signal.SIGCONT)

    async def _begin(self, name: str) -> None:
        await self.nursery.start(name, self.lives[name], Path(self.lives[name].folder) / "log")

    def _plan(self, name: str, deaths: list[list[str]]) -> None:
        plan = Path(self.lives[name].folder) / "plan.json"
        part = plan.with_suffix(".next")
        part.write_text(json.dumps(deaths))
        part.replace(plan)


def _clusters() -> list[str]:
    """A cluster for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        name = f"cluster-{number}"
        found.setdefault(partition_of(name, PARTITIONS), name)
        number += 1
    return [found[number] for number in range(PARTITIONS)]


def _incident(fact: NodeFact) -> Incident:
    now, root = datetime.now(UTC), Entity(fact.cluster, node=fact.name)
    return Incident(
        id=incident_id(fact.cluster, root, "bulk", 1),
        cluster=fact.cluster,
        family="bulk",
        root=root,
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.CRITICAL,
        certainty=Certainty.DECISIVE,
        title=f"bulk on {fact.name}",
        reason="for the sake of a test",
        fault_at=now,
        opened_at=now,
        updated_at=now,
        nodes=(fact.name,),
    )


def _issues(jira: JiraStandin, incident: str) -> Sequence[Any]:
    wanted = f"faultline-{incident}"
    return [issue for issue in jira.issues if wanted in issue.labels]


def _by_incident(jira: TimedJira) -> Mapping[str, list[Arrived]]:
    """Requests by incident: by what a new issue is labelled, and by the issue a request is about."""
    incident_of: dict[str, str] = {}
    for issue in jira.issues:
        for label in issue.labels:
            if label.startswith("faultline-inc-"):
                incident_of[issue.id] = label.removeprefix("faultline-")
    found: defaultdict[str, list[Arrived]] = defaultdict(list)
    for change in jira.changes:
        rest = change.path.split("/rest/api/3/issue")[1].strip("/").split("/")
        if rest == [""]:
            labels = json.loads(change.body)["fields"]["labels"]
            owners = [one.removeprefix("faultline-") for one in labels if one.startswith("faultline-inc-")]
            found[owners[0]].append(change)
        elif rest[0] in incident_of:
            found[incident_of[rest[0]]].append(change)
    return found


Telling = tuple[Incident, tuple[Version, ...], tuple[TimelineEntry, ...], tuple[str, ...]]


def _told_of(tape: Tape, settings: KafkaSettings, about: Sequence[Incident]) -> Iterator[Telling]:
    """What was committed about each incident: its runs, its timeline, the kinds of its signals."""
    prefix = settings.topic_prefix
    versions: defaultdict[str, list[Version]] = defaultdict(list)
    said: defaultdict[str, list[TimelineEntry]] = defaultdict(list)
    reports: defaultdict[str, list[str]] = defaultdict(list)
    for record in tape.records(prefix, RUNS):
        run = decode(Run, record.value)
        versions[run.incident].append(Version(from_millis(record.timestamp), run))
    for record in tape.records(prefix, TIMELINE):
        said[record.key.decode()].append(decode(TimelineEntry, record.value))
    for record in tape.records(prefix, SIGNALS):
        for told_of in decode(SignalBatch, record.value).signals:
            reports[str(told_of.attributes.get("incident"))].append(told_of.kind)
    for one in about:
        yield one, tuple(versions[one.id]), tuple(said[one.id]), tuple(reports[one.id])


@contextmanager
def small_control_plane(folder: Path) -> Iterator[ControlPlane]:
    """The API server and its store alone."""
    control_plane = ControlPlane(folder)
    try:
        control_plane.prepare()
        for name in ("etcd", "kube-apiserver"):
            control_plane.start_component(name)
        yield control_plane
    finally:
        control_plane.stop()


def main() -> int:
    """Hold the contests that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--effects", type=int, default=10_000, help="in all contests together")
    parser.add_argument("--responders", type=int, nargs="+", default=[2, 3], help="a contest for each")
    parser.add_argument("--seed", type=int, default=1, help="of the blows")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="faultline-compete-"))
    each = -(-asked.effects // (EFFECTS * len(asked.responders)))
    found: list[Figures] = []
    with (
        Kafka.running(folder / "kafka", for_load=True) as kafka,
        small_control_plane(folder / "kubernetes") as plane,
    ):
        for responders in asked.responders:
            contest = Contest(kafka, plane, folder / f"of-{responders}", responders, each, asked.seed)
            found.append(asyncio.run(contest.run()))
            print(json.dumps(asdict(found[-1]) | {"examples": []}), file=sys.stderr, flush=True)
            print("\n\n".join(found[-1].examples), file=sys.stderr, flush=True)
    total: Callable[[str], int] = lambda name: sum(getattr(one, name) for one in found)  # noqa: E731
    names = ("incidents", "effects", "doubled", "copies_folded", "refused_late", "freezes")
    more = ("freezes_before_a_request", "kills", "ends", "takeovers")
    problems = sum((Counter(one.problems) for one in found), Counter[str]())
    figures: dict[str, object] = {name: total(name) for name in (*names, *more)}
    seconds = sum(one.seconds for one in found)
    figures |= {"seconds": round(seconds, 1), "effects_per_s": round(total("effects") / seconds, 1)}
    print(json.dumps(figures | {"responders": asked.responders, "problems": dict(problems)}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
