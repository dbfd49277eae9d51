"""Why something was not done, by simulated clusters that broke, and by some where nothing was wrong."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import pytest

from faultline.replay.capture import Capture, Meta
from faultline.why.observed import Observed, observed
from faultline.why.tree import Branch
from faultline.why.why_not import document, why_not
from runbooks.language.loader import load
from streams.config.settings import ResponderSettings
from streams.correlate import Config
from streams.model.codec import encode
from streams.model.errors import BadInput
from streams.model.hostnames import short
from streams.model.record import RawRecord
from streams.model.run import Mode, StepState
from tests.faultline.replay.simulated import simulated

SETTINGS = ResponderSettings(mode=Mode.AUTO)
BOOKS = load(SETTINGS.runbook_dirs)


@cache
def _seen(scenario: str, minutes: float | None, settings: ResponderSettings | None = None) -> Observed:
    capture = simulated(scenario)
    at = _begin(capture) + timedelta(minutes=minutes) if minutes is not None else capture.meta.end
    return observed(capture, at, responder=settings or SETTINGS, config=Config(), runbooks=BOOKS)


def _begin(capture: Capture) -> datetime:
    return capture.meta.begin


def _asked(
    scenario: str, name: str, minutes: float | None = None, settings: ResponderSettings = SETTINGS
) -> Branch:
    seen = _seen(scenario, minutes) if settings is SETTINGS else _fresh(scenario, minutes, settings)
    return why_not(name, seen, simulated(scenario), settings, BOOKS)


def _fresh(scenario: str, minutes: float | None, settings: ResponderSettings) -> Observed:
    capture = simulated(scenario)
    at = capture.meta.begin + timedelta(minutes=minutes) if minutes is not None else capture.meta.end
    return observed(capture, at, responder=settings, config=Config(), runbooks=BOOKS)


def _texts(tree: Branch) -> list[str]:
    return [tree.text, *(text for one in tree.branches for text in _texts(one))]


def _root(scenario: str) -> str:
    """The node that the first incident with a root node names."""
    incidents = sorted(_seen(scenario, None).replayed.incidents.values(), key=lambda i: i.fault_at)
    return next(i.root.node for i in incidents if i.root.node)


SOON = 20
"""Minutes after the begin: the fault is there, and nobody has closed the node yet."""


def test_a_node_that_would_be_cordoned_says_so() -> None:
    answer = _asked("gpu_off_bus", _root("gpu_off_bus"), SOON).text
    assert "it would be cordoned by runbook gpu-off-bus" in answer


def test_in_mode_shadow_it_is_the_mode_that_kept_it_from_being_done() -> None:
    shadow = ResponderSettings(mode=Mode.SHADOW)
    tree = _asked("gpu_off_bus", _root("gpu_off_bus"), SOON, shadow)
    assert tree.text.endswith("but nothing is done in mode shadow")
    assert any("responder.mode is shadow" in text for text in _texts(tree))


def test_a_guardrail_that_held_it_is_named_with_its_numbers() -> None:
    none = ResponderSettings.model_validate({"mode": "auto", "blast_radius": {"max_nodes": 0}})
    tree = _asked("gpu_off_bus", _root("gpu_off_bus"), SOON, none)
    assert "not cordoned by runbook" in tree.text
    assert "blast radius: 0 of" in tree.text


def test_a_victim_is_told_whose_victim_it_is() -> None:
    incidents = _seen("gpu_off_bus", None).replayed.incidents.values()
    one = next(i for i in incidents if i.root.node and len(i.nodes) > 1)
    victim = next(node for node in one.nodes if node != one.root.node)
    assert f"it is a victim of {one.id}, whose root cause is {one.root}" in _asked("gpu_off_bus", victim).text


def test_what_was_weighed_says_what_it_lacked_and_what_opened_soon_after() -> None:
    seen = _seen("program_crashes", None)
    incident = min(seen.replayed.incidents.values(), key=lambda i: i.fault_at)
    before = (incident.opened_at - simulated("program_crashes").meta.begin).total_seconds() / 60 - 0.5
    tree = _asked("program_crashes", str(incident.root.job), before)
    assert "no incident: application was weighed, but" in tree.text
    assert f"{incident.id} opened at" in tree.text
    assert any(text.startswith("it would have taken to last until") for text in _texts(tree))


def test_a_quiet_node_says_that_no_signal_was_read_of_it() -> None:
    capture = simulated("gpu_off_bus")
    view = _seen("gpu_off_bus", None).standing.responder.view(capture.meta.cluster)
    named = {n for i in _seen("gpu_off_bus", None).replayed.incidents.values() for n in i.nodes}
    spoken = {short(s.entity.node) for s in _seen("gpu_off_bus", None).signals if s.entity.node}
    quiet = next(name for name in sorted(view.nodes) if name not in named and short(name) not in spoken)
    assert "no incident: no signal was read of it" in _asked("gpu_off_bus", quiet).text


def test_an_unknown_name_says_what_may_have_been_meant() -> None:
    first, _, rest = _root("gpu_off_bus").partition(".")
    with pytest.raises(BadInput, match=r"no node or job is called .*; did you mean "):
        _asked("gpu_off_bus", f"{first}x.{rest}")


def test_a_node_that_somebody_else_cordoned_is_told_as_cordoned() -> None:
    assert "it was cordoned already, by somebody" in _asked("gpu_off_bus", _root("gpu_off_bus")).text


def test_every_runbook_that_nearly_matched_says_which_of_its_conditions_failed() -> None:
    tree = _asked("gpu_off_bus", _root("gpu_off_bus"))
    missed = [text for text in _texts(tree) if " did not match: " in text]
    assert missed
    assert all(text.endswith(" does not hold") for text in missed)


def test_a_time_before_anything_was_recorded_says_so() -> None:
    capture = simulated("gpu_off_bus")
    begin = capture.meta.begin - timedelta(days=1)
    early = Capture(
        Meta(capture.meta.cluster, begin, capture.meta.end), capture.records, capture.kube_changes
    )
    seen = observed(early, begin + timedelta(hours=1), responder=SETTINGS, config=Config(), runbooks=BOOKS)
    with pytest.raises(BadInput, match="no node or job is called"):
        why_not(_root("gpu_off_bus"), seen, early, SETTINGS, BOOKS)


def test_the_document_has_the_same_answer_and_a_schema() -> None:
    tree = _asked("gpu_off_bus", _root("gpu_off_bus"))
    plain = document(tree)
    assert plain["schema"] == "faultline.why-not/1"
    assert plain["tree"]["answer"] in plain["tree"]["text"]


def test_runs_that_production_recorded_are_told_of_instead_of_what_a_replay_would_have_done() -> None:
    plain, seen = simulated("gpu_off_bus"), _seen("gpu_off_bus", SOON)
    planned = next(run for run in seen.replayed.runs if "cordon_node" in {s.action for s in run.plan.steps})
    asked = replace(
        planned,
        steps=tuple(
            replace(record, state=StepState.AWAITING_APPROVAL, verdict="", reason="")
            if planned.planned(record.id).action == "cordon_node"
            else record
            for record in planned.steps
        ),
    )
    stored = RawRecord("runs", 0, 0, seen.at, asked.id.encode(), encode(asked))
    capture = replace(plain, records={**plain.records, "runs": [stored]})
    again = observed(capture, seen.at, responder=SETTINGS, config=Config(), runbooks=BOOKS)
    assert again.runs_of(planned.incident) == [asked]
    tree = why_not(_root("gpu_off_bus"), again, capture, SETTINGS, BOOKS)
    assert tree.text.endswith("it waits for approval")
