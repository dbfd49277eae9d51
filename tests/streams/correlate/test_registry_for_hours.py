"""A registry that is known to be at fault stays so for as long as anybody fails there: one incident, also for hours."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from streams.correlate.cause_sources.services import ServiceCauses
from streams.correlate.job_rules.service_policy import service_policy
from streams.correlate.state.rows import GOES_ON, PodRow, with_lasting
from streams.model.entity import PodRef
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.test_kept_from_starting import BUILD, REGISTRY, expired, pulls
from tests.streams.correlate.test_refusals import busy, everyday
from tests.streams.correlate.world import World, all_ended, at

JOB, OTHER_JOB = PodRef("train", "llm-0-worker-1"), PodRef("train", "llm-1-worker-0")
ROOT, MINUTE, HOURS = f"part/registry/{REGISTRY}", 60, 3 * 3600


def tries(pod: PodRef, node: str, since: float, until: float) -> list[Signal]:
    """What a kubelet says every five minutes of an image that it cannot pull."""
    every = range(int(since), int(until), 5 * MINUTE)
    return [s for second in every for s in expired(pod, node, second)]


def refusals(pod: PodRef, since: float, until: float) -> list[Signal]:
    every = range(int(since), int(until), 5 * MINUTE)
    return [s for second in every for s in pulls(pod, second, times=2)]


def restarted_each_hour(signals: list[Signal], until: float) -> World:
    world, ordered = World(busy()), sorted([*everyday(), *signals], key=lambda s: s.observed_at)
    for hour in range(int(until) // 3600 + 1):
        first, last = at(3600 * hour if hour else -3600), at(3600 * (hour + 1))
        world.play((s for s in ordered if first <= s.observed_at < last), min(3600.0 * (hour + 1), until))
        world.restart()
    return world


def registries(world: World) -> list[Incident]:
    return [one for one in world.published.values() if one.root.key == ROOT]


LONG: dict[str, list[Signal]] = {
    "a build before the job": [*expired(BUILD, "n7", 20), *tries(JOB, "n1", 200, HOURS)],
    "a build minutes after it": [*tries(JOB, "n1", 0, HOURS), *expired(BUILD, "n7", 10 * MINUTE + 30)],
    "a build that the job follows": [*expired(BUILD, "n7", 0), *tries(JOB, "n1", 13 * MINUTE, HOURS)],
    "a build whose lines are late": [
        *tries(JOB, "n1", 0, HOURS),
        *(replace(s, observed_at=at(70 * MINUTE)) for s in expired(BUILD, "n7", 20)),
    ],
    "a job some of whose lines are late": [
        *expired(BUILD, "n7", 20),
        *(
            replace(s, observed_at=max(s.observed_at, at(100 * MINUTE)))
            if at(40 * MINUTE) < s.occurred_at < at(50 * MINUTE)
            else s
            for s in tries(JOB, "n1", 200, HOURS)
        ),
    ],
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_certificate_that_two_nodes_saw_expired_is_one_incident_while_a_single_job_goes_on_failing(
    name: str, is_restarted: bool
) -> None:
    if is_restarted:
        world = restarted_each_hour(LONG[name], HOURS)
    else:
        world = World(busy())
        world.play([*everyday(), *LONG[name]], HOURS)
    incident = world.only()
    assert (incident.root.key, incident.state) == (ROOT, IncidentState.OPEN)
    assert [one.name for one in incident.jobs] == ["llm-0"]
    world.pass_to(HOURS + 1200, step=20)
    assert world.only().state is IncidentState.RESOLVED
    assert len(registries(world)) == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hours_of_it_that_are_read_at_once_are_the_same_incident(seed: int) -> None:
    world = World(busy())
    world.play([*everyday(), *LONG["a build before the job"]], HOURS, seed)
    incident = world.only()
    assert (incident.root.key, incident.fault_at) == (ROOT, at(200))


def test_a_registry_is_at_fault_while_builds_go_on_failing_after_the_job_is_gone() -> None:
    """What more builds say is no news: only that it lasts."""
    builds = [expired(PodRef("ci", f"build-{i}"), f"n{3 + i % 9}", 20 + 300 * i) for i in range(36)]
    world = World(busy())
    world.play([*everyday(), *tries(JOB, "n1", 200, 1200), *(s for one in builds for s in one)], 1300)
    for fact in all_ended("llm-0", ["n0", "n1"], 1300):
        world.tell(fact)
    before = len(world.revisions)
    world.pass_to(1310)
    world.play([s for one in builds for s in one if s.observed_at > world.now], HOURS)
    assert (world.only().root.key, world.only().state) == (ROOT, IncidentState.OPEN)
    assert len(world.revisions) <= before + 2
    world.pass_to(HOURS + 1200, step=20)
    others = world.only().other_workloads
    assert (world.only().state, others.count if others else 0) == (IncidentState.RESOLVED, 36)


def test_a_registry_that_refused_two_jobs_is_at_fault_while_one_of_them_goes_on_failing() -> None:
    world = World(busy())
    signals = [*refusals(OTHER_JOB, 20, 400), *refusals(JOB, 30, HOURS)]
    world.play([*everyday(), *signals], HOURS)
    incident = world.only()
    assert (incident.root.key, incident.state) == (ROOT, IncidentState.OPEN)
    assert [one.name for one in incident.jobs] == ["llm-0", "llm-1"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_one_job_that_fails_for_hours_without_a_second_witness_is_a_matter_of_that_job(
    is_restarted: bool,
) -> None:
    signals = tries(JOB, "n1", 200, HOURS)
    world = restarted_each_hour(signals, HOURS) if is_restarted else World(busy())
    if not is_restarted:
        world.play([*everyday(), *signals, *pulls(BUILD, 4000), *expired(BUILD, "n1", 5000)], HOURS)
    assert world.only().root.job is not None
    assert registries(world) == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_second_witness_that_comes_hours_later_makes_it_the_registry(is_restarted: bool) -> None:
    signals = [*tries(JOB, "n1", 200, HOURS), *expired(BUILD, "n7", 9000)]
    world = restarted_each_hour(signals, HOURS) if is_restarted else World(busy())
    if not is_restarted:
        world.play([*everyday(), *signals], HOURS)
    incident = world.only()
    (own,) = (one for one in world.published.values() if one.root.job is not None)
    assert (incident.root.key, incident.fault_at) == (ROOT, at(200))
    assert (own.state, own.merged_into) == (IncidentState.MERGED, incident.id)
    assert incident.opened_at == own.opened_at
    assert own.closed_at is not None
    assert own.closed_at < at(9000 + 2 * MINUTE)


def test_two_thousand_builds_are_one_incident_and_little_is_kept_of_them() -> None:
    world = World(busy())
    world.see(*everyday())
    for minutes in range(0, HOURS // MINUTE, 5):
        names = (f"build-{minutes}-{i}" for i in range(2000 * 5 * MINUTE // HOURS))
        builds = [
            expired(PodRef("ci", name), f"n{3 + i % 12}", 60 * minutes + 20 + i)
            for i, name in enumerate(names)
        ]
        world.see(*(one[0] for one in builds), *expired(JOB, "n1", 60 * minutes + 200))
        world.pass_to(60 * minutes + 300, step=20)
    incident = world.only()
    assert (incident.root.key, incident.state) == (ROOT, IncidentState.OPEN)
    assert len(world.revisions) < 20
    (services,) = (one for one in world.engine._causes.sources if isinstance(one, ServiceCauses))
    lately = 2000 * 45 * MINUTE // HOURS
    assert len(services.others.held(f"registry/{REGISTRY}")) < 80
    assert services.others.count(f"registry/{REGISTRY}") < lately + 2 * 80


def test_what_builds_fail_for_in_other_words_does_not_make_it_last() -> None:
    world = World(busy())
    builds = [s for i in range(30) for s in pulls(PodRef("ci", f"b-{i}"), 300.0 * i, times=1)]
    signals = [*tries(JOB, "n1", 200, 1200), *expired(BUILD, "n7", 20), *builds]
    world.play([*everyday(), *signals], 3000)
    assert (world.only().root.key, world.only().state) == (ROOT, IncidentState.RESOLVED)


def test_a_registry_that_is_ill_again_an_hour_later_is_another_incident() -> None:
    world = World(busy())
    first = [*tries(JOB, "n1", 200, 1800), *expired(BUILD, "n7", 20)]
    again = [*tries(OTHER_JOB, "n2", 6000, 8000), *expired(PodRef("ci", "build-8"), "n8", 6020)]
    world.play([*everyday(), *first, *again], 10_000)
    assert [one.incarnation for one in registries(world)] == [1, 2]
    assert {one.state for one in world.published.values()} == {IncidentState.RESOLVED}


def test_failures_in_any_order_make_the_same_stretches() -> None:
    seconds = [*range(0, 4000, 300), *range(6000, 9000, 800), 20_000]
    found = set()
    for seed in range(5):
        row = PodRow()
        for second in random.Random(seed).choices(seconds, k=400):
            row = with_lasting(row, "registry/a", at(second))
            row = with_lasting(row, "registry/b", at(second + 7))
        found.add(row.lasting)
    (stretches,) = found
    assert stretches is not None
    assert [(one.since, one.until) for one in stretches if one.service == "registry/a"] == [
        (at(0), at(3900)),
        (at(6000), at(8400)),
        (at(20_000), at(20_000)),
    ]


def test_a_stretch_ends_when_a_service_is_taken_to_be_well() -> None:
    assert service_policy().over == GOES_ON
