"""What a job's own program reports of a slow rank or node of it: one report is nothing, one node again and again is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import SLURM, SLURM_JOB, Entity, JobRef, PodRef
from streams.model.signal import Attribute, Signal
from tests.streams.correlate.world import CLUSTER, World, _signal, at, cluster, failed, job

SIX = [f"n{i}" for i in range(1, 7)]


def report(seconds: float, percent: int | None = 57, **named: Attribute) -> Signal:
    """What rank 0 prints for the whole job."""
    attributes: dict[str, Attribute] = {"subtype": "straggler", **named}
    if percent is not None:
        attributes["percent"] = percent
    return _signal(
        "job.stalled", Entity(CLUSTER, node="n1", pod=PodRef("train", "llama-worker-0")), seconds, attributes
    )


def told(signals: Sequence[Signal], *, late_facts: bool = False) -> World:
    facts = cluster({"llama": SIX})
    world = World([] if late_facts else facts)
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
        world.see(one)
    for fact in facts if late_facts else ():
        world.tell(fact)
    return world


EACH_FIVE_MINUTES = (0, 300, 600)

SLOW: dict[str, list[Signal]] = {
    "a rank and its node": [report(t, slow_rank=17, host="n3") for t in EACH_FIVE_MINUTES],
    "a rank": [report(t, slow_rank=17) for t in EACH_FIVE_MINUTES],
    "a node by its long name": [report(t, host="N3.cluster.example") for t in EACH_FIVE_MINUTES],
    "ranks of one node, without a figure": [report(t, None, slow_ranks="16, 18-20") for t in EACH_FIVE_MINUTES],
    "its ranks in turn": [report(t, slow_rank=16 + i) for i, t in enumerate(EACH_FIVE_MINUTES)],
    "a rank, and a host that is none of the job's": [
        report(t, slow_rank=17, host="rack-7") for t in EACH_FIVE_MINUTES
    ],
}  # fmt: skip


@pytest.mark.parametrize("late_facts", [False, True])
@pytest.mark.parametrize("name", SLOW)
def test_a_node_that_is_called_slow_again_and_again_is_told(name: str, late_facts: bool) -> None:
    world = told(SLOW[name], late_facts=late_facts)
    world.pass_to(700)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.jobs) == ("straggler", "n3", (job("llama"),))
    assert "PyTorchJob/train/llama reports" in incident.reason
    assert ("at 57 % of its peers' pace" in incident.reason) is ("without a figure" not in name)


def each(*percents: int, **named: Attribute) -> list[Signal]:
    return [report(300 * i, percent, **named) for i, percent in enumerate(percents)]


NOTHING: dict[str, list[Signal]] = {
    "one report": each(57, slow_rank=17),
    "two reports": each(57, 57, slow_rank=17),
    "three within a minute": [report(t, slow_rank=17) for t in (0, 20, 40)],
    "a rank that is a little behind": each(84, 85, 86, 84, slow_rank=17),
    "another node each time": [report(300 * i, slow_rank=8 * i) for i in range(6)],
    "many nodes each time": [report(300 * i, slow_rank=8 * j) for i in range(4) for j in range(3)],
    "a node of no job": each(57, 57, 57, 57, host="n9"),
    "a rank that the job does not have": each(57, 57, 57, 57, slow_rank=480),
    "one an hour": [report(3600 * i, slow_rank=17) for i in range(4)],
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_called_slow_now_and_then_is_nothing(name: str) -> None:
    world = told(NOTHING[name])
    world.pass_to(16000, step=60)
    assert world.incidents() == []


def test_one_report_and_a_job_that_is_slow_are_told_together() -> None:
    slow = failed("llama", 0, 900, "slow", kind="job.stalled", percent=57, elapsed_ms=900_000)
    world = told([report(300, slow_rank=17), slow])
    world.pass_to(1000)
    assert (world.only().family, world.only().root.node) == ("straggler", "n3")


def test_it_is_over_when_nobody_reports_it_any_more() -> None:
    world = told(SLOW["a rank"])
    world.pass_to(700)
    assert not world.only().state.is_over
    world.pass_to(3000, step=20)
    assert world.only().state.is_over


def test_the_order_in_which_reports_come_does_not_matter() -> None:
    world = World(cluster({"llama": SIX}))
    world.see(*reversed(SLOW["a rank and its node"]))
    world.pass_to(700, step=20)
    assert (world.only().family, world.only().root.node) == ("straggler", "n3")


@pytest.mark.parametrize(("gpus", "seen"), [(8, False), (None, True), (8, True)])
@pytest.mark.parametrize("named", [{"host": "cn002"}, {"slow_rank": 9}])
def test_a_job_of_slurm_calls_its_node_slow(
    named: dict[str, Attribute], gpus: int | None, seen: bool
) -> None:
    output = Entity(CLUSTER, node="cn001.hpc.example", pod=PodRef(SLURM, "4242"))
    world = World()
    begins: dict[str, Attribute] = {"subtype": "running", "hosts": "cn[001-004]"}
    if gpus:
        begins["gpus"] = gpus
    world.see(_signal("job.allocation", Entity(CLUSTER, job=JobRef(SLURM_JOB, "", "4242")), -90, begins))
    if seen:
        first = replace(output, rank=0)
        world.see(_signal("job.rank", first, -60, {"rank": 0, "nranks": 32, "index": 0, "pci": "0000:10:00"}))
    for seconds in EACH_FIVE_MINUTES:
        world.pass_to(seconds, step=20)
        world.see(_signal("job.stalled", output, seconds, {"subtype": "straggler", "percent": 57, **named}))
    world.pass_to(700)
    assert [(i.family, i.root.node) for i in world.incidents()] == [("straggler", "cn002")]


def test_a_report_of_a_slow_rank_does_not_hide_that_the_jobs_pods_end_badly() -> None:
    ends = [failed("llama", 2, t, "process_exit", source="pod", exitcode=1) for t in (400, 1000)]
    world = told(ends)
    world.pass_to(1500)
    alone = [(i.family, i.root.node) for i in world.incidents()]
    world = told([*ends, report(390, slow_rank=17), report(990, slow_rank=17)])
    world.pass_to(1500)
    assert [(i.family, i.root.node) for i in world.incidents()] == alone
    assert alone
