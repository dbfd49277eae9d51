"""What every guardrail said of each step, kept while a replay decides."""

from __future__ import annotations

from faultline.replay.replay import replay_capture
from runbooks.engine.guardrails import STAGES
from runbooks.engine.guardrails.review import ReviewLog
from streams.config.settings import ResponderSettings
from tests.faultline.replay.simulated import simulated

SCENARIO = "gpu_off_bus"


def _decided(settings: ResponderSettings) -> tuple[ReviewLog, list[tuple[str, str, bool]]]:
    reviews = ReviewLog()
    decided = replay_capture(simulated(SCENARIO), responder=settings, reviews=reviews)
    steps = [(run.id, step.id, step.destructive) for run in decided.runs for step in run.plan.steps]
    assert any(destructive for *_, destructive in steps)
    return reviews, steps


def test_every_guardrail_answers_for_each_destructive_step_and_for_no_other() -> None:
    reviews, steps = _decided(ResponderSettings())
    for run, step, destructive in steps:
        kept = reviews.of(run, step)
        assert (kept is not None) is destructive
        assert kept is None or len(kept[1]) == len(STAGES)


def test_a_guardrail_that_passed_says_with_which_numbers() -> None:
    reviews, steps = _decided(ResponderSettings())
    run, step = next((run, step) for run, step, destructive in steps if destructive)
    numbers = {one.guardrail: one.numbers for one in (reviews.of(run, step) or (None, ()))[1]}
    assert "this run adds 1, limit" in numbers["blast radius"]
    assert numbers["certainty"] == "the evidence is decisive"


def test_an_objection_is_kept_beside_what_passed() -> None:
    settings = ResponderSettings.model_validate({"blast_radius": {"max_nodes": 0}})
    reviews, steps = _decided(settings)
    run, step = next((run, step) for run, step, destructive in steps if destructive)
    answers = (reviews.of(run, step) or (None, ()))[1]
    assert [one.guardrail for one in answers if one.ruling is not None] == ["blast radius"]


def test_recording_changes_no_decision() -> None:
    capture = simulated(SCENARIO)
    assert replay_capture(capture, reviews=ReviewLog()).decision_hash == replay_capture(capture).decision_hash
