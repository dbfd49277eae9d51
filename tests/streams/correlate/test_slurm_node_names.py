"""Jobs of Slurm on nodes that Slurm calls otherwise than the inventory, as where its nodes are pods of Kubernetes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from streams.model.entity import SLURM, Entity, PodRef
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate.test_slurm_jobs import ALL, hang, line, says
from tests.streams.correlate.world import CLUSTER, World, _signal, at, node_fact, xid

KUBES = {f"k{i}": f"cn{i:03d}" for i in range(1, 5)}


def nodes(since: float = -3600) -> list[NodeFact]:
    return [node_fact(name, since=since, aliases=(called,)) for name, called in KUBES.items()]


def story(told: Sequence[NodeFact | Signal], *, restart_after: int | None = None) -> World:
    world = World()
    for i, one in enumerate(told):
        world.tell(one) if isinstance(one, NodeFact) else world.see(one)
        if restart_after == i:
            world.restart()
    world.pass_to(4000, step=10)
    return world


def orders(signals: Sequence[Signal]) -> list[list[NodeFact | Signal]]:
    """Facts first, lines first, and one among the other."""
    mixed: list[NodeFact | Signal] = [*nodes(), *signals]
    random.Random(7).shuffle(mixed)
    return [[*nodes(), *signals], [*signals, *nodes()], mixed]


def core(incident: Incident) -> tuple[object, ...]:
    return (incident.root, incident.family, incident.nodes, [j.name for j in incident.jobs], incident.impact)


def by_kube(signals: Sequence[Signal]) -> list[Signal]:
    """The lines as an agent of the node ships them, under the node's own name."""
    names = {called: name for name, called in KUBES.items()}
    found = []
    for one in signals:
        place = one.entity
        node = names[(place.node or "").partition(".")[0]]
        found.append(
            _signal(
                one.kind,
                Entity(CLUSTER, node=node, pod=place.pod, rank=place.rank),
                (one.occurred_at - at(0)).total_seconds(),
                dict(one.attributes),
            )
        )
    return found


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("said", ["k2", "cn002", "cn002.hpc.example"])
def test_the_job_on_a_failed_node_is_found_whatever_slurm_calls_the_node(said: str, order: int) -> None:
    told = orders([says("running", 0, ALL, gpus=8), xid(said, 79, 600)])[order]
    incident = story(told).only()
    assert (incident.root.node, [j.name for j in incident.jobs]) == ("k2", ["4242"])


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("shipper", ["slurm", "kubernetes"])
@pytest.mark.parametrize("gpus", [None, 8])
def test_a_hang_names_the_node_of_the_inventory(gpus: int | None, shipper: str, order: int) -> None:
    lines = hang([17]) if shipper == "slurm" else by_kube(hang([17]))
    incident = story(orders([says("running", 0, ALL, gpus=gpus), *lines])[order]).only()
    assert (incident.root.node, [j.name for j in incident.jobs]) == ("k3", ["4242"])


@pytest.mark.parametrize("order", range(3))
def test_a_job_that_began_before_the_log_stands_on_each_node_once(order: int) -> None:
    """Its nodes' agents call them by Kubernetes' names, their daemons by Slurm's."""
    done = [says("step", 1830 + i, called) for i, called in enumerate(KUBES.values())]
    lines = [*by_kube(hang([17])), says("ended", 1829, status=1), *done]
    world = story(orders(lines)[order])
    assert (world.only().root.node, [j.name for j in world.only().jobs]) == ("k3", ["4242"])
    assert world.engine._causes.topology.placements.nodes_of_slurm == 4


def test_the_order_of_facts_and_lines_and_a_restart_change_nothing() -> None:
    signals = [
        says("running", 0, ALL, gpus=8),
        line("job.rank", 0, 60, nranks=32, index=0, pci="0000:10:00"),
        *hang([17]),
        says("ended", 1830, status=1),
        says("running", 1900, "cn[001-002]", gpus=8),
        xid("cn002", 79, 2500),
    ]
    expected = story([*nodes(), *signals])
    assert [(i.root.node, [j.name for j in i.jobs]) for i in expected.incidents()] == [
        ("k3", ["4242"]),
        ("k2", ["4242"]),
    ]
    pods = {key: row for key, row in expected.rows.items() if key.startswith("pod/")}
    for seed in range(8):
        told: list[NodeFact | Signal] = [*nodes(), *signals]
        random.Random(seed).shuffle(told)
        world = story(told, restart_after=3 * seed)
        assert list(map(core, world.incidents())) == list(map(core, expected.incidents()))
        # What is left of a name by which a pod was known before its node may stand there empty.
        left = {key: row for key, row in world.rows.items() if key in pods}
        assert left == pods


def test_what_processes_told_of_themselves_goes_where_they_stand() -> None:
    place = Entity(CLUSTER, node="cn002", pod=PodRef(SLURM, "4242"))
    saved = _signal("job.checkpoint", place, 500, {"step": 900})
    for told in orders([says("running", 0, ALL, gpus=8), saved, xid("k2", 79, 600)]):
        assert [saved.step for saved in story(told).only().checkpoints] == [900]


def test_a_name_that_goes_to_another_node_means_that_one_only_from_then_on() -> None:
    """A slurmd that is made anew elsewhere: the job that ran before stood on the first node."""
    first, second = (
        [says("running", 0, ALL, gpus=8), says("ended", 900, status=0)],
        says("running", 1500, ALL, number="4243", gpus=8),
    )
    moved = [
        node_fact("k2", since=1000),
        node_fact("k9", since=-3600),
        node_fact("k9", since=1001, aliases=("cn002",)),
    ]
    faults = [xid("k2", 79, 600), xid("k9", 79, 2000)]
    told: list[NodeFact | Signal] = [*nodes(), *first, second, *moved, *faults]
    for seed in range(6):
        random.Random(seed).shuffle(told)
        found = {i.root.node: [j.name for j in i.jobs] for i in story(told).incidents()}
        assert found == {"k2": ["4242"], "k9": ["4243"]}


def test_a_name_that_two_nodes_share_places_the_job_on_neither() -> None:
    twins = [node_fact("k2", aliases=("cn002",)), node_fact("k7", aliases=("cn002",))]
    world = story([*twins, says("running", 0, ALL, gpus=8), xid("k2", 79, 600)])
    assert not world.only().jobs


def test_rows_from_before_names_were_told_are_placed_at_the_start() -> None:
    world = World()
    world.see(says("running", 0, ALL, gpus=8))
    before = {key: row for key, row in world.rows.items() if key.startswith("pod/")}
    for fact in nodes():
        world.tell(fact)
    for key in [key for key in world.rows if key.startswith("pod/")]:
        del world.rows[key]
    world.rows.update(before)
    world.restart()
    world.see(xid("k2", 79, 600))
    world.pass_to(700)
    assert [j.name for j in world.only().jobs] == ["4242"]


def test_what_a_job_calls_its_nodes_is_forgotten_with_the_job() -> None:
    world = World()
    world.see(says("running", 0, ALL), says("ended", 300))
    for fact in nodes():
        world.tell(fact)
    names = world.engine._causes.topology.names
    assert any(place[0] == "job" for _, place in names.kept())
    world.pass_to(86_400, step=600)
    assert not names.kept()
