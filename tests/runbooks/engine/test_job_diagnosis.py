"""A job that fails wherever it runs: stopped, all its nodes measured, the slow ones closed, and started again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.base import Done, Refused
from runbooks.engine.job_history import history_of, stays_stopped
from runbooks.engine.run.human_decisions import revised
from runbooks.engine.run.plan import plan
from runbooks.language.schema import Runbook
from streams.inventory.cluster_view import ClusterView
from streams.model.entity import Entity, JobRef
from streams.model.facts import JobFact
from streams.model.incident import Certainty, Incident
from streams.model.run import Mode, Run, RunState, StepState
from tests.runbooks.engine.walking import UNLIMITED, only
from tests.runbooks.scenes import AUTO, CLUSTER, JOB, LIBRARY, NOW, Play, at, cluster, incident, radius

BOOK = next(book for book in LIBRARY if book.id == "job-diagnosis")
LATER = 7200.0
RAN = frozenset({"node-02", "node-03", "node-04", "node-05"})
SECOND = replace(JOB, uid="uid-of-another")


def third(**changes: Any) -> Incident:
    root = Entity(CLUSTER, node="node-03")
    made = incident("silent_node", root, certainty=Certainty.LIKELY, facts={}, fault_at=at(LATER))
    return replace(made, **{"opened_at": at(LATER), "updated_at": at(LATER), **changes})


def moved(seconds: float = 0.0) -> Run:
    """A run that moved the job."""
    when = at(seconds)
    play = Play(incident(fault_at=when, opened_at=when, updated_at=when), now=when, settings=AUTO)
    play.play()
    play.progress()
    play.tick()
    assert play.made.count("resume_job") == 1
    return play.run


def diagnosing(settings: Any = AUTO, seconds: float = 0.0, **changes: Any) -> Play:
    """The diagnosis of the job, approved, with its call for the nodes in the air."""
    book = only(BOOK.model_copy(update={"mode": Mode.AUTO}))
    about = third(**{"certainty": Certainty.DECISIVE, "fault_at": at(seconds), **changes})
    about = replace(about, opened_at=at(seconds), updated_at=at(seconds))
    play = Play(about, now=at(seconds), settings=settings, library=book, actions=UNLIMITED)
    play.play(until="diagnose_nodes")
    return play


def finds(play: Play, *slow: str) -> None:
    play.answer(Done({"slow": slow, "pairs": 6}), "diagnose_nodes")


def test_the_nodes_that_the_vote_names_are_closed_before_the_job_starts_again() -> None:
    play = diagnosing()
    assert play.made == ["open_ticket", "suspend_job"]
    finds(play, "node-02", "node-05")
    closing = [call.effect for call in play.air]
    assert [(e.action, e.target.name, e.target.uid) for e in closing] == [
        ("cordon_node", "node-02", "uid-2"),
        ("cordon_node", "node-05", "uid-5"),
    ]
    assert len({effect.key for effect in closing}) == 2
    play.play()
    play.tick(1)
    play.progress()
    play.tick()
    assert play.made == [
        "open_ticket", "suspend_job", "diagnose_nodes", "cordon_node", "cordon_node", "resume_job", "verify_job",
    ]  # fmt: skip
    assert play.stands() is RunState.SUCCEEDED
    assert any("cordon_slow_nodes" in note and "closes node-02, node-05" in note for note in play.notes)


def test_where_no_node_is_slow_nothing_is_closed_and_the_job_starts_again() -> None:
    play = diagnosing()
    finds(play)
    assert [call.effect.action for call in play.air] == ["resume_job"]
    assert play.state("close") is StepState.DONE
    assert any("no node is slow with every partner" in note for note in play.notes)


def test_a_slow_node_passes_the_guardrails_by_itself_and_the_job_does_not_wait_for_ever() -> None:
    play = diagnosing(radius(max_nodes=1, max_share=1.0), certainty=Certainty.LIKELY)
    assert not play.air, "asked about: the evidence is not decisive"
    play = diagnosing(radius(max_nodes=1, max_share=1.0))
    finds(play, "node-02", "node-05")
    assert not play.air, "two are one more than may be closed"
    assert any("blast radius" in note for note in play.notes)
    play.tick(BOOK.steps[3].deadline_s if isinstance(BOOK.steps[3].deadline_s, float) else 900.0)
    play.play()
    assert play.made[-1] == "undo suspend_job", "a job that was stopped does not stay stopped"
    assert "cordon_node" not in play.made
    assert play.stands() is RunState.CANCELLED


def test_a_diagnosis_that_fails_starts_the_job_again_where_it_was() -> None:
    play = diagnosing()
    play.answer(Refused("no pair could be measured"), "diagnose_nodes")
    play.play()
    assert play.made[-1] == "undo suspend_job"
    assert "cordon_node" not in play.made


def test_a_new_revision_keeps_the_steps_for_the_slow_nodes() -> None:
    play = diagnosing()
    finds(play, "node-02")
    again = replace(play.about, revision=2)
    fresh = plan(again, play.runbook, play.view, Mode.AUTO, UNLIMITED)
    result = revised(play.run, again, fresh, play.now, {})
    assert [step.id for step in result.run.plan.steps] == [step.id for step in play.run.plan.steps]
    assert [record.id for record in result.run.steps] == [step.id for step in result.run.plan.steps]


HISTORIES: dict[str, tuple[Callable[[], list[Run]], dict[str, Any], tuple[float, ...]]] = {
    "none": (list, {}, ()),
    "two": (lambda: [moved(), moved(3600)], {}, (3600.0, 7200.0)),
    "after the fault": (lambda: [moved(), moved(LATER + 60)], {}, (7200.0,)),
    "of this very incident": (lambda: [replace(moved(), incident=third().id)], {}, ()),
    "of a job created anew": (lambda: [moved()], {"jobs": (SECOND,)}, ()),
    "in shadow mode": (lambda: [replace(moved(), state=RunState.SHADOWED)], {}, ()),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_counts_as_a_move_before(name: str) -> None:
    runs, changes, expected = HISTORIES[name]
    about, made = third(**changes), runs()
    found = history_of(about, cluster(), lambda job: made, shadow=False, diagnoses=True)
    assert tuple(round(ago, -1) for ago in found.most_moved) == expected


def test_after_a_diagnosis_moves_are_counted_anew() -> None:
    play = diagnosing(seconds=1800)
    finds(play)
    play.play()
    looked = replace(play.run, incident="inc-other")

    def runs(job: str) -> list[Run]:
        return [moved(), looked, moved(3600)]

    found = history_of(third(), cluster(), runs, shadow=False, diagnoses=True)
    assert [round(ago, -1) for ago in found.most_moved] == [3600.0]


def lever(name: str | None) -> ClusterView:
    view = cluster()
    view.put(JobFact(CLUSTER, JOB, NOW, lever=name))
    return view


def test_only_a_job_that_stays_stopped_is_stopped_before_a_node_is_closed() -> None:
    assert stays_stopped(JOB.key, lever("suspend"))
    assert stays_stopped(JOB.key, lever(None))
    assert not stays_stopped(JOB.key, lever("evict"))
    assert not stays_stopped("LeaderWorkerSet/research/llm", lever(None))
    with pytest.raises(ValueError, match="before any node is cordoned"):
        plan(third(), BOOK, lever("evict"), Mode.AUTO, UNLIMITED)
    plan(third(), BOOK, lever("suspend"), Mode.AUTO, UNLIMITED)


def test_a_diagnosis_that_is_left_out_leaves_no_job_stopped_and_started_on_open_nodes() -> None:
    with pytest.raises(ValueError, match=r"would suspend_job .* before any node is cordoned"):
        plan(third(), BOOK, cluster(), Mode.AUTO, UNLIMITED - {"diagnose_nodes"})


SUSPEND = {"id": "suspend", "action": "suspend_job", "target": "jobs", "undo": True}
DIAGNOSE = {"id": "diagnose", "action": "diagnose_nodes", "target": "job_nodes", "needs": ["suspend"]}
CLOSE = {"id": "close", "action": "cordon_slow_nodes", "target": "job_nodes", "needs": ["diagnose"]}
RESUME = {"id": "resume", "action": "resume_job", "target": "jobs", "needs": ["close"]}
CORDON = {"id": "cordon", "action": "cordon_node", "target": "root_node"}
AFTER = "or be followed by diagnose_nodes and cordon_slow_nodes"
REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "stopped and started on the open node": ([SUSPEND, {**RESUME, "needs": ["suspend"]}], AFTER),
    "measured and nothing closed": ([SUSPEND, DIAGNOSE, {**RESUME, "needs": ["diagnose"]}], AFTER),
    "started while it is measured": ([SUSPEND, DIAGNOSE, CLOSE, {**RESUME, "needs": ["suspend"]}], AFTER),
    "one of two starts does not wait": (
        [SUSPEND, DIAGNOSE, CLOSE, RESUME, {**RESUME, "id": "again", "needs": ["suspend"]}],
        AFTER,
    ),
    "measured before it is stopped": (
        [{**DIAGNOSE, "needs": []}, {**SUSPEND, "needs": ["diagnose"]}, CLOSE, RESUME],
        AFTER,
    ),
    "stopped for good": ([SUSPEND], AFTER),
    "goes on without a verdict": ([SUSPEND, {**DIAGNOSE, "on_failure": "continue"}, CLOSE, RESUME], "decides"),
    "goes on without closing": ([SUSPEND, DIAGNOSE, {**CLOSE, "on_failure": "continue"}, RESUME], "decides"),
    "closes what nothing has found": ([CORDON, {**CLOSE, "needs": ["cordon"]}], "must need the diagnose_nodes"),
    "drained while it is open": (
        [SUSPEND, DIAGNOSE, CLOSE, {"id": "d", "action": "drain_node", "target": "root_node", "needs": ["close"]}],
        r"step d \(drain_node\) must need a cordon_node",
    ),
    "a cordon of slow nodes elsewhere": ([CORDON, {**CORDON, "target": "job_nodes", "id": "all"}], "job_nodes is the target of"),
}  # fmt: skip


def book(steps: list[dict[str, Any]]) -> Runbook:
    return Runbook.model_validate(
        {
            "id": "mine", "revision": 1, "owner": "me", "mode": "auto", "match": "true",
            "description": "a runbook of a test", "steps": steps,
        }
    )  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_runbook_that_could_start_a_job_on_the_open_bad_node_is_refused(name: str) -> None:
    steps, why = REFUSED[name]
    with pytest.raises(ValidationError, match=why):
        book(steps)


@pytest.mark.parametrize(
    "steps",
    [
        [SUSPEND, DIAGNOSE, CLOSE, RESUME],
        [SUSPEND, DIAGNOSE, CLOSE],
        [CORDON, {**SUSPEND, "needs": ["cordon"]}, {**RESUME, "needs": ["suspend"]}],
        [CORDON, {**SUSPEND, "needs": ["cordon"]}, DIAGNOSE, CLOSE, RESUME],
    ],
)
def test_a_runbook_that_closes_the_bad_node_before_the_start_is_taken(steps: list[dict[str, Any]]) -> None:
    assert len(book(steps).steps) == len(steps)


def test_other_jobs_of_the_incident_have_a_history_of_their_own() -> None:
    other = JobRef("PyTorchJob", "research", "small", "uid-small")
    runs = {JOB.key: [moved()], other.key: list[Run]()}
    about = third(jobs=(JOB, other))
    found = history_of(about, cluster(), lambda job: runs[job], shadow=False, diagnoses=True)
    assert set(found.moves) == {JOB.key}
    assert not found.diagnosable, "nobody knows where the other one runs"
    assert found.told(other.key) == ""
    assert "moved once before" in found.told(JOB.key)
