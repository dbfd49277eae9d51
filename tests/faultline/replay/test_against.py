"""A replay compared with a production that is made up from what the replay itself decides, and changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from faultline.replay.against import EDGE
from faultline.replay.capture import Capture, write
from faultline.replay.decisions import decisions_of_topics
from faultline.replay.difference import Aspect, Difference, Pair
from faultline.replay.explanations import Explanations
from faultline.replay.partition_writer import write_by_partition
from faultline.replay.pipeline import Happened
from faultline.replay.replay import Replayed, replay_capture
from runbooks.language.loader import load
from streams.kafka.topics import INCIDENTS, RUNS, SIGNALS
from streams.model.codec import encode
from streams.model.incident import Certainty, Incident
from streams.model.record import RawRecord
from streams.model.run import Approval, EffectRecord, EffectState, Mode, Run, RunOutcome, RunState, StepState
from tests.faultline.replay.test_replay import capture

LIBRARY = load()


class Published:
    """Keeps every revision in its order, as the incidents topic does."""

    def __init__(self) -> None:
        self.incidents: list[Incident] = []

    def passes(self, now: object) -> None:
        pass

    def sees(self, happened: Happened) -> None:
        self.incidents += happened.incidents


@cache
def decided() -> tuple[Replayed, tuple[Incident, ...]]:
    published = Published()
    found = replay_capture(later_end(), runbooks=LIBRARY, until=later_end().meta.end, watcher=published)
    return found, tuple(published.incidents)


def later_end() -> Capture:
    one = capture()
    return replace(one, meta=replace(one.meta, end=one.meta.end + timedelta(minutes=2)))


def the_run() -> Run:
    (run,) = decided()[0].runs
    return run


def production(
    *runs: Run, incident: Callable[[Incident], Incident] = lambda one: one, without: bool = False
) -> Capture:
    """The capture with topics of production: what the replay decides, with `incident` applied to each revision."""
    one, (_, published) = later_end(), decided()
    revisions = () if without else tuple(map(incident, published))
    records: dict[str, tuple[RawRecord, ...]] = {
        INCIDENTS.name: tuple(
            RawRecord(INCIDENTS.name, 0, n, each.updated_at, each.id.encode(), encode(each))
            for n, each in enumerate(revisions)
        ),
        RUNS.name: tuple(
            RawRecord(RUNS.name, 0, n, each.updated_at, each.id.encode(), encode(each))
            for n, each in enumerate(runs)
        ),
    }
    return replace(one, records={**one.records, **records})


def against(one: Capture, folder: Path, *more: str) -> Result:
    write(folder, one)
    return CliRunner().invoke(cli, ["replay", str(folder), "--against", *more])


def compared(one: Capture, folder: Path) -> dict[str, object]:
    result = against(one, folder, "-o", "json")
    (line,) = [orjson.loads(line) for line in result.output.splitlines()]
    return dict(line)


def carried_out(**changed: object) -> Run:
    """The run as a responder in mode auto would have finished it."""
    run = the_run()
    steps = tuple(
        replace(step, state=StepState.DONE if step.verdict else step.state, verdict="") for step in run.steps
    )
    plan = replace(run.plan, mode=Mode.AUTO)
    done = replace(run, plan=plan, steps=steps, state=RunState.SUCCEEDED, outcome=RunOutcome.SUCCEEDED)
    return replace(done, **changed)  # type: ignore[arg-type]


def test_what_was_decided_the_same_is_the_same(tmp_path: Path) -> None:
    result = against(production(the_run()), tmp_path)
    assert result.exit_code == 0, result.output
    assert "1 same, 0 different, 0 only here, 0 only there; 0 without an explanation" in result.output


@pytest.mark.parametrize("cut_to", ["its own", "inc-0000000000000000"])
def test_a_capture_that_was_cut_to_an_incident_is_about_that_alone(tmp_path: Path, cut_to: str) -> None:
    incident = the_run().incident if cut_to == "its own" else cut_to
    cut = replace(production(the_run(), without=cut_to != "its own"), incident=incident)
    write_by_partition(tmp_path, cut)
    asked = CliRunner().invoke(cli, ["replay", str(tmp_path), "--against"])
    assert asked.exit_code == 0, asked.output
    same = 1 if cut_to == "its own" else 0
    assert f"{same} same, 0 different, 0 only here, 0 only there" in asked.output
    edited = CliRunner().invoke(
        cli,
        ["whatif", str(tmp_path), "--set", "responder.mode=approve", "-o", "json"],
        catch_exceptions=False,
    )
    assert orjson.loads(edited.stdout.splitlines()[0])["differing"] == same
    listed = CliRunner().invoke(cli, ["replay", str(tmp_path)])
    assert ("only that is shown" in listed.stderr) is (cut_to == "its own")


def test_another_culprit_is_told_with_both_reasons_and_where_the_two_part(tmp_path: Path) -> None:
    def other(one: Incident) -> Incident:
        if one.revision == 1:
            return one
        return replace(one, certainty=Certainty.WEAK, reason="nobody knows")

    result = against(production(the_run(), incident=other), tmp_path)
    assert result.exit_code == 1
    assert "first parts at 2026-03-01 12:" in result.output
    assert "production: gpu_off_bus of GPU 0000:3b:00 on node-01, weak, open: nobody knows" in result.output
    assert "1 without an explanation" in result.output


def test_an_incident_of_one_side_alone_is_told_as_that(tmp_path: Path) -> None:
    assert compared(production(without=True), tmp_path / "one")["compared"] == "only here"
    silent = replace(production(the_run()), kube_changes=())
    silent = replace(
        silent, records={name: found for name, found in silent.records.items() if not name.startswith("raw.")}
    )
    signals = RawRecord(SIGNALS.name, 0, 0, silent.meta.begin, None, b'{"cluster":"east","signals":[]}')
    silent = replace(silent, records={**silent.records, SIGNALS.name: (signals,)})
    result = against(silent, tmp_path / "other")
    assert (result.exit_code, "1 only there" in result.output) == (1, True)


def test_a_step_that_a_person_approved_is_explained_by_the_approval(tmp_path: Path) -> None:
    cordon = next(step.id for step in the_run().plan.steps if step.action == "cordon_node")
    asked = replace(
        the_run(),
        steps=tuple(
            replace(step, verdict="needs_approval", reason="blast radius: too many")
            if step.id == cordon
            else step
            for step in the_run().steps
        ),
    )
    at = the_run().created_at
    approval = Approval(cordon, True, "ops@example.com", at, asked.plan.digest, reason="go on")
    real = replace(asked, plan=replace(asked.plan, mode=Mode.AUTO), approvals=(approval,))
    unexplained = compared(production(asked), tmp_path / "one")
    explained = against(production(real), tmp_path / "other")
    assert [one["explained"] for one in unexplained["differences"]] == [""]  # type: ignore[attr-defined]
    assert f"explained: ops@example.com approved step {cordon}" in explained.output


@pytest.mark.parametrize(
    ("step", "rule", "digest", "is_explained"),
    [
        ("drain", "certainty", "", True),
        ("drain", "blast radius", "", False),
        ("drain", "certainty", "another plan", False),
    ],
)
def test_an_approval_explains_every_step_of_the_plan_that_it_counts_for(
    step: str, rule: str, digest: str, is_explained: bool
) -> None:
    run = carried_out()
    approval = Approval("cordon", True, "Ada", run.created_at, digest or run.plan.digest, rule="certainty")
    one, asked = explained_step(replace(run, approvals=(approval,)), step)
    told = Explanations([replace(run, approvals=(approval,))], LIBRARY).of(
        one, replace(asked, after="needs_approval", why_after=f"{rule}: the evidence is likely")
    )
    assert (
        "Ada approved step cordon at" in told and "the plan that drain is part of" in told
    ) is is_explained
    assert bool(told) is is_explained


def test_what_production_did_is_not_said_to_be_the_work_of_a_controller() -> None:
    run = carried_out()
    suspend = next(one for one in run.plan.steps if one.action == "suspend_job")
    assert suspend.target is not None
    effect = EffectRecord(
        "key", "suspend_job", suspend.target, EffectState.CONFIRMED, run.created_at, run.created_at
    )
    here = [
        replace(one, state=StepState.SKIPPED, reason="its own controller has restarted it") if one.id == suspend.id else one
        for one in the_run().steps
    ]  # fmt: skip
    did = replace(
        run, steps=tuple(replace(one, effect=effect) if one.id == suspend.id else one for one in run.steps)
    )
    pair, difference = explained_step(did, suspend.id)
    told = Explanations([did], LIBRARY, (), [replace(the_run(), steps=tuple(here))]).of(pair, difference)
    assert told.startswith("production did it at")
    assert run.id in told
    assert "controller" not in told


def test_a_step_that_production_had_not_come_to_is_explained_by_what_became_of_its_run() -> None:
    run = carried_out(outcome=RunOutcome.CANCELLED, state=RunState.CANCELLED, reason="the incident is over")
    left = replace(run, steps=tuple(replace(one, state=StepState.CANCELLED, verdict="") for one in run.steps))
    pair, difference = explained_step(left, "drain")
    assert Explanations([left], LIBRARY).of(pair, difference) == (
        f"run {run.id} did not come to it: cancelled: the incident is over"
    )


def explained_step(run: Run, step: str) -> tuple[Pair, Difference]:
    """The incident on both sides, and that one step of production's run is not in the replay."""
    (decision,) = decisions_of_topics(decided()[0].incidents.values(), [run])
    planned = run.planned(step)
    difference = Difference(Aspect.ACTION, f"{planned.action} {planned.target}", "would", "")
    return Pair(decision, decision, (difference,)), difference


def test_a_call_that_a_connector_refused_explains_the_step(tmp_path: Path) -> None:
    run = carried_out()
    steps = []
    for step in run.steps:
        planned = run.planned(step.id)
        if planned.action == "cordon_node" and planned.target is not None:
            effect = EffectRecord(
                "key", "cordon_node", planned.target, EffectState.REFUSED, run.created_at, run.created_at,
                reason="nodes is forbidden",
            )  # fmt: skip
            step = replace(step, state=StepState.FAILED, effect=effect, verdict="refused")
        steps.append(step)
    result = against(production(replace(run, steps=tuple(steps))), tmp_path)
    assert "explained: the connector refused cordon_node Node node-01: nodes is forbidden" in result.output


def test_another_revision_of_the_runbook_explains_another_plan_and_no_other_culprit(tmp_path: Path) -> None:
    run = the_run()
    older = replace(
        run,
        plan=replace(run.plan, runbook_revision=run.plan.runbook_revision + 1, steps=run.plan.steps[:-1]),
        steps=run.steps[:-1],
    )
    result = against(production(older), tmp_path / "one")
    assert result.exit_code == 0, result.output
    assert (
        f"explained: production used revision {run.plan.runbook_revision + 1} of gpu-off-bus" in result.output
    )
    weak = production(older, incident=lambda one: replace(one, certainty=Certainty.WEAK))
    assert against(weak, tmp_path / "other").exit_code == 1


def test_a_fault_of_the_warm_up_is_not_counted(tmp_path: Path) -> None:
    one = production(without=True)
    late = replace(one.meta, begin=one.meta.end - timedelta(seconds=1), warm_up=timedelta(hours=1))
    result = against(replace(one, meta=late), tmp_path)
    assert result.exit_code == 0
    assert "no incidents on either side" in result.output


def test_what_opens_as_the_capture_ends_is_explained_by_that(tmp_path: Path) -> None:
    one, (incident, *_) = production(without=True), decided()[1]
    short = replace(one.meta, end=incident.opened_at + EDGE / 2)
    result = against(replace(one, meta=short), tmp_path)
    assert result.exit_code == 0, result.output
    assert "before the capture ends" in result.output


def test_a_capture_without_incidents_of_production_is_refused(tmp_path: Path) -> None:
    result = against(capture(), tmp_path)
    assert result.exit_code != 0
    assert "nothing to compare with" in str(result.exception)


@pytest.mark.parametrize("outcome", [RunOutcome.SUCCEEDED, RunOutcome.FAILED])
def test_what_a_run_cost_that_was_carried_out_is_explained_by_it(tmp_path: Path, outcome: RunOutcome) -> None:
    run = carried_out(outcome=outcome, reason="the job trains again", finished_at=the_run().created_at)
    result = against(production(run), tmp_path)
    assert result.exit_code == 0, result.output
