"""However late, split, repeated or interrupted: what stands in the end is a function of what was seen.

`TEST_EFFORT` sets how many random stories are told (`tests/effort.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streams.model.entity import Entity
from streams.model.incident import IncidentState
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.correlate.deliveries import AFTER, Disturbance, essence, on_time, outcome
from tests.streams.correlate.fault_mix import TROUBLES, Trouble, surroundings
from tests.streams.correlate.test_order import STORIES, Story
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    _signal,
    at,
    cluster,
    job,
    link,
    not_ready,
    pause,
    progress,
    run,
    storm,
    timeouts,
    xid,
)

seeds = st.integers(0, 2**32)
troubles = st.builds(
    Trouble, st.sampled_from(sorted(TROUBLES)), st.integers(0, 1700).map(float), st.integers(0, 9999)
)
disturbances = st.builds(
    Disturbance,
    delay_s=st.sampled_from([5.0, 60.0, 300.0, 700.0]),
    facts_delay_s=st.sampled_from([0.0, 0.0, 600.0]),
    repeated=st.sampled_from([0.0, 0.2]),
    restarts=st.sampled_from([0.0, 0.1]),
    seed=seeds,
)


@settings(max_examples=tries(80))
@example(
    [Trouble("hang", 651.0, 9999), Trouble("switch", 0.0, 163)], False, Disturbance(5.0, 0.0, 0.0, 0.0, 0)
)
@example(
    # A job made progress after a GPU's fault and before its own: that is known only when both were read.
    [Trouble("application", 262.0, 1), Trouble("progress", 210.0, 1), Trouble("gpu", 0.0, 0)],
    True,
    Disturbance(300.0, 0.0, 0.0, 0.0, 0),
)
@example(
    # Two signs of life of a node, of which either may be read first.
    [Trouble("application", 69.0, 1), Trouble("progress", 244.0, 1), Trouble("switch", 0.0, 7)],
    True,
    Disturbance(60.0, 0.0, 0.0, 0.0, 0),
)
@given(st.lists(troubles, min_size=1, max_size=4), st.booleans(), disturbances)
def test_any_troubles_end_alike_however_late_they_are_told(
    happened: list[Trouble], moved: bool, disturbance: Disturbance
) -> None:
    facts, signals = surroundings(moved=moved), [s for trouble in happened for s in trouble.signals()]
    expected = outcome(on_time(facts, signals))
    disturbed = outcome(
        disturbance.deliver(facts, signals), restarts=disturbance.restarts, seed=disturbance.seed
    )
    assert list(map(essence, disturbed)) == list(map(essence, expected))


SAID = [
    [("started", "")],
    [("resolved", "")],
    [("started", ""), ("finished", "succeeded")],
    [("started", ""), ("finished", "failed")],
    [("started", ""), ("verifying", ""), ("finished", "succeeded")],
]


@settings(max_examples=tries(20))
@example(
    # One node of a switch's fault was resolved earlier than the switch: it stays known as long as the switch does.
    [Trouble("node", 0.0, 694), Trouble("switch", 80.0, 256)],
    Disturbance(300.0, 0.0, 0.0, 0.0, 0),
    0,
)
@example([Trouble("node", 0.0, 694), Trouble("switch", 80.0, 256)], Disturbance(60.0, 0.0, 0.0, 0.0, 0), 0)
@example(
    # A storm that was taken for a job's reason at first no longer holds back what is forgotten of the job.
    [Trouble("application", 0.0, 0), Trouble("hang", 30.0, 1919), Trouble("storm", 0.0, 0)],
    Disturbance(5.0, 0.0, 0.0, 0.1, 0),
    0,
)
@example(
    # A job waits for a node that a switch took away: the switch's incident tells of the job, also without a restart.
    [Trouble("hang", 596.0, 1917), Trouble("switch", 0.0, 0)],
    Disturbance(5.0, 0.0, 0.0, 0.1, 0),
    0,
)
@example(
    # The same, seen so late that the switch's incident would be forgotten amidst the reports of the job.
    [Trouble("hang", 618.0, 1917), Trouble("switch", 0.0, 0)],
    Disturbance(5.0, 0.0, 0.0, 0.0, 0),
    0,
)
@example(
    # Links that go on bouncing keep what was seen of them: so long their incident is known, too.
    [Trouble("link", 0.0, 158), Trouble("link", 0.0, 918)],
    Disturbance(60.0, 0.0, 0.0, 0.0, 46),
    918,
)
@example(
    # A job's codes are on a node of its own fault and on one of a switch's: they are forgotten together.
    [Trouble("application", 0.0, 1), Trouble("switch", 0.0, 24)],
    Disturbance(60.0, 0.0, 0.0, 0.0, 0),
    0,
)
@example(
    # What a job left when it was aborted is forgotten with the incident, not opened again as a fault of its own.
    [Trouble("application", 0.0, 1), Trouble("hang", 130.0, 0), Trouble("application", 0.0, 0)],
    Disturbance(700.0, 0.0, 0.0, 0.0, 1),
    0,
)
@example(
    # What is known of a port keeps what was seen on the host at it: so long the host's incidents are known, too.
    [Trouble("gpu", 0.0, 3133), Trouble("storm", 0.0, 122)],
    Disturbance(5.0, 600.0, 0.0, 0.0, 1),
    0,
)
@given(st.lists(troubles, min_size=1, max_size=4), disturbances, seeds)
def test_what_runs_and_people_said_of_them_ends_alike_and_what_is_forgotten_does_not_come_back(
    happened: list[Trouble], disturbance: Disturbance, seed: int
) -> None:
    chance = random.Random(seed)
    facts, signals = surroundings(moved=False), [s for trouble in happened for s in trouble.signals()]
    for incident in outcome(on_time(facts, signals)):
        begun = (incident.opened_at - at(0)).total_seconds() + chance.choice([5, 100, 400])
        events = chance.choice([[], *SAID])
        signals += [run(kind, incident.id, begun + 60 * i, end) for i, (kind, end) in enumerate(events)]
    expected = outcome(on_time(facts, signals), until=4 * AFTER)
    disturbed = outcome(
        disturbance.deliver(facts, signals),
        restarts=disturbance.restarts,
        seed=disturbance.seed,
        until=4 * AFTER,
    )
    assert list(map(essence, disturbed)) == list(map(essence, expected))


@pytest.mark.parametrize("story", STORIES)
@settings(max_examples=tries(6, quick=2))
@given(disturbance=disturbances)
def test_every_story_ends_alike_however_late_it_is_told(
    story: Callable[[], Story], disturbance: Disturbance
) -> None:
    facts, signals = story()
    expected = outcome(on_time(facts, signals))
    assert expected
    disturbed = outcome(
        disturbance.deliver(facts, signals), restarts=disturbance.restarts, seed=disturbance.seed
    )
    assert list(map(essence, disturbed)) == list(map(essence, expected))


def test_a_hang_that_ended_before_its_last_report_came_becomes_part_of_the_silent_node() -> None:
    world = World(cluster({"gemma": ["m1", "m2"]}))
    world.see(*timeouts("gemma", range(1, 8), 600))
    world.see(progress("gemma", 700, 7))
    world.pass_to(900)
    hang = world.only()
    assert (hang.family, hang.state) == ("hang", IncidentState.RESOLVED)
    world.see(*timeouts("gemma", [0], 600))
    world.pass_to(930)
    assert (world.only().family, world.only().root.node) == ("silent_node", "m2")
    assert world.published[hang.id].merged_into == world.only().id


def test_bursts_of_a_jobs_own_faults_are_numbered_by_their_times_not_by_when_they_were_read() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(xid(n, 31, 500 + i * 0.1) for i, n in enumerate(FOUR)))
    world.pass_to(600)
    world.see(*(xid(n, 13, 100 + i * 0.1) for i, n in enumerate(FOUR)))
    world.pass_to(700)
    assert [(i.incarnation, i.facts["xid"]) for i in world.incidents()] == [(1, 13), (2, 31)]


def test_an_uplink_that_stormed_first_joins_the_host_that_is_told_later() -> None:
    uplinks = link("leaf-1", "Ethernet120", peer="spine-1", peer_port="Ethernet0")
    world = World([*cluster({"llama": FOUR}), uplinks])
    world.see(storm("leaf-1", "Ethernet120", 0))
    world.pass_to(30)
    uplink = world.only()
    world.see(pause("n1", "mlx5_2", "sent", 1))
    world.pass_to(60)
    assert world.only().root.node == "n1"
    assert world.published[uplink.id].merged_into == world.only().id


def test_pods_told_after_the_fault_are_counted_among_what_stands_still() -> None:
    facts = cluster({"llama": FOUR})
    late = [f for f in facts if f.kind == "pod" and f.node == "n4"]
    world = World([f for f in facts if f not in late])
    world.see(xid("n2", 79, 0))
    assert world.only().nodes == ("n1", "n2", "n3")
    for fact in late:
        world.tell(fact)
    assert world.only().nodes == tuple(FOUR)
    assert world.only().impact.gpus == 32


def test_a_hang_ends_at_the_first_sign_of_progress_not_at_the_last() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(32), 600))
    world.pass_to(640)
    for i in range(100):
        world.see(progress("llama", 700 + 5 * i, i))
    assert world.only().state is IncidentState.RESOLVED
    assert world.only().closed_at == at(700.0)


def test_an_open_incident_keeps_its_evidence_when_a_later_one_of_its_place_is_forgotten() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(32), 600))
    world.pass_to(640)
    first = world.only().id
    world.see(*timeouts("llama", range(32), 5400))
    world.pass_to(5450, step=30)
    second = next(i.id for i in world.incidents() if i.id != first)
    world.see(run("resolved", second, 5460))
    world.pass_to(5460 + 3600, step=30)
    assert world.published[first].state is IncidentState.OPEN
    assert world.published[first].jobs == (job("llama"),)


def test_a_node_that_never_came_back_after_its_gpu_was_lost_is_not_told_again_when_that_is_forgotten() -> (
    None
):
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0), not_ready("n2", 50))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 600))
    world.see(run("finished", world.only().id, 700, "succeeded"))
    world.pass_to(3 * 3600, step=30)
    assert [i.state for i in world.published.values()] == [IncidentState.RESOLVED]
    assert not [key for key in world.rows if key.startswith("incident/")]


def test_what_a_person_has_closed_stays_closed_when_its_evidence_goes_to_nobody() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n2", 0))
    world.pass_to(250)
    opened = world.only().id
    world.see(run("resolved", opened, 250))
    world.see(not_ready("n2", 12, ready=True))
    world.pass_to(AFTER / 2)
    assert world.published[opened].state is IncidentState.RESOLVED
    assert not world.published[opened].reason.startswith("Withdrawn")


def test_a_link_that_bounced_and_what_followed_are_forgotten_together() -> None:
    world = World(cluster({"llama": FOUR}))
    nic = Entity(CLUSTER, node="n1", nic="mlx5_2")
    world.see(_signal("fabric.link", nic, 0, {"subtype": "link_down"}))
    world.see(_signal("fabric.link", nic, 2, {"subtype": "link_down"}, cleared=True))
    world.pass_to(300)
    world.see(_signal("fabric.link", nic, 300, {"subtype": "symbol_errors"}))
    world.pass_to(2 * AFTER)
    assert not world.published, "no half of it opens an incident when the other is forgotten"


def test_a_link_that_turns_out_to_have_bounced_is_withdrawn_even_when_its_nic_gets_another_name() -> None:
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "n1", "mlx5_2")])
    port, nic = Entity(CLUSTER, switch="leaf-1", port="Ethernet8"), Entity(CLUSTER, node="n1", nic="rdma2")
    down = _signal("fabric.link", port, 1, {"subtype": "link_down", "status": "down"})
    world.see(down)
    world.pass_to(130)
    opened = world.only()
    assert (opened.family, opened.state) == ("nic_link", IncidentState.OPEN)
    late = [
        _signal("fabric.link", nic, 0, {"subtype": "link_down"}),
        _signal("fabric.link", nic, 2, {"subtype": "link_down"}, cleared=True),
        _signal("fabric.link", port, 3, {"subtype": "link_down"}, cleared=True),
    ]
    world.see(*(replace(s, observed_at=at(131)) for s in late))
    world.pass_to(300)
    assert world.only().reason.startswith("Withdrawn")


def test_half_of_what_was_said_of_a_link_is_not_kept_longer_than_the_other_half() -> None:
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "n1", "mlx5_2")])
    port, nic = Entity(CLUSTER, switch="leaf-1", port="Ethernet8"), Entity(CLUSTER, node="n1", nic="mlx5_2")
    world.see(
        _signal("fabric.link", nic, 0, {"subtype": "link_down"}),
        _signal("fabric.link", port, 1, {"subtype": "link_down"}),
        _signal("fabric.link", port, 2, {"subtype": "link_down"}, cleared=True),
    )
    world.see(*timeouts("llama", range(32), 900, waited=10))
    world.pass_to(2 * 3600, step=30)
    assert [i.family for i in world.published.values()] == ["hang"]


def delayed(line: Signal, by: float) -> Signal:
    """The same line, read that much later."""
    return replace(line, observed_at=line.observed_at + timedelta(seconds=by))


def test_evidence_that_is_read_late_dates_the_fault_back_and_the_delay_is_as_long() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(delayed(xid("n2", 79, 0), 600))
    world.pass_to(700)
    assert (world.only().fault_at, world.only().detection_delay) == (at(0), timedelta(seconds=600.5))


def test_what_was_told_under_another_name_before_was_detected_then() -> None:
    """The ranks had named the node, minutes before the line that says which GPU it was came through."""
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 600))
    world.pass_to(700)
    told = world.only()
    world.see(delayed(xid("n2", 79, 0), 1200))
    world.pass_to(1300)
    incident = world.only()
    assert (incident.family, incident.fault_at, incident.opened_at) == ("gpu_off_bus", at(0), told.opened_at)
    world.restart()
    world.see(xid("n2", 45, 1301))
    assert world.only().opened_at == told.opened_at


def test_an_earlier_line_of_an_open_incident_dates_it_back_and_it_stays_open_since() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 500))
    opened = world.only().opened_at
    world.see(delayed(xid("n2", 79, 0), 600))
    assert (world.only().fault_at, world.only().opened_at) == (at(0), opened)
