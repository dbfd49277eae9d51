"""What goes wrong between a run, its incident, other runs and people, and must not end badly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from connectors.base import Done, Outcome, Refused, Retry
from runbooks.engine.guardrails import judge
from runbooks.engine.node_release import holds_of
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.plan import MAX_STEPS
from runbooks.engine.run_summaries import IncidentSummary
from runbooks.language.schema import TICKETS, Runbook
from runbooks.language.select import select
from streams.model.codec import decode, encode
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.errors import BadInput
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import Mode, Run, RunState, StepState
from tests.runbooks.engine.test_guardrails import case, closed, with_node
from tests.runbooks.engine.test_run import decide, revise
from tests.runbooks.scenes import (
    ACTIONS,
    AUTO,
    CLUSTER,
    JOB,
    LIBRARY,
    NOW,
    OTHER_JOB,
    Play,
    at,
    cluster,
    incident,
    policy,
    radius,
)
from tests.work import calls_counted

TICKETLESS = ACTIONS - {"open_ticket"}


def board(settings: object = AUTO, actions: frozenset[str] = TICKETLESS) -> PartitionState:
    """A board that knows the cluster."""
    made = PartitionState(LIBRARY, settings, actions)  # type: ignore[arg-type]
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        made.take_fact(fact.key, fact)
    return made


def command(verb: Verb, **changes: object) -> Command:
    return Command(f"cmd-{verb}", incident().id, CLUSTER, verb, "ada", NOW, **changes)  # type: ignore[arg-type]


def test_who_said_stop_while_nobody_was_there_to_act_is_heard_before_the_run_begins() -> None:
    for order in (("stop", "incident"), ("incident", "stop")):
        played = board()
        for what in order:
            if what == "stop":
                played.take_command(command(Verb.STOP))
            else:
                played.take_incident(incident())
        played.advance(NOW)
        changes = played.collect()
        assert changes.calls == ()
        assert [run.state for run in changes.runs] == [RunState.CANCELLED]
        assert any(entry.event == "person.stopped" for entry in changes.timeline)


def test_a_job_is_not_kept_suspended_by_a_kill_switch_that_stays_on() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.settings = policy(kill_switch=True)
    play.play()
    assert play.state("drain") is StepState.BLOCKED
    play.tick(599)
    assert play.air == []
    play.tick(2)
    assert play.state("drain") is StepState.FAILED
    assert [c.effect.action for c in play.air] == ["resume_job"]


def test_a_question_in_the_middle_keeps_no_job_suspended_for_hours() -> None:
    play = Play(incident(), settings=policy(mode=Mode.APPROVE), actions=TICKETLESS)
    play.tick()
    decide(play, Verb.APPROVE)
    play.play(until="suspend_job")
    revise(play, jobs=(JOB, OTHER_JOB))
    play.play()
    assert play.stands() is RunState.AWAITING_APPROVAL
    play.tick(599)
    assert play.air == []
    play.tick(2)
    assert play.run.outcome == "expired"
    assert [(c.kind, c.effect.target.name) for c in play.air] == [("undo", JOB.name)]


@pytest.mark.parametrize("runbook", LIBRARY, ids=lambda r: r.id)
def test_a_ticket_system_may_be_down_for_hours_and_still_gets_its_ticket(runbook: Runbook) -> None:
    for step in runbook.steps:
        if step.action in TICKETS:
            assert isinstance(step.deadline_s, float)
            assert step.deadline_s >= 12 * 3600


def test_after_an_hour_without_the_ticket_system_the_ticket_is_opened() -> None:
    play = Play(incident())
    play.tick()
    for _ in range(80):
        if play.air:
            down = play.air[0].effect.action == "open_ticket"
            play.answer(Retry(5.0, "connection refused") if down else Done())
        play.tick(61)
    assert play.stands() is RunState.SUCCEEDED
    play.answer(Done({"ticket": "GPU-1"}), "open_ticket")
    assert play.state("ticket") is StepState.DONE


def test_a_record_that_is_odd_is_refused_where_it_is_read_and_stops_nobody() -> None:
    for value in (incident(), command(Verb.STOP)):
        with pytest.raises(BadInput, match="timezone"):
            decode(type(value), encode(value).replace(b"12:00:00Z", b"12:00:00"))


def test_a_number_too_large_for_conditions_stops_nobody() -> None:
    played = board()
    played.take_incident(incident(facts={"xid": 2**80, "xids": (2**80,)}))
    played.advance(NOW)
    assert [call.effect.action for call in played.collect().calls] == ["cordon_node"]


def test_a_runbook_whose_condition_is_no_yes_or_no_is_passed_over_with_its_fault() -> None:
    faulty = LIBRARY[0].model_copy(update={"id": "faulty", "match": "incident.family", "priority": 1000})
    choice = select(incident(), (*LIBRARY, faulty))
    assert choice.runbook is not None
    assert choice.runbook.id == "gpu-off-bus"
    assert "not true or false" in dict(choice.rejected)["faulty"]


def test_an_incident_too_large_to_write_down_is_left_to_people_and_stops_nobody() -> None:
    crowd = tuple(JobRef("Job", "mig", f"tenant-{i:04}", f"uid-{i}") for i in range(400))
    played = board()
    played.take_incident(incident(jobs=crowd))
    played.take_incident(incident(root=Entity(CLUSTER, node="node-07")))
    played.advance(NOW)
    changes = played.collect()
    assert [call.effect.target.name for call in changes.calls] == ["node-07"]
    assert any("limit" in entry.text for entry in changes.timeline if entry.incident == incident().id)

    played = board()
    played.take_incident(incident())
    played.advance(NOW)
    played.take_incident(incident(jobs=crowd, revision=2))
    played.advance(at(1))
    run = played.runs[next(iter(played.runs))]
    assert len(run.steps) < 20
    assert any("limit" in entry.text for entry in played.collect().timeline)


def test_a_node_that_is_gone_for_good_does_not_use_up_the_blast_radius_for_ever() -> None:
    view = cluster()
    other = closed("node-09", view, confirmed=-5000)
    view.forget("c1/node/node-09")
    assert judge(case(view=view, others=(other,))) is None
    fresh = closed("node-08", view, confirmed=-600)
    view.forget("c1/node/node-08")
    ruling = judge(case(view=view, others=(fresh,)))
    assert ruling is not None
    assert ruling.rule == "blast radius"


def test_a_node_that_a_person_opened_again_does_not_count_for_the_notes_left_on_it() -> None:
    left: dict[str, Any] = {"owner_incident": "inc-x", "unschedulable": False}
    assert judge(case(view=with_node("node-09", **left))) is None
    tainted = with_node("node-09", **left, taints=("faultline.dev/incident=inc-x:NoSchedule",))
    assert judge(case(view=tainted)) is not None


def test_a_merge_while_a_failed_run_is_still_giving_back_opens_the_node_too() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="resume_job")
    play.answer(Refused("no permission"))
    assert play.run.outcome == "failed"
    revise(play, state=IncidentState.MERGED, merged_into="inc-other")
    play.play()
    assert play.made[-2:] == ["undo suspend_job", "undo cordon_node"]
    assert not play.run.has_work


def test_a_chain_of_merges_keeps_the_node_closed_that_its_last_incident_accuses() -> None:
    played = board()
    last = incident("node_down", Entity(CLUSTER, node="node-03"))
    middle = incident("silent_node", Entity(CLUSTER, node="node-03"))
    played.take_incident(incident())
    played.advance(NOW)
    run = played.runs[next(iter(played.runs))]
    cordon = next(call for call in played.collect().calls if call.effect.action == "cordon_node")
    played.take_outcome(cordon, Done(), NOW)
    merged: dict[str, Any] = {"state": IncidentState.MERGED, "revision": 2}
    played.take_incident(replace(incident(), **merged, merged_into=middle.id))
    played.take_incident(replace(middle, **merged, merged_into=last.id))
    played.take_incident(last)
    played.advance(at(1))
    assert played.runs[run.id].step("cordon").kept_for == last.id
    calls = played.collect().calls
    assert [(c.kind, c.effect.action, c.effect.incident) for c in calls] == [
        ("apply", "cordon_node", last.id)
    ]
    kinds = []
    while calls:
        for call in calls:
            kinds.append((call.kind, call.effect.incident))
            played.take_outcome(call, Done(), at(2))
        played.advance(at(2))
        played.advance(at(2))
        calls = played.collect().calls
    assert ("undo", incident().id) in kinds


def test_what_is_kept_for_an_incident_is_given_back_when_that_one_is_over() -> None:
    played = board(policy(mode=Mode.AUTO))
    asks = incident("host_fault", Entity(CLUSTER, node="node-03"))
    played.take_incident(incident())
    played.advance(NOW)
    cordon = next(call for call in played.collect().calls if call.effect.action == "cordon_node")
    played.take_outcome(cordon, Done(), NOW)
    played.take_incident(asks)
    played.take_incident(replace(incident(), state=IncidentState.MERGED, revision=2, merged_into=asks.id))
    played.advance(at(1))
    assert played.collect().calls == ()
    run = played.runs[cordon.run]
    assert (run.state, run.has_work) == (RunState.CANCELLED, True)
    played.take_incident(replace(asks, state=IncidentState.RESOLVED, revision=2))
    played.advance(at(40))
    played.advance(at(41))
    assert [call.kind for call in played.collect().calls] == ["undo"]


def test_what_is_kept_for_an_incident_that_cannot_be_read_any_more_is_left_to_a_person() -> None:
    """A restart finds the survivor's record damaged or gone: the node may be bad, and the run does not wait for ever."""
    asks, merged, played = _restarted_without_the_survivor()
    name = next(iter(played.runs))
    told: list[str] = []
    for seconds in (60, 75, 95, 200, 359):
        played.advance(at(seconds))
        told += [entry.event for entry in played.collect().timeline]
    assert (played.runs[name].step("cordon").kept_for, told) == (asks.id, [])
    due = played.due_at()
    assert due is not None
    assert due <= at(361)
    played.advance(due)
    changes = played.collect()
    run = played.runs[name]
    assert (changes.calls, run.has_work, run.state) == ((), False, RunState.CANCELLED)
    said = [entry.text for entry in changes.timeline if entry.event == "run.leaves"]
    assert len(said) == 1
    assert "node-03 stays cordoned for manual handling" in said[0]
    assert asks.id in said[0]
    assert [hold.run.id for hold in holds_of([run], "node-03")] == [name]
    played.take_incident(replace(merged, revision=3))
    played.advance(at(400))
    assert played.collect().calls == ()


def test_a_record_that_is_written_anew_in_time_is_waited_for() -> None:
    asks, _, played = _restarted_without_the_survivor()
    name = next(iter(played.runs))
    played.advance(at(60))
    played.take_incident(asks)
    for seconds in (91, 400, 800):
        played.advance(at(seconds))
    assert played.collect().calls == ()
    record = played.runs[name].step("cordon")
    assert (record.kept_for, record.keeper_lost_since) == (asks.id, None)
    played.take_incident(replace(asks, state=IncidentState.RESOLVED, revision=2))
    played.advance(at(840))
    played.advance(at(841))
    assert [call.kind for call in played.collect().calls] == ["undo"]


def _restarted_without_the_survivor() -> tuple[Incident, Incident, PartitionState]:
    """What kept a node closed, what was merged into it, and a board that has read only the second one back."""
    asks = incident("host_fault", Entity(CLUSTER, node="node-03"))
    merged = replace(incident(), state=IncidentState.MERGED, revision=2, merged_into=asks.id)
    first = _kept_for(asks, merged)
    name = next(iter(first.runs))
    played = PartitionState(LIBRARY, AUTO, TICKETLESS, {name: decode(Run, encode(first.runs[name]))})
    list(played.recovering(at(60)))
    played.take_incident(merged)
    return asks, merged, played


def _kept_for(asks: Incident, merged: Incident) -> PartitionState:
    """A run that has closed its node, and whose incident has become part of one that accuses the same node."""
    played = board(policy(mode=Mode.AUTO))
    played.take_incident(incident())
    played.advance(NOW)
    cordon = next(call for call in played.collect().calls if call.effect.action == "cordon_node")
    played.take_outcome(cordon, Done(), NOW)
    played.take_incident(asks)
    played.take_incident(merged)
    played.advance(at(1))
    assert played.runs[cordon.run].step("cordon").kept_for == asks.id
    return played


def test_resolving_an_incident_leaves_no_job_suspended_and_its_node_closed() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    decide(play, Verb.RESOLVE)
    play.play()
    assert play.made[-1] == "undo suspend_job"
    assert "undo cordon_node" not in play.made
    assert any("cordon_node Node node-03 stays in place" in note for note in play.notes)


def test_what_a_failed_run_leaves_behind_is_said() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="resume_job")
    play.answer(Refused("no permission"))
    play.play()
    assert any("cordon_node Node node-03 stays in place" in note for note in play.notes)
    assert not any("suspend_job" in note and "stays in place" in note for note in play.notes)


def test_a_job_that_another_run_has_moved_since_the_fault_is_not_stopped_again() -> None:
    first = Play(incident(), actions=TICKETLESS)
    first.now = at(10)
    first.play()
    first.tick(60)
    assert first.stands() is RunState.SUCCEEDED
    down = incident("node_down", Entity(CLUSTER, node="node-03"))
    second = Play(down, actions=TICKETLESS, others=(first.run,), now=at(120))
    for pod in [p for p in second.view.pods.values() if p.node == "node-03"]:
        second.view.put(replace(pod, node="node-12"))
    second.play()
    second.tick(60)
    assert second.made == ["cordon_node", "drain_node", "verify_job"]
    assert second.stands() is RunState.SUCCEEDED

    still_there = Play(down, actions=TICKETLESS, others=(first.run,), now=at(120))
    still_there.play()
    assert "suspend_job" in still_there.made
    later = Play(replace(down, fault_at=at(100)), actions=TICKETLESS, others=(first.run,), now=at(120))
    later.view = second.view
    later.play()
    assert "suspend_job" in later.made


def test_an_approval_does_not_lift_anything_days_later() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), settings=radius(max_nodes=0), actions=TICKETLESS)
    play.tick()
    play.settings = AUTO
    play.tick(6)
    assert play.stands() is RunState.AWAITING_APPROVAL
    play.settings = radius(max_nodes=0)
    decide(play, Verb.APPROVE)
    assert play.state("cordon") is StepState.BLOCKED
    play.tick(3700)
    play.settings = AUTO
    play.tick(6)
    assert play.stands() is RunState.AWAITING_APPROVAL
    assert play.air == []
    decide(play, Verb.APPROVE, id="cmd-old", at=at(0))
    assert play.air == []
    assert "ago" in play.notes[-1]
    decide(play, Verb.APPROVE, id="cmd-new", at=play.now)
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_a_turn_with_a_thousand_runs_that_wait_is_short() -> None:
    played = board()
    for i in range(1000):
        name = f"node-{i % 16:02}"
        gpu = Gpu(pci=f"0000:{i // 16:02x}:00")
        played.take_incident(incident(root=Entity(CLUSTER, node=name, gpu=gpu), certainty=Certainty.LIKELY))
    played.advance(NOW)
    assert len(played.collect().runs) == 1000
    with calls_counted() as count:
        played.advance(at(10))
    assert count[0] < 1000 * 1_500


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.APPROVE])
def test_a_run_that_waits_while_jobs_come_and_go_grows_no_larger_than_its_journal_takes(mode: Mode) -> None:
    """Each revision names other jobs, and what was planned stays planned."""
    played = board(policy(mode=mode, approval_expiry_s=1e6))
    about = incident()
    told: list[str] = []
    for number in range(1, 12):
        jobs = tuple(JobRef("PyTorchJob", "ns", f"job-{number}-{n}", f"u-{number}-{n}") for n in range(30))
        played.take_incident(replace(about, revision=number, jobs=jobs))
        played.advance(at(number))
        told += [entry.event for entry in played.collect().timeline]
    (run,) = played.runs.values()
    assert 100 < len(run.plan.steps) <= MAX_STEPS
    assert told.count("run.not_extended") == 1
    assert run.incident_revision == 11


def test_an_incident_that_was_over_and_cannot_be_read_any_more_stops_nobody() -> None:
    played = board()
    played.take_incident(incident())
    played.advance(NOW)
    gone = replace(incident("gpu_fault"), id="inc-gone", state=IncidentState.RESOLVED)
    raw = encode(gone).replace(b'"fault_at":"2026', b'"fault_at":"MMXX')
    assert played.take_finished_incident(decode(IncidentSummary, raw), raw)
    merged = replace(incident(), revision=2, state=IncidentState.MERGED, merged_into="inc-gone")
    played.take_incident(merged)
    played.advance(at(1))
    (run,) = played.runs.values()
    assert run.outcome == "cancelled"


@pytest.mark.parametrize(
    "verb", [Verb.APPROVE, Verb.REJECT, Verb.STOP, Verb.RESOLVE, Verb.ACK, Verb.RELEASE, Verb.KILL]
)
def test_a_reason_as_long_as_a_log_file_does_not_make_a_document_too_large(verb: Verb) -> None:
    """It would be read again at every start, and stop the cluster's responder each time."""
    played = board(policy(mode=Mode.APPROVE))
    played.take_incident(incident())
    played.advance(NOW)
    played.collect()
    (run,) = played.runs.values()
    long = command(verb, digest=run.plan.digest, reason="x" * 600_000, scope="node:node-03")
    played.take_command(decode(Command, encode(long)))
    played.advance(at(1))
    changes = played.collect()
    assert changes.timeline
    documents = [*changes.runs, *changes.controls, *changes.timeline, *changes.signals]
    assert all(len(encode(document)) < 64 * 1024 for document in documents)


@pytest.mark.parametrize("name", ["id", "actor", "step", "scope"])
def test_a_command_with_a_name_as_long_as_a_log_file_is_refused_where_it_is_read(name: str) -> None:
    with pytest.raises(BadInput, match=name):
        decode(Command, encode(replace(command(Verb.STOP), **{name: "x" * 1001})))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "outcome", [Refused("x" * 2_000_000), Retry(1.0, "x" * 2_000_000), Done({}, "x" * 2_000_000)]
)
def test_a_server_that_answers_with_a_megabyte_stops_nobody(outcome: Outcome) -> None:
    played = board()
    played.take_incident(incident())
    played.advance(NOW)
    call = played.collect().calls[0]
    played.take_outcome(call, outcome, at(1))
    played.advance(at(1))
    changes = played.collect()
    assert changes.runs
    documents = [*changes.runs, *changes.timeline, *changes.signals]
    assert all(len(encode(document)) < 64 * 1024 for document in documents)
