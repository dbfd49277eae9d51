"""Jobs that an incident names because Slurm's daemons log what became of them: on a node that went, or that is broken."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from streams.model.entity import SLURM_JOB, JobRef
from streams.model.incident import Incident
from streams.model.signal import Severity, Signal
from tests.streams.correlate.test_slurm_jobs import ALL, says, told
from tests.streams.correlate.test_slurm_nodes import down, missed
from tests.streams.correlate.world import World, sign, xid


def lost(node: str, seconds: float, number: int, task: str = "") -> Signal:
    """The controller logs that a job ended with its node."""
    return sign(
        "node.condition",
        node,
        seconds,
        "slurm_job_lost",
        severity=Severity.WARNING,
        job_id=number,
        array_task=task,
    )


def not_started(node: str, seconds: float, number: int) -> Signal:
    """A node's daemon logs that the step before a job failed."""
    return sign("node.condition", node, seconds, "slurm_prolog", severity=Severity.WARNING, job_id=number)


def names(incident: Incident) -> list[str]:
    return [job.name for job in incident.jobs]


def missing(node: str, begins: float = 600) -> list[Signal]:
    return [missed(node, begins), down(node, begins + 300)]


@pytest.mark.parametrize("after", [0.0, 90.0])
@pytest.mark.parametrize("numbers", [[71], range(70, 78)])
def test_who_ran_on_a_node_that_is_gone_is_named_though_nothing_else_is_known_of_the_job(
    numbers: Iterable[int], after: float
) -> None:
    story = [*missing("cn003"), *(lost("cn003", 900 + after, number) for number in numbers)]
    incident = told(story).only()
    assert (incident.family, incident.root.node) == ("node_down", "cn003")
    assert incident.jobs == tuple(JobRef(SLURM_JOB, "", str(number)) for number in numbers)


def test_a_job_that_is_followed_is_named_once() -> None:
    story = [says("running", 0, ALL), *missing("cn003"), lost("cn003", 900, 4242), lost("cn003", 900, 77)]
    assert names(told(story).only()) == ["4242", "77"]


def test_a_task_of_an_array_is_named_as_such() -> None:
    story = [*missing("cn003"), lost("cn003", 900, 4242, "4242_7")]
    assert names(told(story).only()) == ["4242_7"]


@pytest.mark.parametrize("after", [0.5, 60.0])
def test_who_ran_on_nodes_that_went_with_their_power_is_named_there(after: float) -> None:
    nodes = [f"cn{i:03d}" for i in range(1, 7)]
    story = [says("running", 0, "cn[001-096]"), says("ended", 60)]
    for i, node in enumerate(nodes):
        story += [sign("node.power", node, 595 + i, "psu", severity=Severity.ERROR), *missing(node)]
    world = told(story, until=900 + after)
    world.see(*(lost(node, 900 + after, 60 + i) for i, node in enumerate(nodes)))
    world.pass_to(2000, step=10)
    (incident,) = [i for i in world.incidents() if i.merged_into is None]
    assert (incident.family, names(incident)) == ("power_cooling", [str(60 + i) for i in range(6)])


def test_a_job_that_could_not_start_on_a_broken_node_is_named() -> None:
    story = [says("running", 0, ALL), xid("cn002", 79, 600), not_started("cn002", 660, 77)]
    assert names(told(story).only()) == ["4242", "77"]


@pytest.mark.parametrize("seconds", [-1200.0, 3000.0])
def test_what_slurm_logs_of_a_node_at_another_time_is_not_that_faults(seconds: float) -> None:
    story = [
        says("running", -1800, ALL),
        xid("cn002", 79, 600),
        not_started("cn002", seconds, 77),
        lost("cn002", seconds, 78),
    ]
    assert names(told(story).only()) == ["4242"]


def test_of_another_node_neither() -> None:
    story = [says("running", 0, ALL), xid("cn002", 79, 600), not_started("cn003", 660, 77)]
    assert names(told(story).only()) == ["4242"]


def test_a_reboot_that_somebody_ordered_is_no_incident_for_a_small_job_that_it_ended() -> None:
    """Slurm runs it again elsewhere, and whoever ordered it knew."""
    world = World()
    order = sign("node.maintenance", "cn003", 0, "reboot")
    for one in (says("running", -900, "cn[004-040]"), order, missed("cn003", 175), down("cn003", 305)):
        world.see(one)
    world.see(lost("cn003", 305, 77), down("cn003", 940, back=True))
    world.pass_to(9000, step=10)
    assert not world.published


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_lines_and_a_restart_change_nothing(seed: int) -> None:
    story = [*missing("cn003"), *(lost("cn003", 900, number) for number in range(70, 75))]
    random.Random(seed).shuffle(story)
    world = World()
    world.see(*story[:4])
    world.restart()
    world.see(*story[4:])
    world.pass_to(2000, step=10)
    assert names(world.only()) == [str(number) for number in range(70, 75)]
