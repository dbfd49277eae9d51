"""Jobs of Slurm whose controller's log is not shipped: they stand where the metrics of GPUs bear their numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from streams.correlate.policy.policy import policy
from streams.correlate.state import labelled_stays
from streams.correlate.state.allocations import MAX_JOBS
from streams.correlate.state.labelled_stays import stays_by_labels
from streams.model.entity import SLURM_JOB, Entity, JobRef
from streams.model.signal import LABELLED, Attribute, Severity, Signal
from tests.streams.correlate.test_slurm_jobs import says
from tests.streams.correlate.world import CLUSTER, World, _signal, at, xid

HOURS = 3600


def bears(node: str, number: str, seconds: float, *, gone: bool = False, gpus: int = 8) -> Signal:
    """What the detector reports of a node's metrics, half a minute after it began."""
    place = Entity(CLUSTER, node=node, job=JobRef(SLURM_JOB, "", number))
    said: dict[str, Attribute] = {"subtype": LABELLED, "job": number, "gpus": gpus}
    return _signal("job.allocation", place, seconds, said, cleared=gone, severity=Severity.INFO, lag=30)


def started(number: str, nodes: Sequence[str], seconds: float) -> list[Signal]:
    return [bears(node, number, seconds + i) for i, node in enumerate(nodes)]


def told(signals: Sequence[Signal], until: float = 4000, seed: int | None = None) -> World:
    world = World()
    world.play(signals, until, seed)
    return world


def victims(world: World) -> list[str]:
    (incident,) = (one for one in world.incidents() if one.root.node)
    return sorted(job.name for job in incident.jobs)


TWO = ["gn1", "gn2"]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_job_whose_node_fails_is_its_victim_although_slurm_says_nothing(seed: int | None) -> None:
    world = told([*started("4242", TWO, 0), xid("gn2", 79, 1200)], 2000, seed)
    assert (world.only().root.node, victims(world)) == ("gn2", ["4242"])


def test_a_job_of_one_gpu_is_a_victim_beside_another_on_its_node() -> None:
    world = told([bears("gn1", "10", 0, gpus=1), bears("gn1", "11", 30, gpus=4), xid("gn1", 79, 1200)])
    assert victims(world) == ["10", "11"]


def test_a_job_that_has_left_or_not_begun_is_no_victim() -> None:
    story = [
        *started("1", TWO, 0),
        *(bears(node, "1", 600, gone=True) for node in TWO),
        xid("gn2", 79, 2400),
        *started("2", TWO, 3600),
    ]
    assert victims(told(story, 3000)) == []


def test_a_node_that_falls_silent_keeps_its_job() -> None:
    story = [*started("4242", TWO, 0), bears("gn1", "4242", 3000, gone=True), xid("gn2", 79, 6000)]
    assert victims(told(story, 7000)) == ["4242"]


@pytest.mark.parametrize("end", ["ended", "running"])
@pytest.mark.parametrize("late", [False, True])
def test_what_slurm_says_of_a_job_holds_against_its_label(end: str, late: bool) -> None:
    """An exporter that keeps a label after the end, and a requeue to other nodes."""
    line = says(end, 1200, "gn[3-4]" if end == "running" else "")
    line = replace(line, observed_at=at(2600)) if late else line
    world = told([*started("4242", TWO, 0), line, xid("gn2", 79, 2500)])
    assert victims(world) == []


def test_a_label_that_a_dead_node_keeps_is_over_with_its_job_also_when_that_is_long_ago() -> None:
    story = [*started("4242", TWO, 0), says("ended", 1200), bears("gn1", "4242", 1190, gone=True)]
    world = told([*story, xid("gn2", 79, 3 * HOURS)], 3 * HOURS + 900)
    assert victims(world) == []
    assert not world.engine._state.jobs


def test_a_label_that_is_seen_only_after_the_end_is_a_leftover() -> None:
    world = told([says("ended", 0), *started("4242", TWO, 120), xid("gn2", 79, 1200)], 2000)
    assert victims(world) == []


def test_a_site_whose_exporter_keeps_labels_for_longer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    story = [says("ended", 0), *started("4242", TWO, 900), xid("gn2", 79, 1200)]
    assert victims(told(story, 2000)) == ["4242"]
    slower = policy().model_copy(update={"labels": policy().labels.model_copy(update={"stale_s": 1800})})
    monkeypatch.setattr(labelled_stays, "policy", lambda: slower)
    assert victims(told(story, 2000)) == []


def test_where_slurm_has_told_the_nodes_a_label_adds_none() -> None:
    world = told(
        [says("running", 0, "gn[1-2]"), *started("4242", ["gn1", "gn2", "gn3"], 20), xid("gn3", 79, 1200)]
    )
    assert victims(world) == []


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_number_that_a_label_has_for_a_task_of_an_array_is_no_second_job(seed: int | None) -> None:
    task = says("running", 0, "gn[1-2]", number="4242_7")
    world = told([task, *started("4250", TWO, 20), xid("gn2", 79, 1200)], 2000, seed)
    assert victims(world) == ["4242_7"]


def test_a_job_that_was_there_before_slurm_gave_its_node_to_another_stays() -> None:
    story = [bears("gn1", "10", 0, gpus=2), says("running", 600, "gn1", number="11", gpus=4)]
    assert victims(told([*story, xid("gn1", 79, 1200)])) == ["10", "11"]


def test_a_job_that_speaks_on_nodes_without_a_label_stands_there_as_well() -> None:
    spoke = [_spoken(node, second) for node, second in (("gn1", 60), ("gn3", 61))]
    for node in ("gn1", "gn2", "gn3"):
        assert victims(told([*started("4242", TWO, 0), *spoke, xid(node, 79, 1200)])) == ["4242"]


def test_the_end_of_its_label_ends_the_stay_of_a_job_that_spoke_before_the_log() -> None:
    spoke = [_spoken(node, 60) for node in TWO]
    gone = [bears(node, "4242", 1200, gone=True) for node in TWO]
    world = told([*started("4242", TWO, 0), *spoke, *gone, xid("gn2", 79, 3000)])
    assert victims(world) == []


def _spoken(node: str, seconds: float) -> Signal:
    """A process that the kernel killed in the job's cgroup."""
    place = Entity(CLUSTER, node=node)
    return _signal(
        "node.memory", place, seconds, {"slurm_job": "4242", "subtype": "oom"}, severity=Severity.INFO
    )


def test_partitions_that_tell_of_one_stay_in_any_order_are_one() -> None:
    story = [
        *(bears("gn1", "7", s) for s in (0, 20, 40)),
        *(bears("gn1", "7", s, gone=True) for s in (1200, 1260, 1300)),
        bears("gn1", "7", 9000),
    ]
    found = set()
    for seed in range(8):
        world = World()
        for one in random.Random(seed).sample(story, len(story)):
            world.see(one)
            world.restart()
        stays = stays_by_labels(world.engine._state.jobs["SlurmJob//7"])
        found.add(tuple((s.since, s.until) for s in stays))
    assert found == {((at(0), at(1300)), (at(9000), None))}


def test_a_stay_of_which_nothing_is_heard_for_a_day_is_over_and_is_forgotten() -> None:
    world = told([*started("4242", TWO, 0)], 60)
    world.pass_to(30 * HOURS, step=600)
    assert not world.engine._state.jobs
    assert not world.engine._state.pods
    assert not world.engine._ingest._facts._labelled


def test_no_number_of_jobs_takes_the_room_of_those_that_slurm_tells_of() -> None:
    world = World()
    world.see(*(bears(f"gn{i}", str(i), i / 100) for i in range(1, MAX_JOBS)))
    assert len(world.engine._state.jobs) == MAX_JOBS // 2
    world.see(says("running", 60, "gn[1-2]", number="99999"))
    assert "SlurmJob//99999" in world.engine._state.jobs


def test_a_job_of_a_thousand_nodes_costs_each_node_once() -> None:
    nodes = [f"gn{i:04d}" for i in range(1250)]
    world = World()
    world.see(*started("4242", nodes, 0))
    before = world.rows.copy()
    world.see(*(replace(bears(n, "4242", 6 * HOURS), observed_at=at(6 * HOURS + 30)) for n in nodes))
    changed = {key for key, value in world.rows.items() if before.get(key) != value}
    assert {key.partition("/")[0] for key in changed} <= {"job"}
    assert world.now - at(6 * HOURS) == timedelta(seconds=30)
