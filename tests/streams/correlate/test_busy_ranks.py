"""A rank that others wait for and that goes on with work of its own: its program is at fault, and no node."""

from __future__ import annotations

import pytest

from streams.model.incident import Certainty
from streams.model.signal import Signal
from tests.streams.correlate.world import FOUR, World, at, busy, cluster, job, timeouts

HANG = timeouts("llama", [r for r in range(32) if r != 11], 600, waited=600)
"""Rank 11 stands on n2, in the second pod, and is the only one that does not wait."""


def story(*work: Signal, late: bool = False) -> World:
    world = World(cluster({"llama": FOUR}))
    ordered = sorted((*HANG, *work), key=lambda s: s.observed_at)
    for one in [*HANG, *work] if late else ordered:
        world.pass_to((one.observed_at - at(0)).total_seconds())
        world.see(one)
    world.pass_to(800)
    return world


@pytest.mark.parametrize("late", [False, True])
def test_a_rank_that_goes_on_with_its_own_work_is_kept_by_its_program(late: bool) -> None:
    incident = story(*(busy("llama", s, pod=1) for s in (60, 200, 340, 480)), late=late).only()
    assert (incident.family, incident.root.job, incident.root.node) == ("application", job("llama"), None)
    assert (incident.certainty, incident.jobs) == (Certainty.LIKELY, (job("llama"),))


INNOCENT_PODS: dict[str, list[Signal]] = {
    "nothing is logged": [],
    "it stopped early": [busy("llama", s, pod=1) for s in (60, 120, 180)],
    "it was before the hang": [busy("llama", s, pod=1) for s in (-300, -200, -100)],
    "another pod works": [busy("llama", s, pod=2) for s in (60, 200, 340, 480)],
    "once is nothing": [busy("llama", 480, pod=1)],
}


@pytest.mark.parametrize("name", INNOCENT_PODS)
def test_otherwise_the_node_of_the_missing_rank_is_asked_about(name: str) -> None:
    incident = story(*INNOCENT_PODS[name]).only()
    assert (incident.family, incident.root.node) == ("silent_node", "n2")
