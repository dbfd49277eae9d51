"""Whatever incidents, outcomes, restarts and people do to a cluster, in whatever order: no limit is ever passed.

A whole board is played against an outside that keeps its own books: what is closed, what is suspended, when each change was
begun and for whom. The limits are counted there and nowhere else. `TEST_EFFORT=full` plays all moves, of another course each
time; the quick run plays few, always the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from connectors.base import Absent, AlreadyDone, Done, Outcome, Refused, Retry, Unknown
from runbooks.engine.guardrails.run_counts import acted_on
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.schema import DESTRUCTIVE
from streams.config.settings import BlastRadius, Breaker, Cap, Protection
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import CLUSTER_VERBS, Command, Verb
from streams.model.entity import Entity, Gpu
from streams.model.facts import Fact, PodFact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import Mode, Run, StepState
from tests.effort import FULL, tries
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, OTHER_JOB, cluster, incident, policy

MOVES = 50
"""Moves of one game."""

STEPS = tries(24_000, quick=1_200)
FRESH_S = 1800.0
WINDOW_S = 900.0
NODES = 16
PLAYED = {"turns": 0, "begun": 0, "held": 0, "trips": 0, "restarts": 0, "given back": 0}
LIMITS = {
    "a pool": "nodes of pool ", "a rack": "nodes of rack ", "a leaf": "nodes of leaf ", "a job": "nodes of job ",
    "the pool floor": "pool floor: ", "the job floor": "job floor: ",
}  # fmt: skip
"""What a step says that one of these limits stops."""
PLAYED |= dict.fromkeys(LIMITS, 0)


PLACED = {
    job.key: {pod.node for pod in cluster(NODES).pods.values() if pod.job == job and pod.node is not None}
    for job in (JOB, OTHER_JOB)
}
"""Names of the nodes that each job runs on."""


def most_of(cap: Cap, members: int) -> int:
    """How many of so many nodes a cap lets be closed: one always by its share, unless that is 0."""
    share = members if cap.max_share is None else max(1, ceil(cap.max_share * members))
    return min(share, members if cap.max_nodes is None else cap.max_nodes)


class AnyCluster(RuleBasedStateMachine):
    """One cluster of 16 nodes in two pools, four racks and four leaves, and everything that can befall it."""

    narrow = ""
    """A limit of a place that is the narrow one of the game; with none, those of the whole cluster may be."""
    board: PartitionState

    @initialize(
        max_nodes=st.sampled_from([0, 1, 3, 6, 6]),
        max_share=st.sampled_from([0.1, 0.3, 0.5]),
        per_window=st.sampled_from([2, 3, 4, 6, 24]),
        cap=st.sampled_from([Cap(max_nodes=1), Cap(max_nodes=2), Cap(max_share=0.25), Cap(max_nodes=0)]),
        floor=st.sampled_from([(7, 0.0), (1, 0.8), (6, 0.5)]),
        failures=st.sampled_from([0, 0, 2, 4]),
        mass=st.sampled_from([0, 0, 6, 9]),
        mode=st.sampled_from([Mode.AUTO, Mode.AUTO, Mode.APPROVE]),
    )
    def start(
        self,
        max_nodes: int,
        max_share: float,
        per_window: int,
        cap: Cap,
        floor: tuple[int, float],
        failures: int,
        mass: int,
        mode: Mode,
    ) -> None:
        narrow = self.narrow
        if narrow:
            max_nodes, max_share, per_window, failures, mass, mode = 8, 0.5, 24, 0, 0, Mode.AUTO
        caps = {place: cap if narrow == place else Cap() for place in ("pool", "rack", "leaf", "job")}
        self.floors = (*(floor if narrow == "pool floor" else (1, 0.0)), float(narrow == "job floor"))
        crowded = narrow == "job floor"
        self.policy = policy(
            mode=mode,
            freshness_s=FRESH_S,
            blast_radius=BlastRadius(
                max_nodes=max_nodes,
                max_share=max_share,
                max_per_window=per_window,
                window_s=WINDOW_S,
                per_pool=caps["pool"],
                per_rack=caps["rack"],
                per_leaf=caps["leaf"],
                per_job=caps["job"],
            ),
            protect=Protection(
                keep_per_pool=self.floors[0], keep_pool_share=self.floors[1], keep_job_share=self.floors[2]
            ),
            breaker=Breaker(failures=failures, mass_min_nodes=mass, mass_share=0.2),
        )
        share = max(1, ceil(max_share * NODES))
        self.most, self.per_window = min(max_nodes, share), per_window
        self.per_job = caps.pop("job")
        self.caps = caps
        self.now = NOW
        self.facts: dict[str, Fact] = {}
        for i, node in enumerate(cluster(NODES).nodes.values()):
            self.facts[node.key] = replace(node, rack=f"r{i // 4}", pool=f"p{i // 8}", leaf=f"l{i % 4}")
        view = cluster(NODES)
        # In a crowded pool a job has nowhere to go but to the nodes that it has.
        guests = [
            PodFact(CLUSTER, "guests", f"guest-{i}", f"g{i}", NOW, node=f"node-{i:02}", gpus=8)
            for i in ((0, 1, 6, 7) if crowded else ())
        ]
        others: list[Fact] = [*view.jobs.values(), *view.pods.values(), *guests]
        self.taken = {guest.node for guest in guests}
        self.facts |= {fact.key: fact for fact in others}
        # What a successor reads, as bytes would have it:
        self.runs: dict[str, Run] = {}
        self.control = encode(Control(CLUSTER))
        self.incidents: dict[str, Incident] = {}
        self.air: list[Call] = []
        # The outside's own books:
        self.there: dict[str, tuple[str, str]] = {}
        self.moving: dict[str, set[str]] = {}
        """What each run has begun to act on."""
        self.begun: dict[str, tuple[datetime, str]] = {}
        self.killed = False
        self.frozen: set[str] = set()
        self.word: dict[str, datetime] = {}
        self.lifted = False
        self.stirred: dict[str, datetime] = {}
        self.left_alone: set[str] = set()
        self.said = 0
        self.restart()

    # ── the engine, as the process works it ─────────────────────────────────────────────────────────────────────────

    def restart(self) -> None:
        """A successor: it knows what was committed and nothing else."""
        runs = {name: decode(Run, encode(run)) for name, run in self.runs.items()}
        self.board = PartitionState(LIBRARY, self.policy, ACTIONS, runs)
        for fact in self.facts.values():
            self.board.take_fact(fact.key, fact)
        self.board.take_control(decode(Control, self.control))
        for about in self.incidents.values():
            self.board.take_incident(about)
        list(self.board.recovering(self.now))
        self.step()

    def step(self) -> None:
        """A turn: advance, commit, and only then begin the calls."""
        PLAYED["turns"] += 1
        self.board.advance(self.now)
        changes = self.board.collect()
        for run in changes.runs:
            self.runs[run.id] = run
            PLAYED["held"] += any(r.state is StepState.BLOCKED for r in run.steps)
            waiting = [
                r.reason for r in run.steps if r.state in (StepState.BLOCKED, StepState.AWAITING_APPROVAL)
            ]
            for name, said in LIMITS.items():
                PLAYED[name] += any(said in reason for reason in waiting)
        for control in changes.controls:
            self.control = encode(control)
            PLAYED["trips"] += any(c.event == "control.trip" and c.at == self.now for c in control.changes)
        for call in changes.calls:
            if call.kind == "apply" and call.effect.action in DESTRUCTIVE:
                self.may_begin(call)
            self.stirred[call.run] = self.now
        self.air += changes.calls

    # ── what must hold when a destructive call is begun, and after it ───────────────────────────────────────────────

    def may_begin(self, call: Call) -> None:
        run = self.runs[call.run]
        assert not self.killed, "begun with the kill switch on"
        assert decode(Control, self.control).breaker is None, "begun with the breaker open"
        assert not self.frozen & self.scopes(run), "begun in a freeze"
        moved = [r.finished_at for r in run.steps if r.state is StepState.DONE and r.finished_at is not None]
        about = self.incidents[run.incident]
        known = [
            about.updated_at,
            about.opened_at,
            *moved,
            self.stirred.get(run.id),
            self.word.get(run.incident),
        ]
        age_s = (self.now - max(at for at in known if at is not None)).total_seconds()
        assert age_s <= FRESH_S, f"{call.effect.action} begun on news that is {age_s:.0f} s old"
        for other in self.runs.values():
            if other.id == run.id or other.admitted_at is None or other.state.is_over:
                continue
            # What a revision has added to a run, and nothing has let in yet, pulls at nothing.
            let_in = [
                s for s in other.plan.steps if s.destructive and other.step(s.id).admitted_at is not None
            ]
            # A job that has been moved and makes progress is held by nobody.
            keys = {s.target.key for s in let_in if s.target} & acted_on(other)
            assert call.effect.target.key not in keys, "two runs pull at one target"
        if run.id not in self.moving:
            self.moving[run.id] = set()
            self.finds_room(run)
        self.moving[run.id].add(call.effect.target.key)
        if call.effect.key not in self.begun:
            PLAYED["begun"] += 1
            self.begun[call.effect.key] = (self.now, run.incident)
            since = self.now - timedelta(seconds=WINDOW_S)
            lately = [name for at, name in self.begun.values() if at > since and name not in self.word]
            assert run.incident in self.word or len(lately) <= self.per_window, "more than a window allows"

    def finds_room(self, run: Run) -> None:
        """Whether each job that the run is about to move has somewhere to go, unless a person has said that it need not."""
        wanted = [s.target for s in run.plan.steps if s.destructive and s.target]
        own = {target.name for target in wanted if target.kind == "Node"}
        for target in wanted:
            on = PLACED.get(target.key)
            if on is None or self.word:
                continue
            pools = {self.place(node, "pool") for node in on}
            room = [
                fact.name for fact in self.facts.values()
                if fact.kind == "node" and fact.pool in pools and fact.name not in self.closed() | own
                and (fact.name in on or fact.name not in self.taken)
            ]  # fmt: skip
            assert len(room) >= ceil(self.floors[2] * len(on)), (
                f"{target} is moved, and has only {room} to go to"
            )

    def scopes(self, run: Run) -> set[str]:
        targets = [s.target for s in run.plan.steps if s.destructive and s.target]
        found = {""} | {f"namespace:{t.namespace}" for t in targets if t.namespace}
        return found | {f"pool:{self.place(t.name, 'pool')}" for t in targets if t.kind == "Node"}

    def place(self, node: str, kind: str) -> str:
        return str(getattr(self.facts[f"{CLUSTER}/node/{node}"], kind))

    def closed(self) -> set[str]:
        return {name for action, name in self.there.values() if action == "cordon_node"}

    def within_limits(self) -> None:
        closed = self.closed()
        # A person who was told that a limit is reached may lift it.
        if self.lifted:
            return
        assert len(closed) <= self.most, f"{sorted(closed)} are closed, {self.most} may be"
        by_place: defaultdict[tuple[str, str], int] = defaultdict(int)
        for name in closed:
            for kind in self.caps:
                by_place[kind, self.place(name, kind)] += 1
        for (kind, value), n in by_place.items():
            most = most_of(self.caps[kind], NODES // 2 if kind == "pool" else NODES // 4)
            assert n <= most, f"{n} nodes of {kind} {value} are closed, {most} may be"
        keep = max(self.floors[0], ceil(self.floors[1] * NODES // 2))
        for pool in ("p0", "p1") if not self.word else ():
            left = NODES // 2 - by_place["pool", pool]
            assert left >= keep, f"{left} nodes of pool {pool} are left, {keep} are kept"
        for job, placed in PLACED.items():
            moved_from = {
                step.target.name
                for name, touched in self.moving.items() if job in touched
                for step in self.runs[name].plan.steps
                if step.target is not None and (("cordon_node", step.target.name) in self.there.values())
            } & closed  # fmt: skip
            most = most_of(self.per_job, len(placed | moved_from))
            assert len(moved_from) <= most, f"{sorted(moved_from)} are closed for {job}, {most} may be"

    # ── the outside ─────────────────────────────────────────────────────────────────────────────────────────────────

    def carry_out(self, call: Call, answer: str) -> Outcome:
        key = call.effect.key
        if call.kind in LOOKUPS:
            return AlreadyDone() if key in self.there else Absent()
        if answer == "refused":
            return Refused("no permission")
        if answer == "later":
            return Retry(30.0, "busy")
        if answer != "never arrived":
            self.land(call)
        return Done() if answer == "done" else Unknown("timed out", 1.0)

    def land(self, call: Call) -> None:
        effect = call.effect
        if call.kind == "apply" and effect.action not in ("resume_job", "uncordon_node"):
            self.there[effect.key] = (effect.action, effect.target.name)
            self.within_limits()
            return
        PLAYED["given back"] += 1
        gone = {"resume_job": "suspend_job", "uncordon_node": "cordon_node"}.get(effect.action)
        for key, (action, name) in list(self.there.items()):
            same = action == gone and name == effect.target.name and call.kind == "apply"
            if same or (call.kind != "apply" and key == effect.key):
                del self.there[key]

    # ── moves ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        node=st.integers(0, NODES - 1),
        gpu=st.integers(0, 1),
        family=st.sampled_from(["gpu_off_bus", "gpu_off_bus", "node_down"]),
        jobs=st.sampled_from([(), (JOB,), (OTHER_JOB,), (JOB, OTHER_JOB)]),
        certainty=st.sampled_from([Certainty.DECISIVE] * 3 + [Certainty.LIKELY]),
        age_s=st.sampled_from([0, 0, 60, 1000, 4000]),
    )
    def something_breaks(
        self, node: int, gpu: int, family: str, jobs: Any, certainty: Certainty, age_s: int
    ) -> None:
        self.break_(node, gpu, family, jobs, certainty, age_s)
        self.step()

    @rule(
        nodes=st.sets(st.integers(0, NODES - 1), min_size=3, max_size=NODES),
        family=st.sampled_from(["gpu_off_bus", "node_down"]),
    )
    def much_breaks_at_once(self, nodes: Iterable[int], family: str) -> None:
        for node in sorted(nodes):
            self.break_(node, 0, family, (JOB,) if node < 4 else (), Certainty.DECISIVE, 0)
        self.step()

    def break_(self, node: int, gpu: int, family: str, jobs: Any, certainty: Certainty, age_s: int) -> None:
        name = f"node-{node:02}"
        gpu_at = Gpu(pci=f"0000:{gpu:02x}:00") if family != "node_down" else None
        at = self.now - timedelta(seconds=age_s)
        about = incident(
            family, Entity(CLUSTER, node=name, gpu=gpu_at), jobs=jobs, certainty=certainty, nodes=(name,),
            opened_at=at, updated_at=at, fault_at=at,
        )  # fmt: skip
        if about.id not in self.incidents:
            self.tell(about)

    def tell(self, about: Incident) -> None:
        self.incidents[about.id] = about
        self.board.take_incident(about)

    @precondition(lambda self: bool(getattr(self, "incidents", None)))
    @rule(
        data=st.data(),
        state=st.sampled_from([IncidentState.OPEN] * 3 + [IncidentState.MERGED, IncidentState.RESOLVED]),
        jobs=st.sampled_from([None, None, (JOB,), (JOB, OTHER_JOB)]),
    )
    def an_incident_is_revised(self, data: st.DataObject, state: IncidentState, jobs: Any) -> None:
        about = self.incidents[data.draw(st.sampled_from(sorted(self.incidents)))]
        if about.state.is_over:
            return
        jobs = about.jobs if jobs is None else jobs
        self.tell(replace(about, revision=about.revision + 1, state=state, jobs=jobs, updated_at=self.now))
        self.step()

    @precondition(lambda self: bool(getattr(self, "air", None)))
    @rule(
        which=st.integers(0, 20),
        answer=st.sampled_from(["done"] * 6 + ["refused", "later", "timed out", "never arrived"]),
    )
    def a_call_comes_back(self, which: int, answer: str) -> None:
        call = self.air.pop(which % len(self.air))
        self.answer(call, answer)
        self.step()

    @precondition(lambda self: bool(getattr(self, "air", None)))
    @rule()
    def all_calls_come_back(self) -> None:
        for _ in range(6):
            calls, self.air = self.air, []
            for call in calls:
                self.answer(call, "done")
            self.step()

    def answer(self, call: Call, answer: str) -> None:
        outcome = self.carry_out(call, answer)
        self.stirred[call.run] = self.now
        self.board.take_outcome(call, outcome, self.now)

    @rule(landed=st.booleans())
    def the_responder_is_killed_and_started_again(self, landed: bool) -> None:
        """What was in the air has landed or not; nobody will ever hear of it."""
        calls, self.air = self.air, []
        for call in calls if landed else ():
            if call.kind not in LOOKUPS:
                self.land(call)
        PLAYED["restarts"] += 1
        self.restart()

    @rule(seconds=st.sampled_from([1, 6, 31, 61, 301, 901, 901, 1801, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.step()

    @rule()
    def the_inventory_looks(self) -> None:
        closed = self.closed()
        for key, fact in list(self.facts.items()):
            if fact.kind == "node":
                held = fact.name in closed
                owner = "inc-somebody" if held else None
                seen = replace(fact, unschedulable=held, owner_incident=owner, observed_at=self.now)
                self.facts[key] = seen
                self.board.take_fact(key, seen)
        self.step()

    @rule(node=st.integers(0, NODES - 1))
    def a_person_opens_a_node(self, node: int) -> None:
        name = f"node-{node:02}"
        self.there = {k: v for k, v in self.there.items() if v != ("cordon_node", name)}
        self.the_inventory_looks()

    @rule(
        verb=st.sampled_from([Verb.KILL, Verb.FREEZE, *[Verb.UNKILL, Verb.RESET, Verb.THAW] * 3]),
        scope=st.sampled_from(["", "", "pool:p0", "namespace:research", "rack:r1"]),
        age_s=st.sampled_from([0, 0, 0, 4000]),
    )
    def a_person_says_something_about_the_cluster(self, verb: Verb, scope: str, age_s: int) -> None:
        self.say(verb, "", scope=scope if verb in (Verb.FREEZE, Verb.THAW) else "", age_s=age_s)
        letting_go_counts = age_s <= FRESH_S
        if verb is Verb.KILL:
            self.killed = True
        elif verb is Verb.UNKILL and letting_go_counts:
            self.killed = False
        elif verb is Verb.FREEZE and not scope.startswith("rack"):
            self.frozen.add(scope)
        elif verb is Verb.THAW and letting_go_counts:
            self.frozen.discard(scope)
        self.step()

    @precondition(lambda self: bool(getattr(self, "incidents", None)))
    @rule(
        data=st.data(),
        verb=st.sampled_from([Verb.APPROVE, Verb.APPROVE, Verb.REJECT, Verb.STOP, Verb.RESOLVE]),
    )
    def a_person_decides(self, data: st.DataObject, verb: Verb) -> None:
        about = data.draw(st.sampled_from(sorted(self.incidents)))
        waiting = [
            run for run in self.runs.values()
            if run.incident == about
            and any(r.state is StepState.AWAITING_APPROVAL for r in run.steps)
        ]  # fmt: skip
        if verb is Verb.APPROVE:
            if not waiting:
                return
            self.word[about] = self.now
            reasons = [r.reason for r in waiting[-1].steps if r.state is StepState.AWAITING_APPROVAL]
            self.lifted |= any(reason.startswith("blast radius: ") for reason in reasons)
        if verb is Verb.STOP:
            self.left_alone.add(about)
        self.say(verb, about, digest=waiting[-1].plan.digest if waiting else None)
        self.step()

    def say(self, verb: Verb, about: str, *, age_s: int = 0, **more: Any) -> None:
        self.said += 1
        at = self.now - timedelta(seconds=age_s)
        self.board.take_command(Command(f"c{self.said}", about, CLUSTER, verb, "ada", at, **more))
        assert (about == "") is (verb in CLUSTER_VERBS)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        """With the kill switch on and every budget full, all that is given up is given back all the same."""
        if not hasattr(self, "board"):
            return
        self.say(Verb.KILL, "")
        self.step()
        self.killed = True
        for about in list(self.incidents.values()):
            if not about.state.is_over:
                over = IncidentState.MERGED
                self.tell(replace(about, revision=about.revision + 1, state=over, updated_at=self.now))
        self.step()
        for _ in range(200):
            if not self.air and not any(run.has_work for run in self.runs.values()):
                break
            calls, self.air = self.air, []
            for call in calls:
                self.answer(call, "done")
            self.now += timedelta(seconds=61)
            self.step()
        left = [run.id for run in self.runs.values() if run.has_work]
        assert not left, f"{left} are held up in giving back"
        if not self.left_alone:
            suspended = {name for action, name in self.there.values() if action == "suspend_job"}
            assert not suspended, f"{suspended} stay suspended"


class NarrowPools(AnyCluster):
    narrow = "pool"


class NarrowRacks(AnyCluster):
    narrow = "rack"


class NarrowLeaves(AnyCluster):
    narrow = "leaf"


class NarrowJobs(AnyCluster):
    narrow = "job"


class PoolsToKeep(AnyCluster):
    narrow = "pool floor"


class JobsToKeep(AnyCluster):
    narrow = "job floor"


def played(game: type[AnyCluster], steps: int) -> type[Any]:
    """The test that plays so many moves of a game."""
    case = game.TestCase
    case.settings = settings(
        max_examples=max(1, steps // MOVES),
        stateful_step_count=MOVES,
        derandomize=not FULL,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],  # to shrink a game of fifty moves takes minutes
    )
    return case


TestAnyCluster = played(AnyCluster, STEPS)
TestNarrowPools = played(NarrowPools, STEPS // 3)
TestNarrowRacks = played(NarrowRacks, STEPS // 3)
TestNarrowLeaves = played(NarrowLeaves, STEPS // 3)
TestNarrowJobs = played(NarrowJobs, STEPS // 3)
TestPoolsToKeep = played(PoolsToKeep, STEPS // 3)
TestJobsToKeep = played(JobsToKeep, STEPS // 3)


def test_the_games_have_played_what_they_promise() -> None:
    """Runs after the games in this file: limits that nothing ever came near would prove nothing."""
    if PLAYED["turns"] == 0:
        return
    print(", ".join(f"{name} {n}" for name, n in PLAYED.items()))
    assert all(n > 0 for n in PLAYED.values()), PLAYED
