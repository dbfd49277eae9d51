"""Hostile volume: what is kept stays bounded, and no open incident is lost to it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from streams.correlate.sightings import KEPT_EACH_END
from streams.correlate.state import topology
from streams.correlate.state.store import MAX_GROUPS
from streams.model.entity import Entity, Gpu, PodRef
from streams.model.incident import IncidentState
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    _signal,
    at,
    cluster,
    node_fact,
    not_ready,
    pause,
    progress,
    run,
    sign,
    timeouts,
    xid,
)
from tests.work import calls_counted


def strangers(node: str, count: int, seconds: float) -> list[Signal]:
    """Lines that name ever new addresses, as only a broken or a hostile writer does."""
    return [
        _signal(
            "gpu.xid",
            Entity(CLUSTER, node=node, gpu=Gpu(pci=f"{i:04x}:00:00")),
            seconds + i * 0.001,
            {"xid": 79, "action": "restart_bm", "family": "gpu_off_bus"},
        )
        for i in range(1, count + 1)
    ]


def kept_on(world: World, node: str) -> int:
    row = world.engine._state.nodes[node]
    return sum(len(group) for group in row.seen.values())


def test_a_flood_of_addresses_keeps_a_bounded_number_of_lines() -> None:
    world = World(cluster({"llama": FOUR}))
    for second in range(10):
        world.see(*strangers("n1", 400, second * 60.0))
    assert kept_on(world, "n1") <= MAX_GROUPS * 2 * KEPT_EACH_END
    assert len(world.engine._state.nodes["n1"].seen) <= MAX_GROUPS


def test_a_flood_does_not_take_an_open_incident_of_the_same_node_away() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n1", -400))
    world.pass_to(-50)
    opened = world.only().id
    for second in range(5):
        world.see(*strangers("n1", 400, second * 400.0))
        world.pass_to(second * 400.0 + 200, step=20)
    incident = world.published[opened]
    new_root = world.published.get(incident.merged_into or "", incident)
    assert not incident.reason.startswith("Withdrawn")
    assert new_root.state is IncidentState.OPEN


def test_an_incident_whose_evidence_a_flood_pushed_out_stays_open() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(pause("n1", "mlx5_2", "sent", 0))
    world.pass_to(10)
    storming = world.only().id
    world.see(*(replace(s, severity=Severity.CRITICAL) for s in strangers("n1", 600, 500)))
    world.pass_to(600, step=10)
    assert not [
        s for group in world.engine._state.nodes["n1"].seen.values() for s in group if s.kind != "gpu.xid"
    ]
    assert world.published[storming].state is IncidentState.OPEN


def test_a_rank_that_repeats_itself_a_thousand_times_is_kept_a_dozen_times() -> None:
    world = World(cluster({"llama": FOUR}))
    chance = random.Random(3)
    for _ in range(20):
        world.see(*timeouts("llama", [0] * 50, 600 + chance.random() * 60))
    row = world.engine._state.pods["train/llama-worker-0"]
    assert sum(len(group) for group in row.seen.values()) <= 2 * KEPT_EACH_END


def test_ranks_of_any_number_in_one_pod_are_bounded() -> None:
    world = World(cluster({"llama": FOUR}))
    entity = Entity(CLUSTER, pod=PodRef("train", "llama-worker-0"))
    world.see(
        *(
            _signal("nccl.timeout", entity, 600 + i * 0.01, {"rank": i, "pg": "0", "elapsed_ms": 600_000})
            for i in range(1000)
        )
    )
    assert len(world.engine._state.pods["train/llama-worker-0"].seen) <= MAX_GROUPS


def test_a_node_that_comes_and_goes_all_day_is_one_incident_with_a_counter_and_stays_open() -> None:
    world = World(cluster({"llama": FOUR}))
    for i in range(60):
        world.see(not_ready("n1", i * 300), not_ready("n1", i * 300 + 100, ready=True))
        world.pass_to(i * 300 + 290, step=30)
    world.see(not_ready("n1", 60 * 300))
    world.pass_to(60 * 300 + 60)
    open_ = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    assert len(world.published) <= 4
    assert [i.root.node for i in open_] == ["n1"]
    assert open_[0].flaps >= 2


def test_a_gpu_closed_and_failing_again_twenty_times_within_the_hour_is_open_at_the_end() -> None:
    world = World(cluster({"llama": FOUR}, spare=["n9"]))
    world.see(*timeouts("llama", range(32), -100, waited=10))
    for i in range(20):
        world.see(*(xid("n1", 79, i * 180 + j) for j in range(4)))
        newest = [n for n in world.incidents() if n.state is IncidentState.OPEN and n.root.node == "n1"]
        assert len(newest) == 1, i
        world.see(run("resolved", newest[0].id, i * 180 + 10))
    world.see(xid("n1", 79, 20 * 180 + 10))
    assert [n.root.node for n in world.incidents() if n.state is IncidentState.OPEN and n.root.node] == ["n1"]


def test_thousands_of_runs_events_and_progress_lines_are_bounded() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    name = world.only().id
    for i in range(500):
        world.see(run("verifying", name, 10 + i), progress("llama", 10 + i * 20, i))
    assert len(world.engine._state.runs[name].events) <= 4 * KEPT_EACH_END
    assert len(world.engine._state.pods["train/llama-worker-0"].moves) <= 60 + 48 + 1


def test_what_closed_an_incident_is_not_pushed_out_by_other_events() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    name = world.only().id
    world.see(run("resolved", name, 100))
    for i in range(40):
        world.see(run("verifying", name, 10 + i), run("verifying", name, 200 + i))
    assert world.only().state is IncidentState.RESOLVED
    assert world.only().closed_at == at(100)


def test_names_that_only_signals_know_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 500
    monkeypatch.setattr(topology, "MAX_UNLISTED", most)
    world = World(cluster({"llama": FOUR}))
    for i in range(0, most + 200, 50):
        strange = (Entity(CLUSTER, node=f"made-up-{j}") for j in range(i, i + 50))
        world.see(*(_signal("gpu.thermal", e, i * 0.01, {"subtype": "slowdown"}) for e in strange))
        pods = (Entity(CLUSTER, pod=PodRef("x", f"made-up-{j}")) for j in range(i, i + 50))
        world.see(*(_signal("job.progress", e, i * 0.01, {"step": 1}) for e in pods))
    state = world.engine._state
    assert len(state.nodes) <= most + 4
    assert len(state.pods) <= most + 4
    world.see(xid("n2", 79, 100))
    world.pass_to(2 * 3600, step=60)
    assert set(state.nodes) == set(FOUR)
    assert len(state.pods) == 4
    assert any(i.root.node == "n2" and i.state is IncidentState.OPEN for i in world.incidents())


def test_a_node_that_was_deleted_is_forgotten_after_the_retention_unless_it_came_back() -> None:
    world = World(cluster({}, spare=["n1", "n2", "n3"]))
    world.gone(node_fact("n1"), 10)
    world.gone(node_fact("n2"), 10)
    world.tell(node_fact("n2", since=20))
    world.pass_to(2 * 3600, step=60)
    assert set(world.engine._state.nodes) == {"n2", "n3"}


def test_what_a_pod_said_before_the_inventory_knew_it_is_kept() -> None:
    facts = cluster({"llama": FOUR})
    late = [f for f in facts if f.kind == "pod" and f.node == "n4"]
    world = World([f for f in facts if f not in late])
    entity = Entity(CLUSTER, pod=PodRef("train", "llama-worker-3"))
    told: dict[str, Attribute] = {"rank": 24, "nranks": 32, "index": 0, "pci": "0000:10:00"}
    world.see(_signal("job.rank", entity, 0, told), _signal("job.progress", entity, 0, {"step": 7}))
    world.pass_to(300, step=10)
    for fact in late:
        world.tell(fact)
    row = world.engine._state.pods["train/llama-worker-3"]
    assert ([t.rank for t in row.ranks], row.progress_step) == ([24], 7)


def work_of_a_dark_hall(nodes: int, *, jobs: bool) -> int:
    """Calls made for one more line, where all nodes have lost their power, each with a job of its own if there are jobs."""
    names = [f"n{i:03d}" for i in range(nodes)]
    world = World(cluster({f"job-{name}": [name] for name in names} if jobs else {}, spare=names))
    world.see(*(sign("node.power", name, 0, "psu", severity=Severity.ERROR) for name in names))
    world.see(*(not_ready(name, 30) for name in names))
    world.pass_to(240)
    assert len(world.only().nodes) == nodes
    lost = sign("node.condition", names[0], 241, "slurm_job_lost", severity=Severity.WARNING, job_id=77)
    with calls_counted() as count:
        world.see(lost)
    return count[0]


@pytest.mark.parametrize("jobs", [False, True])
def test_four_times_as_many_nodes_without_power_take_four_times_the_work(jobs: bool) -> None:
    assert work_of_a_dark_hall(320, jobs=jobs) < 5 * work_of_a_dark_hall(80, jobs=jobs)
