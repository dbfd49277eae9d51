"""Notices with a deadline: a node that goes at a known time, the jobs on it, and what takes the notice back."""

from __future__ import annotations

from typing import Any

import pytest

from streams.correlate.node_rules.notices import notice_facts
from streams.correlate.sightings import sighting
from streams.model.clock import rfc3339
from streams.model.facts import JobFact, NodeFact, NodeWork
from streams.model.incident import Certainty, IncidentState
from streams.model.node_notice import NodeNotice
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    job,
    node_fact,
    not_ready,
    pods,
    sign,
    timeouts,
)

HOUR = 3600.0
NTH = "aws-node-termination-handler/spot-itn"


def taken(
    due: float | None = None, *, within_s: int | None = None, subtype: str = "termination"
) -> NodeNotice:
    not_before = at(due) if due is not None else None
    return NodeNotice("the cloud", NTH, subtype, not_before, within_s)  # type: ignore[arg-type]


def marked(node: str, since: float, notice: NodeNotice | None, **more: Any) -> NodeFact:
    return node_fact(node, since=since, notice=notice, **more)


def test_a_spot_notice_on_a_node_with_a_job_is_an_incident_with_its_deadline() -> None:
    world = World(cluster({"llama": FOUR}))
    cloud = NodeWork("aws-node-termination-handler", NTH, "gone")
    world.tell(marked("n2", 10, taken(within_s=120), work=cloud, maintenance=True))
    world.pass_to(15)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.state) == ("preemption", "n2", IncidentState.OPEN)
    assert incident.certainty is Certainty.DECISIVE
    assert [str(job) for job in incident.jobs] == ["train/llama"]
    assert incident.facts["deadline"] == rfc3339(at(130))
    assert incident.facts["deadline_s"] == int(at(130).timestamp())
    assert (incident.facts["notice_s"], incident.facts["node_ends"]) == (120, "gone")
    assert incident.title == "n2 is taken away at 12:02 UTC"
    assert "it goes at 12:02:10 UTC on 01 Mar, 2 min after the notice" in incident.reason


def test_the_deadline_stays_however_often_the_node_is_read() -> None:
    world = World(cluster({"llama": FOUR}))
    for since in (10, 40, 70):
        world.tell(marked("n2", since, taken(within_s=120), unschedulable=since > 10))
        world.pass_to(since + 5)
    assert world.only().facts["deadline"] == rfc3339(at(130))


def test_a_notice_for_a_node_without_a_job_is_told_to_nobody() -> None:
    world = World(cluster({"llama": FOUR}, spare=["idle"]))
    world.tell(marked("idle", 10, taken(within_s=120)))
    world.pass_to(300)
    assert world.incidents() == []


def test_a_freeze_of_seconds_and_a_migration_are_no_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(900, subtype="freeze")))
    world.see(sign("node.maintenance", "n3", 12, "migration"))
    world.pass_to(1000, step=10)
    assert world.incidents() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_work_announced_for_next_week_is_listed_until_its_lead_begins(restarts: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    due = 3 * 24 * HOUR
    world.tell(marked("n2", 10, taken(due, subtype="host_maintenance")))
    world.pass_to(15)
    listed = world.only()
    assert (listed.state, listed.facts["node_ends"]) == (IncidentState.SUPPRESSED, "back")
    assert listed.facts["opens"] == rfc3339(at(due - 24 * HOUR))
    assert "opens at 12:00 UTC on 03 Mar" in listed.reason
    if restarts:
        world.restart()
    world.pass_to(due - 24 * HOUR - 60, step=600)
    assert world.only().state is IncidentState.SUPPRESSED
    world.pass_to(due - 24 * HOUR + 60, step=30)
    assert world.only().state is IncidentState.OPEN
    world.pass_to(due - HOUR, step=600)
    assert world.only().state is IncidentState.OPEN
    world.pass_to(due + 2 * HOUR, step=600)
    assert world.only().state is IncidentState.RESOLVED


def test_what_is_taken_back_before_its_lead_was_never_told() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(72 * HOUR, subtype="host_maintenance")))
    world.pass_to(15)
    world.tell(marked("n2", 300, None))
    world.pass_to(80 * HOUR, step=600)
    states = {i.state for i in world.revisions}
    assert states == {IncidentState.SUPPRESSED, IncidentState.RESOLVED}


def test_an_open_one_that_is_put_off_for_days_is_listed_again_until_its_new_lead() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(HOUR, subtype="host_maintenance")))
    world.pass_to(60)
    assert world.only().state is IncidentState.OPEN
    world.tell(marked("n2", 120, taken(96 * HOUR, subtype="host_maintenance")))
    world.pass_to(200)
    assert world.only().state is IncidentState.SUPPRESSED
    world.pass_to(72 * HOUR + 60, step=600)
    assert world.only().state is IncidentState.OPEN


def test_a_node_that_dies_days_before_its_maintenance_does_not_go_for_that() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(72 * HOUR, subtype="host_maintenance")))
    world.pass_to(4000, step=60)
    world.see(not_ready("n2", 4000))
    world.pass_to(4900, step=10)
    told = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    assert [(i.family, i.root.node) for i in told] == [("node_down", "n2")]


def test_a_hang_soon_after_a_notice_for_another_day_does_not_follow_from_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(72 * HOUR, subtype="host_maintenance")))
    world.pass_to(100)
    world.see(*timeouts("llama", range(32), 640))
    world.pass_to(900, step=10)
    assert any(i.family == "hang" and i.state is IncidentState.OPEN for i in world.incidents())


def test_a_notice_that_is_taken_back_ends_its_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(HOUR)))
    world.pass_to(15)
    assert world.only().state is IncidentState.OPEN
    world.tell(marked("n2", 300, None))
    world.pass_to(1200, step=5)
    assert world.only().state is IncidentState.RESOLVED
    assert "It has cleared" in world.only().reason


def test_a_notice_made_again_after_it_was_taken_back_counts() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(4 * HOUR)))
    world.pass_to(15)
    world.tell(marked("n2", 300, None))
    world.pass_to(2 * HOUR, step=30)
    world.tell(marked("n2", 2 * HOUR, taken(4 * HOUR)))
    world.pass_to(2 * HOUR + 30)
    assert any(i.state is IncidentState.OPEN for i in world.incidents())


def test_maintenance_that_is_put_off_moves_the_deadline() -> None:
    world = World(cluster({"llama": FOUR}))
    for since, due in ((10, HOUR), (60, 5 * HOUR)):
        world.tell(marked("n2", since, taken(due, subtype="scheduled_event")))
        world.pass_to(since + 30)
    assert world.only().facts["deadline"] == rfc3339(at(5 * HOUR))


def test_a_persons_mark_on_the_node_leaves_the_notice_to_them() -> None:
    world = World(cluster({"llama": FOUR}))
    theirs = NodeWork("a person", "faultline.dev/maintenance", "held")
    world.tell(marked("n2", 10, taken(HOUR), work=theirs, maintenance=True))
    world.pass_to(60)
    assert world.only().state is IncidentState.SUPPRESSED


def test_a_time_that_cannot_be_read_is_told_and_not_taken_for_somebodys_work() -> None:
    world = World(cluster({"llama": FOUR}))
    unread = NodeNotice("a person", "faultline.dev/leaves-at", "termination", unread="tomorrow")
    theirs = NodeWork("its own notice", "faultline.dev/leaves-at", "gone")
    world.tell(marked("n2", 10, unread, work=theirs))
    world.pass_to(60)
    told = world.only()
    assert told.state is IncidentState.OPEN
    assert told.reason.endswith("when that is cannot be read: tomorrow")
    assert "deadline" not in told.facts
    world.tell(marked("n2", 90, taken(HOUR), work=theirs))
    world.pass_to(120)
    assert world.only().facts["deadline"] == rfc3339(at(HOUR))


def test_the_same_facts_in_any_order_give_the_same_deadline() -> None:
    facts = [marked("n2", 10, taken(HOUR)), marked("n2", 40, taken(HOUR), unschedulable=True)]
    found = []
    for order in (facts, facts[::-1]):
        world = World(cluster({"llama": FOUR}))
        for fact in order:
            world.tell(fact)
        world.pass_to(60)
        found.append(world.only().facts["deadline"])
    assert found == [rfc3339(at(HOUR))] * 2


def test_a_restart_keeps_the_deadline() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 10, taken(within_s=120)))
    world.pass_to(15)
    world.restart()
    world.tell(marked("n2", 60, taken(within_s=120), unschedulable=True))
    world.pass_to(65)
    assert world.only().facts["deadline"] == rfc3339(at(130))


@pytest.mark.parametrize(
    ("due", "expected"),
    [(100.0, 99), (-30.0, 0), (-3 * HOUR, 0), (-30 * HOUR, None)],
    ids=["ahead", "just past", "away for three hours", "an old notice read again"],
)
def test_what_is_left_is_counted_from_when_it_was_read(due: float, expected: int | None) -> None:
    # The node's clock is an hour slow: its line is dated an hour before it was read.
    line = sign("node.maintenance", "n2", 0, "termination", not_before=rfc3339(at(due)), lag=0.5)
    seen = sighting(line)
    assert seen is not None
    assert notice_facts([seen]).get("notice_s") == expected


def test_a_zone_under_maintenance_is_one_incident_per_node_and_all_at_one_time() -> None:
    nodes = [f"z{i:04d}" for i in range(40)]
    world = World(cluster({"llama": nodes}))
    for node in nodes:
        world.tell(marked(node, 10, taken(2 * HOUR, subtype="host_maintenance")))
    world.pass_to(20)
    incidents = world.incidents()
    assert len(incidents) == 40
    opened = [i.opened_at for i in incidents]
    assert (max(opened) - min(opened)).total_seconds() < 60  # so that they share one thread


def test_a_job_that_comes_after_the_notice_is_told_of_too() -> None:
    world = World(cluster({"llama": FOUR}, spare=["idle"]))
    world.tell(marked("idle", 10, taken(24 * HOUR, subtype="host_maintenance")))
    world.pass_to(3 * HOUR, step=60)
    assert world.incidents() == []
    world.tell(JobFact(CLUSTER, job("late"), at(3 * HOUR)))
    for pod in pods("late", ["idle"], since=3 * HOUR):
        world.tell(pod)
    world.pass_to(3 * HOUR + 120, step=5)
    incident = world.only()
    assert (incident.root.node, [j.name for j in incident.jobs]) == ("idle", ["late"])


def gone_dark(world: World, seconds: float) -> None:
    """The node stops at once."""
    world.tell(marked("n2", seconds, None, ready=False))
    world.see(not_ready("n2", seconds))


@pytest.mark.parametrize("due", [None, 400.0, 24 * HOUR])
@pytest.mark.parametrize("family", ["node_down", "silent_node"])
def test_what_a_cloud_announces_of_a_host_that_is_down_already_belongs_to_that(
    family: str, due: float | None
) -> None:
    world = World(cluster({"llama": FOUR}))
    gone_dark(world, 10)
    if family == "silent_node":
        world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 12))
    world.pass_to(390, step=5)
    world.tell(marked("n2", 391, taken(due, within_s=None, subtype="scheduled_event"), ready=False))
    world.pass_to(900, step=5)
    (incident,) = world.published.values()
    assert (incident.family, incident.root.node) == (family, "n2")
    assert any("down already" in candidate.reason for candidate in incident.candidates)


def test_what_is_announced_for_tomorrow_still_counts_once_the_node_is_back() -> None:
    world = World(cluster({"llama": FOUR}))
    gone_dark(world, 10)
    world.pass_to(390, step=5)
    world.tell(marked("n2", 391, taken(24 * HOUR, subtype="host_maintenance"), ready=False))
    world.pass_to(600, step=5)
    world.tell(marked("n2", 601, taken(24 * HOUR, subtype="host_maintenance")))
    world.see(not_ready("n2", 601, ready=True))
    world.pass_to(1500, step=5)
    assert [i.facts["deadline"] for i in world.incidents() if i.family == "preemption"] == [
        rfc3339(at(24 * HOUR))
    ]


def test_a_notice_shortly_before_the_node_goes_is_why_it_goes() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(marked("n2", 5, taken(within_s=120)))
    world.pass_to(120)
    gone_dark(world, 125)
    world.pass_to(600, step=5)
    assert {(i.family, i.root.node) for i in world.incidents()} == {("preemption", "n2")}
