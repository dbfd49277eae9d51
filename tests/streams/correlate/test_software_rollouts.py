"""GPU software that breaks on node after node, and what a node that is ready again takes back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.correlate.same_observation import added_once
from streams.correlate.sightings import Sighting, sighting
from streams.correlate.state.unstarted_pods import of_gpu_software
from streams.model.facts import NodeFact, NodeWork, PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    World,
    all_ended,
    at,
    cluster,
    failed,
    node_fact,
    not_ready,
    pods,
    sign,
    xid,
)

NODES = [f"n{i:02d}" for i in range(12)]


def broken(node: str, seconds: float, version: str = "570.10.01") -> Signal:
    return sign("gpu.driver", node, seconds, "version_mismatch", client_version=version)


def told(*signals: Signal, until: float = 9000, **about: Any) -> list[Incident]:
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500, **about) for n in NODES)])
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=10)
        world.see(one)
    world.pass_to(until, step=30)
    return [i for i in world.incidents() if i.merged_into is None]


def test_the_third_node_makes_it_a_rollout_by_the_version_that_its_lines_name() -> None:
    (incident,) = told(*(broken(n, 400 * i) for i, n in enumerate(NODES[:6])))
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", "570.10.01")
    assert len(incident.nodes) == 6


def test_two_nodes_are_two_nodes() -> None:
    found = told(broken("n01", 0), broken("n02", 400))
    assert sorted(i.root.node or "" for i in found) == ["n01", "n02"]


@pytest.mark.parametrize("gap", [60, 120, 240])
def test_a_rollout_that_breaks_a_node_every_few_minutes_is_told_once(gap: float) -> None:
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500) for n in NODES)])
    for i, node in enumerate(NODES[:6]):
        world.pass_to(gap * i, step=10)
        world.see(broken(node, gap * i))
    world.pass_to(3000, step=30)
    (incident,) = world.published.values()
    assert (incident.root.part is not None, incident.opened_at) == (True, at(gap + 60.5))
    assert set(incident.nodes) == set(NODES[:6])


@pytest.mark.parametrize("seed", range(4))
def test_two_nodes_within_minutes_are_a_rollout_in_any_order_and_after_a_restart(seed: int) -> None:
    signals = [broken("n01", 0), broken("n02", 120), broken("n02", 130), broken("n01", 200)]
    straight = [(i.id, str(i.root)) for i in told(*signals)]
    random.Random(seed).shuffle(signals)
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500) for n in NODES)])
    for one in signals:
        world.see(one)
        world.restart()
    world.pass_to(9000, step=30)
    found = [(i.id, str(i.root)) for i in world.incidents()]
    assert found == straight
    assert [name for _, name in found] == ["gpu software 570.10.01"]


def test_the_software_of_one_node_is_that_nodes_and_told_when_no_other_followed() -> None:
    (incident,) = told(broken("n01", 0))
    assert (incident.root.node, incident.opened_at) == ("n01", at(300.5))


def test_a_node_whose_software_breaks_in_another_way_than_the_rollouts_is_its_own() -> None:
    found = told(broken("n01", 0), broken("n02", 120), sign("gpu.driver", "n05", 150, "persistenced"))
    assert sorted(str(i.root) for i in found) == ["gpu software 570.10.01", "node n05"]


def test_a_rollout_whose_nodes_get_well_within_minutes_is_over_and_not_withdrawn() -> None:
    def well(node: str, seconds: float) -> Signal:
        return sign("gpu.driver", node, seconds, "nvml_init", cleared=True)

    lines = [(sign("gpu.driver", n, 60 * i, "nvml_init"), well(n, 60 * i + 200)) for i, n in enumerate(MINE)]
    (incident,) = told(*(one for pair in lines for one in pair))
    assert incident.root.part is not None
    assert incident.state is IncidentState.RESOLVED
    assert "Withdrawn" not in incident.reason


def test_what_two_gpus_take_with_them_is_no_rollout() -> None:
    lost = [s for i, n in enumerate(NODES[:2]) for s in (xid(n, 79, 100 * i), broken(n, 100 * i + 5))]
    found = [i for i in told(*lost) if i.family == "platform_fault"]
    assert not [i for i in found if i.root.part]


def test_nodes_of_different_versions_have_nothing_in_common() -> None:
    found = told(*(broken(n, 400 * i, version=f"57{i}.1") for i, n in enumerate(NODES[:4])))
    assert not [i for i in found if i.root.part]


def test_what_somebody_works_on_is_no_rollout_that_went_wrong() -> None:
    assert not [
        i
        for i in told(*(broken(n, 400 * i) for i, n in enumerate(NODES[:6])), maintenance=True)
        if i.root.part
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_does_not_matter(seed: int) -> None:
    signals = [broken(n, 400 * i) for i, n in enumerate(NODES[:6])]
    straight = {(i.id, str(i.root)) for i in told(*signals)}
    random.Random(seed).shuffle(signals)
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500) for n in NODES)])
    for one in signals:
        world.see(one)
    world.restart()
    world.pass_to(9000, step=30)
    assert {(i.id, str(i.root)) for i in world.incidents() if i.merged_into is None} == straight


def test_what_a_node_was_closed_for_afterwards_is_part_of_the_rollout() -> None:
    closed_for_it = node_fact("n02", since=801, maintenance=True)
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500) for n in NODES)])
    for i, node in enumerate(NODES[:4]):
        world.pass_to(400 * i, step=10)
        world.see(broken(node, 400 * i))
        if node == "n02":
            world.tell(closed_for_it)
    world.pass_to(9000, step=30)
    (incident,) = [i for i in world.incidents() if i.merged_into is None]
    assert set(incident.nodes) == set(NODES[:4])


def test_several_signs_of_one_fault_are_one_rollout_whichever_came_first() -> None:
    signs = ["version_mismatch", "nvml_init", "device_plugin"]
    (incident,) = told(
        *(
            sign("gpu.driver", node, 400 * i + 5 * j, subtype)
            for i, node in enumerate(NODES[:6])
            for j, subtype in enumerate([*signs[i % 3 :], *signs[: i % 3]])
        )
    )
    assert incident.root.part is not None
    assert (incident.root.part.name, len(incident.nodes)) == ("version_mismatch", 6)


def test_the_beginning_of_a_version_is_no_other_version() -> None:
    (incident,) = told(
        *(broken(n, 400 * i) for i, n in enumerate(NODES[:3])),
        *(broken(NODES[2], 800 + 9 * i, version="570.10") for i in range(1, 3)),
    )
    assert incident.root.part is not None
    assert (incident.root.part.name, len(incident.nodes)) == ("570.10.01", 3)


JOBS: dict[str, Sequence[str]] = {f"job-{i}": NODES[4 * i : 4 * i + 4] for i in range(3)}


def unstarted(
    subtype: str, nodes: Sequence[str], since: float = 0, times: int = 3, reason: str = "Failed"
) -> list[Signal]:
    """What a kubelet tells of the pods of jobs that it cannot give their GPUs, over and over."""
    found = []
    for job, held in JOBS.items():
        for pod, node in enumerate(held):
            for i in range(times if node in nodes else 0):
                seen = failed(job, pod, since + 140 * i + pod, subtype, reason=reason)
                found.append(replace(seen, entity=replace(seen.entity, node=node)))
    return found


def unable(*signals: Signal) -> list[Incident]:
    starting = [
        replace(p, created_at=at(-9), scheduled_at=at(-5)) for n, held in JOBS.items() for p in pods(n, held)
    ]
    world = World([*cluster(JOBS), *starting])
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=5)
        world.see(one)
    world.pass_to(3000, step=30)
    return world.incidents()


@pytest.mark.parametrize("subtype", ["cdi_devices", "version_mismatch", "dra_driver"])
def test_what_pods_of_several_jobs_cannot_be_given_on_node_after_node_is_a_rollout(subtype: str) -> None:
    (incident,) = [i for i in unable(*unstarted(subtype, NODES)) if i.merged_into is None]
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", subtype)
    assert {j.name for j in incident.jobs} == set(JOBS)
    assert set(incident.nodes) == set(NODES)
    assert incident.state is IncidentState.RESOLVED  # nothing more is said of it for a quarter of an hour


@pytest.mark.parametrize(("gap", "every"), [(60, 15), (120, 65), (120, 150), (240, 300)])
def test_what_pods_cannot_be_given_on_node_after_node_is_told_of_the_first_node_and_then_of_all(
    gap: float, every: float
) -> None:
    """Three jobs of one pod each on every node; each pod is tried again and again for 40 minutes."""
    held: dict[str, Sequence[str]] = {f"job-{n}-{i}": [n] for n in NODES[:6] for i in range(3)}
    starting = [
        replace(pod, created_at=at(-9), scheduled_at=at(-5), phase="Pending", ready=False)
        for name, nodes in held.items()
        for pod in pods(name, nodes)
    ]
    signals = []
    for turn, (name, (node,)) in enumerate(held.items()):
        begun = gap * NODES.index(node) + 7 * (turn % 3)
        for i in range(int(2400 / every)):
            seen = failed(name, 0, begun + every * i, "cdi_devices", reason="Failed")
            signals.append(replace(seen, entity=replace(seen.entity, node=node)))
    world = World([*cluster(held), *starting])
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=10)
        world.see(one)
    world.pass_to(3000, step=30)
    first, rollout = sorted(world.published.values(), key=lambda i: i.root.part is not None)
    assert (first.root.node, first.merged_into) == (NODES[0], rollout.id)
    assert first.opened_at <= at(330)  # at the second try, where nobody tries more often
    assert (rollout.root.key, set(rollout.nodes)) == ("part/gpu-software/cdi_devices", set(NODES[:6]))
    assert {j.name for j in rollout.jobs} == set(held)


@pytest.mark.parametrize(("names", "last"), [(["other"], 3540), ([f"other-{i}" for i in range(12)], 3590)])
def test_pods_that_are_tried_every_few_seconds_for_an_hour_are_one_incident_of_their_node(
    names: list[str],
    last: float,  # the first try of its pod in a minute
) -> None:
    """Nobody's job waits for them, and more is said of them than is kept."""
    world = World(cluster({}, spare=NODES))
    for i in range(360):
        tried = failed(names[i % len(names)], 0, 10 * i, "cdi_devices", reason="Failed")
        world.pass_to(10 * i, step=10)
        world.see(replace(tried, entity=replace(tried.entity, node="n01")))
    world.pass_to(5400, step=30)
    (incident,) = world.published.values()
    assert incident.root.node == "n01"
    assert incident.opened_at <= at(300.5)
    assert incident.state is IncidentState.RESOLVED
    assert incident.closed_at == at(last + 900)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_of_a_pod_that_is_tried_over_and_over_does_not_depend_on_the_order(seed: int) -> None:
    tries = [sighting(failed("other", 0, 10 * i, "cdi_devices", reason="Failed")) for i in range(360)]
    told = [of_gpu_software(replace(s, entity=replace(s.entity, node="n01"))) for s in tries if s is not None]
    random.Random(seed).shuffle(told)
    kept: tuple[Sighting, ...] = ()
    for one in told:
        assert one is not None
        kept = added_once(kept, one)
    minutes = [(s.at - at(0)).total_seconds() / 60 for s in kept]
    assert minutes == [*range(6), *range(54, 60)]


def test_what_pods_say_of_a_node_takes_no_line_of_its_own_away() -> None:
    own, of_pod = (
        sighting(broken("n01", 30)),
        sighting(failed("other", 0, 5, "version_mismatch", reason="Failed")),
    )
    assert own is not None
    assert of_pod is not None
    told = of_gpu_software(replace(of_pod, entity=replace(of_pod.entity, node="n01")))
    assert told is not None
    assert (
        set(map(id, added_once((own,), told)))
        == set(map(id, added_once((told,), own)))
        == {id(own), id(told)}
    )


def test_a_node_that_is_not_ready_to_start_pods_yet_is_no_rollout_and_no_fault() -> None:
    assert not unable(*unstarted("dra_driver", NODES[:6], times=1))
    assert not unable(*unstarted("dra_driver", NODES[:2], times=2))


def test_a_job_whose_pods_wait_for_one_that_cannot_be_started_names_the_node_of_that_one() -> None:
    reason = "FailedPrepareDynamicResources"
    others = unstarted("sandbox", NODES[:3], times=9, reason=reason)
    found = unable(*others, *unstarted("dra_driver", NODES[3:4], since=20, times=9, reason=reason))
    (incident,) = found
    assert (incident.root.node, [j.name for j in incident.jobs]) == (NODES[3], ["job-0"])


def test_why_a_node_was_not_ready_is_over_when_it_is_ready_again() -> None:
    gone = [
        not_ready("n01", 0),
        sign("node.condition", "n01", 0, "container_runtime", reason="PLEG is not healthy"),
    ]
    assert not told(*gone, not_ready("n01", 28, ready=True))
    assert told(*gone)


def given_up(node: str, seconds: float, *gpus: int) -> list[Signal]:
    """A device plugin gives up GPUs of a node."""
    return [
        sign("gpu.driver", node, seconds + i, "device_unhealthy", index=gpu) for i, gpu in enumerate(gpus)
    ]


@pytest.mark.parametrize(("nodes", "gpus", "of_all"), [
    (3, [2], False), (5, [2], False), (6, [2], True), (3, range(8), True), (2, range(8), False),
])  # fmt: skip
def test_gpus_that_device_plugins_give_up_one_by_one_are_no_rollout_until_they_are_many(
    nodes: int, gpus: Sequence[int], of_all: bool
) -> None:
    found = told(*(s for i, n in enumerate(NODES[:nodes]) for s in given_up(n, 300 * i, *gpus)))
    if of_all:
        (incident,) = found
        assert (incident.root.part is not None, len(incident.nodes)) == (True, nodes)
    else:
        assert sorted(i.root.node or "" for i in found) == NODES[:nodes]


def test_a_resource_that_is_given_up_as_a_whole_on_three_nodes_is_a_rollout() -> None:
    (incident,) = told(
        *(
            sign("gpu.driver", n, 300 * i, "device_unhealthy", resource="nvidia.com/gpu")
            for i, n in enumerate(NODES[:3])
        )
    )
    assert incident.root.part is not None


MINE = NODES[:5]
DRIVER = "nvidia-driver-daemonset"


def crashes(node: str, seconds: float, times: int = 3, rollout: str = DRIVER) -> list[Signal]:
    """A pod of an operator that starts over and over, told every ten minutes."""
    return [
        sign("unknown", node, seconds + 600 * i, "driver_rollout", rollout=rollout, reason="BackOff")
        for i in range(times)
    ]


def closed(node: str, seconds: float, by: str | None = "GPU operator") -> NodeFact:
    """A node that somebody closed; an operator says so on it."""
    work = NodeWork(by, "nvidia.com/gpu-driver-upgrade-state", "back") if by else None
    return replace(node_fact(node, since=-3500, unschedulable=True, work=work), observed_at=at(seconds))


def given_back(node: str, seconds: float) -> NodeFact:
    return replace(node_fact(node, since=-3500), observed_at=at(seconds))


def upgraded(
    *told: Signal | NodeFact | PodFact, until: float = 5400, order: int | None = None
) -> list[Incident]:
    world = World(cluster({"llama": MINE}, spare=NODES))
    moment = {id(one): one.observed_at for one in told}
    ordered = sorted(told, key=lambda one: moment[id(one)])
    if order is not None:
        facts = [one for one in ordered if not isinstance(one, Signal)]
        signals = [one for one in ordered if isinstance(one, Signal)]
        random.Random(order).shuffle(signals)
        ordered = [*facts, *signals]
    for one in ordered:
        if isinstance(one, Signal):
            if order is None:
                world.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
            world.see(one)
        else:
            world.tell(one)
    if order is not None:
        world.restart()
    world.pass_to(until, step=30)
    return [i for i in world.incidents() if i.merged_into is None]


def failing(by: str | None = "GPU operator", nodes: Sequence[str] = MINE) -> list[Signal | NodeFact]:
    told: list[Signal | NodeFact] = [closed(n, 10 * i, by) for i, n in enumerate(nodes)]
    return [*told, *(s for i, n in enumerate(nodes) for s in crashes(n, 100 + 10 * i))]


@pytest.mark.parametrize("order", [None, 1, 2])
def test_what_an_operator_rolls_out_and_fails_on_node_after_node_is_one_incident_of_no_node(
    order: int | None,
) -> None:
    (incident,) = upgraded(*failing(), order=order)
    assert (incident.family, incident.root.key) == ("platform_fault", f"part/gpu-software/{DRIVER}")
    assert set(incident.nodes) >= set(MINE)
    assert not incident.state.is_over
    assert incident.state is not IncidentState.SUPPRESSED


def test_the_job_that_was_drained_for_it_and_waits_is_its_victim() -> None:
    waits = replace(pods("llama", MINE)[0], name="llama-worker-9", uid="new", node=None, phase="Pending")
    waits = replace(waits, observed_at=at(125), created_at=at(120), scheduled_at=None, ready=False)
    events = [failed("llama", 9, 130 + 300 * i, "unschedulable", kind="job.stalled") for i in range(6)]
    (incident,) = upgraded(*failing(), *all_ended("llama", MINE, 60), waits, *events)
    assert incident.root.part is not None
    assert [j.name for j in incident.jobs] == ["llama"]


QUIET: dict[str, list[Signal | NodeFact]] = {
    "two nodes": failing(nodes=MINE[:2]),
    "what a person has in hand": failing(by=None),
    "pods that fail once": [
        *(closed(n, 0) for n in MINE),
        *(s for n in MINE for s in crashes(n, 100, times=1)),
    ],
    "nodes that are given back": [
        *(closed(n, 0) for n in MINE),
        *(s for n in MINE for s in crashes(n, 100, times=2)),
        *(given_back(n, 800) for n in MINE),
    ],
    "different things": [
        *(closed(n, 0) for n in MINE),
        *(s for i, n in enumerate(MINE) for s in crashes(n, 100, rollout=f"driver-{i}")),
    ],
}


@pytest.mark.parametrize("name", QUIET)
def test_an_upgrade_that_goes_well_or_is_somebodys_is_silent(name: str) -> None:
    assert upgraded(*QUIET[name]) == []


def test_it_is_over_when_the_nodes_are_given_back() -> None:
    (incident,) = upgraded(*failing(), *(given_back(n, 3000) for n in MINE))
    assert incident.state is IncidentState.RESOLVED


def test_the_operators_own_word_that_it_failed_is_enough() -> None:
    words = [sign("unknown", n, 300, "driver_rollout", reason="GPUDriverUpgrade") for n in MINE]
    (incident,) = upgraded(*(closed(n, 0, by=None) for n in MINE), *words)
    assert incident.root.key == f"part/gpu-software/{DRIVER}"
