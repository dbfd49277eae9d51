"""An incident's states, its end, and what comes after the end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from streams.model.facts import JobFact
from streams.model.incident import IncidentState
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    job,
    link,
    node_fact,
    not_ready,
    pods,
    progress,
    run,
    storm,
    timeouts,
    xid,
)

SAID = [
    ([("started", "")], IncidentState.MITIGATING),
    ([("started", ""), ("awaiting_approval", "")], IncidentState.AWAITING_HUMAN),
    ([("started", ""), ("verifying", "")], IncidentState.VERIFYING),
    ([("started", ""), ("finished", "succeeded")], IncidentState.RESOLVED),
    ([("started", ""), ("finished", "shadowed")], IncidentState.OPEN),
    ([("started", ""), ("finished", "failed")], IncidentState.AWAITING_HUMAN),
    ([("started", ""), ("finished", "rejected")], IncidentState.AWAITING_HUMAN),
    ([("started", ""), ("finished", "failed"), ("resolved", "")], IncidentState.RESOLVED),
]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("said", "state"), SAID)
def test_runs_move_the_incident_in_whatever_order_they_are_read(
    said: list[tuple[str, str]], state: IncidentState, backwards: bool
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    events = [run(kind, world.only().id, 10 + i, outcome) for i, (kind, outcome) in enumerate(said)]
    for event in reversed(events) if backwards else events:
        world.see(event)
    assert world.only().state is state
    assert (world.only().closed_at is not None) is (state is IncidentState.RESOLVED)


def test_the_same_gpu_after_the_end_and_the_linger_is_a_new_incarnation() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    first = world.only().id
    world.see(run("finished", first, 300, "succeeded"))
    world.see(xid("n2", 79, 350))
    assert world.only().id == first
    world.see(xid("n2", 79, 600))
    assert [(i.incarnation, i.state) for i in world.incidents()] == [
        (1, IncidentState.RESOLVED),
        (2, IncidentState.OPEN),
    ]


def test_incarnations_stay_counted_when_the_old_one_is_forgotten() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    world.see(run("finished", world.only().id, 300, "succeeded"))
    world.pass_to(4000, step=30)
    assert not [key for key in world.rows if key.startswith("incident/")]
    world.see(xid("n2", 79, 4010))
    assert [i.incarnation for i in world.incidents() if i.state is IncidentState.OPEN] == [2]


def test_a_restored_storm_closes_and_one_that_comes_and_goes_is_counted() -> None:
    world = World([*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "n1", "mlx5_2")])
    for i in range(3):
        world.see(
            storm("leaf-1", "Ethernet8", 40 * i), storm("leaf-1", "Ethernet8", 40 * i + 20, cleared=True)
        )
    world.pass_to(110)
    assert (world.only().state, world.only().flaps) == (IncidentState.OPEN, 2)
    world.pass_to(650)
    assert world.only().state is IncidentState.OPEN, "it may go on"
    world.pass_to(750)
    assert (world.only().state, world.only().closed_at) == (IncidentState.RESOLVED, at(100))


def test_a_node_that_returns_closes_its_incident_but_not_under_a_run() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n2", 0))
    world.pass_to(250)
    name = world.only().id
    world.see(run("started", name, 251), not_ready("n2", 260, ready=True))
    world.pass_to(700)
    assert world.only().state is IncidentState.MITIGATING
    world.see(run("finished", name, 701, "failed"))
    assert world.only().state is IncidentState.RESOLVED


def test_a_node_that_turned_ready_within_the_second_in_which_it_was_seen_not_to_be_is_no_incident() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(node_fact("n9", since=10.6, ready=False))
    world.tell(node_fact("n9", since=10.9, ready_since=at(10)))
    world.pass_to(200)
    assert world.incidents() == []


def test_an_incident_tells_that_its_job_used_to_show_progress() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(progress("llama", -5, 100), xid("n2", 79, 0))
    assert [(p.at, p.step) for p in world.only().progress] == [(at(-5), 100)]


def test_progress_after_the_fault_is_told_while_somebody_waits_for_it() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(progress("llama", -5, 100), xid("n2", 79, 0))
    world.see(run("started", world.only().id, 5), run("verifying", world.only().id, 100))
    before = len(world.revisions)
    world.see(progress("llama", 120, 101))
    told = world.only().progress
    assert [(p.job.name, p.at, p.step) for p in told] == [("llama", at(120), 101)]
    for i in range(4):
        world.see(progress("llama", 121 + i, 102 + i))
    assert len(world.revisions) == before + 1
    world.see(progress("llama", 126, 106))
    assert world.only().progress[0].step == 106


def test_progress_that_only_a_run_waits_for_is_no_line_on_the_timeline() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(progress("llama", -5, 100), xid("n2", 79, 0))
    world.see(run("started", world.only().id, 5), run("verifying", world.only().id, 100))
    lines, revisions = len(world.timeline), len(world.revisions)
    world.see(progress("llama", 120, 101))
    assert (len(world.revisions), len(world.timeline)) == (revisions + 1, lines)


@pytest.mark.parametrize(("state", "most"), [(None, 0), ("awaiting_approval", 17), ("started", 17)])
def test_a_job_that_goes_on_beside_an_open_incident_is_told_of_rarely_or_not_at_all(
    state: str | None, most: int
) -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(progress("llama", -5, 100), not_ready("n2", 0))
    for i in range(1, 60):
        world.see(progress("llama", i, 100 + i))
    world.pass_to(250)
    name = world.only().id
    if state:
        world.see(run(state, name, 250))
    assert world.only().facts["lives"] is True
    before = len(world.revisions)
    for i in range(480):
        world.see(progress("llama", 251 + i, 200 + i))
    assert len(world.revisions) - before <= most


def test_a_hang_ends_when_the_job_moves_again() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(32), 600))
    world.pass_to(640)
    assert world.only().state is IncidentState.OPEN
    world.see(progress("llama", 700, 5))
    world.pass_to(900)
    assert world.only().state is IncidentState.RESOLVED


def test_a_job_that_hangs_again_on_other_nodes_is_a_new_incident() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(*timeouts("llama", range(24), 600))
    world.pass_to(640)
    first = world.only().id
    world.see(run("finished", first, 700, "succeeded"))
    for old, new in zip(
        pods("llama", FOUR), pods("llama", ["n1", "n2", "n3", "n9"], since=720, attempt=2), strict=True
    ):
        world.gone(old, 710)
        world.tell(new)
    world.see(*timeouts("llama", range(8, 32), 1500))
    world.pass_to(1600)
    latest = [i for i in world.incidents() if i.id != first]
    assert [(i.family, i.root.node) for i in latest] == [("silent_node", "n1")]
    assert world.published[first].state is IncidentState.RESOLVED


def test_an_incident_stays_as_it_was_when_its_evidence_is_older_than_the_retention() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0), *(xid(n, 45, 2) for n in FOUR))
    before = world.only()
    for pod in pods("llama", FOUR):
        world.gone(pod, 30)
    world.pass_to(timedelta(hours=3).total_seconds(), step=60)
    after = world.only()
    assert (after.state, after.jobs, after.nodes, after.proofs) == (
        IncidentState.OPEN,
        before.jobs,
        before.nodes,
        before.proofs,
    )


def test_a_core_on_the_rows_of_another_goes_on_where_that_stopped() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(24), 600))
    world.restart()
    world.pass_to(640)
    opened = world.only()
    assert opened.root.node == "n4"
    world.restart()
    world.see(*timeouts("llama", range(24), 600))
    world.pass_to(700)
    assert world.only() == opened


def test_a_job_made_anew_under_its_name_ends_its_hang_when_it_finishes() -> None:
    world = World(cluster({"llama": FOUR}))
    fact = JobFact(CLUSTER, job("llama"), at(-40), pods=4, world=32)
    world.gone(fact, -50)
    world.tell(fact)
    world.see(*timeouts("llama", range(32), 600))
    world.pass_to(700)
    world.tell(replace(fact, observed_at=at(900), finished=True))
    world.pass_to(1100)
    assert world.only().state is IncidentState.RESOLVED


def test_a_job_made_anew_under_its_name_is_not_forgotten_with_the_one_before() -> None:
    world = World(cluster({"llama": FOUR}))
    fact = JobFact(CLUSTER, job("llama"), at(-40), pods=4, world=32)
    world.gone(fact, -50)
    world.tell(fact)
    world.pass_to(3600, step=60)
    assert world.engine._state.jobs[job("llama").key].fact == fact


def test_a_node_that_was_deleted_is_down_no_more_and_is_forgotten() -> None:
    world = World(cluster({"llama": FOUR}, spare=["m1"]))
    world.see(not_ready("m1", 0))
    world.pass_to(250)
    assert world.only().state is IncidentState.OPEN
    world.gone(node_fact("m1"), 255)
    world.pass_to(500)
    assert world.only().state is IncidentState.RESOLVED
    assert "taken out of the cluster" in world.only().reason
    world.pass_to(8000, step=60)
    assert "m1" not in dict(world.engine._state.nodes.items())


def test_a_node_that_came_back_under_its_name_and_fails_again_is_down_again() -> None:
    world = World(cluster({"llama": FOUR}, spare=["m1"]))
    world.see(not_ready("m1", 0))
    world.pass_to(60)
    world.gone(node_fact("m1"), 65)
    world.tell(replace(node_fact("m1"), uid="m1-anew", observed_at=at(400), ready_since=at(400)))
    world.pass_to(500)
    world.see(not_ready("m1", 1200))
    world.pass_to(1500)
    assert [(i.incarnation, i.state) for i in world.incidents()] == [
        (1, IncidentState.RESOLVED),
        (2, IncidentState.OPEN),
    ]


def test_a_dead_node_that_was_deleted_stays_open_for_the_job_that_still_waits_for_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n2", 40))
    world.pass_to(340)
    world.gone(node_fact("n2"), 340)
    world.gone(pods("llama", FOUR)[1], 341)
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 600))
    world.pass_to(900)
    assert (world.only().root.node, world.only().state) == ("n2", IncidentState.OPEN)
