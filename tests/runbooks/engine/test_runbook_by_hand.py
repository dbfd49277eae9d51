"""A person starts a runbook: by the same guardrails, limits, approvals and journal as any run."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from runbooks.engine.partition_state import PER_ITERATION, PartitionState
from runbooks.engine.run.by_hand import (
    facts_for_node,
    incident_for_node,
    shown_digest,
    shown_steps,
    with_parameters,
)
from runbooks.engine.run.plan import plan
from streams.config.settings import BlastRadius, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, Plan, Run, RunState, StepState
from streams.model.signal import Signal
from tests.runbooks.engine.pipeline import EVERY, Pipeline
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, LIBRARY, NOW, cluster, incident, policy
from tests.streams.correlate.world import CLUSTER as EAST
from tests.streams.correlate.world import FOUR
from tests.streams.correlate.world import cluster as world_cluster

BOOKS = {book.id: book for book in LIBRARY}
UNMATCHED = incident(family="unknown", jobs=())
"""What only asks a person: no run acts on it."""


def facts_in(view: ClusterView) -> list[Fact]:
    return [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]


class Desk:
    """A responder's state with a cluster, and a person who shows themselves plans and sends them."""

    def __init__(self, about: Incident = UNMATCHED, settings: ResponderSettings = AUTO, **more: Any) -> None:
        self.settings, self.now = settings, NOW
        self.state = PartitionState(LIBRARY, settings, ACTIONS, **more)
        self.view = cluster()
        for fact in facts_in(self.view):
            self.state.take_fact(fact.key, fact)
        self.about = about
        self.timeline: list[TimelineEntry] = []
        self.calls: list[Any] = []
        self.state.take_incident(about)
        self.advance()
        self.number = 0

    def advance(self, seconds: float = 0.0) -> None:
        self.now += timedelta(seconds=seconds)
        self.state.advance(self.now)
        batch = self.state.collect()
        self.timeline += batch.timeline
        self.calls += batch.calls

    def plan(self, runbook: str = "gpu-off-bus", **values: Any) -> Plan:
        book = with_parameters(BOOKS[runbook], values)
        return plan(self.about, book, self.view, self.settings.mode, ACTIONS)

    def command(self, runbook: str = "gpu-off-bus", **more: Any) -> Command:
        self.number += 1
        values = more.get("parameters", {})
        shown = self.plan(runbook, **values) if runbook in BOOKS else None
        about: dict[str, Any] = {
            "digest": shown_digest(shown, self.about.id) if shown else "x",
            "seen": shown_steps(shown, self.about.id) if shown else (),
            "runbook": runbook,
        }
        made = Command(f"cmd-{self.number}", self.about.id, CLUSTER, Verb.RUN, "ada", self.now, **about)
        return replace(made, **more)

    def send(self, command: Command) -> str:
        self.state.take_command(command)
        self.advance()
        return self.answer(command)

    def answer(self, command: Command) -> str:
        return "; ".join(e.text for e in self.timeline if e.attributes.get("command") == command.id)

    def by_hand(self) -> list[Run]:
        return [run for run in self.state.runs.values() if run.started_by]


def stopped() -> Desk:
    """The incident's own run is over, stopped by a person."""
    desk = Desk()
    desk.send(replace(desk.command(), id="stop", verb=Verb.STOP))
    assert all(run.state.is_over for run in desk.state.runs.values())
    return desk


def test_a_person_starts_the_runbook_that_they_were_shown() -> None:
    desk = stopped()
    answer = desk.send(desk.command(reason="I saw it fall"))
    assert answer == "ada started runbook gpu-off-bus by hand: I saw it fall"
    (run,) = desk.by_hand()
    assert (run.started_by, run.plan.runbook, run.state) == ("ada", "gpu-off-bus", RunState.RUNNING)
    assert "started by hand by ada" in next(e.text for e in desk.timeline if "gpu-off-bus with" in e.text)
    assert "cordon_node" in [call.effect.action for call in desk.calls]


def test_the_same_command_read_twice_is_one_run() -> None:
    desk = stopped()
    command = desk.command()
    desk.send(command)
    desk.send(command)
    assert len(desk.by_hand()) == 1


def test_a_second_person_is_told_which_run_is_at_work() -> None:
    desk = stopped()
    desk.send(desk.command())
    (run,) = desk.by_hand()
    answer = desk.send(desk.command(actor="bob"))
    assert f"not accepted: {run.id} (gpu-off-bus) is at work for {desk.about.id}" in answer
    assert len(desk.by_hand()) == 1


def test_a_run_of_another_incident_on_the_node_is_named() -> None:
    desk = stopped()
    other = incident("gpu_off_bus")
    desk.state.take_incident(other)
    desk.advance()
    rival = next(run for run in desk.state.runs.values() if run.incident == other.id)
    assert rival.admitted_at is not None
    answer = desk.send(desk.command())
    assert f"{rival.id} (gpu-off-bus) of {other.id} holds" in answer


def test_only_approvers_start_runbooks() -> None:
    desk = Desk(settings=policy(approvers=("bob",)))
    assert "ada is not an approver" in desk.send(desk.command())
    assert desk.by_hand() == []


def test_an_old_command_starts_nothing() -> None:
    desk = stopped()
    command = desk.command()
    desk.advance(3 * 3600)
    assert "it was given 10800 s ago, at most" in desk.send(command)
    assert desk.by_hand() == []


def test_a_command_of_a_clock_that_is_ahead_starts_nothing() -> None:
    desk = stopped()
    answer = desk.send(desk.command(at=desk.now + timedelta(hours=3)))
    assert "which is still to come: check the clock it was sent by" in answer
    assert desk.by_hand() == []


def test_another_plan_than_the_one_shown_is_refused_with_what_changed() -> None:
    desk = stopped()
    command = desk.command()
    node = replace(desk.view.nodes["node-03"], uid="uid-new", observed_at=desk.now)
    desk.state.take_fact(node.key, node)
    answer = desk.send(command)
    assert "the plan has changed since it was shown: no longer: " in answer
    assert "cordon: cordon_node Node node-03" in answer
    assert desk.by_hand() == []


def test_a_command_without_a_digest_starts_nothing() -> None:
    desk = stopped()
    assert "a person starts only what they were shown" in desk.send(desk.command(digest=None))


def test_an_incident_that_is_over_or_unknown_is_refused() -> None:
    desk = stopped()
    command = desk.command()
    desk.state.take_incident(replace(desk.about, revision=2, state=IncidentState.RESOLVED))
    assert f"{desk.about.id} is over" in desk.send(command)
    assert "no incident inc-none is known" in desk.send(desk.command(incident="inc-none"))


def test_an_unknown_runbook_and_a_wrong_parameter_are_refused() -> None:
    desk = stopped()
    assert "gpu-of-bus is no runbook" in desk.send(desk.command("gpu-of-bus"))
    assert "has no parameter speed" in desk.send(replace(desk.command(), parameters={"speed": 3}))


def test_in_shadow_mode_a_persons_run_changes_nothing() -> None:
    desk = Desk(settings=policy(mode=Mode.SHADOW))
    answer = desk.send(desk.command())
    assert "in shadow mode, no changes are made" in answer
    (run,) = desk.by_hand()
    assert run.state is RunState.SHADOWED
    assert desk.calls == []


def test_the_kill_switch_holds_a_persons_run() -> None:
    desk = stopped()
    desk.send(Command("kill", "", CLUSTER, Verb.KILL, "bob", desk.now))
    desk.send(desk.command())
    (run,) = desk.by_hand()
    assert run.step("cordon").state is StepState.BLOCKED
    assert "kill switch" in run.step("cordon").reason


def test_the_blast_radius_holds_a_persons_run() -> None:
    desk = Desk(settings=policy(blast_radius=BlastRadius(max_nodes=0)))
    desk.send(replace(desk.command(), id="stop", verb=Verb.STOP))
    desk.send(desk.command())
    (run,) = desk.by_hand()
    assert run.step("cordon").state is StepState.BLOCKED
    assert "blast radius" in run.step("cordon").reason


def test_a_node_that_is_opted_out_ends_a_persons_run() -> None:
    desk = stopped()
    node = replace(desk.view.nodes["node-03"], managed=False)
    desk.view.put(node)
    desk.state.take_fact(node.key, node)
    desk.send(desk.command())
    (run,) = desk.by_hand()
    assert run.state is RunState.CANCELLED
    assert {call.effect.action for call in desk.calls} <= {"open_ticket"}


def test_who_starts_it_has_approved_the_plan_and_a_quorum_still_needs_others() -> None:
    groups = {"approvers": ("ada", "bob"), "approval_groups": {"sre": ("ada", "bob")}}
    desk = Desk(settings=policy(mode=Mode.APPROVE, **groups))
    desk.send(replace(desk.command(), id="stop", verb=Verb.STOP))
    desk.send(desk.command())
    (run,) = desk.by_hand()
    assert run.step("cordon").effect is not None
    assert [one.actor for one in run.approvals] == ["ada"]


def test_a_later_revision_does_not_replace_a_persons_run() -> None:
    desk = stopped()
    desk.send(desk.command())
    (run,) = desk.by_hand()
    desk.state.take_incident(replace(desk.about, revision=2, family="gpu_thermal", updated_at=desk.now))
    desk.advance(1)
    assert desk.state.runs[run.id].plan.runbook == "gpu-off-bus"
    assert len(desk.state.runs) == 2


def test_two_thousand_commands_are_started_in_bounded_iterations_and_a_kill_switch_does_not_wait() -> None:
    desk = stopped()
    desk.state = PartitionState(LIBRARY, AUTO, ACTIONS, budget=PER_ITERATION)
    for fact in facts_in(desk.view):
        desk.state.take_fact(fact.key, fact)
    desk.state.take_incident(desk.about)
    desk.advance()
    desk.send(replace(desk.command(), id="stop", verb=Verb.STOP))
    for number in range(2000):
        desk.state.take_command(desk.command(id=f"run-{number}", actor=f"p{number}"))
    kill = Command("kill", "", CLUSTER, Verb.KILL, "bob", desk.now)
    desk.state.take_command(kill)
    desk.advance()
    assert "engaged the kill switch" in desk.answer(kill)
    assert desk.state.next_command == f"run-{PER_ITERATION.incidents}"
    assert desk.state.is_behind(desk.now)
    for _ in range(2000 // PER_ITERATION.incidents):
        desk.advance()
    assert desk.state.next_command is None
    assert len([e for e in desk.timeline if e.event == "command.refused"]) == 1999
    assert [run.commands for run in desk.by_hand()] == [("run-0",)]


def on_node(p: Pipeline, runbook: str, node: str, actor: str = "ada", **more: Any) -> Command:
    """What the command line sends for `--node`: the plan that it shows is bound to the incident that will be opened."""
    until = more.pop("until", p.after(60))
    made = Command(
        "cmd-node", "", EAST, Verb.RUN, actor, p.world.now, scope=f"node:{node}", runbook=runbook,
        until=until, reason="it rattles",
    )  # fmt: skip
    view = p.board.view(EAST)
    about = incident_for_node(EAST, node, facts_for_node(made), view, p.world.now)
    shown = plan(about, BOOKS[runbook], view, p.settings.mode, p.actions)
    made = replace(made, digest=shown_digest(shown, ""), seen=shown_steps(shown, ""), **more)
    p.repeat(made)
    return made


def pipeline(**more: Any) -> Pipeline:
    idle = [f"idle{i:02d}" for i in range(12)]
    wide = policy(blast_radius=BlastRadius(max_nodes=100, max_share=1.0, max_per_window=1000))
    return Pipeline(world_cluster({"llama": FOUR}, spare=idle), **{"settings": wide, **more})


def test_a_runbook_on_a_node_without_a_fault_opens_the_incident_that_it_needs() -> None:
    p = pipeline(actions=EVERY | {"reboot_node"})
    told = on_node(p, "node-reboot", "idle00")
    assert "ada starts runbook node-reboot on idle00 by hand: it rattles" in p.answer_to(told)
    about = p.incident("planned_work", "idle00")
    assert "ada started runbook node-reboot by hand: it rattles" in about.reason
    (run,) = p.board.runs.values()
    assert (run.plan.runbook, run.started_by, run.incident) == ("node-reboot", "ada", about.id)
    assert p.of("idle00")[0] == "cordon_node"
    p.minutes(5)
    assert p.of("idle00") == ["cordon_node", "drain_node", "reboot_node", "validate_node", "uncordon_node"]
    p.minutes(10)
    assert p.incident("planned_work", "idle00").state is IncidentState.RESOLVED
    assert len(p.board.runs) == 1


def test_a_runbook_on_a_node_with_a_job_moves_the_job_as_shown() -> None:
    p = pipeline(actions=EVERY | {"reboot_node"})
    on_node(p, "node-reboot", FOUR[0])
    (run,) = p.board.runs.values()
    assert run.started_by == "ada"
    assert any(step.action == "suspend_job" for step in run.plan.steps)


def test_a_repeated_command_on_a_node_is_one_run_also_after_a_takeover() -> None:
    p = pipeline(actions=EVERY | {"reboot_node"})
    told = on_node(p, "node-reboot", "idle00")
    p.repeat(told)
    p.minutes(20)
    p.repeat(told)
    p.minutes(20)
    assert len(p.board.runs) == 1
    assert p.of("idle00").count("reboot_node") == 1


def test_a_node_that_is_not_in_the_inventory_is_refused() -> None:
    p = pipeline(actions=EVERY | {"reboot_node"})
    told = on_node(p, "node-reboot", "idle00", scope="node:idle99")
    assert "no node idle99 in the inventory" in p.answer_to(told)
    assert len(p.board.runs) == 0


def test_a_node_that_is_replaced_before_its_incident_is_open_is_left_to_the_person() -> None:
    p = pipeline(actions=EVERY | {"reboot_node"})
    opened = p.world.see

    def see(*signals: Signal) -> Any:
        p.change("idle00", uid="another-machine")
        return opened(*signals)

    p.world.see = see  # type: ignore[method-assign]
    on_node(p, "node-reboot", "idle00")
    assert len(p.board.runs) == 0
    assert any("is another one by now than ada was shown" in entry.text for entry in p.timeline)
