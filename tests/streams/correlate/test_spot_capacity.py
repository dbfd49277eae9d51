"""A spot node that its cloud takes back: jobs that gather again by themselves are nobody's work until they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.correlate.publish.spot_capacity import RETRY_WITHIN_S
from streams.model.facts import JobFact, NodeFact, PodFact
from streams.model.incident import IncidentState
from streams.model.node_notice import NodeNotice
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    failed,
    job,
    node_fact,
    pods,
    progress,
    timeouts,
)

GATHERS_S = 180.0
NTH = "aws-node-termination-handler/spot-itn"
DUE = 130.0
"""The notice is read at 10 and the node goes two minutes later."""


def noticed(node: str = "n2", *, spot: bool = True) -> NodeFact:
    notice = NodeNotice("aws-node-termination-handler", NTH, "termination", None, 120)
    return node_fact(node, since=10, notice=notice, spot=True if spot else None)


def spot_world(*, heals_within_s: float | None = GATHERS_S, retries_left: int | None = None) -> World:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    llama = JobFact(CLUSTER, job("llama"), at(-2900), pods=4, world=32)
    world.tell(replace(llama, heals_within_s=heals_within_s, retries_left=retries_left))
    return world


def moved(world: World, seconds: float) -> None:
    """The pod of the node that goes is made anew on another."""
    lost = pods("llama", FOUR)[1]
    assert lost.node == "n2"
    world.tell(replace(lost, ended_at=at(seconds), phase="Failed", observed_at=at(seconds)))
    world.tell(anew(lost, seconds + 20))


def anew(pod: PodFact, seconds: float) -> PodFact:
    started = at(seconds)
    return replace(pod, uid=f"{pod.uid}-2", node="n9", observed_at=started, scheduled_at=started)


def all_gone(world: World, seconds: float) -> None:
    for pod in pods("llama", FOUR):
        world.tell(replace(pod, ended_at=at(seconds), phase="Failed", observed_at=at(seconds)))


def test_nobody_is_told_of_a_spot_node_whose_job_gathers_again() -> None:
    world = spot_world()
    world.tell(noticed())
    world.see(failed("llama", 1, 100))
    moved(world, 100)
    world.pass_to(DUE + GATHERS_S + 600, step=10)
    assert world.incidents() == []


def test_a_spot_node_whose_job_uses_a_restart_that_it_has_left_opens_no_incident() -> None:
    world = spot_world(heals_within_s=None, retries_left=3)
    world.tell(noticed())
    world.see(failed("llama", 1, 100))
    moved(world, 100)
    world.pass_to(DUE + RETRY_WITHIN_S + 600, step=10)
    assert world.incidents() == []


@pytest.mark.parametrize(
    ("heals_within_s", "retries_left", "within_s"),
    [(GATHERS_S, None, GATHERS_S), (None, 3, RETRY_WITHIN_S)],
    ids=["healing job", "restart left"],
)
def test_a_job_that_did_not_gather_again_is_told_of_with_its_node(
    heals_within_s: float | None, retries_left: int | None, within_s: float
) -> None:
    world = spot_world(heals_within_s=heals_within_s, retries_left=retries_left)
    world.tell(noticed())
    world.see(failed("llama", 1, 100))
    all_gone(world, 105)
    world.pass_to(DUE + within_s - 5, step=5)
    assert world.incidents() == []
    world.pass_to(DUE + within_s + 10, step=5)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.state) == ("preemption", "n2", IncidentState.OPEN)
    assert [str(one) for one in incident.jobs] == ["train/llama"]


def test_a_job_whose_ranks_still_wait_for_the_node_minutes_later_is_told_of() -> None:
    world = spot_world()
    world.tell(noticed())
    moved(world, 100)
    waiting = [*range(8), *range(16, 32)]
    world.see(*timeouts("llama", waiting, DUE + 600, waited=640))
    world.pass_to(DUE + 700, step=10)
    assert [i.root.node for i in world.incidents() if not i.state.is_over] == ["n2"]


def test_a_job_that_failed_for_good_is_told_of() -> None:
    world = spot_world()
    world.tell(noticed())
    world.see(failed("llama", 1, 100))
    all_gone(world, 105)
    world.tell(JobFact(CLUSTER, job("llama"), at(110), pods=4, world=32, finished=True, failed=True))
    world.pass_to(DUE + GATHERS_S + 10, step=5)
    assert world.only().family == "preemption"


def test_a_job_that_finished_meanwhile_is_nobodys_work() -> None:
    world = spot_world()
    world.tell(noticed())
    world.see(progress("llama", 90, 100))
    for pod in pods("llama", FOUR):
        world.tell(replace(pod, ended_at=at(120), phase="Succeeded", observed_at=at(120)))
    world.tell(
        JobFact(CLUSTER, job("llama"), at(121), pods=4, world=32, finished=True, heals_within_s=GATHERS_S)
    )
    world.pass_to(DUE + GATHERS_S + 60, step=10)
    assert world.incidents() == []


@pytest.mark.parametrize(
    ("spot", "heals_within_s", "retries_left"),
    [(False, GATHERS_S, None), (True, None, None), (True, None, 0)],
    ids=["no spot node", "no healing job", "no restart left"],
)
def test_what_does_not_come_back_by_itself_is_told_of_at_once(
    spot: bool, heals_within_s: float | None, retries_left: int | None
) -> None:
    world = spot_world(heals_within_s=heals_within_s, retries_left=retries_left)
    world.tell(noticed(spot=spot))
    world.pass_to(15)
    assert world.only().family == "preemption"


def test_one_job_that_needs_somebody_is_enough_to_tell() -> None:
    world = World(cluster({"llama": FOUR, "bert": ["n2", "n5"]}))
    world.tell(JobFact(CLUSTER, job("llama"), at(-2900), pods=4, world=32, heals_within_s=GATHERS_S))
    world.tell(noticed())
    world.pass_to(15)
    assert world.only().root.node == "n2"
