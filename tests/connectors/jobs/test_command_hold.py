"""What is sent to a Volcano job and when: never twice, never past its last retry, never against a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from connectors.base import AlreadyDone, Blocked, Effect, Outcome, Refused, Waiting
from connectors.jobs.command_hold import (
    ABORT,
    COMMAND,
    GRACE_S,
    LOST_S,
    RESUME,
    abort,
    command,
    command_of,
    name_for,
    pending,
    resume,
    take_back,
)
from connectors.jobs.suspension import suspend_annotations_of
from connectors.kubernetes.client import Object
from streams.job_kinds.kind import JobKind, Lever
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.objects import made, merged

KIND: JobKind = KNOWN["VolcanoJob"]
STOP = Effect(
    "key-1", "suspend_job", Target("VolcanoJob", "train", "team-a"), "c1", "inc-1", "run-1", "suspend"
)
START = replace(STOP, key="resume-1", action="resume_job")
AT = datetime(2026, 3, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def job(phase: str = "Running", retries: int = 0, **spec: object) -> Object:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "metadata": {"name": "train", "namespace": "team-a", "uid": "uid-train"},
        "spec": spec,
        "status": {"state": {"phase": phase}, "retryCount": retries},
    }


def now(thing: Object, phase: str, retries: int = 0) -> Object:
    found: Object = merged(thing, {"status": {"state": {"phase": phase}, "retryCount": retries}})
    return found


def held(phase: str = "Aborted") -> Object:
    return now(made(job(), abort(job(), KIND, STOP, AT)), phase)


def test_the_intent_is_written_before_anything_is_sent_and_names_the_command_by_its_effect() -> None:
    intended = held("Running")
    note = command_of(intended)
    assert note is not None
    assert (note.name, note.was, note.sent) == (name_for("key-1", ABORT), 0, False)
    assert name_for("key-1", ABORT) != name_for("key-2", ABORT)
    body = command(intended, KIND, ABORT, note, STOP)
    assert body["target"]["uid"] == "uid-train"
    assert body["metadata"]["ownerReferences"] == [body["target"]]
    assert isinstance(abort(intended, KIND, STOP, AT), Waiting)


def test_it_is_aborted_and_resumed_once_and_remembers_both() -> None:
    aborted = held()
    assert isinstance(abort(aborted, KIND, STOP, AT), AlreadyDone)
    intended = made(aborted, resume(aborted, KIND, START, AT))
    assert isinstance(resume(intended, KIND, START, AT), Waiting)
    back = now(intended, "Running", 1)
    assert isinstance(resume(back, KIND, START, AT), AlreadyDone)
    assert isinstance(abort(back, KIND, STOP, AT), AlreadyDone), "a late second call must not abort it again"
    assert not suspend_annotations_of(back).held


@pytest.mark.parametrize(
    ("sent", "there", "retries", "seconds", "becomes"),
    [
        (True, True, 0, 0.0, Waiting),
        (True, False, 0, 1.0, Waiting),
        (True, False, 0, LOST_S + 1, Blocked),
        (True, False, 1, 1.0, Blocked),
        (False, True, 0, LOST_S + 1, Waiting),
        (False, False, 0, 1.0, Waiting),
        (False, False, 0, GRACE_S + 1, None),
        (False, False, 1, GRACE_S + 1, Blocked),
    ],
    ids=[
        "not taken yet",
        "taken just now",
        "taken and lost",
        "restarted meanwhile",
        "sent by somebody who died before noting it",
        "perhaps sent",
        "never sent",
        "never sent and restarted meanwhile",
    ],
)
def test_what_becomes_of_a_command(
    sent: bool, there: bool, retries: int, seconds: float, becomes: type[Outcome] | None
) -> None:
    intended = held("Running")
    note = command_of(intended)
    assert note is not None
    marked = merged(intended, {"metadata": {"annotations": {COMMAND: str(replace(note, sent=sent))}}})
    found = pending(now(marked, "Running", retries), KIND, ABORT, there=there, now=after(seconds))
    assert found is None if becomes is None else isinstance(found, becomes), found


def test_what_has_moved_between_two_looks_is_no_work_of_somebody_else() -> None:
    undone = made(held(), take_back(held(), KIND, STOP, AT))
    moved = pending(now(undone, "Restarting", 1), KIND, RESUME, there=False, now=after(1))
    assert isinstance(moved, Waiting)
    assert isinstance(pending(now(undone, "Aborted", 1), KIND, RESUME, there=False, now=after(1)), Blocked)


@pytest.mark.parametrize("note", ["", "nonsense", f"{name_for('key-1', RESUME)} 0 2026-03-01T00:00:00Z"])
def test_a_note_that_somebody_changed_is_nothing_to_act_on(note: str) -> None:
    marked = merged(held("Running"), {"metadata": {"annotations": {COMMAND: note}}})
    assert isinstance(pending(marked, KIND, ABORT, there=False, now=after(10)), Blocked)


def test_in_a_phase_in_which_commands_are_dropped_none_is_sent() -> None:
    assert isinstance(abort(job("Restarting"), KIND, STOP, AT), Waiting)


def test_the_last_retry_is_never_taken() -> None:
    spent = job("Running", 2, maxRetry=3)
    refused = abort(spent, KIND, STOP, AT)
    assert isinstance(refused, Refused)
    assert "none left" in refused.reason
    meanwhile = now(held(), "Aborted", 2)
    for outcome in (resume(meanwhile, KIND, START, AT), take_back(meanwhile, KIND, STOP, AT)):
        assert isinstance(outcome, Refused)
        assert "stays aborted" in outcome.reason
    assert KIND.means(spent).lever is None
    assert KIND.means(job("Running", 1, maxRetry=3)).lever is Lever.COMMAND
    assert KIND.means(job("Running", 1, maxRetry=3)).retries == 1


def test_what_a_person_did_is_left_to_them() -> None:
    resumed_by_hand = now(held(), "Running", 1)
    for outcome in (
        abort(resumed_by_hand, KIND, replace(STOP, key="key-of-another-step"), AT),
        resume(resumed_by_hand, KIND, START, AT),
        take_back(resumed_by_hand, KIND, STOP, AT),
    ):
        assert isinstance(outcome, Blocked)
        assert outcome.by_person
    aborted_by_hand = job("Aborted")
    for outcome in (abort(aborted_by_hand, KIND, STOP, AT), resume(aborted_by_hand, KIND, START, AT)):
        assert isinstance(outcome, Blocked)
        assert "not by Faultline" in outcome.reason


def test_an_undo_resumes_and_then_leaves_no_trace() -> None:
    intended = made(held(), take_back(held(), KIND, STOP, AT))
    assert isinstance(take_back(intended, KIND, STOP, AT), Waiting)
    running = now(intended, "Running", 1)
    clean = made(running, take_back(running, KIND, STOP, AT))
    assert clean["metadata"]["annotations"] == {}
    assert isinstance(take_back(clean, KIND, STOP, AT), AlreadyDone)


def test_an_undo_of_what_may_still_be_aborted_waits() -> None:
    assert isinstance(take_back(held("Running"), KIND, STOP, after(1)), Waiting)
    never = made(held("Running"), take_back(held("Running"), KIND, STOP, after(LOST_S + 1)))
    assert never["metadata"]["annotations"] == {}


def test_another_incident_waits() -> None:
    other = replace(STOP, key="key-2", incident="inc-2")
    for outcome in (
        abort(held(), KIND, other, AT),
        resume(held(), KIND, replace(START, incident="inc-2"), AT),
    ):
        assert isinstance(outcome, Blocked)
        assert outcome.by == "incident inc-1"


@pytest.mark.parametrize(
    ("policies", "tasks", "heals"),
    [
        ([{"event": "PodEvicted", "action": "RestartJob"}], [], True),
        ([{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}], [], True),
        ([], [{"policies": [{"event": "*", "action": "RestartTask"}]}], True),
        ([{"event": "TaskCompleted", "action": "CompleteJob"}], [], False),
        ([{"event": "PodEvicted", "action": "AbortJob"}], [], False),
        ([], [], False),
    ],
)
def test_one_whose_policy_restarts_it_is_watched_first(
    policies: list[Object], tasks: list[Object], heals: bool
) -> None:
    assert bool(KIND.heals(job(policies=policies, tasks=tasks))) is heals
    assert not KIND.heals(job("Running", 2, policies=policies, tasks=tasks)), "its last retry would end it"


@pytest.mark.parametrize(
    "written", ["", "faultline-abortjob-1", "a b c", "a 1 soon", "a ² 2026-03-03T03:04:12Z"]
)
def test_a_note_that_somebody_has_changed_is_none(written: str) -> None:
    assert command_of({"metadata": {"annotations": {COMMAND: written}}}) is None
