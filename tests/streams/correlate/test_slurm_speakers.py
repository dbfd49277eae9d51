"""Jobs of Slurm that began before anything was read: where they stand, their own processes tell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import SLURM, Entity, PodRef
from streams.model.incident import Incident
from streams.model.signal import RELAYED, Severity, Signal
from tests.streams.correlate.test_slurm_jobs import says
from tests.streams.correlate.world import CLUSTER, World, _signal, sign, xid

NODES = [f"cn{i:03d}" for i in range(1, 9)]


def header(node: str, seconds: float, *, shipped_by: str = "login1") -> Signal:
    """A line with NCCL's own header, whose file is read on another host."""
    place = Entity(CLUSTER, node=node, pod=PodRef(SLURM, "4242"))
    return _signal("nccl.error", place, seconds, {"subtype": "ib_error", "node": node, "shipper": shipped_by})


def shipped(node: str, rank: int, seconds: float) -> Signal:
    """A line of a rank that does not say where it runs."""
    place = Entity(CLUSTER, node=node, pod=PodRef(SLURM, "4242"), rank=rank)
    return _signal("nccl.error", place, seconds, {"subtype": "remote", "rank": rank})


def dead(node: str, seconds: float) -> Signal:
    return xid(node, 79, seconds)


def told(signals: Sequence[Signal], until: float = 900) -> list[Incident]:
    world = World()
    for one in signals:
        world.see(one)
    world.pass_to(until, step=5)
    return world.incidents()


def only(found: Sequence[Incident]) -> Incident:
    (incident,) = [i for i in found if i.merged_into is None]
    return incident


def test_a_job_stands_where_its_processes_say_that_they_run() -> None:
    story = [dead("cn003", 0), *(header(n, 20 + i) for i, n in enumerate(NODES))]
    assert [j.name for j in only(told(story)).jobs] == ["4242"]


def test_a_fault_of_another_node_is_not_why_it_fails() -> None:
    found = told([dead("cn030", 0), *(header(n, 20 + i) for i, n in enumerate(NODES))])
    assert not [i for i in found if i.root.node == "cn030" and i.jobs]


def test_hosts_that_each_ship_a_rank_of_their_own_are_its_nodes() -> None:
    story = [dead("cn003", 0), *(shipped(n, 8 * i, 20 + i) for i, n in enumerate(NODES))]
    assert [j.name for j in only(told(story)).jobs] == ["4242"]


def test_hosts_that_all_read_one_file_are_not() -> None:
    story = [dead("cn003", 0), *(shipped(n, 5, 20) for n in NODES), *(shipped(n, 6, 21) for n in NODES)]
    assert not [i for i in told(story) if i.root.node == "cn003" and i.jobs]


def test_what_processes_say_counts_before_who_ships_it() -> None:
    story = [dead("cn020", 0), header("cn001", 20), header("cn002", 20.5), shipped("cn020", 3, 21)]
    assert not [i for i in told(story) if i.root.node == "cn020" and i.jobs]


def test_what_the_controller_says_counts_before_both() -> None:
    story = [says("running", -600, "cn[001-004]"), dead("cn007", 0), *(header(n, 20) for n in NODES)]
    assert not [i for i in told(story) if i.root.node == "cn007" and i.jobs]


@pytest.mark.parametrize(
    ("names", "of_a_program"), [("4242", False), ("4242", True), ("4243", False), ("", False)]
)
def test_a_killed_process_stood_where_its_cgroup_says(names: str, of_a_program: bool) -> None:
    """Its peers only see that it is gone, and it leaves no word itself. Any program may print a kernel's words."""
    kill = sign("node.memory", "cn003", 19, "oom", process="python3", slurm_job=names)
    if of_a_program:
        kill = replace(kill, attributes={**kill.attributes, RELAYED: True})
    others = [header(n, 20 + i / 10) for i, n in enumerate(NODES) if n != "cn003"]
    of_job = [i for i in told([*others, kill]) if any(j.name == "4242" for j in [*i.jobs, i.root.job] if j)]
    assert [(i.family, i.for_owner) for i in of_job] == (
        [("application", True)] if names == "4242" and not of_a_program else [("hang", False)]
    )


def test_a_pod_in_a_namespace_called_slurm_is_no_job_of_slurm() -> None:
    """Slinky runs its daemons there, whose output names other hosts."""
    slurmd = PodRef(SLURM, "slurm-worker-cn-1")
    said = [
        replace(header(n, 20 + i), entity=Entity(CLUSTER, node=n, pod=slurmd)) for i, n in enumerate(NODES)
    ]
    assert not told(said)
    assert told([header(n, 20 + i) for i, n in enumerate(NODES)])


def test_what_a_library_warns_of_and_goes_on_after_is_no_hang() -> None:
    warned = [replace(header(n, 20), severity=Severity.WARNING) for n in NODES]
    assert not told(warned)


def test_that_all_that_spoke_have_spoken_proves_nothing() -> None:
    """Of the job's nodes those that are dead say nothing: a hang is not told of as if every rank had reported."""
    world = World()
    world.see(header("cn001", 0), header("cn002", 0.2))
    world.pass_to(20)
    assert not world.incidents()


@pytest.mark.parametrize("seed", range(6))
def test_the_order_and_a_restart_change_nothing(seed: int) -> None:
    story = [
        dead("cn003", 0),
        *(header(n, 20 + i) for i, n in enumerate(NODES)),
        *(shipped(n, 8 * i, 25 + i) for i, n in enumerate(NODES)),
        says("running", 300, "cn[011-018]"),
        sign("node.condition", "cn004", 200, "slurm_drain"),
    ]
    straight = {(i.id, str(i.root), tuple(j.name for j in i.jobs)) for i in told(story)}
    random.Random(seed).shuffle(story)
    world = World()
    world.see(*story[:7])
    world.restart()
    world.see(*story[7:])
    world.pass_to(900, step=5)
    assert {(i.id, str(i.root), tuple(j.name for j in i.jobs)) for i in world.incidents()} == straight
