"""What can be decided on a thread's root: each button only while its command would be accepted, and a silence that holds."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from faultline.chat.root_buttons import Handling, next_change, root_buttons
from faultline.chat.thread_plan import Doing, Slot, Urgency, tasks_of, wanted
from faultline.chat.thread_sources import ThreadSources
from faultline.chat.wanted_threads import with_decision
from streams.model.clock import rfc3339
from streams.model.conversation import TimelineEntry
from streams.model.facts import JobFact
from streams.model.incident import Incident, IncidentState
from streams.model.message import Buttons, Message
from streams.model.run import EffectRecord, EffectState, Mode, Run, RunState, Snooze, StepState, Target
from streams.model.thread import ROOT, Post, Thread
from tests.connectors.chat.thread_documents import JOB, NOW, incident, run

LATER = NOW + timedelta(hours=1)
LIVING = Handling(has_living_job=True)
CREATED = EffectRecord(
    "k", "reply", Target("Channel", "C1"), EffectState.CONFIRMED, NOW, NOW, 1, {"ts": "1.1"}
)


def suspending(mode: Mode = Mode.AUTO, **states: StepState) -> Run:
    """A run that suspends the job after the cordon."""
    made = run(incident(), mode, cordon=StepState.DONE, **states)
    cordon, suspend = made.plan.steps
    return replace(
        made,
        plan=replace(made.plan, steps=(cordon, replace(suspend, action="suspend_job", destructive=True))),
    )


def offered(about: Incident, runs: list[Run], handling: Handling = LIVING) -> list[str]:
    return [button.action for button in root_buttons(about, runs, handling, NOW)]


ALL = ["ack", "snooze", "hand_over", "stop", "silence", "resolve", "evidence", "explain"]
OVER = incident(state=IncidentState.RESOLVED, closed_at=NOW)
SNOOZED = replace(suspending(), snooze=Snooze("alice", NOW, LATER))


@pytest.mark.parametrize(
    ("about", "runs", "handling", "gone"),
    [
        (incident(), [suspending()], LIVING, set()),
        (incident(), [suspending()], replace(LIVING, acked_by="alice"), {"ack"}),
        (incident(), [suspending()], replace(LIVING, silenced_until=LATER), {"silence"}),
        (incident(), [suspending()], replace(LIVING, silenced_until=NOW), set()),
        (incident(), [suspending()], Handling(), {"snooze"}),
        (incident(), [suspending(ticket=StepState.RUNNING)], LIVING, {"snooze"}),
        (incident(), [SNOOZED], LIVING, {"snooze"}),
        (incident(), [], LIVING, {"snooze", "hand_over", "stop"}),
        (incident(), [suspending(Mode.SHADOW)], LIVING, {"snooze", "hand_over", "stop"}),
        (incident(), [replace(suspending(), state=RunState.FAILED)], LIVING, {"snooze", "hand_over", "stop"}),
        (incident(proofs=()), [suspending()], LIVING, {"evidence"}),
        (OVER, [suspending()], LIVING, set(ALL) - {"evidence", "explain"}),
    ],
    ids=[
        "all", "acknowledged", "silenced", "silence over", "no job lives", "too late", "snoozed", "no run", "shadow", "run over",
        "no proof", "over",
    ],
)  # fmt: skip
def test_only_what_would_be_accepted_is_offered(
    about: Incident, runs: list[Run], handling: Handling, gone: set[str]
) -> None:
    assert offered(about, runs, handling) == [action for action in ALL if action not in gone]


def test_a_button_carries_ids_and_nothing_else() -> None:
    for button in root_buttons(incident(), [suspending()], LIVING, NOW):
        assert json.loads(button.value) == {"i": incident().id, "c": "c1"}


def test_without_anybody_who_takes_presses_there_are_no_buttons() -> None:
    for buttons in (False, True):
        sources = ThreadSources(buttons=buttons)
        sources.take_incident(incident())
        root, *_ = sources.slots_of(incident(), Thread(incident().id, "c1", "C1", NOW, NOW), NOW)
        assert any(isinstance(block, Buttons) for block in root.message.blocks) is buttons


def test_a_decision_made_anywhere_changes_the_root_at_once() -> None:
    before, after = (
        wanted(incident(), [], [], handling=handling, buttons=root_buttons(incident(), [], handling, NOW))[0]
        for handling in (Handling(), Handling(acked_by="alice (U1)"))
    )
    assert before.mark != after.mark
    assert "alice (U1)" in str(after.message.blocks)


def test_a_job_that_ends_takes_its_button_along() -> None:
    sources = ThreadSources(buttons=True)
    sources.take_incident(incident())
    fact = JobFact("c1", JOB, NOW)
    sources.take_job("c1", JOB.key, fact)
    thread = Thread(incident().id, "c1", "C1", NOW, NOW)
    assert sources.handling_of(incident(), thread).has_living_job
    sources.changed.clear()
    sources.take_job("c1", JOB.key, replace(fact, observed_at=LATER))
    assert not sources.changed
    sources.take_job("c1", JOB.key, replace(fact, finished=True))
    assert list(sources.changed) == [incident().id]
    assert not sources.handling_of(incident(), thread).has_living_job


SILENT = Thread(incident().id, "c1", "C1", NOW, NOW, silenced_until=LATER)


@pytest.mark.parametrize(
    ("slot", "post", "held"),
    [
        (Slot("evidence", Message("new"), "", Urgency.EVIDENCE), None, True),
        (Slot("run/r", Message("new"), "x", Urgency.STEP), None, True),
        (Slot("run/r", Message("new"), "x", Urgency.STEP), Post("run/r", CREATED, "old", "w"), True),
        (Slot("approval/r/s", Message("new"), "x", Urgency.APPROVAL), None, False),
        (Slot("approval/r/s", Message("new"), "x", Urgency.APPROVAL), Post("approval/r/s", CREATED), False),
        (Slot(ROOT, Message("new"), "resolved", Urgency.ROOT), Post(ROOT, CREATED, "old", "open"), False),
        (Slot(ROOT, Message("new"), "open", Urgency.ROOT), Post(ROOT, CREATED, "old", "open"), True),
    ],
    ids=["evidence", "a run", "its steps", "a question", "its answer", "a state", "a detail"],
)
def test_a_silence_holds_back_all_but_questions_and_states(slot: Slot, post: Post | None, held: bool) -> None:
    thread = replace(SILENT, posts=(Post(ROOT, CREATED, "old", "open"),))
    thread = thread.with_post(post) if post is not None else thread
    (task,) = tasks_of(thread, [slot], NOW, 1.0)
    assert (task.due_at >= LATER) is held


def test_what_may_have_been_sent_is_looked_up_in_a_silence_too() -> None:
    sent = Post("evidence", replace(CREATED, state=EffectState.UNKNOWN))
    thread = replace(SILENT, posts=(Post(ROOT, CREATED, "old", "open"), sent))
    (task,) = tasks_of(thread, [Slot("evidence", Message("e"), "", Urgency.EVIDENCE)], NOW, 1.0)
    assert (task.doing, task.due_at) == (Doing.LOOK_UP, NOW)


def entry(event: str, **attributes: str) -> TimelineEntry:
    return TimelineEntry(incident().id, "c1", NOW, "alice (U1)", event, "", attributes)


def test_the_timeline_says_who_acknowledged_and_until_when_it_is_silent() -> None:
    thread = replace(SILENT, silenced_until=None)
    assert with_decision(thread, entry("person.ack")).acked_by == "alice (U1)"
    assert with_decision(thread, entry("person.silence", until=rfc3339(LATER))).silenced_until == LATER
    for event, until in (("person.silence_refused", rfc3339(LATER)), ("person.silence", "soon")):
        assert with_decision(thread, entry(event, until=until)) == thread


def test_the_end_of_a_silence_or_a_snooze_is_known_beforehand() -> None:
    assert next_change([SNOOZED], Handling(silenced_until=LATER + timedelta(hours=1)), NOW) == LATER
    assert next_change([SNOOZED], Handling(), LATER) is None
