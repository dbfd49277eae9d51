"""A container runtime without one for GPUs: the software of its nodes, unless pods asked in vain for what was never there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.facts import PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import World, at, cluster, failed, pods

JOBS: dict[str, Sequence[str]] = {f"job-{i}": [f"n{i:02d}"] for i in range(4)}
NODES = [node for nodes in JOBS.values() for node in nodes]


def placed(name: str, node: str, seconds: float, gpus: int = 8, started: float | None = None) -> PodFact:
    """A pod that was put on the node then, and has not started, or at that second."""
    return replace(
        pods(name, [node])[0],
        gpus=gpus,
        created_at=at(seconds - 1),
        scheduled_at=at(seconds),
        observed_at=at(seconds),
        phase="Pending" if started is None else "Running",
        started_at=at(started) if started is not None else None,
    )


def lacking(name: str, node: str, since: float, times: int = 4) -> list[Signal]:
    """What a kubelet tells, again and again, of a pod for which the container runtime has no runtime."""
    seen = (
        failed(name, 0, since + 70 * i, "gpu_runtime", reason="FailedCreatePodSandBox") for i in range(times)
    )
    return [replace(s, entity=replace(s.entity, node=node)) for s in seen]


def story(*told: Signal | PodFact, seed: int | None = None) -> list[Incident]:
    names = {fact.job.name for fact in told if isinstance(fact, PodFact) and fact.job is not None}
    world = World(cluster({}, spare=[*NODES, "n90"]))
    ordered = sorted(told, key=lambda one: one.observed_at)
    if seed is not None:
        facts = [one for one in ordered if isinstance(one, PodFact)]
        signals = [one for one in ordered if isinstance(one, Signal)]
        random.Random(seed).shuffle(facts)
        random.Random(seed).shuffle(signals)
        ordered = [*signals, *facts]
    assert names
    for one in ordered:
        if seed is None:
            world.pass_to((one.observed_at - at(0)).total_seconds(), step=10)
        if isinstance(one, PodFact):
            world.tell(one)
        else:
            world.see(one)
    world.pass_to(2400, step=30)
    return [i for i in world.incidents() if i.merged_into is None]


def each(jobs: Sequence[str]) -> list[Signal | PodFact]:
    """A job after the other comes to a node that lacks the runtime."""
    told: list[Signal | PodFact] = []
    for i, name in enumerate(jobs):
        told += [placed(name, JOBS[name][0], 240 * i), *lacking(name, JOBS[name][0], 240 * i + 5)]
    return told


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_runtime_that_is_gone_from_node_after_node_is_a_rollout_and_the_jobs_are_its_victims(
    seed: int | None,
) -> None:
    (incident,) = story(*each(list(JOBS)), seed=seed)
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", "gpu_runtime")
    assert {j.name for j in incident.jobs} == set(JOBS)
    assert set(incident.nodes) >= set(NODES)


def test_two_jobs_that_miss_it_on_one_node_name_the_node() -> None:
    (incident,) = story(
        placed("job-0", "n00", 0),
        *lacking("job-0", "n00", 5),
        placed("job-1", "n00", 100),
        *lacking("job-1", "n00", 105),
    )
    assert (incident.root.node, incident.root.job) == ("n00", None)
    assert {j.name for j in incident.jobs} == {"job-0", "job-1"}


def test_a_pod_that_is_tried_every_few_seconds_hides_no_job_that_misses_it_in_the_same_minute() -> None:
    """Of the job's minutes none is without the other's tries, and whose pod that is nobody knows."""
    tries = [
        replace(s, id=f"other-{i}", entity=replace(s.entity, node="n00"))
        for i in range(60)
        for s in (failed("other", 0, 2 + 10 * i, "gpu_runtime", reason="FailedCreatePodSandBox"),)
    ]
    (incident,) = story(
        *tries,
        placed("job-0", "n00", 0),
        *lacking("job-0", "n00", 5),
        placed("job-1", "n00", 100),
        *lacking("job-1", "n00", 105),
    )
    assert (incident.root.node, {j.name for j in incident.jobs}) == ("n00", {"job-0", "job-1"})


def test_one_job_that_asks_for_a_runtime_on_many_nodes_accuses_none_of_them() -> None:
    told: list[Signal | PodFact] = []
    for i, node in enumerate(NODES):
        told += [placed("job-0", node, 300 * i), *lacking("job-0", node, 300 * i + 5)]
    found = story(*told)
    assert found
    assert not [i for i in found if i.root.node or i.root.part]


def beside(started: float, told_at: float) -> list[Signal | PodFact]:
    """On each node two jobs' pods miss it, and another pod starts."""
    told: list[Signal | PodFact] = []
    for i, node in enumerate(NODES):
        for name in (f"job-{2 * i}", f"job-{2 * i + 1}"):
            told += [placed(name, node, 10), *lacking(name, node, 15)]
        other = placed(f"other-{i}", node, 20, started=started)
        told += [placed(f"other-{i}", node, 20), replace(other, observed_at=at(told_at))]
    return told


def test_a_node_on_which_other_pods_with_gpus_start_meanwhile_lacks_nothing() -> None:
    assert not [i for i in story(*beside(60, told_at=61)) if i.root.node or i.root.part]


def test_a_node_is_cleared_by_a_start_that_is_told_later() -> None:
    found = [i for i in story(*beside(60, told_at=1200)) if i.root.node or i.root.part]
    assert found
    assert all(i.state is IncidentState.RESOLVED and i.reason.startswith("Withdrawn") for i in found)


def test_a_pod_that_asked_for_no_gpu_tells_nothing_of_a_node() -> None:
    told: list[Signal | PodFact] = []
    for name, (node,) in JOBS.items():
        told += [placed(name, node, 0, gpus=0), *lacking(name, node, 5)]
    found = story(*told)
    assert not [i for i in found if i.root.node or i.root.part]
