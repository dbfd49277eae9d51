"""GPU software that broke while somebody worked on a node: theirs until the node is given back, and nobody's work after that."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.facts import JobFact, NodeFact, NodeWork, PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, World, at, cluster, failed, job, node_fact, pods, sign

NODES = [f"n{i:02d}" for i in range(4)]
LABEL = "nvidia.com/gpu-driver-upgrade-state"
Told = Signal | NodeFact | PodFact | JobFact


def worked_on(node: str, since: float, until: float | None) -> list[Told]:
    """An operator closes a node and gives it back; on the way the fabric manager meets a newer driver."""
    work = NodeWork("GPU operator", LABEL, "back")
    closed = replace(node_fact(node, unschedulable=True, work=work), observed_at=at(since))
    broken = [
        sign("gpu.driver", node, since + 60 + 6 * i, "version_mismatch", client_version="570.1")
        for i in range(3)
    ]
    back = [replace(node_fact(node), observed_at=at(until))] if until is not None else []
    return [closed, *broken, *back]


def dies(
    name: str, node: str, came: float, at_s: float, reason: str = "system not yet initialized"
) -> list[Told]:
    """A job of one pod that comes to the node, and whose program finds no usable GPU."""
    fact = pods(name, [node])[0]
    here = replace(
        fact, scheduled_at=at(came), created_at=at(came), started_at=at(came + 2), observed_at=at(came)
    )
    gone = replace(here, phase="Failed", ended_at=at(at_s + 5), observed_at=at(at_s + 5))
    lines = [
        failed(name, 0, at_s, "cuda_error", rank=0, reason=reason),
        failed(name, 0, at_s + 1, "process_exit", exitcode="1", local_rank=0),
    ]
    lines = [replace(s, entity=replace(s.entity, node=node)) for s in lines]
    return [JobFact(CLUSTER, job(name), at(came), pods=1, world=8), here, *lines, gone]


def story(*told: Told, seed: int | None = None, until: float = 4000) -> list[Incident]:
    world = World(cluster({}, spare=[*NODES, "n90", "n91"]))
    ordered = sorted(told, key=lambda one: one.observed_at)
    if seed is not None:
        facts = [one for one in ordered if not isinstance(one, Signal)]
        signals = [one for one in ordered if isinstance(one, Signal)]
        random.Random(seed).shuffle(signals)
        ordered = [*facts, *signals]
    for one in ordered:
        if seed is None:
            world.pass_to((one.observed_at - at(0)).total_seconds(), step=10)
        world.see(one) if isinstance(one, Signal) else world.tell(one)
    world.pass_to(until, step=30)
    return [i for i in world.incidents() if i.merged_into is None]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_job_that_dies_on_a_node_that_was_given_back_with_it_makes_it_a_fault_since_then(
    seed: int | None,
) -> None:
    (incident,) = story(*worked_on("n00", 0, 100), *dies("a", "n00", 130, 160), seed=seed)
    assert (incident.family, incident.root.node, incident.state) == (
        "platform_fault",
        "n00",
        IncidentState.OPEN,
    )
    assert incident.fault_at == at(100)
    assert [j.name for j in incident.jobs] == ["a"]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_an_upgrade_that_gives_back_node_after_node_broken_is_a_rollout(seed: int | None) -> None:
    told = [
        one
        for i, node in enumerate(NODES)
        for one in (
            *worked_on(node, 300 * i, 300 * i + 100),
            *dies(f"job-{i}", node, 300 * i + 130, 300 * i + 160),
        )
    ]
    (incident,) = story(*told, seed=seed)
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", "570.1")
    assert {j.name for j in incident.jobs} == {f"job-{i}" for i in range(4)}


def test_a_mark_that_is_taken_off_at_the_moment_the_node_is_opened_leaves_no_work_behind() -> None:
    closed, *lines, back = worked_on("n00", 0, 100)
    unmarked = replace(node_fact("n00", unschedulable=True), observed_at=at(100))
    (incident,) = story(closed, *lines, unmarked, back, *dies("a", "n00", 130, 160))
    assert (incident.root.node, incident.fault_at) == ("n00", at(100))


def test_a_service_that_goes_on_failing_after_the_node_was_given_back_is_its_fault() -> None:
    later = [sign("gpu.driver", "n00", 300 + 30 * i, "service_failed") for i in range(4)]
    (incident,) = story(*worked_on("n00", 0, 100), *later)
    assert (incident.root.node, incident.state, incident.fault_at) == ("n00", IncidentState.OPEN, at(100))


def test_what_was_broken_only_while_somebody_worked_is_theirs() -> None:
    assert not story(*(one for i, n in enumerate(NODES) for one in worked_on(n, 300 * i, 300 * i + 100)))
    assert not story(*worked_on("n00", 0, None))


def test_a_service_that_fails_for_a_moment_longer_as_the_node_comes_back_is_of_the_work() -> None:
    late = [sign("gpu.driver", "n00", 105 + 10 * i, "service_failed") for i in range(3)]
    assert not story(*worked_on("n00", 0, 100), *late)


def test_what_is_seen_in_the_next_work_on_each_node_makes_no_rollout() -> None:
    again = [one for i, n in enumerate(NODES) for one in worked_on(n, 300 * i + 250, None)]
    found = story(*(one for i, n in enumerate(NODES) for one in worked_on(n, 300 * i, 300 * i + 100)), *again)
    assert not [i for i in found if i.root.part]


def uninitialized(node: str, moments: Sequence[float]) -> list[Told]:
    return [one for i, s in enumerate(moments) for one in dies(f"{node}-{i}", node, s - 30, s)]


def test_programs_that_find_the_system_not_initialized_on_a_node_tell_of_the_node() -> None:
    (incident,) = story(*uninitialized("n00", [200, 400, 600]))
    assert (incident.family, incident.root.node) == ("platform_fault", "n00")
    assert {j.name for j in incident.jobs} == {"n00-0", "n00-1", "n00-2"}


def test_a_single_program_that_finds_it_so_is_no_fault_of_the_node() -> None:
    found = story(*uninitialized("n00", [200]))
    assert not [i for i in found if i.root.node or i.root.part]


def test_one_that_ends_without_a_word_after_that_is_not_taken_for_it() -> None:
    plain = failed("b", 0, 500, "process_exit", exitcode="1")
    told = dies("b", "n00", 400, 500)
    came, gone = told[1], told[-1]
    found = story(*uninitialized("n00", [200]), came, plain, gone)
    assert not [i for i in found if i.root.node or i.root.part]
