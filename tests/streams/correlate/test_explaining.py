"""Decisions as people read them: the whole text of some stories, kept beside the test.

After a wanted change: `WRITE_EXPLAINED=1 pytest tests/streams/correlate/test_explaining.py`, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from faultline.why.explanation import explain
from streams.correlate.hypothesis import MAX_NEEDS
from streams.correlate.policy.rules import meaning
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, StepState
from streams.model.signal import Signal
from tests.connectors.chat import thread_documents
from tests.streams.correlate import world as stage
from tests.streams.correlate.test_order import (
    Story,
    application_story,
    moved_story,
    off_bus_story,
    silent_story,
    storm_story,
    two_faults_story,
)
from tests.streams.correlate.world import FOUR, World, at, cluster, node_fact, run, timeouts, xid

KEPT = Path(__file__).with_name("explained")


def _told(story: Callable[[], Story], until: float = 1900) -> list[Incident]:
    stage._offset = 0  # ids are made of coordinates, and must not depend on what ran before
    facts, signals = story()
    world = World(f for f in facts if f.observed_at <= at(0))
    later: list[Fact | Signal] = [f for f in facts if f.observed_at > at(0)]
    for one in sorted([*later, *signals], key=lambda one: one.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds())
        if isinstance(one, Signal):
            world.see(one)
        else:
            world.tell(one)
    world.pass_to(until, step=5)
    return world.incidents()


def unknown_culprit_story() -> Story:
    return cluster({"llama": FOUR}), timeouts("llama", [r for r in range(32) if r // 8 not in (1, 2)], 600)


def handled_again_story() -> Story:
    """A GPU that fails again after its repair; and something more happens on its node while it is closed."""
    first = _told(lambda: (cluster({"llama": FOUR}), [xid("n2", 79, 0)]), 10)[0].id
    second = first_of_second(first)
    closed = node_fact("n2", since=520, unschedulable=True, owner_incident=second)
    return [*cluster({"llama": FOUR}), closed], [
        xid("n2", 79, 0),
        run("finished", first, 200, "succeeded"),
        xid("n2", 79, 500),
        xid("n2", 154, 501, action="restart_bm"),
        run("started", second, 510),
        xid("n2", 999, 900, index=6),
    ]


def first_of_second(first: str) -> str:
    """The id of the incarnation after `first`."""
    signals = [xid("n2", 79, 0), run("finished", first, 200, "succeeded"), xid("n2", 79, 500)]
    return next(
        i.id for i in _told(lambda: (cluster({"llama": FOUR}), signals), 510) if i.state is IncidentState.OPEN
    )


STORIES: dict[str, Callable[[], Story]] = {
    "gpu-off-bus": off_bus_story,
    "silent-node": silent_story,
    "pfc-storm": storm_story,
    "application": application_story,
    "moved-job": moved_story,
    "two-faults": two_faults_story,
    "unknown-culprit": unknown_culprit_story,
    "handled-again": handled_again_story,
}


@pytest.mark.parametrize("name", STORIES)
def test_a_decision_reads_as_it_did(name: str) -> None:
    text = "\n\n\n".join(explain(replace(incident, revision=1)) for incident in _told(STORIES[name])) + "\n"
    path = KEPT / f"{name}.txt"
    if os.environ.get("WRITE_EXPLAINED"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", STORIES)
def test_every_decision_names_a_rule_that_has_a_meaning(name: str) -> None:
    for incident in _told(STORIES[name]):
        chosen = [c for c in incident.candidates if c.chosen]
        assert [bool(meaning(c.rule)) for c in chosen] == [True], chosen


def test_the_time_a_collective_waited_is_told_apart_from_the_time_that_detection_took() -> None:
    incident = _told(silent_story)[0]
    assert incident.impact.timeout_s == pytest.approx(600, abs=1)
    assert 600 < incident.detection_delay.total_seconds() < 630
    assert (incident.impact.ranks, incident.impact.gpus) == (32, 32)
    assert _told(off_bus_story)[0].impact.timeout_s == 0


@pytest.mark.parametrize(
    ("verdict", "said"),
    [("would", "would  "), ("needs_approval", "would ask  "), ("refused", "would be refused  ")],
)
def test_a_shadow_run_says_what_its_guardrails_would_have_said(verdict: str, said: str) -> None:
    incident = thread_documents.incident()
    shadow = thread_documents.run(incident, Mode.SHADOW, cordon=StepState.WOULD)
    steps = tuple(replace(s, verdict=verdict) if s.state is StepState.WOULD else s for s in shadow.steps)
    (line,) = [
        one
        for one in explain(incident, [replace(shadow, steps=steps)]).splitlines()
        if " cordon: cordon_node " in one
    ]
    assert line.lstrip("│├└─ ").startswith(said)


@pytest.mark.parametrize("name", STORIES)
def test_every_rejected_candidate_says_what_it_lacked_in_a_bounded_text(name: str) -> None:
    for incident in _told(STORIES[name]):
        for one in incident.candidates:
            assert one.chosen is (one.needs is None), one
            assert one.needs is None or 0 < len(one.needs) <= MAX_NEEDS
