"""The last checkpoint of a job before a fault, and what it had done since."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from streams.model.checkpoint import Checkpoint, checkpoint_lines, gpu_hours_since
from streams.model.facts import JobFact
from streams.model.incident import IncidentState
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    checkpoint,
    cluster,
    job,
    pods,
    progress,
    run,
    xid,
)

HOUR = 3600.0


def told(world: World) -> Checkpoint | None:
    incident = world.only()
    return incident.checkpoints[0] if incident.checkpoints else None


def test_what_a_job_did_since_its_last_checkpoint_is_lost() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(checkpoint("llama", 0, 1000), checkpoint("llama", 600, 1100))
    world.see(xid("n2", 79, 600 + HOUR / 2))
    found, incident = told(world), world.only()
    assert found is not None
    assert (found.at, found.since, found.step, found.gpus) == (at(600), at(600), 1100, 32)
    assert found.gpu_hours(incident.fault_at) == pytest.approx(16)
    assert gpu_hours_since(incident.jobs, incident.checkpoints, incident.fault_at) == pytest.approx(16)


def test_nobody_told_of_a_checkpoint_is_unknown_and_not_zero() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(progress("llama", 0, 1000), xid("n2", 79, 600))
    incident = world.only()
    assert incident.checkpoints == ()
    assert gpu_hours_since(incident.jobs, (), incident.fault_at) is None
    assert list(checkpoint_lines(incident.jobs, (), incident.fault_at)) == ["not known"]


def test_of_two_jobs_one_that_is_not_known_makes_the_sum_unknown() -> None:
    one, other = job("llama"), job("falcon")
    saved = Checkpoint(one, at(0), at(0), gpus=8)
    assert gpu_hours_since([one, other], [saved], at(HOUR)) is None
    assert gpu_hours_since([one], [saved], at(HOUR)) == pytest.approx(8)
    assert [line.partition(": ")[2] for line in checkpoint_lines([one, other], [saved], at(HOUR))] == [
        f"{at(0):%Y-%m-%d %H:%M} UTC, 8.0 GPU-hours of work since",
        "not known",
    ]


def test_a_line_that_is_read_late_still_counts_and_makes_no_news() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 600))
    entries = len(world.timeline)
    world.see(replace(checkpoint("llama", 300, 1000), observed_at=at(640)))
    found = told(world)
    assert found is not None
    assert found.at == at(300)
    assert len(world.timeline) == entries


def test_a_checkpoint_of_the_pods_that_came_after_is_not_the_one_it_fell_back_to() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(checkpoint("llama", 0, 1000), xid("n2", 79, 600))
    world.end("llama", FOUR, 610)
    for pod in pods("llama", ["n1", "n3", "n4", "n5"], since=700, attempt=2):
        world.tell(pod)
    world.see(checkpoint("llama", 1500, 1200))
    found = told(world)
    assert found is not None
    assert (found.at, found.step) == (at(0), 1000)


def test_one_saved_after_the_fault_by_the_same_pods_leaves_nothing_lost() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(checkpoint("llama", 0, 1000), xid("n2", 74, 600))
    world.pass_to(620)
    world.see(checkpoint("llama", 650, 1100))
    found, incident = told(world), world.only()
    assert found is not None
    assert found.at == at(650)
    assert found.gpu_hours(incident.fault_at) == 0
    assert "after the fault" in next(checkpoint_lines(incident.jobs, incident.checkpoints, incident.fault_at))


def test_work_that_an_earlier_fault_cost_is_not_counted_again() -> None:
    """The pods that ran at the fault began later than the checkpoint: only what they did themselves is lost."""
    world = World()
    for fact in cluster({}, spare=FOUR):
        world.tell(fact)
    for pod in pods("llama", FOUR, since=0):
        world.tell(pod)
    world.see(checkpoint("llama", 100, 1000))
    world.end("llama", FOUR, 700)
    for pod in pods("llama", FOUR, since=4000, attempt=2):
        world.tell(pod)
    world.see(xid("n2", 79, 4900))
    found, incident = told(world), world.only()
    assert found is not None
    assert (found.at, found.since) == (at(100), at(4000))
    assert found.gpu_hours(incident.fault_at) == pytest.approx(8)
    assert "started again from it" in next(
        checkpoint_lines(incident.jobs, incident.checkpoints, incident.fault_at)
    )


def test_one_that_was_only_begun_counts_once_the_job_went_on() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(checkpoint("llama", 0, 1000), checkpoint("llama", 500, 1100, begun=True))
    world.see(xid("n2", 79, 505))
    found = told(world)
    assert found is not None
    assert found.step == 1000, "it may have died while it wrote"
    other = World(cluster({"llama": FOUR}))
    other.see(checkpoint("llama", 0, 1000), checkpoint("llama", 400, 1100, begun=True))
    other.see(progress("llama", 460, 1101), xid("n2", 79, 505))
    found = told(other)
    assert found is not None
    assert found.step == 1100


def annotated(seconds: float, saved: datetime | None) -> JobFact:
    return JobFact(CLUSTER, job("llama"), at(seconds), pods=4, checkpoint_at=saved)


def test_an_annotation_of_the_job_tells_as_well() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(annotated(60, at(50)))
    world.tell(annotated(360, at(350)))
    world.see(xid("n2", 79, 600))
    found = told(world)
    assert found is not None
    assert (found.at, found.step, found.gpus) == (at(350), None, 32)


def test_an_annotation_from_the_future_is_none() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(annotated(360, at(7200)))
    world.see(xid("n2", 79, 600))
    assert told(world) is None


def test_it_survives_a_restart_of_the_correlator() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(checkpoint("llama", 0, 1000))
    world.restart()
    world.see(xid("n2", 79, 600))
    found = told(world)
    assert found is not None
    assert found.at == at(0)


def test_an_incident_that_is_over_is_told_of_no_more() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(checkpoint("llama", 0, 1000), xid("n2", 79, 600))
    incident = world.only()
    world.see(run("resolved", incident.id, 700))
    world.pass_to(710)
    assert world.only().state is IncidentState.RESOLVED
    count = len(world.revisions)
    world.see(checkpoint("llama", 900, 1100))
    assert len(world.revisions) == count
