"""Whatever happens in whatever order, with crashes in between: what must never happen does not.

The world keeps its own books and does not ask the run: every call that changes something is recorded when it lands, whether or
not its answer ever arrives.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from runbooks.engine.run.human_decisions import decided, revised
from runbooks.engine.run.machine import advance, begin
from runbooks.engine.run.outcomes import concluded, recover
from runbooks.engine.run.plan import plan
from runbooks.engine.run.transition import Call, RunContext, TransitionResult
from runbooks.language.select import select
from streams.model.conversation import Command, Verb
from streams.model.incident import Certainty, IncidentState, Progress
from streams.model.run import EffectState, Mode, Run
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, OTHER_JOB, cluster, incident, policy


@dataclass
class World:
    """The outside: what is there and everything that was ever changed.

    It is not idempotent, on purpose: a second call makes a second thing, so it is the engine alone that must not send one.
    """

    there: set[str] = field(default_factory=set)
    landed: list[str] = field(default_factory=list)
    created: Counter[str] = field(default_factory=Counter)
    persons: set[str] = field(default_factory=set)

    def apply(self, effect: Effect) -> Outcome:
        if effect.target.name in self.persons:
            return Blocked.person("a person was here")
        self.there.add(effect.key)
        self.created[effect.key] += 1
        self.landed.append(f"{effect.action} {effect.target.name}")
        return Done()

    def lookup(self, effect: Effect) -> Outcome:
        return AlreadyDone() if effect.key in self.there else Absent()

    def undo(self, effect: Effect) -> Outcome:
        if effect.target.name in self.persons:
            return Blocked.person("a person was here")
        if effect.key not in self.there:
            return AlreadyDone()
        self.there.remove(effect.key)
        self.landed.append(f"undo {effect.action} {effect.target.name}")
        return Done()


class AnyRun(RuleBasedStateMachine):
    """One incident, its run, and everything that can befall it."""

    run: Run
    now: datetime

    @initialize(
        certainty=st.sampled_from(Certainty),
        mode=st.sampled_from([Mode.AUTO, Mode.AUTO, Mode.APPROVE, Mode.SHADOW]),
        jobs=st.sampled_from([(), (JOB,), (JOB, OTHER_JOB)]),
    )
    def start(self, certainty: Certainty, mode: Mode, jobs: tuple[object, ...]) -> None:
        self.world = World()
        self.view = cluster()
        self.policy = policy(mode=mode)
        self.about = incident(certainty=certainty, jobs=jobs)
        choice = select(self.about, LIBRARY)
        assert choice.runbook is not None
        self.runbook = choice.runbook
        self.now = NOW
        self.air: list[Call] = []
        self.lost: list[tuple[Call, datetime]] = []
        self.finished: list[str] = []
        self.commands = 0
        self.approved_or_decisive = False
        self.run = begin(self.about, plan(self.about, self.runbook, self.view, mode), NOW).run
        self.step()

    def take(self, turn: TransitionResult) -> None:
        """Commit: from here on the run is what a successor reads, and the calls may start."""
        assert turn.run.revision >= self.run.revision
        for call in turn.calls:
            row = turn.run.step(call.step).undo if call.kind == "undo" else turn.run.step(call.step).effect
            assert row is not None
            if call.kind in ("apply", "undo"):
                assert row.state is EffectState.INTENDED
                assert row.lease_until > self.now
        self.run = turn.run
        self.air += turn.calls
        self.finished += [r.outcome for r in turn.reports if r.kind == "run.finished"]

    def step(self) -> None:
        situation = RunContext(self.about, self.view, (), self.policy, ACTIONS)
        self.take(advance(self.run, situation, self.now))

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 31.0, 700.0, 5000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.step()

    @precondition(lambda self: self.air)
    @rule(
        lands=st.booleans(),
        answer=st.sampled_from(["true", "true", "true", "unknown", "retry", "waiting", "refused", "person"]),
    )
    def a_call_ends(self, lands: bool, answer: str) -> None:
        call = self.air.pop(0)
        outcome = self.carry_out(call, lands=lands, answer=answer)
        self.take(concluded(self.run, call.step, call.kind, outcome, self.now))
        self.step()

    def carry_out(self, call: Call, *, lands: bool, answer: str) -> Outcome:
        if call.kind in ("lookup", "undo_lookup"):
            return Unknown("no answer") if answer in ("unknown", "retry") else self.world.lookup(call.effect)
        self.watch(call)
        act = self.world.apply if call.kind == "apply" else self.world.undo
        match answer:
            case "unknown":
                if lands:
                    act(call.effect)
                return Unknown("cut off")
            case "retry":
                return Retry(2.0, "too many requests")
            case "waiting":
                return Waiting(2.0, "under way")
            case "refused":
                return Refused("no")
            case "person":
                self.world.persons.add(call.effect.target.name)
                return act(call.effect)
        return act(call.effect)

    def watch(self, call: Call) -> None:
        """What must hold whenever something is about to be changed."""
        assert self.run.plan.mode is not Mode.SHADOW
        destructive = self.run.planned(call.step).destructive and call.kind == "apply"
        if destructive and self.run.plan.mode is not Mode.AUTO:
            assert self.approved_or_decisive
        if call.effect.action in ("suspend_job", "drain_node") and call.kind == "apply":
            assert "cordon_node node-03" in self.world.landed

    @rule()
    def the_process_dies_and_another_takes_over(self) -> None:
        """Calls in the air end unseen: those whose lease holds may still land, before the successor may look."""
        for call in self.air:
            record = self.run.step(call.step)
            row = record.undo if call.kind == "undo" else record.effect
            if row is not None and call.kind in ("apply", "undo"):
                self.lost.append((call, row.lease_until))
        self.air = []
        self.take(recover(self.run, self.now))
        self.step()

    @precondition(lambda self: self.lost)
    @rule()
    def an_unseen_call_lands(self) -> None:
        call, lease_until = self.lost.pop(0)
        if self.now < lease_until:
            (self.world.apply if call.kind == "apply" else self.world.undo)(call.effect)

    @rule(verb=st.sampled_from(Verb), right=st.booleans(), again=st.booleans())
    def a_person_decides(self, verb: Verb, right: bool, again: bool) -> None:
        self.commands += 0 if again else 1
        digest = self.run.plan.digest if right else "another"
        command = Command(
            f"c{self.commands}", self.run.incident, CLUSTER, verb, "ada", self.now, digest=digest
        )
        before = len(self.run.approvals)
        self.take(decided(self.run, command, self.policy, self.now))
        if len(self.run.approvals) > before and verb is Verb.APPROVE:
            assert right
            self.approved_or_decisive = True
        self.step()

    @rule(
        state=st.sampled_from([IncidentState.OPEN] * 4 + [IncidentState.MERGED, IncidentState.RESOLVED]),
        certainty=st.sampled_from(Certainty),
        jobs=st.sampled_from([(), (JOB,), (JOB, OTHER_JOB)]),
        progress=st.booleans(),
    )
    def the_incident_is_revised(
        self, state: IncidentState, certainty: Certainty, jobs: tuple[object, ...], progress: bool
    ) -> None:
        if self.about.state.is_over:
            return
        seen = (*self.about.progress, Progress(JOB, self.now, 1)) if progress else self.about.progress
        self.about = replace(
            self.about,
            revision=self.about.revision + 1,
            state=state,
            certainty=certainty,
            jobs=jobs,  # type: ignore[arg-type]
            progress=seen,
            updated_at=self.now,
        )
        bound = plan(self.about, self.runbook, self.view, self.policy.mode)
        self.take(revised(self.run, self.about, bound, self.now))
        self.step()

    @rule(on=st.booleans())
    def somebody_turns_the_kill_switch(self, on: bool) -> None:
        self.policy = self.policy.model_copy(update={"kill_switch": on})
        self.step()

    @invariant()
    def one_change_per_key_unless_it_was_taken_back(self) -> None:
        for key, times in getattr(self, "world", World()).created.items():
            undone = sum(line.startswith("undo") for line in self.world.landed)
            assert times <= 1 + undone, key

    @invariant()
    def calls_to_one_target_are_one_at_a_time(self) -> None:
        calls = [c for c in getattr(self, "air", []) if c.kind in ("apply", "undo")]
        assert all(n == 1 for n in Counter(c.effect.target.key for c in calls).values())

    @invariant()
    def an_end_is_reported_once(self) -> None:
        assert len(getattr(self, "finished", [])) <= 1

    @invariant()
    def nothing_of_a_victim_is_touched(self) -> None:
        for line in getattr(self, "world", World()).landed:
            assert line.split()[-1] in {"node-03", "llm", "eval", self.run.incident}

    def teardown(self) -> None:
        """Left in peace, with the switch off, every run comes to an end and no job is left suspended by it."""
        if not hasattr(self, "world"):
            return
        self.policy = self.policy.model_copy(update={"kill_switch": False})
        stopped = any(c in self.run.reason for c in ("stopped by", "resolved by"))
        for _ in range(400):
            if not self.run.has_work:
                break
            if self.air:
                call = self.air.pop(0)
                outcome = self.carry_out(call, lands=True, answer="true")
                self.take(concluded(self.run, call.step, call.kind, outcome, self.now))
            self.now += timedelta(seconds=61)
            self.step()
        assert not self.run.has_work
        if (
            stopped
            or self.world.persons
            or "stopped by" in self.run.reason
            or "resolved by" in self.run.reason
        ):
            return
        for name in (JOB.name, OTHER_JOB.name):
            suspended = self.world.landed.count(f"suspend_job {name}")
            given_back = self.world.landed.count(f"resume_job {name}")
            given_back += self.world.landed.count(f"undo suspend_job {name}")
            assert given_back >= suspended, self.world.landed


AnyRun.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
TestAnyRun = AnyRun.TestCase
