"""The machine against a model of everything around it: API server, ticket system, correlator, people, and its own death.

One board works several incidents that overlap in node and job. It remembers nothing but the documents it has committed, as
bytes; it may die before a commit, after it, and with calls in the air that land unseen. After each step, and once everything
has come to rest, invariants 3 to 6 of the design are checked on what really landed outside.

`TEST_EFFORT=full pytest tests/runbooks/engine/test_run_model.py` plays 15,000 steps; the quick suite plays some hundred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from connectors.base import Blocked, Outcome, Refused, Retry, Unknown, Waiting
from runbooks.engine.commit_batch import CommitBatch
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.by_hand import shown_digest
from runbooks.engine.run.continuation import continuation
from runbooks.engine.run.plan import plan
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.loader import load_text
from streams.config.settings import BlastRadius
from streams.model.codec import decode, encode
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.errors import BadInput
from streams.model.incident import Certainty, Incident, IncidentState, Progress
from streams.model.run import EffectState, Mode, Run, RunState, StepState
from tests.effort import FULL, tries
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, incident, policy
from tests.runbooks.small_world import EVAL, Landed, SmallWorld

PER_EXAMPLE = 50
STEPS = tries(15_000, quick=800)

FAULTY = ("node-03", "node-06")
GPU_3 = Entity(CLUSTER, node="node-03", gpu=Gpu("0000:1b:00", "GPU-3"))
GPU_6 = Entity(CLUSTER, node="node-06", gpu=Gpu("0000:1b:00", "GPU-6"))
CASES: tuple[Incident, ...] = (
    incident("gpu_off_bus", GPU_3, jobs=(JOB,), nodes=("node-03",)),
    incident("node_down", Entity(CLUSTER, node="node-03"), jobs=(JOB,), nodes=("node-03",)),
    incident("gpu_off_bus", GPU_6, jobs=(EVAL,), nodes=("node-06",)),
    incident("gpu_fault", GPU_6, jobs=(EVAL,), nodes=("node-06",)),
    incident("hang", Entity(CLUSTER, job=JOB), jobs=(JOB,), nodes=("node-02", "node-03")),
)
ANSWERS = st.sampled_from(["true"] * 7 + ["unknown", "unknown", "retry", "waiting", "refused", "blocked"])
RARELY = st.sampled_from([True, False, False, False])
VERBS = (Verb.ACK, Verb.APPROVE, Verb.APPROVE, Verb.REJECT, Verb.STOP, Verb.RESOLVE)
LADDER = tuple(
    load_text(text, "ladder.yaml")
    for text in (
        """
id: stop-and-start
revision: 1
owner: gpu-platform
mode: auto
priority: 900
description: first rung, with everything that may end a run in another way
match: incident.family == "gpu_fault"
escalation: {to: close-for-good, after: 2, within_s: 86400, per: gpu}
steps:
  - {id: ticket, action: open_ticket, target: incident, on_failure: continue}
  - {id: cordon, action: cordon_node, target: root_node, undo: true, compensate: {action: uncordon_node}}
  - id: suspend
    action: suspend_job
    target: jobs
    needs: [cordon]
    undo: true
    waves: {size: 1, pause_s: 5}
    retry: {attempts: 3, first_s: 2}
    on_failure: undo
  - {id: drain, action: drain_node, target: root_node, needs: [suspend, cordon], on_failure: escalate}
  - {id: resume, action: resume_job, target: jobs, needs: [suspend, drain]}
  - {id: verify, action: verify_job, target: jobs, needs: [resume], deadline_s: 120, on_failure: escalate}
  - {id: go, action: await_progress, target: jobs, needs: [verify], deadline_s: 300, on_failure: escalate}
""",
        """
id: close-for-good
revision: 1
owner: gpu-platform
mode: auto
description: second rung
match: incident.family == "none"
steps:
  - {id: ticket, action: open_ticket, target: incident, on_failure: continue}
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: drain, action: drain_node, target: root_node, needs: [cordon]}
""",
    )
)
BOOKS = (*LIBRARY, *LADDER)
BY_HAND = ("", "", "", "", "", "gpu-off-bus", "stop-and-start")
"""Runbooks that a person starts; empty for a run that is taken up again."""
MOVES = ("suspend_job", "drain_node")
ONCE = ("cordon_node", "suspend_job", "resume_job", "open_ticket", "undo cordon_node", "undo suspend_job")


@dataclass(frozen=True, slots=True)
class InTheAir:
    """A call that was started and whose end has not been seen."""

    call: Call
    lease_until: datetime

    @property
    def changes(self) -> bool:
        """Whether it may change anything."""
        return self.call.kind not in LOOKUPS and self.call.effect.action != "verify_job"


class Model(RuleBasedStateMachine):
    """PartitionState, documents, world, correlator and people, one step at a time."""

    steps: ClassVar[int] = 0
    seen: ClassVar[Counter[str]] = Counter()

    @initialize(
        mode=st.sampled_from([Mode.AUTO] * 6 + [Mode.APPROVE, Mode.SHADOW]), first=st.sampled_from(CASES)
    )
    def start(self, mode: Mode, first: Incident) -> None:
        self.now = NOW
        self.world = SmallWorld(set(FAULTY))
        self.policy = policy(
            mode=mode,
            blast_radius=BlastRadius(max_nodes=6, max_share=0.6, max_per_window=200),
        )
        self.documents: dict[str, bytes] = {}
        self.published: dict[str, Incident] = {}
        self.known: dict[str, Incident] = {}
        self.unreadable: set[str] = set()
        self.said: list[Command] = []
        self.heard = 0
        self.air: list[InTheAir] = []
        self.ghosts: list[InTheAir] = []
        self.closing: dict[str, str] = {}
        self.ends: Counter[str] = Counter()
        """How often the end of each run was told."""
        self.plans: Counter[str] = Counter()
        """How often each run was planned, or had steps added that it waits for."""
        self.trained: dict[str, list[datetime]] = {JOB.key: [], EVAL.key: []}
        self.checked = 0
        self.touched_by_persons: set[str] = set()
        self.board = self.new_board()
        self.catch_up()
        self.publish(first)
        self.turn("")

    # ── the process ─────────────────────────────────────────────────────────────────────────────────────────────────

    def new_board(self) -> PartitionState:
        runs = {key: decode(Run, raw) for key, raw in self.documents.items()}
        return PartitionState(BOOKS, self.policy, ACTIONS, runs)

    def restart(self) -> None:
        """The process is gone; what it had begun may land for as long as its lease holds. The next one reads everything."""
        self.ghosts += [flying for flying in self.air if flying.changes]
        self.air = []
        self.board = self.new_board()
        for key, fact in self.world.facts(self.now):
            self.board.take_fact(key, fact)
        for about in self.known.values():
            if about.id not in self.unreadable:
                self.board.take_incident(about)
        for command in self.said[self.heard :]:
            self.board.take_command(command)
        list(self.board.recovering(self.now))
        self.turn("")

    def turn(self, crash: str) -> None:
        """Advance, commit, start the calls; or die before or after the commit."""
        self.board.advance(self.now)
        changes = self.board.collect()
        if crash == "before the commit":
            self.restart()
            return
        self.commit(changes)
        if crash == "after the commit":
            self.restart()
            return
        for call in changes.calls:
            if any(
                (f.call.run, f.call.step, f.call.kind) == (call.run, call.step, call.kind) for f in self.air
            ):
                continue
            row = self.board.runs[call.run].step(call.step)
            effect = row.effect if call.kind in ("apply", "lookup") else row.undo
            assert effect is not None
            flying = InTheAir(call, effect.lease_until)
            if flying.changes:
                assert effect.state is EffectState.INTENDED, "a call without an intent"
                assert self.board.runs[call.run].plan.mode is not Mode.SHADOW, "a call in shadow"
                self.never_two_on_one_target(flying)
            self.air.append(flying)

    def commit(self, changes: CommitBatch) -> None:
        for run in changes.runs:
            self.documents[run.id] = encode(run)
        for gone in changes.deleted:
            del self.documents[gone]
        self.heard = len(self.said)
        told = (entry for entry in changes.timeline if entry.event in ("run.planned", "run.extended"))
        self.plans.update(str(entry.attributes["run"]) for entry in told)
        for batch in changes.signals:
            for said in batch.signals:
                about, outcome = str(said.attributes["incident"]), said.attributes.get("outcome", "")
                if said.kind == "run.finished":
                    name = str(said.attributes["run"])
                    self.ends[name] += 1
                if said.kind == "run.resolved" or (said.kind == "run.finished" and outcome == "succeeded"):
                    self.closing.setdefault(about, said.kind)

    def publish(self, about: Incident) -> None:
        """A revision of the correlator, at once read by the board."""
        about = replace(about, updated_at=self.now)
        self.known[about.id] = about
        self.unreadable.discard(about.id)
        self.board.take_incident(decode(Incident, encode(about)))

    def revise(self, about: Incident, **changes: object) -> None:
        self.publish(replace(about, revision=about.revision + 1, **changes))  # type: ignore[arg-type]

    def catch_up(self) -> None:
        """Inventory sees the world as it is."""
        for key, fact in self.world.news(self.now):
            self.board.take_fact(key, fact)

    def step(self, name: str, crash: str = "") -> None:
        Model.steps += 1
        Model.seen[name + (f", dies {crash}" if crash else "")] += 1
        self.turn(crash)
        self.check()

    # ── what can happen ─────────────────────────────────────────────────────────────────────────────────────────────

    crashes = st.sampled_from([""] * 14 + ["before the commit", "after the commit"])

    @rule(seconds=st.sampled_from([0.0, 1.0, 3.0, 8.0, 31.0, 200.0, 1000.0, 5000.0]), crash=crashes)
    def time_passes(self, seconds: float, crash: str) -> None:
        self.now += timedelta(seconds=seconds)
        self.step("time passes", crash)

    @precondition(lambda self: self.air)
    @rule(
        which=st.integers(0, 7),
        lands=st.booleans(),
        answer=ANSWERS,
        crash=crashes,
    )
    def a_call_ends(self, which: int, lands: bool, answer: str, crash: str) -> None:
        flying = self.air.pop(which % len(self.air))
        outcome = self.carry_out(flying, lands=lands, answer=answer)
        self.board.take_outcome(flying.call, outcome, self.now)
        self.step(f"a call ends: {answer}", crash)

    @precondition(lambda self: self.air)
    @rule(answers=st.lists(st.tuples(st.integers(0, 7), st.booleans(), ANSWERS), min_size=1, max_size=6))
    def calls_end_one_after_the_other(self, answers: list[tuple[int, bool, str]]) -> None:
        for which, lands, answer in answers:
            self.now += timedelta(seconds=0 if self.air else 3)
            if self.air:
                flying = self.air.pop(which % len(self.air))
                outcome = self.carry_out(flying, lands=lands, answer=answer)
                self.board.take_outcome(flying.call, outcome, self.now)
            self.world.settle()
            self.step(f"a call ends: {answer}")

    @rule(n=st.integers(1, 8))
    def all_goes_well_for_a_while(self, n: int) -> None:
        """So that histories get far enough for something to go wrong late."""
        for _ in range(n):
            self.now += timedelta(seconds=0 if self.air else 2)
            if self.air:
                flying = self.air.pop(0)
                outcome = self.carry_out(flying, lands=True, answer="true")
                self.board.take_outcome(flying.call, outcome, self.now)
            self.world.settle()
            self.step("all goes well")

    def carry_out(self, flying: InTheAir, *, lands: bool, answer: str) -> Outcome:
        call = flying.call
        if not flying.changes:
            if answer in ("unknown", "retry"):
                return Unknown("no answer")
            return self.world.carry_out(call.kind, call.effect, self.now)
        if self.now >= flying.lease_until:
            return Unknown("the lease ran out")
        match answer:
            case "unknown":
                if lands:
                    self.world.carry_out(call.kind, call.effect, self.now)
                return Unknown("cut off")
            case "retry":
                return Retry(2.0, "too many requests")
            case "waiting" if call.effect.action != "open_ticket":
                return Waiting(2.0, "under way")
            case "refused":
                return Refused("no")
            case "blocked":
                return Blocked("PodDisruptionBudget web", "1 pod stays")
        return self.world.carry_out(call.kind, call.effect, self.now)

    @rule(seconds=st.sampled_from([0.0, 5.0, 30.0]), really=RARELY)
    def the_process_dies(self, seconds: float, really: bool) -> None:
        if not really:
            return
        self.now += timedelta(seconds=seconds)
        self.restart()
        self.step("the process dies")

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 7), really=RARELY)
    def a_record_is_damaged(self, which: int, really: bool) -> None:
        """The successor cannot read the incident, until its correlator writes it anew."""
        if really:
            self.unreadable.add(self.pick(which).id)
            self.restart()
            self.step("a record is damaged")

    @precondition(lambda self: self.ghosts)
    @rule(which=st.integers(0, 3))
    def an_unseen_call_lands(self, which: int) -> None:
        flying = self.ghosts.pop(which % len(self.ghosts))
        if self.now < flying.lease_until:
            self.world.carry_out(flying.call.kind, flying.call.effect, self.now)
        self.step("an unseen call lands")

    @rule(
        case=st.sampled_from(CASES), certainty=st.sampled_from([Certainty.DECISIVE] * 3 + [Certainty.LIKELY])
    )
    def an_incident_opens(self, case: Incident, certainty: Certainty) -> None:
        if case.id not in self.known:
            opened = replace(case, certainty=certainty, opened_at=self.now, fault_at=self.now)
            self.publish(opened)
            self.step(f"an incident opens: {case.family}")

    @precondition(lambda self: self.known)
    @rule(
        which=st.integers(0, 7),
        certainty=st.sampled_from([Certainty.DECISIVE, Certainty.DECISIVE, Certainty.LIKELY]),
        jobs=st.sampled_from([(), (JOB,), (EVAL,), (JOB, EVAL)]),
        crash=crashes,
    )
    def an_incident_is_revised(
        self, which: int, certainty: Certainty, jobs: tuple[JobRef, ...], crash: str
    ) -> None:
        about = self.pick(which)
        if not about.state.is_over:
            self.revise(about, certainty=certainty, jobs=jobs)
            self.step("an incident is revised", crash)

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 7), crash=crashes)
    def an_incident_is_over(self, which: int, crash: str) -> None:
        about = self.pick(which)
        if not about.state.is_over:
            self.revise(about, state=IncidentState.RESOLVED, reason="it cleared")
            self.step("an incident is over", crash)

    @precondition(lambda self: self.known)
    @rule(which=st.integers(0, 7))
    def an_incident_comes_back(self, which: int) -> None:
        about = self.pick(which)
        if about.state is IncidentState.RESOLVED and about.id not in self.closing:
            self.revise(about, state=IncidentState.OPEN, reason="it fires again", flaps=about.flaps + 1)
            self.step("an incident comes back")

    @precondition(lambda self: len(self.known) > 1)
    @rule(which=st.integers(0, 7), into=st.integers(0, 7), crash=crashes)
    def an_incident_is_merged(self, which: int, into: int, crash: str) -> None:
        about, other = self.pick(which), self.pick(into)
        if about.id != other.id and not about.state.is_over and not other.state.is_over:
            self.revise(about, state=IncidentState.MERGED, merged_into=other.id)
            self.step("an incident is merged", crash)

    @precondition(lambda self: self.closing)
    @rule(crash=crashes)
    def the_correlator_catches_up(self, crash: str) -> None:
        self.correlate()
        self.step("the correlator catches up", crash)

    def correlate(self) -> None:
        for name in self.closing:
            if not self.known[name].state.is_over:
                self.revise(self.known[name], state=IncidentState.RESOLVED, reason="its run ended well")

    @rule(crash=crashes)
    def the_world_settles(self, crash: str) -> None:
        """Controllers work, jobs that can train do, inventory and correlator see it."""
        self.now += timedelta(seconds=1)
        self.world.settle()
        self.catch_up()
        self.train()
        self.step("the world settles", crash)

    def train(self) -> None:
        for job in (JOB, EVAL):
            if self.world.trains(job):
                self.trained[job.key].append(self.now)
                for about in list(self.known.values()):
                    if not about.state.is_over:
                        self.revise(about, progress=(*about.progress[-3:], Progress(job, self.now, 1)))

    @rule(job=st.sampled_from([JOB, EVAL]), really=RARELY)
    def a_job_ends_well(self, job: JobRef, really: bool) -> None:
        if really:
            self.world.finish(job)
            self.step("a job ends well")

    @precondition(lambda self: self.known)
    @rule(
        which=st.integers(0, 7),
        verb=st.sampled_from(VERBS),
        right=st.booleans(),
        again=st.booleans(),
        crash=crashes,
    )
    def a_person_decides(self, which: int, verb: Verb, right: bool, again: bool, crash: str) -> None:
        about = self.pick(which)
        runs = [run for run in self.board.runs.values() if run.incident == about.id]
        digest = runs[-1].plan.digest if runs and right else "another"
        number = len(self.said) - (1 if again and self.said else 0)
        made = Command(f"c{number}", about.id, CLUSTER, verb, "ada", self.now, digest=digest)
        self.said.append(made)
        self.board.take_command(made)
        self.step(f"a person decides: {verb}", crash)

    @precondition(lambda self: self.known)
    @rule(
        which=st.integers(0, 7),
        book=st.sampled_from(BY_HAND),
        step=st.integers(-3, 9),
        times=st.sampled_from([1, 1, 2]),
        late_s=st.sampled_from([0.0, 0.0, 0.0, 5.0, 10_000.0]),
        stopped=st.booleans(),
        crash=crashes,
    )
    def a_person_starts_a_run(
        self, which: int, book: str, step: int, times: int, late_s: float, stopped: bool, crash: str
    ) -> None:
        """By hand: a runbook, the latest run taken up again, or one of its steps; shown, and sent once or twice at once."""
        about = self.pick(which)
        if stopped:
            stop = Command(f"c{len(self.said)}", about.id, CLUSTER, Verb.STOP, "ada", self.now)
            self.said.append(stop)
            self.board.take_command(stop)
            self.all_goes_well_for_a_while(3)
        runs = [run for run in self.board.runs.of(about.id) if run.plan.mode is not Mode.SHADOW]
        old = runs[-1] if runs else None
        more: dict[str, Any] = {}
        try:
            if book:
                verb, more = Verb.RUN, self.shown_plan(about, book)
            elif old is not None and 0 <= step < len(old.steps):
                name = old.steps[step].id
                goes_on = continuation(old, self.board.view(CLUSTER), self.policy.mode, self.now, step=name)
                verb, more = Verb.REDO, {"run": old.id, "step": name, "digest": goes_on.plan.digest}
            elif old is not None:
                goes_on = continuation(old, self.board.view(CLUSTER), self.policy.mode, self.now)
                verb, more = Verb.CONTINUE, {"run": old.id, "digest": goes_on.plan.digest}
            else:
                return
        except (BadInput, ValueError):
            verb, more = Verb.CONTINUE, {"run": old.id if old is not None else "none", "digest": "any"}
        at, self.now = self.now, self.now + timedelta(seconds=late_s)
        for number in range(times):
            made = Command(f"c{len(self.said)}-{number}", about.id, CLUSTER, verb, "ada", at, **more)
            self.said.append(made)
            self.board.take_command(made)
        known = set(self.board.runs)
        self.step(f"a person starts a run: {verb}", crash)
        begun = [run for name, run in self.board.runs.items() if name not in known and run.started_by]
        if self.policy.mode is not Mode.SHADOW:  # there a run holds nothing, and every one is shown
            assert len(begun) <= 1, f"two runs of one request: {begun}"
        assert not begun or late_s < 10_000, "an old command started a run"
        Model.seen[f"by hand: {verb}"] += len(begun)

    def shown_plan(self, about: Incident, book: str) -> dict[str, Any]:
        runbook = next(one for one in BOOKS if one.id == book)
        view = self.board.view(CLUSTER)
        shown = plan(about, runbook, view, self.policy.mode, ACTIONS, self.board._planner.history(about))
        return {"runbook": book, "digest": shown_digest(shown, about.id)}

    @rule(
        thing=st.sampled_from(["node-03", "node-06", "node-08", JOB, EVAL]),
        off=st.booleans(),
        really=RARELY,
    )
    def a_person_turns_something(self, thing: str | JobRef, off: bool, really: bool) -> None:
        if not really:
            return
        if isinstance(thing, JobRef):
            self.world.person_turns_job(thing, off, self.now)
            self.touched_by_persons.add(thing.name)
        else:
            self.world.person_turns_node(thing, off, self.now)
            self.touched_by_persons.add(thing)
        self.step("a person turns something")

    @rule(on=st.booleans(), really=RARELY)
    def somebody_turns_the_kill_switch(self, on: bool, really: bool) -> None:
        if really and on is not self.policy.kill_switch:
            self.policy = self.policy.model_copy(update={"kill_switch": on})
            self.restart()
            self.step("the kill switch is turned")

    def pick(self, which: int) -> Incident:
        names = sorted(self.known)
        return self.known[names[which % len(names)]]

    # ── what must hold ──────────────────────────────────────────────────────────────────────────────────────────────

    def never_two_on_one_target(self, new: InTheAir) -> None:
        """Calls that change the same thing never overlap, whichever runs they belong to."""
        for flying in (*self.air, *self.ghosts):
            if flying.changes and flying.lease_until > self.now:
                assert flying.call.effect.target.key != new.call.effect.target.key, (flying, new)

    def check(self) -> None:
        """Look at what has landed since the last look."""
        fresh, self.checked = self.world.audit[self.checked :], len(self.world.audit)
        for number, line in enumerate(fresh, self.checked - len(fresh)):
            before = self.world.audit[:number]
            self.at_most_once(line, before)
            self.only_the_guilty(line)
            self.closed_before_moved(line, before)
            self.a_persons_word_stands(line, before)
        assert self.ends <= self.plans, "an end was told twice"

    def at_most_once(self, line: Landed, before: list[Landed]) -> None:
        """Invariant 3: once per run, and once per incident unless it was taken back in between."""
        if line.verb not in ONCE:
            return
        same = [
            b for b in before if (b.verb, b.target, b.incident) == (line.verb, line.target, line.incident)
        ]
        assert not [b for b in same if b.run == line.run], f"{line} twice in one run"
        if line.verb == "open_ticket":
            assert not same, f"a second ticket: {line}"
        if line.verb == "cordon_node":
            back = [
                b
                for b in before
                if b.incident == line.incident and b.verb in ("undo cordon_node", "uncordon_node")
            ]
            assert len(same) <= len(back), f"a second cordon: {line}"

    def only_the_guilty(self, line: Landed) -> None:
        """Invariant 4: nothing but the root's node is closed or emptied, nothing but the incident's jobs is moved."""
        if line.verb in ("cordon_node", "drain_node"):
            assert line.target == self.known[line.incident].root.node, f"a healthy node: {line}"

    def closed_before_moved(self, line: Landed, before: list[Landed]) -> None:
        """Invariant 6: what moves a job comes after its node was closed, and is not taken back in between."""
        if line.verb not in MOVES:
            return
        node = self.known[line.incident].root.node
        holds = [b for b in before if b.incident == line.incident and b.target == node]
        closed = sum(b.verb == "cordon_node" for b in holds)
        opened = sum(b.verb in ("undo cordon_node", "uncordon_node") for b in holds)
        assert closed > opened, f"moved before its node was closed: {line}"

    def a_persons_word_stands(self, line: Landed, before: list[Landed]) -> None:
        """Invariant 5: what a person turned after us is not turned back by the same incident."""
        against = {
            "cordon_node": ("person uncordon", "cordon_node"),
            "suspend_job": ("person resume", "suspend_job"),
            "resume_job": ("person suspend", "resume_job"),
        }.get(line.verb)
        if against is None:
            return
        person, ours = against
        mine = [
            n
            for n, b in enumerate(before)
            if b.verb == ours and b.target == line.target and b.incident == line.incident
        ]
        theirs = [n for n, b in enumerate(before) if b.verb == person and b.target == line.target]
        run = self.board.runs.get(line.run)
        if run is not None and run.started_by and not run.continues:
            return  # another person's word, and the later one
        if mine and theirs and theirs[-1] > mine[-1]:
            undone = [n for n, b in enumerate(before) if b.verb == f"undo {ours}" and b.target == line.target]
            assert any(mine[-1] < n < theirs[-1] for n in undone), f"against a person's word: {line}"

    # ── at rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.policy = self.policy.model_copy(update={"kill_switch": False})
        self.restart()
        self.rest()
        for about in list(self.known.values()):
            if not about.state.is_over:
                self.revise(about, state=IncidentState.RESOLVED, reason="it cleared")
        self.rest()
        for run in self.board.runs.values():
            assert not run.has_work, f"it stands for ever: {run.id} {run.state} {run.outcome} {_open(run)}"
            self.recovered_only_on_progress(run)
        self.no_job_is_left_suspended()

    def rest(self) -> None:
        """Left in peace: calls succeed, controllers work, time passes, until nothing has anything to do."""
        for _ in range(400):
            self.now += timedelta(seconds=61)
            self.ghosts = []
            self.world.settle()
            self.catch_up()
            self.train()
            self.correlate()
            self.turn("")
            while self.air:
                flying = self.air.pop(0)
                outcome = self.carry_out(flying, lands=True, answer="true")
                self.board.take_outcome(flying.call, outcome, self.now)
                self.world.settle()
                self.turn("")
            self.check()
            if not any(run.has_work for run in self.board.runs.values()):
                return

    def recovered_only_on_progress(self, run: Run) -> None:
        """Invariant 6: a run that moved a job ends well only when the job went on, never told of progress, or was done."""
        if run.state is not RunState.SUCCEEDED:
            return
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if (
                planned.action != "await_progress"
                or record.state is not StepState.DONE
                or planned.target is None
            ):
                continue
            key = f"{planned.target.kind}/{planned.target.namespace}/{planned.target.name}"
            resumed = [
                run.step(step.id).effect
                for step in run.plan.steps
                if step.action == "resume_job" and step.target == planned.target
            ]
            at = next((effect.confirmed_at for effect in resumed if effect is not None), None)
            since, until = at or record.started_at, record.finished_at
            assert since is not None
            assert until is not None
            told = [at for at in self.trained[key] if at <= until]
            ended = "finished" in record.reason or "ended" in record.reason
            assert (
                ended
                or not told
                or any(at >= since - timedelta(seconds=1) for at in told)
                or _settled(record.reason)
            ), record

    def no_job_is_left_suspended(self) -> None:
        """A job stands still at the end only where a person wanted it so (they stopped the run, or turned it themselves), or
        where the API server refused to have it back, which the timeline tells."""
        for job in (JOB, EVAL):
            holder = self.world.held_job(job)
            if holder is None or job.name in self.touched_by_persons:
                continue
            runs = [run for run in self.board.runs.values() if run.incident == holder]
            stopped = any("stopped by" in run.reason for run in runs)
            refused = any(
                run.planned(r.id).action == "suspend_job" and r.undo and r.undo.state is EffectState.REFUSED
                for run in runs
                for r in run.steps
            )
            told = [(run.state, run.reason, _halts(run)) for run in runs]
            assert stopped or refused, f"{job} stays suspended for {holder}: {told}"


def _settled(reason: str) -> bool:
    return "never reported progress" in reason


def _halts(run: Run) -> list[str]:
    return [
        f"{r.id} {r.state} {r.effect and (r.effect.state, r.effect.landed, r.effect.reason)} "
        f"undo {r.undo and (r.undo.state, r.undo.reason)}"
        for r in run.steps
        if run.planned(r.id).action in ("suspend_job", "resume_job")
    ]


def _open(run: Run) -> list[str]:
    return [
        f"{r.id} {r.state} {r.effect and r.effect.state} undo {r.undo and r.undo.state} due {r.due_at} {r.reason}"
        for r in run.steps
        if not r.state.is_over or r.is_being_undone
    ]


Model.TestCase.settings = settings(
    max_examples=max(1, STEPS // 25),
    stateful_step_count=PER_EXAMPLE,
    derandomize=not FULL,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestModel = Model.TestCase
pytestmark = pytest.mark.timeout(0 if FULL else 300)


def test_the_model_has_played_what_it_promises() -> None:
    """Runs after the machine in this file: a model that stopped early would prove nothing."""
    if Model.steps == 0:
        return
    assert Model.steps >= STEPS * 0.6
    print(f"{Model.steps} steps:", ", ".join(f"{name} {n}" for name, n in Model.seen.most_common()))
