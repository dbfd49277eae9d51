"""A node whose clock is minutes off: munge refuses what Slurm's controller sends to it, and no job can be launched there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.signal import Severity, Signal
from tests.streams.correlate.test_slurm_jobs import says
from tests.streams.correlate.test_slurm_nodes import down, missed
from tests.streams.correlate.world import FOUR, World, at, cluster, sign

NODES = [f"n{i}" for i in range(1, 13)]
BEHIND = 500.0
"""How many seconds the clock of the node is behind."""


def refuses(
    node: str, seconds: float, reason: str = "Rewound credential", behind: float = BEHIND, times: int = 6
) -> list[Signal]:
    """Every 80 s: what the controller's pings come to."""
    return [
        sign(
            "node.condition",
            node,
            seconds + 80 * i - behind,
            "munge",
            severity=Severity.WARNING,
            lag=behind + 0.5,
            reason=reason,
        )
        for i in range(times)
    ]


def told(signals: Sequence[Signal], until: float = 3000, seed: int | None = None) -> World:
    world = World(cluster({"llama": FOUR}, spare=NODES))
    world.play(signals, until, seed)
    return world


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("reason", ["Rewound credential", "Expired credential"])
def test_a_node_that_refuses_what_the_controller_sends_has_its_clock_off(
    reason: str, seed: int | None
) -> None:
    incident = told(refuses("n9", 900, reason), seed=seed).only()
    assert (incident.family, incident.root.node) == ("platform_fault", "n9")
    assert "its clock is off" in incident.reason


def test_it_is_dated_by_when_it_was_read_and_not_by_the_clock_that_is_off() -> None:
    assert told(refuses("n9", 900)).only().fault_at == at(900.5)


def test_a_job_that_could_not_be_launched_there_is_named() -> None:
    launch = sign("node.condition", "n9", 1100, "slurm_launch", severity=Severity.WARNING, job_id=77)
    incident = told([*refuses("n9", 900), launch]).only()
    assert [job.name for job in incident.jobs] == ["77"]


def test_a_launch_that_fails_elsewhere_or_without_such_a_fault_opens_nothing() -> None:
    launch = sign("node.condition", "n8", 1100, "slurm_launch", severity=Severity.WARNING, job_id=77)
    assert not told([launch]).incidents()
    assert not told([*refuses("n9", 900), launch]).only().jobs


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("count", [2, 12])
def test_nodes_that_refuse_together_tell_of_the_controllers_clock_and_of_none_of_theirs(
    count: int, seed: int | None
) -> None:
    lines = [s for i, node in enumerate(NODES[:count]) for s in refuses(node, 900 + 5 * i)]
    incident = told(lines, seed=seed).only()
    assert (incident.root.node, incident.facts["nodes_hit"]) == (None, 1 << (count.bit_length() - 1))
    assert not incident.nodes
    assert "the controller's clock" in incident.reason


@pytest.mark.parametrize("apart", [5, 40])
def test_each_further_node_that_refuses_is_no_news(apart: float) -> None:
    nodes = [f"m{i}" for i in range(23)]
    world = World(cluster({"llama": FOUR}, spare=nodes))
    world.play([s for i, node in enumerate(nodes) for s in refuses(node, 900 + apart * i)], 2500)
    incident = world.only()
    assert incident.root.node is None
    assert incident.revision <= 6


def test_the_root_does_not_change_while_the_second_node_is_late() -> None:
    world = told([*refuses("n9", 900, times=9), *refuses("n8", 1150)])
    assert {incident.root.node for incident in world.revisions} == {None}


@pytest.mark.parametrize("times", [1, 2])
def test_a_refusal_or_two_are_nothing(times: int) -> None:
    assert not told(refuses("n9", 900)[:times]).incidents()


def test_any_other_trouble_with_munge_is_nobodys_clock() -> None:
    assert not told(refuses("n9", 900, "Invalid credential")).incidents()


def test_the_controllers_own_lines_do_not_accuse_its_host() -> None:
    assert not told(refuses("ctl1", 900)).incidents()


def test_a_node_of_slurm_alone_is_known_by_the_jobs_it_got() -> None:
    world = World()
    for one in [says("running", 0, "cn[001-004]"), *refuses("cn003", 900)]:
        world.see(one)
    world.pass_to(2000, step=20)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("platform_fault", "cn003")


@pytest.mark.parametrize(
    ("times", "families"), [(10, ["platform_fault"]), (4, ["node_down", "platform_fault"])]
)
def test_that_slurm_no_longer_reaches_a_node_that_refuses_on_is_the_same_incident(
    times: int, families: list[str]
) -> None:
    world = World()
    lines = [*refuses("cn003", 900, times=times), missed("cn003", 1260), down("cn003", 1500)]
    for one in [says("running", 0, "cn[001-004]"), *sorted(lines, key=lambda s: s.observed_at)]:
        world.pass_to(max(0.0, (one.observed_at - at(0)).total_seconds()), step=20)
        world.see(one)
    world.pass_to(2000, step=20)
    assert sorted(i.family for i in world.incidents()) == families
