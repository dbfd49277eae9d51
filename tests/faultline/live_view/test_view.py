"""What the topics hold, in memory: the latest of everything, and never more than a bounded part of what is over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from faultline.live_view import view as live_view
from faultline.live_view.decisions import Decision
from faultline.live_view.view import KEPT_FOR, LiveView
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.entity import Entity, JobRef
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.run import EffectRecord, EffectState, Run, StepState, Target
from tests.connectors.chat.thread_documents import NOW, incident, run

FIRST = incident()
COMMAND = Command("cmd-1", FIRST.id, "c1", Verb.ACK, "ann", NOW)


def about(number: int, state: IncidentState = IncidentState.OPEN, at: datetime = NOW) -> Incident:
    """An incident of a node of its own."""
    root = Entity("c1", node=f"node-{number:02}")
    closed = at if state.is_over else None
    return incident(
        id=incident_id("c1", root, "gpu_off_bus", 1),
        root=root,
        state=state,
        opened_at=at,
        updated_at=at,
        closed_at=closed,
    )


def line(text: str, of: str = FIRST.id, **attributes: str) -> TimelineEntry:
    return TimelineEntry(of, "c1", NOW, "responder", "run.began", text, attributes)


def with_ticket(of: Incident, ticket: str) -> Run:
    made = run(of, ticket=StepState.DONE)
    opened = EffectRecord(
        key="k",
        action="open_ticket",
        target=Target("Ticket", of.id),
        state=EffectState.CONFIRMED,
        intended_at=NOW,
        lease_until=NOW,
        result={"ticket": ticket},
    )
    return replace(made, steps=(made.steps[0], replace(made.steps[1], effect=opened)))


def held(name: str, *owners: str) -> NodeFact:
    return NodeFact("c1", name, "uid", NOW, unschedulable=True, owner_incident=",".join(owners) or None)


# -- what arrives


def test_an_older_revision_changes_nothing() -> None:
    view = LiveView()
    later = replace(FIRST, revision=3, title="later")
    with view.changes() as changes:
        view.take_incident(later)
        view.take_incident(replace(FIRST, revision=2, title="earlier"))
        assert view.incident(FIRST.id) == later
        assert asyncio.run(changes.wait()) == (FIRST.id,)


def test_the_same_revision_is_taken_again() -> None:
    view = LiveView()
    view.take_incident(FIRST)
    view.take_incident(replace(FIRST, title="corrected"))
    assert view.incident(FIRST.id) == replace(FIRST, title="corrected")


def test_runs_are_the_latest_and_go_with_their_tombstone() -> None:
    view = LiveView()
    view.take_incident(FIRST)
    first, second = run(FIRST), replace(run(FIRST), id="run-2", created_at=NOW - timedelta(hours=1))
    for one in (first, second, replace(first, updated_at=NOW + timedelta(seconds=1))):
        view.take_run(one.id, one)
    assert [one.id for one in view.runs(FIRST.id)] == ["run-2", first.id]
    assert view.runs(FIRST.id)[1].updated_at == NOW + timedelta(seconds=1)
    view.take_run("run-2", None)
    view.take_run("never known", None)
    assert [one.id for one in view.runs(FIRST.id)] == [first.id]


def test_a_ticket_leads_to_its_incident_as_long_as_the_run_is_known() -> None:
    view = LiveView()
    made = with_ticket(FIRST, "GPU-7")
    view.take_run(made.id, made)
    assert view.incident_of_ticket("GPU-7") == FIRST.id
    assert view.incident_of_ticket("GPU-8") is None
    view.take_run(made.id, None)
    assert view.incident_of_ticket("GPU-7") is None


def test_a_line_is_shown_once_however_often_it_is_read() -> None:
    view = LiveView()
    for offset in (3, 5, 5, 4, 6):
        view.take_entry(line(str(offset)), offset)
    assert [entry.text for entry in view.timeline(FIRST.id)] == ["3", "5", "6"]


def test_lines_about_a_whole_cluster_are_under_its_name() -> None:
    view = LiveView()
    view.take_entry(line("frozen", of=""), 1)
    assert [entry.text for entry in view.timeline("c1")] == ["frozen"]


def test_nodes_and_jobs_are_those_of_the_inventory() -> None:
    view, job = LiveView(), JobRef("Job", "research", "eval", "uid-eval")
    view.take_fact("c1/node/node-07", held("node-07", FIRST.id))
    view.take_fact("c1/job/research/eval", JobFact("c1", job, NOW))
    view.take_fact("c1/pod/research/eval-0", None)
    assert list(view.nodes("c1")) == ["node-07"]
    assert len(view.jobs("c1")) == 1
    view.take_fact("c1/node/node-07", None)
    assert (dict(view.nodes("c1")), dict(view.nodes("other"))) == ({}, {})


def test_controls_are_the_defaults_until_they_are_known() -> None:
    view = LiveView()
    assert view.control("c1") == Control("c1")
    view.take_control(Control("c1", revision=4))
    assert view.control("c1").revision == 4
    assert view.clusters == ("c1",)


def test_an_incident_is_found_by_the_beginning_of_its_id() -> None:
    view = LiveView()
    view.take_incident(FIRST)
    for prefix in (FIRST.id, FIRST.id[:8], FIRST.id.removeprefix("inc-")[:4], "inc-"):
        assert view.find(prefix) == [FIRST.id]
    assert view.find("zzz") == []


# -- what is shown


def test_open_incidents_come_first_and_the_newest_of_them_first() -> None:
    view = LiveView()
    old, new, over, closed = (
        about(1),
        about(2, at=NOW + timedelta(hours=1)),
        about(3, IncidentState.RESOLVED, NOW + timedelta(hours=2)),
        about(4, IncidentState.RESOLVED, NOW + timedelta(hours=3)),
    )
    for one in (old, new, over, closed):
        view.take_incident(one)
    view.take_fact("c1/node/node-03", held("node-03", over.id))
    assert [one.incident.id for one in view.overviews()][:2] == [new.id, old.id]
    assert [one.incident.id for one in view.overviews(everything=True)][-1] == closed.id
    assert closed.id not in [one.incident.id for one in view.overviews()]


def test_an_unknown_incident_has_no_overview() -> None:
    assert LiveView().overview("inc-0") is None


# -- what is bounded


def test_of_what_is_over_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "MAX_OVER", 3)
    view = LiveView()
    for number in range(8):
        one = about(number, IncidentState.RESOLVED)
        view.take_incident(one)
        made = with_ticket(one, f"GPU-{number}")
        view.take_run(made.id, made)
        view.take_entry(line("over", of=one.id), number)
    kept = [about(number).id for number in (5, 6, 7)]
    assert [one.incident.id for one in view.overviews(everything=True)] == sorted(kept, reverse=True)
    gone = about(0).id
    assert (view.incident(gone), view.runs(gone), view.timeline(gone)) == (None, (), ())
    assert view.incident_of_ticket("GPU-0") is None


def test_what_still_holds_a_node_is_kept_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "MAX_OVER", 1)
    view, holding = LiveView(), about(1, IncidentState.RESOLVED)
    view.take_fact("c1/node/node-01", held("node-01", holding.id))
    view.take_incident(holding)
    for number in (2, 3):
        view.take_incident(about(number, IncidentState.RESOLVED))
    assert view.incident(holding.id) is not None
    assert view.incident(about(2).id) is None


def test_an_incident_that_reopens_is_not_counted_as_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "MAX_OVER", 1)
    view = LiveView()
    view.take_incident(about(1, IncidentState.RESOLVED))
    view.take_incident(replace(about(1), revision=2))
    for number in (2, 3):
        view.take_incident(about(number, IncidentState.RESOLVED))
    assert view.incident(about(1).id) is not None


def test_of_a_timeline_the_latest_lines_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "MAX_LINES", 3)
    view = LiveView()
    for offset in range(10):
        view.take_entry(line(str(offset)), offset)
    assert [entry.text for entry in view.timeline(FIRST.id)] == ["7", "8", "9"]


async def test_of_the_answers_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "MAX_ANSWERS", 2)
    view = LiveView()
    for number in range(4):
        view.take_entry(line("yes", command=f"cmd-{number}"), number)
    assert [len(await view.answers(f"cmd-{number}", 0)) for number in range(4)] == [0, 0, 1, 1]


def test_what_ended_long_ago_is_forgotten_unless_it_holds_a_node() -> None:
    view, long_ago = LiveView(), NOW - KEPT_FOR - timedelta(seconds=1)
    gone, holding, recent, still_open = (
        about(1, IncidentState.RESOLVED, long_ago),
        about(2, IncidentState.RESOLVED, long_ago),
        about(3, IncidentState.RESOLVED),
        about(4, IncidentState.OPEN, long_ago),
    )
    view.take_fact("c1/node/node-02", held("node-02", holding.id))
    for one in (gone, holding, recent, still_open):
        view.take_incident(one)
    view.forget(NOW)
    assert [one.id for one in (gone, holding, recent, still_open) if view.incident(one.id) is None] == [
        gone.id
    ]


def test_runs_and_lines_of_an_unknown_incident_are_forgotten_the_second_time() -> None:
    view, made = LiveView(), run(FIRST)
    view.take_run(made.id, made)
    view.take_entry(line("began"), 1)
    view.take_entry(line("frozen", of=""), 2)
    view.forget(NOW)
    # The incident may still be on its way.
    assert view.runs(FIRST.id) == (made,)
    view.forget(NOW)
    assert (view.runs(FIRST.id), view.timeline(FIRST.id)) == ((), ())
    assert len(view.timeline("c1")) == 1


def test_a_run_whose_incident_arrives_later_is_kept() -> None:
    view, made = LiveView(), run(FIRST)
    view.take_run(made.id, made)
    view.forget(NOW)
    view.take_incident(FIRST)
    view.forget(NOW)
    assert view.runs(FIRST.id) == (made,)


# -- following it


async def test_a_slow_reader_gets_each_id_once() -> None:
    view = LiveView()
    with view.changes() as changes:
        for revision in range(1, 100):
            view.take_incident(replace(FIRST, revision=revision))
        view.take_control(Control("c1"))
        assert await changes.wait() == (FIRST.id, "c1")
        waiting = asyncio.create_task(changes.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        view.take_entry(line("more"), 1)
        assert await waiting == (FIRST.id,)


async def test_readers_do_not_take_changes_from_each_other() -> None:
    view = LiveView()
    with view.changes() as first, view.changes() as second:
        view.take_incident(FIRST)
        assert await first.wait() == await second.wait() == (FIRST.id,)


async def test_an_answer_is_there_as_soon_as_it_is_written() -> None:
    view = LiveView()
    waiting = [asyncio.create_task(view.answers("cmd-1", 60)) for _ in range(2)]
    impatient = asyncio.create_task(view.answers("cmd-1", 0.001))
    assert await impatient == ()
    answer = line("acked", command="cmd-1")
    view.take_entry(answer, 1)
    assert [await one for one in waiting] == [(answer,), (answer,)]
    assert await view.answers("cmd-1", 60) == (answer,)
    assert view.incident_of_answer("cmd-") == FIRST.id
    assert view.incident_of_answer("other-") is None


async def test_no_answer_in_time_is_none() -> None:
    assert await LiveView().answers("cmd-1", 0) == ()


@pytest.mark.parametrize(
    ("events", "accepted", "text"),
    [
        ((), None, "ack is stored, but no responder has answered yet"),
        (("person.ack",), True, "person.ack"),
        (("person.ack_refused",), False, "person.ack_refused"),
        (("command.refused", "person.ack"), True, "person.ack"),
        (("person.ack", "person.ack"), True, "person.ack"),
    ],
)
def test_a_decision_is_accepted_when_one_run_accepts_it(
    events: tuple[str, ...], accepted: bool | None, text: str
) -> None:
    answers = tuple(TimelineEntry(FIRST.id, "c1", NOW, "ann", event, event) for event in events)
    decision = Decision(COMMAND, answers)
    assert decision.accepted is accepted
    assert decision.text.startswith(text)
    assert decision.text == text or accepted is None
