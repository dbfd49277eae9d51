"""A whole way of one incident through the board: connectors that follow a script, a person who approves, and time that passes.

The world it acts on is small but keeps account, and every call is held against what must always be true of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from connectors.base import Absent, AlreadyDone, Done, Outcome, Refused
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.schema import NODE_WORK, TICKETS, Runbook
from streams.model.conversation import Command, Verb
from streams.model.facts import Fact
from streams.model.incident import Incident, Progress
from streams.model.kinds import IncidentFamily
from streams.model.run import Run, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, LIBRARY, NOW, cluster, radius

UNLIMITED = ACTIONS | NODE_WORK | TICKETS
REPAIRS = frozenset({"reset_gpu", "reboot_node", "power_cycle_node"})
WORKED_ON = "await_work"
"""Instead of a repair of ours: people worked on the node."""
ELSEWHERE = "node-12"
SLOW = ("node-03",)
"""What every diagnosis finds."""
TURNS = 400

Script = Callable[[Call], Outcome | None]
"""What the outside says to a call; None for its being well."""


@dataclass
class World:
    """What a call does, and what must be true for it to be made."""

    closed: set[str] = field(default_factory=set)
    suspended: set[str] = field(default_factory=set)
    resumed: set[str] = field(default_factory=set)
    sound: dict[str, str] = field(default_factory=dict)
    """How far the repair of a node has come: the action that was done last."""
    keys: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)
    diagnoses: bool = False
    """Whether jobs are stopped to be diagnosed."""
    slow: set[str] | None = None
    """What a diagnosis has found; None before it."""

    def carry_out(self, call: Call) -> None:
        """A change that is really made."""
        action, name, job = call.effect.action, call.effect.target.name, call.effect.target.key
        if call.kind == "undo":
            self._undo(action, name, job)
            return
        assert call.effect.key not in self.keys, f"{action} {name} is made twice"
        self.keys.add(call.effect.key)
        self.made.append(action)
        match action:
            case "cordon_node":
                self.closed.add(name)
            case "suspend_job":
                assert self.closed or self.diagnoses, f"{job} is stopped before a node is closed"
                self.suspended.add(job)
            case "diagnose_nodes":
                assert job in self.suspended, f"the nodes of {job} are measured while it runs"
                self.slow = set(SLOW)
            case "drain_node":
                assert name in self.closed, f"{name} is drained open"
            case "resume_job":
                assert job in self.suspended, f"{job} is resumed and was not stopped"
                assert not self.diagnoses or self.slow is not None, f"{job} is resumed before it is diagnosed"
                assert self.closed >= (self.slow or set()), f"{job} is resumed on a node that was slow"
                self.suspended.discard(job)
                self.resumed.add(job)
            case "reset_gpu" | "reboot_node" | "power_cycle_node":
                assert name in self.closed, f"{action} of {name}, which is in service"
                assert not self.suspended, f"{action} of {name} while {self.suspended} wait for it"
                self.sound[name] = action
            case "validate_node":
                assert self.sound.get(name) in {*REPAIRS, WORKED_ON}, (
                    f"{name} is validated before it was repaired"
                )
                self.sound[name] = action
            case "uncordon_node":
                assert self.sound.get(name) == "validate_node", f"{name} is given back without a validation"
                self.closed.discard(name)

    def _undo(self, action: str, name: str, job: str) -> None:
        self.made.append(f"undo {action}")
        if action == "suspend_job":
            self.suspended.discard(job)
        if action == "cordon_node":
            self.closed.discard(name)


class Walk:
    """One incident from its first revision to where nothing moves any more. Look at `world`, `runs` and `told` after it."""

    def __init__(
        self,
        incident: Incident,
        script: Script = lambda call: None,
        *,
        library: Sequence[Runbook] = LIBRARY,
        actions: frozenset[str] = UNLIMITED,
        says: Verb = Verb.APPROVE,
    ) -> None:
        self.world = World()
        if incident.family == IncidentFamily.PLANNED_WORK and incident.root.node is not None:
            self.world.sound[incident.root.node] = WORKED_ON
        self.world.diagnoses = any(
            book.match == "true" and any(step.action == "diagnose_nodes" for step in book.steps)
            for book in library
        )
        self.told: list[str] = []
        self._incident, self._script, self._says = incident, script, says
        self._now = NOW
        self._asked = 0
        self._board = PartitionState(
            library, radius(max_per_window=1000, max_share=1.0, max_nodes=9), actions
        )
        view = cluster()
        self._pods = list(view.pods.values())
        facts: list[Fact] = [*view.nodes.values(), *self._pods, *view.jobs.values()]
        for fact in facts:
            self._board.take_fact(fact.key, fact)
        self._board.take_incident(incident)
        self._go()

    @property
    def runs(self) -> list[Run]:
        """The runs in the order they were begun."""
        return list(self._board.runs.values())

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Runbook and outcome of each run."""
        return [(run.plan.runbook, run.outcome) for run in self.runs]

    @property
    def made(self) -> list[str]:
        """What was really done, tickets apart."""
        return [action for action in self.world.made if action not in TICKETS]

    def _go(self) -> None:
        self._board.advance(self._now)
        for _ in range(TURNS):
            if not (self._answer() or self._progress() or self._decide() or self._wait()):
                return
            self._board.advance(self._now)
        raise AssertionError(f"still moving after {TURNS} turns: {self.told[-5:]}")

    def _answer(self) -> bool:
        changes = self._board.collect()
        self.told += [f"{entry.event} {entry.text}" for entry in changes.timeline]
        self._now += timedelta(seconds=len(changes.calls))
        for call in changes.calls:
            outcome = self._outcome(call)
            if call.kind not in LOOKUPS and isinstance(outcome, Done):
                self.world.carry_out(call)
            self._board.take_outcome(call, outcome, self._now)
        self._place()
        return bool(changes.calls or changes.runs)

    def _place(self) -> None:
        """The pods of jobs that were resumed are anywhere but on the closed node, as inventory sees it."""
        for pod in self._pods:
            if pod.job is not None and pod.job.key in self.world.resumed and pod.node in self.world.closed:
                self._board.take_fact(pod.key, replace(pod, node=ELSEWHERE, observed_at=self._now))

    def _outcome(self, call: Call) -> Outcome:
        said = self._script(call) if call.kind == "apply" else None
        if said is not None:
            return said
        if call.kind in LOOKUPS:
            return AlreadyDone() if call.kind == "lookup" else Absent()
        if call.kind == "apply" and call.effect.key in self.world.keys:
            return AlreadyDone({"prior": "schedulable"})  # a rung above goes on with what is there
        found = {"slow": SLOW} if call.effect.action == "diagnose_nodes" else {"prior": "schedulable"}
        return Done(found)

    def _progress(self) -> bool:
        """Jobs that are watched print an iteration a second later."""
        watched = {
            planned.target.key
            for run in self.runs
            for planned in run.plan.steps
            if planned.action == "await_progress"
            and planned.target
            and run.step(planned.id).state is StepState.RUNNING
        }
        if not watched:
            return False
        self._now += timedelta(seconds=1)
        news = tuple(Progress(job, self._now, 100) for job in self._incident.jobs if job.key in watched)
        self._incident = replace(
            self._incident,
            revision=self._incident.revision + 1,
            updated_at=self._now,
            progress=news,
        )
        self._board.take_incident(self._incident)
        return True

    def _decide(self) -> bool:
        """A person answers what is asked for, once for each plan that waits."""
        for run in self.runs:
            if any(record.state is StepState.AWAITING_APPROVAL for record in run.steps):
                self._asked += 1
                word = Command(
                    f"cmd-{self._asked}", run.incident, CLUSTER, self._says, "ada", self._now, digest=run.plan.digest
                )  # fmt: skip
                self._board.take_command(word)
                return True
        return False

    def _wait(self) -> bool:
        due = self._board.due_at()
        if due is None:
            return False
        self._now = max(due, self._now + timedelta(milliseconds=1))
        return True


def refuses(*steps: str, runbook: str = "") -> Script:
    """A script in which these steps fail for good, in one runbook or in all."""

    def script(call: Call) -> Outcome | None:
        mine = call.step.partition(":")[0] in steps and (not runbook or runbook in _runbook(call))
        return Refused("it does not work") if mine else None

    return script


def _runbook(call: Call) -> str:
    return str(call.effect.context.get("runbook", "")).split()[0]


def only(book: Runbook) -> tuple[Runbook, ...]:
    """The library, with one runbook that is taken whatever the incident is: so that a rung can be walked by itself."""
    first = book.model_copy(update={"match": "true", "priority": 1000})
    return tuple(first if one.id == book.id else one for one in LIBRARY)


def steps_of(walk: Walk, run: Run) -> Iterator[tuple[str, StepState]]:
    """Each step of a run by the runbook's own name, and how it ended."""
    for record in run.steps:
        yield record.id.partition(":")[0], record.state
