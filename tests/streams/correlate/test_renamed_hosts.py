"""Lines that call a node otherwise than Kubernetes does: by its long name, in capitals, by an address or an id."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.model.facts import Fact, NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.correlate.deliveries import Disturbance, essence, on_time, outcome
from tests.streams.correlate.fault_mix import Trouble, surroundings
from tests.streams.correlate.test_late import disturbances, seeds, troubles
from tests.streams.correlate.world import FOUR, World, cluster, link, node_fact, storm, timeouts, xid


def known_as(facts: Iterable[Fact]) -> list[Fact]:
    """The nodes with an address and a cloud's id each."""
    told = list(facts)
    names = sorted(fact.name for fact in told if isinstance(fact, NodeFact))
    return [
        replace(fact, addresses=(f"10.0.0.{names.index(fact.name)}",), aliases=(f"i-0{fact.name}",))
        if isinstance(fact, NodeFact)
        else fact
        for fact in told
    ]


def called(signals: Iterable[Signal], facts: Sequence[Fact], seed: int) -> list[Signal]:
    """The same lines with their nodes called by any of their names."""
    chance = random.Random(seed)
    nodes = {fact.name: fact for fact in facts if isinstance(fact, NodeFact)}
    found = []
    for signal in signals:
        if (node := nodes.get(signal.entity.node or "")) is not None:
            names = [node.name, f"{node.name}.example.internal", node.name.upper(), *node.aliases]
            said = chance.choice([*names, f"{node.addresses[0]}:9400"])
            signal = replace(signal, entity=replace(signal.entity, node=said))
        found.append(signal)
    return found


def core_of(incident: Incident) -> tuple[object, ...]:
    return (incident.id, incident.root, incident.family, incident.state, incident.certainty, incident.nodes)


@settings(max_examples=tries(80))
@given(st.lists(troubles, min_size=1, max_size=4), st.booleans(), disturbances, seeds)
def test_any_troubles_end_alike_however_their_nodes_are_called_and_whenever_their_names_are_known(
    happened: list[Trouble], moved: bool, disturbance: Disturbance, seed: int
) -> None:
    facts = known_as(surroundings(moved=moved))
    plain = [s for trouble in happened for s in trouble.signals()]
    signals = called(plain, facts, seed)
    expected = outcome(on_time(facts, signals))
    assert list(map(core_of, expected)) == list(map(core_of, outcome(on_time(facts, plain))))
    disturbed = outcome(
        disturbance.deliver(facts, signals), restarts=disturbance.restarts, seed=disturbance.seed
    )
    assert list(map(essence, disturbed)) == list(map(essence, expected))


@pytest.mark.parametrize(
    "said", ["n2.example.internal", "N2", "10.0.0.1", "i-0n2", "ip-10-0-0-1.ec2.internal"]
)
def test_a_line_under_another_name_is_its_nodes_and_stops_the_job_there(said: str) -> None:
    facts = known_as(cluster({"llama": FOUR}))
    world = World(facts)
    world.see(xid(said, 79, 0), *timeouts("llama", [r for r in range(32) if r // 8 != 1], 600))
    world.pass_to(700)
    assert (world.only().root.node, world.only().family) == ("n2", "gpu_off_bus")
    assert world.only().impact.gpus == 32


def test_an_incident_of_an_unknown_host_becomes_its_nodes_when_the_inventory_tells_of_it() -> None:
    world = World(cluster({"llama": ["n1", "n3", "n4"]}))
    world.see(xid("n2.example.internal", 79, 0))
    first = world.only()
    assert first.root.node == "n2.example.internal"
    world.tell(node_fact("n2"))
    assert world.only().root.node == "n2"
    assert (world.published[first.id].state, world.published[first.id].merged_into) == (
        IncidentState.MERGED,
        world.only().id,
    )
    world.restart()
    world.see(xid("N2", 79, 30), xid("n2.example.internal", 154, 31, action="restart_bm"))
    assert world.only().facts["xids"] == (79, 154)


def test_a_name_that_fits_two_nodes_is_taken_for_neither_and_says_which() -> None:
    world = World([node_fact("n1.east.example"), node_fact("n1.west.example")])
    world.see(xid("n1", 79, 0))
    assert world.only().root.node == "n1"
    assert "it may be n1.east.example, n1.west.example" in world.only().reason
    world.see(xid("n1.west.example", 79, 1))
    assert sorted(str(i.root.node) for i in world.incidents()) == ["n1", "n1.west.example"]


def test_a_second_node_of_the_same_short_name_takes_the_line_away_from_the_first() -> None:
    world = World([node_fact("n1.east.example")])
    world.see(xid("n1", 79, 0))
    assert world.only().root.node == "n1.east.example"
    world.tell(node_fact("n1.west.example", since=10))
    standing = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    assert [i.root.node for i in standing] == ["n1.east.example"], (
        "the second was not there when the line was written"
    )
    world.see(xid("n1", 48, 20))
    assert "it may be" in next(i for i in world.incidents() if i.root.node == "n1").reason


def test_two_hosts_of_one_short_name_in_two_domains_are_not_the_one_node_of_that_name() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2.cluster-a.example", 79, 0))
    assert world.only().root.node == "n2"
    world.see(xid("n2.cluster-b.example", 79, 5))
    world.pass_to(20)
    standing = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    assert sorted(str(i.root.node) for i in standing) == ["n2.cluster-a.example", "n2.cluster-b.example"]
    assert all("it may be n2, and none" in i.reason for i in standing)


def test_a_host_of_another_domain_casts_no_doubt_on_a_node_whose_domain_is_known() -> None:
    world = World([node_fact("n2", addresses=("n2.cluster-a.example",))])
    world.see(xid("n2.cluster-b.example", 79, 0), xid("n2.cluster-a", 79, 5))
    world.pass_to(20)
    standing = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    assert sorted(str(i.root.node) for i in standing) == ["n2", "n2.cluster-b.example"]


def test_the_exact_name_is_believed_whatever_else_is_called_so() -> None:
    facts = [node_fact("n1"), node_fact("n2", aliases=("n1",))]
    for told in (facts, facts[::-1]):
        world = World(told)
        world.see(xid("n1", 79, 0))
        assert world.only().root.node == "n1"
    late = World(facts[1:])
    late.see(xid("n1", 79, 0))
    assert late.only().root.node == "n2"
    late.tell(facts[0])
    assert [(i.root.node, i.state.value) for i in late.incidents()] == [("n2", "resolved"), ("n1", "open")]
    assert late.incidents()[0].reason.startswith("Withdrawn")


def test_a_cable_that_ends_at_a_long_name_is_its_nodes() -> None:
    facts = [*cluster({"llama": FOUR}), link("leaf-1", "Ethernet8", "N2.example.internal", "mlx5_2")]
    for told in (facts, facts[::-1]):
        world = World(told)
        world.see(storm("leaf-1", "Ethernet8", 0))
        world.pass_to(60)
        assert world.only().root.node == "n2"


def test_what_nodes_are_called_is_forgotten_with_what_they_said() -> None:
    world = World(cluster({"llama": FOUR}))
    for i in range(300):
        world.see(xid(f"n2.d{i}.example", 13, i))
    world.pass_to(2 * 3600, step=60)
    names = world.engine._causes.topology.names
    assert len(names._places) <= 12
    assert len(names._by_key) <= 60
