"""Runs that an older version began are gone on with by this one, and those of a newer version are left alone."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from connectors.base import AlreadyDone, Done, Outcome
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from streams.model.codec import decode, encode
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.run import EffectState, Run, RunState, StepState
from streams.model.run_migrations import MIGRATIONS, SCHEMA
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, JOB, LIBRARY, Play, cluster, incident

DOCUMENTS = sorted((Path(__file__).parent / "runs").glob("schema-*/*.json"))


def old(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parent / "runs" / f"{name}.json").read_text())
    return found


def taken_over(name: str) -> tuple[PartitionState, Run]:
    """A board that reads the document back as its predecessor left it, a minute later."""
    run = decode(Run, json.dumps(old(name)))
    board = PartitionState(LIBRARY, AUTO, ACTIONS, {run.id: run})
    for fact in cluster().nodes.values():
        board.take_fact(fact.key, fact)
    root = Entity(CLUSTER, job=JOB) if run.context["family"] == "hang" else None
    board.take_incident(incident("hang", root) if root else incident())
    list(board.recovering(run.updated_at + timedelta(minutes=1)))
    return board, run


def went(board: PartitionState, run: Run) -> list[str]:
    """Let every call succeed and say which there were; a lookup finds what was looked for."""

    def answer(call: Call) -> Outcome:
        return AlreadyDone() if call.kind in LOOKUPS else Done()

    now, made = run.updated_at + timedelta(minutes=1), list[str]()
    for _ in range(60):
        now += timedelta(seconds=31)
        board.advance(now)
        for call in board.collect().calls:
            made.append(f"{call.kind} {call.effect.action}")
            board.take_outcome(call, answer(call), now)
        if not board.runs[run.id].has_work:
            break
    return made


def test_every_form_there_was_has_documents_and_a_way_up() -> None:
    assert set(MIGRATIONS) == set(range(1, SCHEMA))
    assert {json.loads(path.read_text())["schema"] for path in DOCUMENTS} == set(range(1, SCHEMA))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_old_document_says_today_what_it_said_then(path: Path) -> None:
    before = json.loads(path.read_text())
    run = decode(Run, path.read_bytes())
    assert run.schema == SCHEMA
    after = json.loads(encode(run))
    for name in before.keys() - {"schema", "steps", "plan"}:
        assert after[name] == before[name], name
    assert [step["id"] for step in after["plan"]["steps"]] == [step["id"] for step in before["plan"]["steps"]]
    assert after["plan"]["digest"] == before["plan"]["digest"], "an approval given then still counts"
    for was, now in zip(before["steps"], after["steps"], strict=True):
        assert was.items() <= {**now, **_as_it_was(was, now)}.items()
    assert decode(Run, encode(run)) == run


def _as_it_was(was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Effects without the fields that came later."""
    return {name: {key: now[name][key] for key in was[name]} for name in ("effect", "undo") if was.get(name)}


def test_a_suspend_that_was_in_the_air_is_looked_up_and_the_run_goes_on_with_the_same_keys() -> None:
    board, run = taken_over("schema-1/suspend-in-the-air")
    suspend = next(record for record in run.steps if record.id.startswith("suspend"))
    assert suspend.effect is not None
    assert suspend.effect.state is EffectState.INTENDED
    made = went(board, run)
    assert "lookup suspend_job" in made
    assert "apply cordon_node" not in made
    assert "apply suspend_job" not in made
    assert board.runs[run.id].state is RunState.SUCCEEDED
    kept = board.runs[run.id].step(suspend.id).effect
    assert kept is not None
    assert kept.key == suspend.effect.key


def test_what_was_being_taken_back_is_taken_back() -> None:
    board, run = taken_over("schema-1/being-undone")
    made = went(board, run)
    assert [line for line in made if line.startswith("undo ")] == ["undo suspend_job", "undo cordon_node"]
    assert board.runs[run.id].state is RunState.CANCELLED
    assert run.incident_over


def test_a_stop_of_then_still_holds() -> None:
    _, run = taken_over("schema-1/stopped")
    assert run.overruled
    assert run.offenders == ("gpu:node-03/0000:1b:00", "node:node-03")


def test_a_finished_run_of_then_is_left_as_it_is() -> None:
    board, run = taken_over("schema-1/succeeded")
    assert went(board, run) == []
    assert board.runs[run.id] == run


def test_a_question_of_then_is_still_asked() -> None:
    board, run = taken_over("schema-1/asking")
    board.advance(run.updated_at + timedelta(minutes=2))
    assert board.runs[run.id].step("ask").state is StepState.AWAITING_APPROVAL


def test_a_document_of_a_newer_form_is_refused_by_name() -> None:
    with pytest.raises(
        BadInput, match=r"Run run-\w+: schema: 99 is newer than \d+, .* upgrade every responder"
    ):
        decode(Run, json.dumps({**old("schema-1/asking"), "schema": 99}))


@pytest.mark.parametrize("schema", [0, -1, "two", True, 1.5])
def test_a_schema_that_is_none_is_refused(schema: object) -> None:
    with pytest.raises(BadInput, match="schema"):
        decode(Run, json.dumps({**old("schema-1/asking"), "schema": schema}))


def test_a_broken_document_names_what_is_wrong_whatever_its_form() -> None:
    for schema in (1, SCHEMA):
        broken = {**old("schema-1/asking"), "schema": schema, "state": "nonsense"}
        with pytest.raises(BadInput, match="Run: state"):
            decode(Run, json.dumps(broken))
    for raw in ("[1]", "{", "null", '"text"'):
        with pytest.raises(BadInput):
            decode(Run, raw)


def test_what_is_written_is_of_todays_form() -> None:
    assert json.loads(encode(Play(incident()).run))["schema"] == SCHEMA
