"""Nodes that no Kubernetes object describes: what Slurm's controller says of them when they go."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from streams.model.entity import SLURM, SLURM_JOB, Entity, JobRef, PodRef
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.test_slurm_jobs import says, told
from tests.streams.correlate.world import CLUSTER, World, _signal, at, nic, node_fact, not_ready, sign

ALL = "cn[001-040]"


def down(node: str, seconds: float, *, back: bool = False) -> Signal:
    attributes: dict[str, Attribute] = {"source": "slurm", **({} if back else {"reason": "not responding"})}
    return _signal("node.not_ready", Entity(CLUSTER, node=node), seconds, attributes, cleared=back)


def missed(node: str, seconds: float) -> Signal:
    return sign("node.condition", node, seconds, "slurm_silent")


def found(world: World) -> list[tuple[str, str | None, list[str]]]:
    told_ = world.incidents()
    return sorted((i.family, i.root.node, [j.name for j in i.jobs]) for i in told_)


def unanswered(node: str, peer: str, seconds: float) -> Signal:
    place = Entity(CLUSTER, node=node, pod=PodRef(SLURM, "4242"), rank=0)
    return _signal("nccl.error", place, seconds, {"subtype": "ib_completion", "peer": peer, "status": 12})


def test_a_node_that_slurm_sets_down_stops_the_job_that_held_it() -> None:
    assert found(told([says("running", 0, ALL), down("cn003", 600)])) == [("node_down", "cn003", ["4242"])]


def test_what_its_peers_say_minutes_before_slurm_does_is_part_of_it() -> None:
    story = [says("running", 0, ALL), unanswered("cn001", "10.0.0.3", 608), down("cn003", 900)]
    assert found(told(story)) == [("node_down", "cn003", ["4242"])]


def test_a_hang_that_names_nobody_is_not_told_before_slurm_can_miss_a_node() -> None:
    world = World()
    for one in (says("running", 0, ALL, gpus=8), unanswered("cn001", "10.0.0.3", 608)):
        world.see(one)
    world.pass_to(900, step=10)
    assert not world.published
    world.see(down("cn003", 905))
    world.pass_to(1400, step=10)
    assert [(i.family, i.root.node) for i in world.published.values()] == [("node_down", "cn003")]


def test_last_words_of_a_kernel_are_not_told_before_slurm_can_miss_its_node() -> None:
    world = World()
    for one in (says("running", 0, ALL), sign("node.kernel", "cn003", 600, "oops")):
        world.see(one)
    world.pass_to(900, step=10)
    assert not world.published
    world.see(missed("cn003", 680), down("cn003", 905))
    world.pass_to(1400, step=10)
    assert [(i.family, i.root.node) for i in world.published.values()] == [("node_down", "cn003")]
    alone = told([says("running", 0, ALL), sign("node.kernel", "cn003", 600, "oops")], until=980)
    assert [i.family for i in alone.incidents()] == ["host_fault"]


def test_a_hang_that_names_nobody_is_told_when_no_node_is_missed() -> None:
    world = told([says("running", 0, ALL, gpus=8), unanswered("cn001", "10.0.0.3", 608)], until=960)
    assert not world.published
    world.pass_to(975)
    assert [i.family for i in world.published.values()] == ["hang"]


def test_it_is_dated_to_when_the_controller_first_missed_it_whatever_is_read_first() -> None:
    story = [says("running", 0, ALL), missed("cn003", 100), down("cn003", 130), down("cn003", 140, back=True)]
    story += [missed("cn003", 1660), missed("cn003", 1760), down("cn003", 1930)]
    for seed in range(6):
        told_ = told(random.Random(seed).sample(story, len(story))).incidents()
        assert [i.fault_at for i in told_ if i.state is IncidentState.OPEN] == [at(1660)]


def test_a_ping_that_went_unanswered_is_nothing() -> None:
    assert not told([says("running", 0, ALL), missed("cn003", 600), missed("cn004", 630)]).incidents()


def test_a_node_without_a_job_that_is_back_soon_is_nothing() -> None:
    assert not told([down("cn003", 600), down("cn003", 700, back=True)]).incidents()


def test_one_that_stays_away_is_certain_after_minutes_and_its_own_lines_take_that_back() -> None:
    story: Sequence[Signal] = [says("running", 0, ALL), down("cn003", 600)]
    assert told(story, until=1300).only().certainty is Certainty.DECISIVE
    speaks = sign("node.pcie", "cn003", 700, "aer", severity=story[0].severity)
    assert told([*story, speaks], until=1300).only().certainty is Certainty.LIKELY


def test_three_nodes_of_a_large_cluster_are_three_nodes() -> None:
    lost = [down(f"cn00{i}", 600 + 20 * i) for i in (1, 2, 3)]
    jobs = [says("running", 0, f"cn[0{i}1-0{i}9]", number=f"430{i}") for i in range(4)]
    assert [family for family, _, _ in found(told([*jobs, *lost]))] == ["node_down"] * 3


def test_a_controller_that_hears_nobody_is_one_fault_of_no_node() -> None:
    lost = [down(f"cn{i:03d}", 600 + i) for i in range(1, 21)]
    (incident,) = told([says("running", 0, ALL), *lost]).incidents()
    assert (incident.family, incident.root.node) == ("nodes_not_ready", None)


@pytest.mark.parametrize("late", [False, True])
def test_where_kubernetes_describes_the_node_slurm_does_not_count(late: bool) -> None:
    world = World()
    if late:
        world.see(down("cn003", 100))
    world.tell(node_fact("cn003"))
    if not late:
        world.see(down("cn003", 100))
    world.pass_to(1000, step=10)
    assert not world.incidents()
    world.see(not_ready("cn003", 1010))
    world.pass_to(1400, step=10)
    assert [i.family for i in world.incidents()] == ["node_down"]


def test_a_job_of_slurm_is_a_job_ref_of_its_number() -> None:
    incident = told([says("running", 0, ALL), down("cn003", 600)]).only()
    assert incident.jobs == (JobRef(SLURM_JOB, "", "4242"),)


@pytest.mark.parametrize("subtype", ["slurm_drain", "slurm_set_down"])
@pytest.mark.parametrize(("before", "is_told"), [(60.0, False), (-200.0, True)])
def test_a_node_that_somebody_closed_is_expected_to_go_unless_it_was_missed_before(
    subtype: str, before: float, is_told: bool
) -> None:
    story = [missed("cn003", 600), down("cn003", 900), sign("node.condition", "cn003", 600 - before, subtype)]
    states = {i.state for i in told(story, until=1500).incidents()}
    assert (IncidentState.OPEN in states) is is_told


def test_a_reboot_that_was_ordered_is_no_incident_either_when_its_order_is_forgotten() -> None:
    world = World()
    for one in (
        says("running", -900, "cn[004-040]"),
        sign("node.maintenance", "cn003", 0, "reboot"),
        missed("cn003", 175),
        down("cn003", 305),
        down("cn003", 940, back=True),
    ):
        world.see(one)
    world.pass_to(9000, step=10)
    assert not world.published


def drained(node: str, seconds: float, *, over: bool = False, severity: Severity = Severity.INFO) -> Signal:
    return sign("node.condition", node, seconds, "slurm_drain", cleared=over, severity=severity)


DRAINS: dict[str, tuple[list[Signal], bool]] = {
    "by a person, an hour before": ([drained("cn003", 0)], False),
    "after its link went down": ([drained("cn003", 3700)], True),
    "and given back before": ([drained("cn003", 0), drained("cn003", 3000, over=True)], True),
    "and given back with the link still down": (
        [drained("cn003", 0), drained("cn003", 4000, over=True)],
        True,
    ),
    "and given back once the link was up": ([drained("cn003", 0), drained("cn003", 4900, over=True)], False),
    "by Slurm itself": ([drained("cn003", 0, severity=Severity.WARNING)], True),
    "by a health check": (
        [sign("node.condition", "cn003", 0, "health_check", severity=Severity.INFO), drained("cn003", 0.1)],
        True,
    ),
}


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", DRAINS)
def test_what_goes_down_on_a_node_that_somebody_drained_is_left_to_them(name: str, backwards: bool) -> None:
    drain, opens = DRAINS[name]
    link = [nic("cn003", "mlx5_6", 3600), nic("cn003", "mlx5_6", 4800, cleared=True)]
    story = [*link, *reversed(drain)] if backwards else [*drain, *link]
    world = World()
    world.see(*story)
    world.pass_to(14_000, step=10)
    assert bool([i for i in world.published.values() if i.state is not IncidentState.SUPPRESSED]) is opens


def test_what_goes_down_under_a_job_on_a_node_that_is_being_drained_is_told() -> None:
    peer = [unanswered("cn001", "10.0.0.3", 3605)]
    world = told([says("running", 0, ALL), drained("cn003", 1), down("cn003", 3600), *peer], until=5000)
    assert found(world) == [("node_down", "cn003", ["4242"])]
