"""One restart per job and moment, whichever incidents want it: the second waits for the first's move and relies on it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from connectors.base import Absent, AlreadyDone, Done
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.schema import NODE_WORK
from streams.config.settings import BlastRadius
from streams.model.codec import decode, encode
from streams.model.entity import Entity, Gpu
from streams.model.facts import Fact, PodFact
from streams.model.incident import Incident
from streams.model.run import Run, RunState, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, at, cluster, incident, policy

TICKETLESS = (ACTIONS | NODE_WORK) - {"open_ticket"}
WIDE = policy(blast_radius=BlastRadius(max_nodes=8, max_share=1.0, max_per_window=100))


def lost(node: str) -> Incident:
    return incident(root=Entity(CLUSTER, node=node, gpu=Gpu(pci="0000:1b:00")), nodes=(node,))


class Site:
    """A responder, and a world in which every call succeeds and a resumed job comes up on free nodes."""

    def __init__(self, *incidents: Incident) -> None:
        self.incidents = incidents
        view = cluster()
        facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
        self.facts = {fact.key: fact for fact in facts}
        self.made: list[tuple[str, str]] = []
        self.state = self.started({})

    def started(self, runs: dict[str, Run]) -> PartitionState:
        state = PartitionState(LIBRARY, WIDE, TICKETLESS, runs)
        for fact in self.facts.values():
            state.take_fact(fact.key, fact)
        for about in self.incidents:
            state.take_incident(about)
        list(state.recovering(NOW))
        return state

    def restart(self) -> None:
        """A successor, which knows what was committed."""
        self.state = self.started(
            {name: decode(Run, encode(self.state.runs[name])) for name in self.state.runs}
        )

    def play(self, now: datetime) -> None:
        for _ in range(60):
            self.state.advance(now)
            calls: Iterable[Call] = self.state.collect().calls
            if not calls:
                return
            for call in calls:
                self.carry_out(call, now)

    def carry_out(self, call: Call, now: datetime) -> None:
        done = (call.effect.action, call.effect.target.name) in self.made
        if call.kind in LOOKUPS:
            self.state.take_outcome(call, AlreadyDone() if done else Absent(), now)
            return
        self.made.append((call.effect.action, call.effect.target.name))
        if call.effect.action == "resume_job":
            for key in [
                key for key, fact in self.facts.items() if isinstance(fact, PodFact) and fact.job == JOB
            ]:
                del self.facts[key]
                self.state.take_fact(key, None)
            for rank in range(4):
                node = f"node-{10 + rank}"
                pod = PodFact(CLUSTER, JOB.namespace, f"b-{rank}", f"b{rank}", now, node=node, job=JOB)
                self.facts[pod.key] = pod
                self.state.take_fact(pod.key, pod)
        self.state.take_outcome(call, Done(), now)

    def run(self, about: Incident) -> Run:
        return next(run for run in self.state.runs.values() if run.incident == about.id)


def suspends(site: Site) -> int:
    return sum(action == "suspend_job" for action, _ in site.made)


def test_two_faults_of_one_job_restart_it_once_and_cordon_both_nodes() -> None:
    one, other = lost("node-03"), lost("node-04")
    site = Site(one, other)
    for seconds in (5, 11, 45, 85, 125, 165):
        site.play(at(seconds))
    assert suspends(site) == 1
    assert {name for action, name in site.made if action == "cordon_node"} == {"node-03", "node-04"}
    second = site.run(other) if site.run(one).admitted_at == at(5) else site.run(one)
    assert any(r.state is StepState.SKIPPED and "has rescheduled" in r.reason for r in second.steps)


def test_the_second_does_not_wait_until_the_node_of_the_first_is_repaired() -> None:
    one, other = lost("node-03"), lost("node-04")
    site = Site(one, other)
    for seconds in (5, 11, 45, 85, 125, 165):
        site.play(at(seconds))
    states = {site.run(one).state, site.run(other).state}
    assert states == {RunState.AWAITING_APPROVAL}, "both ask for the reboot, and neither holds the other"


def test_that_holds_across_a_takeover_in_the_middle_of_the_first_move() -> None:
    one, other = lost("node-03"), lost("node-04")
    site = Site(one, other)
    site.state.advance(NOW)
    for call in site.state.collect().calls:
        site.carry_out(call, NOW)
    site.restart()
    for seconds in (30, 90, 130, 170, 210, 250):
        site.play(at(seconds))
        site.restart()
    assert suspends(site) == 1
