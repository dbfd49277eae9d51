"""One interleaving: two incidents are carried out by the real engine and the real connectors, and others act in between.

Others act before any request of Faultline's, so also between what it reads and what it writes. The responder dies at random
before and after its calls and takes over what it had committed; answers get lost. Everything follows from the seed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import tests.crash_matrix
from connectors.base import NoLease, Outcome, Unknown
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.nodes import NodeConnector
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.loader import load
from sandbox.emulated.api_server import serving
from sandbox.emulated.store import PODS
from streams.config.settings import BlastRadius, Breaker, Protection, ResponderSettings
from streams.inventory.cluster_inventory import Inventory
from streams.model.entity import Entity, JobRef
from streams.model.facts import JobFact
from streams.model.incident import Certainty, Incident, IncidentState, Progress, incident_id
from streams.model.run import EffectState, Mode, Run, RunState
from streams.model.signal import Severity
from streams.model.watch import ObjectChange
from tests.interleavings.cluster import SmallCluster
from tests.interleavings.ending import left_behind

CLUSTER = "c1"
RUNBOOKS = load((Path(tests.crash_matrix.__file__).parent / "runbooks",), shipped=False)
BOOKS = ("node", "move", "back", "other")
POLICY = ResponderSettings(
    mode=Mode.AUTO,
    lease_s=30.0,
    blast_radius=BlastRadius(max_nodes=9, max_share=1.0, max_per_window=99),
    breaker=Breaker(failures=0, mass_min_nodes=0),
    protect=Protection(keep_per_pool=0),
)
ENDS_AFTER_S = 4 * 3600.0
DISTURBED_FOR_S = 60.0


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a seed: violations (none when all is well), the story, and what was done."""

    seed: int
    problems: tuple[str, ...]
    story: tuple[str, ...]
    requests: int
    acts: int
    deaths: int
    outcomes: tuple[str, ...]


class _Interrupted(Cluster):
    """A client before each of whose requests something may happen."""

    before: Callable[[str, str], None]

    async def _call(self, method: str, path: str, *more: Any, **named: Any) -> Object:
        self.before(method, path)
        return await super()._call(method, path, *more, **named)

    async def get_each(self, paths: Iterable[str]) -> dict[str, Object]:
        """One after the other: what is asked at once arrives in any order, and a seed is one story."""
        found: dict[str, Object] = {}
        for path in paths:
            with suppress(NotFound):
                found[path] = await self.get(path)
        return found


async def play(seed: int, density: float = 0.35) -> Played:
    """Play the interleaving of a seed to its end; `density` is how likely somebody acts before a request."""
    async with _Play.ready(seed, density) as one:
        return await one.through()


@dataclass
class _Play:
    seed: int
    density: float
    random: Random
    world: SmallCluster
    client: _Interrupted
    inventory: Inventory = field(default_factory=lambda: Inventory(CLUSTER))
    runs: dict[str, Run] = field(default_factory=dict)
    """As committed."""
    incidents: dict[str, Incident] = field(default_factory=dict)
    requests: int = 0
    acts: int = 0
    deaths: int = 0
    _seen: int = 0

    @classmethod
    @asynccontextmanager
    async def ready(cls, seed: int, density: float) -> AsyncIterator[_Play]:
        """The cluster, served, and a responder that knows it."""
        random = Random(seed)
        world = SmallCluster(random)
        async with serving(world.store) as url, await _Interrupted.at(url) as client:
            assert isinstance(client, _Interrupted)
            one = cls(seed, density, random, world, client)
            client.before = one._before
            yield one

    async def through(self) -> Played:
        self.board = self._board()
        self._learn()
        for fact in self.inventory.settle():
            self.board.take_fact(fact[0], fact[1].fact if fact[1] else None)
        self.connectors = {
            action: connector
            for connector in (
                NodeConnector(self.client, lambda: self.world.now),
                TrainingJobs(self.client, lambda: self.world.now),
            )
            for action in connector.actions
        }
        for number in (1, 2):
            self._open(number)
        while not self._is_over():
            await self._iterate()
        problems = [*self.world.ledger.problems, *left_behind(self.world.ledger, self.runs.values())]
        return Played(
            self.seed, tuple(problems), tuple(self.world.story), self.requests, self.acts, self.deaths,
            tuple(sorted(f"{r.plan.runbook} {r.outcome}" for r in self.runs.values())),
        )  # fmt: skip

    @property
    def _elapsed_s(self) -> float:
        return (self.world.now - self._began).total_seconds()

    def _open(self, number: int) -> None:
        """An incident about a node on which a job runs, with one of the books."""
        self._began = self.world.now
        used = {p["spec"]["nodeName"] for p in self.world.store.list(PODS) if p["spec"].get("nodeName")}
        node = self.random.choice(sorted(used))
        view = self.board.view(CLUSTER)
        jobs = [view.jobs[key].job for key in sorted(view.jobs_on(node))]
        book, root = self.random.choice(BOOKS), Entity(CLUSTER, node=node)
        now = self.world.now
        made = Incident(
            id=incident_id(CLUSTER, root, book, number), cluster=CLUSTER, family=book, root=root, incarnation=number,
            revision=1, state=IncidentState.OPEN, severity=Severity.CRITICAL, certainty=Certainty.DECISIVE,
            title=f"{book} on {node}", reason="for the sake of a test", fault_at=now, opened_at=now, updated_at=now,
            jobs=tuple(jobs), nodes=(node,), facts={},
        )  # fmt: skip
        self.world.say(f"incident {made.id}: {made.title}")
        self._tell(made)

    def _tell(self, incident: Incident, **changes: Any) -> None:
        if changes:
            incident = replace(incident, revision=incident.revision + 1, updated_at=self.world.now, **changes)
        self.incidents[incident.id] = incident
        self.board.take_incident(incident)

    def _board(self) -> PartitionState:
        """A responder that has taken over what was committed."""
        board = PartitionState(
            RUNBOOKS,
            POLICY,
            frozenset(NodeConnector(self.client).actions | TrainingJobs.actions),
            dict(self.runs),
        )
        for _ in board.recovering(self.world.now):
            pass
        for key, record in self.inventory.facts.items():
            board.take_fact(key, record.fact if record else None)
        for incident in self.incidents.values():
            board.take_incident(incident)
        return board

    async def _iterate(self) -> None:
        self._pass()
        self.board.advance(self.world.now)
        batch = self.board.collect()
        for run in batch.runs:
            self.runs[run.id] = run
        for call in batch.calls:
            if await self._perform(call):
                return  # who took over finds out about the others
        self._direct()

    async def _perform(self, call: Call) -> bool:
        """Carry a call out and take its outcome; True when the responder died on it."""
        if self._dies():
            return self._take_over(f"dies before {call.kind} {call.step}")
        effect, connector = call.effect, self.connectors[call.effect.action]
        self.world.ledger.call_begins()
        outcome: Outcome
        if call.kind in LOOKUPS:
            outcome = await connector.lookup(effect)
        elif call.kind == "undo":
            outcome = await connector.undo(effect, NoLease())
        else:
            outcome = await connector.apply(effect, NoLease())
        self.world.say(f"{call.kind} {effect.action} {effect.target.name} for {effect.incident}: {outcome}")
        if self._dies():
            return self._take_over(f"dies after {call.kind} {call.step}")
        if call.kind not in LOOKUPS and self.random.random() < 0.05:
            outcome = Unknown("the answer got lost")
        self.board.take_outcome(call, outcome, self.world.now)
        return False

    def _dies(self) -> bool:
        return self._elapsed_s < DISTURBED_FOR_S and self.random.random() < 0.03

    def _take_over(self, why: str) -> bool:
        self.world.say(why)
        self.deaths += 1
        self.world.pass_s(self.random.choice((0.5, 5, 40)))
        self._learn()
        self.board = self._board()
        return True

    def _before(self, method: str, path: str) -> None:
        """Somebody may be quicker than a request of Faultline's."""
        self.requests += 1
        if method != "GET":
            self.world.say(f"  {method} {path}")
        while self._elapsed_s < DISTURBED_FOR_S and self.random.random() < self.density:
            self._disturb()
        if self.random.random() < 0.2:
            with self.world.store.by("controllers"):
                self.world.controllers.step()

    def _disturb(self) -> None:
        self.acts += 1
        self.world.disturb()

    def _pass(self) -> None:
        """Time passes: at first seconds, then up to when something is due."""
        if self._elapsed_s < DISTURBED_FOR_S:
            self.world.pass_s(self.random.choice((0.5, 1, 2)))
            if self.random.random() < self.density:
                self._disturb()
        else:
            due = self.board.due_at() or self.world.now
            self.world.now = max(self.world.now, due - timedelta(seconds=1))
            self.world.pass_s(1)
        self._learn()

    def _learn(self) -> None:
        """What the inventory sees of the changes since."""
        for event in self.world.store.since(self._seen):
            self._seen = event.version
            change = ObjectChange(self.world.now, event.type, event.object)  # type: ignore[arg-type]
            for key, record in self.inventory.apply(change):
                self.board.take_fact(key, record.fact if record else None, self.world.now)

    def _direct(self) -> None:
        """What the correlator would say: progress of a job that is back, and at some time that it is over."""
        for run in self.runs.values():
            incident = self.incidents[run.incident]
            if incident.state is not IncidentState.OPEN:
                continue
            asked = run.state is RunState.AWAITING_APPROVAL
            quiet = self._elapsed_s > 2 * DISTURBED_FOR_S
            if asked or self.random.random() < 0.005 or (quiet and not run.has_work):
                self._tell(incident, state=IncidentState.RESOLVED, reason="it was a false alarm")
            elif (job := _resumed(run, incident)) and not incident.progress and self._runs(job):
                self._tell(incident, progress=(Progress(job, self.world.now, 100),))

    def _runs(self, job: JobRef) -> bool:
        fact = self.board.view(CLUSTER).jobs.get(job.key)
        pods = [pod for pod in self.board.view(CLUSTER).pods_of(job.key) if pod.ready]
        return isinstance(fact, JobFact) and bool(pods)

    def _is_over(self) -> bool:
        begun = {run.incident for run in self.runs.values()}
        over = begun == set(self.incidents) and not any(run.has_work for run in self.runs.values())
        if over and all(i.state is IncidentState.RESOLVED for i in self.incidents.values()):
            return True
        assert self._elapsed_s < ENDS_AFTER_S, "\n".join(
            [f"seed {self.seed} does not end", *self.world.story]
        )
        return False


def _resumed(run: Run, incident: Incident) -> JobRef | None:
    done = {
        record.effect.action
        for record in run.steps
        if record.effect is not None and record.effect.state is EffectState.CONFIRMED
    }
    return incident.jobs[0] if incident.jobs and "resume_job" in done else None
