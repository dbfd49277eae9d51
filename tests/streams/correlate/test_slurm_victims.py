"""Jobs that an incident names because Slurm's daemons log what became of them: on a node that went, or that is broken."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from streams.correlate.sightings import KEPT_EACH_END
from streams.model.entity import SLURM, SLURM_JOB, Entity, JobRef, PodRef
from streams.model.incident import Incident
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.test_slurm_jobs import ALL, says, told
from tests.streams.correlate.test_slurm_nodes import down, missed
from tests.streams.correlate.world import CLUSTER, World, _signal, nic, sign, xid


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


def test_what_slurm_logs_of_a_node_before_is_not_that_faults() -> None:
    before = [not_started("cn002", -1200, 77), lost("cn002", -1200, 78)]
    story = [says("running", -1800, ALL), xid("cn002", 79, 600), *before]
    assert names(told(story).only()) == ["4242"]


def test_what_slurm_logs_when_it_is_over_neither() -> None:
    back = down("cn003", 1500, back=True)
    later = [not_started("cn003", 3000, 77), lost("cn003", 3000, 78)]
    story = [says("running", 0, ALL), *missing("cn003"), back, says("ended", 1510), *later]
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


def output(node: str, seconds: float, **more: Attribute) -> Signal:
    """A line of a job's output, as a node ships it."""
    return _signal("job.failed", Entity(CLUSTER, node=node, pod=PodRef(SLURM, "77")), seconds, more)


def without_gpu(node: str, seconds: float, reason: str = "system not yet initialized") -> Signal:
    return output(node, seconds, subtype="cuda_error", reason=reason)


def launcher(node: str, seconds: float) -> Signal:
    """What the job's launcher prints of its process on a node."""
    place = Entity(CLUSTER, node=node, pod=PodRef(SLURM, "77"))
    return _signal("job.failed", place, seconds, {"subtype": "process_exit", "node": node, "exitcode": 1})


def test_a_node_that_takes_one_job_after_the_other_names_the_first_and_the_last_of_them() -> None:
    story = [says("running", 0, ALL), xid("cn002", 79, 600)]
    story += [not_started("cn002", 660 + 5 * i, 10_000 + i) for i in range(400)]
    found = names(told(story).only())
    assert len(found) == 1 + 2 * KEPT_EACH_END
    assert {"4242", "10000", "10399"} <= set(found)


BROKEN = [says("running", 0, ALL), xid("cn002", 79, 600), says("ended", 610)]


@pytest.mark.parametrize(
    "reason", ["no CUDA-capable device is detected", "uncorrectable ECC error encountered"]
)
@pytest.mark.parametrize("seconds", [660, 3000])
@pytest.mark.parametrize("order", [1, -1])
def test_a_job_that_finds_no_gpu_on_a_node_whose_gpu_is_broken_is_named(
    reason: str, seconds: float, order: int
) -> None:
    lines = [without_gpu("cn002", seconds, reason), launcher("cn002", seconds + 1)][::order]
    assert names(told([*BROKEN, *lines]).only()) == ["4242", "77"]


def test_it_is_named_as_soon_as_it_is_known_to_have_run_there() -> None:
    world = told([*BROKEN, without_gpu("cn002", 1200)], until=1205)
    assert names(world.only()) == ["4242"]
    world.see(launcher("cn002", 1206))
    world.pass_to(1800, step=10)
    assert names(world.only()) == ["4242", "77"]


@pytest.mark.parametrize(
    "lines",
    [
        [without_gpu("cn002", 660)],  # which any host may have shipped
        [without_gpu("cn002", 660), launcher("cn003", 661)],
        [without_gpu("cn002", 660, "an illegal memory access was encountered"), launcher("cn002", 661)],
        [output("cn002", 660, subtype="cuda_oom"), launcher("cn002", 661)],
    ],
)
def test_what_fails_elsewhere_or_of_its_own_is_not_named(lines: list[Signal]) -> None:
    assert names(told([*BROKEN, *lines]).only()) == ["4242"]


def test_that_cuda_finds_no_gpu_does_not_follow_from_a_fault_of_another_kind() -> None:
    down_at_all = nic("cn002", "mlx5_0", 600)
    story = [says("running", 0, ALL), down_at_all, without_gpu("cn002", 660), launcher("cn002", 661)]
    assert not [i for i in told(story).incidents() if "77" in names(i)]


def test_small_jobs_that_find_no_gpu_say_nothing_of_a_node() -> None:
    story = [without_gpu("cn002", 600 + 40 * i) for i in range(20)]
    assert not told([*story, launcher("cn002", 1400)]).incidents()


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_lines_and_a_restart_change_nothing(seed: int) -> None:
    gone = [*missing("cn009"), *(lost("cn009", 900, number) for number in range(70, 75))]
    story = [*gone, *BROKEN, without_gpu("cn002", 660), launcher("cn002", 661)]
    random.Random(seed).shuffle(story)
    world = World()
    world.see(*story[:6])
    world.restart()
    world.see(*story[6:])
    world.pass_to(2000, step=10)
    found = {i.root.node: names(i) for i in world.incidents()}
    assert found == {"cn009": [str(number) for number in range(70, 75)], "cn002": ["4242", "77"]}
