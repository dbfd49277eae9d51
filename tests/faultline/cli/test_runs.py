"""What is printed of runs: a line for each change, the story of a past one, and the dry run of one that is to be started."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.commands.runs import stands
from faultline.cli.follow_runs import changes, line
from faultline.cli.main import cli
from faultline.cli.person_run import parameters
from faultline.cli.run_replay import story
from runbooks.engine.preview import Preview
from streams.model.codec import encode
from streams.model.control import Control, Switch
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import BadInput
from streams.model.facts import Fact
from streams.model.run import Run, RunOutcome, RunState
from tests.runbooks.engine.test_continued_runs import BOOK, Shift, failed, well
from tests.runbooks.scenes import ACTIONS, CLUSTER, NOW


class Recorded(Shift):
    """A shift of which every state of every run is kept, as the topic does."""

    def __init__(self) -> None:
        self.versions: list[Run] = []
        super().__init__()

    def turn(self) -> None:
        before = dict(self.state.runs.items())
        super().turn()
        self.versions += [run for name, run in self.state.runs.items() if before.get(name) is not run]


def recorded() -> tuple[list[Run], list[TimelineEntry]]:
    shift = Recorded()
    shift.work(100, well)
    return shift.versions, [e for e in shift.timeline if e.attributes.get("run") == shift.runs[0].id]


def preview(shift: Shift, control: Control | None = None) -> Preview:
    facts: list[Fact] = [fact for _, fact in shift.world.facts(shift.now) if fact is not None]
    return Preview(
        [BOOK], shift.settings, ACTIONS, cluster=CLUSTER, facts=facts, runs=shift.runs,
        control=control or Control(CLUSTER),
    )  # fmt: skip


def test_each_change_of_a_run_is_a_line_and_nothing_is_said_twice() -> None:
    versions, _ = recorded()
    said = [
        change for before, after in pairwise([None, *versions]) if after for change in changes(before, after)
    ]
    lines = [line(change) for change in said]
    assert "for inc-" in lines[0]
    assert lines[-1].endswith("is succeeded (succeeded: XID 79)")
    assert len(lines) == len(set(lines))
    assert list(changes(versions[-1], versions[-1])) == []


def test_a_run_that_a_person_took_up_says_so_in_its_first_line() -> None:
    shift = failed()
    shift.say(Verb.CONTINUE, shift.runs[0])
    first = next(iter(changes(None, shift.runs[1])))
    assert f"started by ada, takes up {shift.runs[0].id}" in line(first)


def test_the_story_of_a_run_has_its_plan_calls_answers_and_waits_in_order() -> None:
    versions, entries = recorded()
    found = story(versions, entries)
    kinds = [event.kind for event in found.events]
    assert kinds[0] == "planned"
    assert {"step", "said", "state"} <= set(kinds)
    assert [event.at for event in found.events] == sorted(event.at for event in found.events)
    assert (
        sum(event.waited_s for event in found.events)
        == (found.events[-1].at - found.events[0].at).total_seconds()
    )


def test_a_story_says_which_states_are_not_recorded_any_more() -> None:
    versions, entries = recorded()
    last = versions[-1]
    found = story([last], entries)
    assert (
        found.gaps == f"{last.revision - 1} of {last.revision} states of this run are not recorded any more"
    )
    assert any(event.kind == "answer" and "cordon_node" in event.text for event in found.events)


def test_a_run_is_replayed_from_a_capture(tmp_path: Path) -> None:
    versions, entries = recorded()
    begin, end = NOW, NOW + timedelta(hours=1)
    meta = {"cluster": CLUSTER, "from": begin.isoformat(), "to": end.isoformat(), "format": 1}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    topics: dict[str, Sequence[Run | TimelineEntry]] = {"runs": versions, "timeline": entries}
    for topic, documents in topics.items():
        rows = [
            {
                "partition": 0, "offset": number, "timestamp": int(begin.timestamp() * 1000),
                "key": one.id if isinstance(one, Run) else one.incident, "value": encode(one).decode(), "headers": [],
            }
            for number, one in enumerate(documents)
        ]  # fmt: skip
        (tmp_path / f"{topic}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["runbook", "replay", versions[0].id[:8], "--capture", str(tmp_path), "-o", "json"]
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    lines = [json.loads(text) for text in ran.stdout.splitlines()]
    assert lines[0]["run"] == versions[0].id
    assert lines[1]["kind"] == "planned"
    assert any("cordon_node" in one["text"] for one in lines[1:])


def test_a_dry_run_names_what_holds_and_what_the_person_approves() -> None:
    shift = failed()
    command = Command("c", shift.about.id, CLUSTER, Verb.RUN, "ada", shift.now, runbook="move")
    shown = preview(shift).start(shift.about, command, shift.now)
    assert shown.refused == ""
    assert {verdict.verdict for verdict in shown.verdicts} == {"passes"}
    switch = Control(CLUSTER, kill_switch=Switch("bob", shift.now, "upgrade"))
    held = preview(shift, switch).start(shift.about, command, shift.now)
    assert [(v.guardrail, v.verdict) for v in held.verdicts if v.verdict != "passes"] == [
        ("kill_switch", "holds")
    ]


def test_what_is_shown_is_what_the_responder_takes() -> None:
    shift = failed()
    command = Command("c", shift.about.id, CLUSTER, Verb.RUN, "ada", shift.now, runbook="move")
    shown = preview(shift).start(shift.about, command, shift.now)
    shift.state.take_command(replace(command, digest=shown.digest, seen=shown.seen))
    shift.turn()
    assert shift.told(command) == "ada started runbook move by hand"


def test_what_is_shown_of_a_run_to_take_up_is_what_the_responder_takes() -> None:
    shift = failed()
    old = shift.runs[0]
    command = Command("c", shift.about.id, CLUSTER, Verb.CONTINUE, "ada", shift.now, run=old.id)
    shown = preview(shift).take_up(shift.about, old, command, shift.now)
    assert "cordon: cordon_node is looked up first" in shown.remarks
    shift.state.take_command(replace(command, digest=shown.digest, seen=shown.seen))
    shift.turn()
    assert "took up" in shift.told(command)


def test_parameters_are_json_values_or_text() -> None:
    assert parameters(("n=3", "f=0.5", "on=true", "text=slow", "empty=")) == {
        "n": 3, "f": 0.5, "on": True, "text": "slow", "empty": "",
    }  # fmt: skip
    for wrong in ("n", "=3", "n=[1]"):
        with pytest.raises(BadInput, match="--param"):
            parameters((wrong,))


def test_without_incident_or_node_nothing_is_read() -> None:
    for words in (
        ["runbook", "run", "x"],
        ["runbook", "run", "x", "--incident", "i", "--node", "n"],
        ["runs", "follow"],
    ):
        assert CliRunner().invoke(cli, words).exit_code == 2


def test_state_and_outcome_of_a_run_are_said_once_where_they_are_the_same() -> None:
    run = replace(recorded()[0][-1], state=RunState.SUCCEEDED, outcome=RunOutcome.SUCCEEDED, reason="")
    assert stands(run) == "succeeded"
    assert (
        stands(replace(run, state=RunState.FAILED, outcome=RunOutcome.EXPIRED, reason="late"))
        == "failed, expired: late"
    )
