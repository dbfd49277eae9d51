"""Runbooks and policy that are loaded while runs go on: runs keep their plan, limits count at once, replicas may differ."""

from __future__ import annotations

from runbooks.engine.partition_state import PartitionState
from runbooks.language.schema import Runbook
from streams.config.settings import BlastRadius
from streams.model.run import Mode, StepState
from tests.runbooks.engine.test_cluster_controls import actions, broken, turn
from tests.runbooks.engine.test_dangers import TICKETLESS
from tests.runbooks.scenes import AUTO, CLUSTER, LIBRARY, NOW, at, cluster, incident, policy

ONE, TWO = "0123456789ab+main@1", "ba9876543210+main@2"


def state(config: str | None = ONE, library: tuple[Runbook, ...] = tuple(LIBRARY)) -> PartitionState:
    made = PartitionState(library, AUTO, TICKETLESS, config=config)
    for fact in cluster().nodes.values():
        made.take_fact(fact.key, fact)
    return made


def newer() -> tuple[Runbook, ...]:
    """The library with every runbook one revision further."""
    return tuple(book.model_copy(update={"revision": book.revision + 1}) for book in LIBRARY)


def test_a_run_keeps_the_revision_it_began_with_and_the_next_one_takes_the_new() -> None:
    played = state()
    played.take_incident(broken(1, id="inc-1"))
    (first,) = turn(played, NOW).runs
    played.adopt(newer(), AUTO, TWO, NOW)
    played.take_incident(broken(1, id="inc-1", revision=2))
    played.take_incident(broken(2, id="inc-2"))
    changes = turn(played, at(5))
    runs = {run.incident: run for run in changes.runs}
    kept, new = runs["inc-1"], runs["inc-2"]
    assert (kept.plan, kept.config) == (first.plan, ONE)
    assert (new.plan.runbook_revision, new.config) == (first.plan.runbook_revision + 1, TWO)


def test_which_version_is_in_force_since_when_is_on_the_controls_and_the_timeline_once() -> None:
    played = state()
    changes = turn(played, NOW)
    (control,) = changes.controls
    assert control.config is not None
    assert (control.config.version, control.config.since) == (ONE, NOW)
    assert turn(played, at(1)).controls == ()
    played.adopt(LIBRARY, AUTO, TWO, at(2))
    changes = turn(played, at(2))
    (entry,) = changes.timeline
    assert (entry.event, entry.incident) == ("control.config", "")
    assert ONE in entry.text
    assert TWO in entry.text


def test_without_a_version_nothing_is_said() -> None:
    played = state(None)
    played.take_incident(broken(1))
    changes = turn(played, NOW)
    assert changes.controls == ()
    assert [run.config for run in changes.runs] == [None]


def test_a_stricter_mode_holds_back_what_was_planned_before() -> None:
    played = state()
    played.take_incident(broken(1))
    (run,) = turn(played, NOW).runs
    assert any(record.state is StepState.RUNNING for record in run.steps)
    played.take_incident(broken(2, id="inc-2"))
    played.adopt(LIBRARY, policy(mode=Mode.SHADOW), TWO, at(1))
    changes = turn(played, at(1))
    assert actions(changes) == []
    assert {run.plan.mode for run in changes.runs if run.incident == "inc-2"} == {Mode.SHADOW}


def test_a_longer_window_counts_what_the_shorter_one_had_let_go() -> None:
    short = AUTO.model_copy(update={"blast_radius": BlastRadius(max_nodes=99, max_share=1.0, window_s=60)})
    first = PartitionState(LIBRARY, short, TICKETLESS)
    for fact in cluster().nodes.values():
        first.take_fact(fact.key, fact)
    first.take_incident(broken(1))
    (run,) = turn(first, NOW).runs
    assert run.cluster == CLUSTER
    long = BlastRadius(max_nodes=99, max_share=1.0, window_s=7200, max_per_window=0)
    first.adopt(LIBRARY, short.model_copy(update={"blast_radius": long}), TWO, at(600))
    first.take_incident(broken(2, id="inc-2"))
    changes = turn(first, at(600))
    assert "cordon_node" not in [
        call.effect.action for call in changes.calls if call.effect.incident == "inc-2"
    ]


def test_two_replicas_with_different_versions_decide_once_by_that_of_the_owner() -> None:
    """A ConfigMap reaches one node a minute before the other: the partition moves to the replica with the old files and back."""
    owner = state(TWO, newer())
    owner.take_incident(broken(1))
    changes = turn(owner, NOW)
    (run,) = changes.runs
    other = PartitionState(LIBRARY, AUTO, TICKETLESS, {run.id: run}, config=ONE)
    for fact in cluster().nodes.values():
        other.take_fact(fact.key, fact)
    for control in changes.controls:
        other.take_control(control)
    list(other.recovering(at(30)))
    other.take_incident(broken(1))
    after = turn(other, at(30))
    assert {r.id for r in after.runs} <= {run.id}, "no second run for the incident"
    assert other.runs[run.id].plan == run.plan
    assert other.runs[run.id].config == TWO
    (told,) = after.controls
    assert told.config is not None
    assert told.config.version == ONE, "who reads the controls sees by whose files is decided now"


def test_an_incident_of_a_job_is_planned_by_one_version_alone() -> None:
    played = state()
    played.take_incident(incident())
    played.adopt(newer(), AUTO, TWO, NOW)
    (run,) = turn(played, NOW).runs
    book = next(book for book in newer() if book.id == run.plan.runbook)
    assert (run.plan.runbook_revision, run.config) == (book.revision, TWO)
