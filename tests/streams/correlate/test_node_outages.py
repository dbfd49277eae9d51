"""Many nodes NotReady at once are one incident until something separates them, and say nothing against any of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    World,
    at,
    cluster,
    node_fact,
    not_ready,
    progress,
    run,
    sign,
    timeouts,
    xid,
)

NAMES = [f"n{i:02d}" for i in range(64)]


def facts(count: int = 64, **more: Any) -> list[Fact]:
    """Racks and leaves of eight, a job across the first sixteen nodes."""
    names = NAMES[:count]
    made = cluster({"llama": names[:16]}, spare=names)
    return [
        *made,
        *(
            node_fact(n, since=-3500, rack=f"r{i // 8}", leaf=f"leaf-{i % 8}", **more)
            for i, n in enumerate(names)
        ),
    ]


def went(names: Sequence[str], seconds: float, apart: float = 0.5) -> list[Signal]:
    return [not_ready(n, seconds + apart * i) for i, n in enumerate(names)]


def back(names: Sequence[str], seconds: float, apart: float = 0.5) -> list[Signal]:
    return [not_ready(n, seconds + apart * i, ready=True) for i, n in enumerate(names)]


def told(signals: Sequence[Signal], until: float, world: World | None = None, step: float = 5) -> World:
    """Each at its time, one after the other, with ticks in between."""
    world = world or World(facts())
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=step)
        world.see(signal)
    world.pass_to(until, step=step)
    return world


def standing(world: World) -> set[tuple[str, str]]:
    return {(i.family, i.root.key) for i in world.incidents()}


def open_(world: World) -> list[Incident]:
    return [i for i in world.incidents() if not i.state.is_over]


@pytest.mark.parametrize("order", ["as it was", "backwards", "shuffled", "at once"])
def test_most_nodes_at_once_are_one_incident_of_what_watches_them(order: str) -> None:
    signals = went(NAMES[:58], 0)
    world = World(facts())
    if order == "as it was":
        told(signals, 0, world)
    elif order == "at once":
        world.see(*signals)
    else:
        mixed = (
            list(reversed(signals))
            if order == "backwards"
            else random.Random(7).sample(signals, len(signals))
        )
        for signal in mixed:
            world.see(signal)
    world.pass_to(400, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key, incident.certainty) == (
        "nodes_not_ready",
        "cluster",
        Certainty.LIKELY,
    )
    assert "look at the control plane" in incident.reason
    assert "of 64 nodes" in incident.reason
    assert incident.facts["nodes_hit"] == 55
    assert {i.family for i in world.published.values()} == {"nodes_not_ready"}, (
        "no node was told of by itself"
    )


def test_it_is_told_in_few_revisions_and_small_documents() -> None:
    world = World([node_fact(f"x{i:04d}") for i in range(600)])
    told([not_ready(f"x{i:04d}", 0.1 * i) for i in range(540)], 300, world, step=1)
    incident = world.only()
    assert incident.root.key == "cluster"
    assert incident.revision < 30
    assert len(incident.proofs) <= 10
    assert len(incident.nodes) == 0
    assert len(world.timeline) < 30


def test_it_is_over_when_the_nodes_are_back() -> None:
    world = told([*went(NAMES[:40], 0), *back(NAMES[:40], 200)], 900)
    assert standing(world) == {("nodes_not_ready", "cluster")}
    assert world.only().state is IncidentState.RESOLVED


def test_a_node_that_stays_away_when_the_others_are_back_is_a_node_of_its_own_again() -> None:
    stays = "n07"
    others = [n for n in NAMES[:40] if n != stays]
    world = told([*went(NAMES[:40], 0), *back(others, 200)], 380)
    assert standing(world) == {("nodes_not_ready", "cluster")}, "it is given time to come back"
    world.pass_to(420)
    assert standing(world) == {("nodes_not_ready", "cluster"), ("node_down", f"node/{stays}")}
    (down,) = [i for i in world.incidents() if i.family == "node_down"]
    assert down.fault_at == at(3.5), "it went when it went, not when the others came back"
    assert down.certainty is Certainty.LIKELY
    world.pass_to(1200, step=5)
    (still,) = open_(world)
    assert (still.id, still.certainty) == (down.id, Certainty.DECISIVE), "five minutes alone, and a job on it"


def test_a_node_that_is_only_slow_to_come_back_was_part_of_it() -> None:
    world = told([*went(NAMES[:40], 0), *back(NAMES[1:40], 200), *back(NAMES[:1], 330)], 900)
    assert {i.family for i in world.published.values()} == {"nodes_not_ready"}


def test_a_lost_gpu_in_the_middle_of_it_is_its_own_incident_at_once() -> None:
    for node in ("n03", "n60"):
        world = told([*went(NAMES[:40], 0), xid(node, 79, 30)], 32)
        (gpu,) = [i for i in world.incidents() if i.family == "gpu_off_bus"]
        assert (gpu.root.node, gpu.certainty) == (node, Certainty.DECISIVE)
        world.pass_to(300, step=5)
        assert standing(world) == {("gpu_off_bus", f"gpu/{node}/0000:10:00"), ("nodes_not_ready", "cluster")}


def test_a_panic_in_the_middle_of_it_is_its_own_incident() -> None:
    world = told([*went(NAMES[:40], 40), sign("node.kernel", "n03", 0, "kernel_panic")], 400)
    assert standing(world) == {("node_down", "node/n03"), ("nodes_not_ready", "cluster")}


def test_nodes_that_go_for_reasons_of_their_own_do_not_make_an_outage() -> None:
    """A cloud takes ten instances back: each has had its notice."""
    names = NAMES[20:30]
    notices = [sign("node.maintenance", n, i, "spot_interruption") for i, n in enumerate(names)]
    world = told([*notices, *went(names, 120)], 400)
    assert standing(world) == set()


def test_nodes_in_maintenance_do_not_make_an_outage() -> None:
    world = World(facts(maintenance=True))
    told(went(NAMES[:40], 0), 400, world)
    assert {i.state for i in world.incidents()} == {IncidentState.SUPPRESSED}
    assert "nodes_not_ready" not in {i.family for i in world.incidents()}


SPREAD = [NAMES[8 * i + i] for i in range(8)]
"""Nodes of which no two share a rack or a leaf."""
FEW: dict[str, tuple[int, list[str], set[tuple[str, str]]]] = {
    "three of 64, unrelated": (64, SPREAD[:3], {("node_down", f"node/{n}") for n in SPREAD[:3]}),
    "four of 64, unrelated": (64, SPREAD[:4], {("node_down", f"node/{n}") for n in SPREAD[:4]}),
    "five of 64, unrelated": (64, SPREAD[:5], {("nodes_not_ready", "cluster")}),
    "two of four": (4, NAMES[:2], {("node_down", f"node/{n}") for n in NAMES[:2]}),
    "three of four": (4, NAMES[:3], {("nodes_not_ready", "cluster")}),
    "a rack of eight": (64, NAMES[8:16], {("power_cooling", "rack/r1")}),
    "two racks": (64, NAMES[8:24], {("power_cooling", "rack/r1"), ("power_cooling", "rack/r2")}),
    "three racks": (64, NAMES[8:32], {("nodes_not_ready", "cluster")}),
    "a leaf": (64, NAMES[3::8], {("nodes_not_ready", "switch/leaf-3")}),
    "most of a leaf and another": (
        64, [*NAMES[3::8][:6], "n00"], {("nodes_not_ready", "switch/leaf-3"), ("node_down", "node/n00")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("backwards", [False, True])
def test_what_they_share_decides_whose_it_is(name: str, backwards: bool) -> None:
    count, names, expected = FEW[name]
    world = World(facts(count))
    if backwards:
        for signal in reversed(went(names, 0, apart=3)):
            world.see(signal)
        world.pass_to(300, step=5)
    else:
        told(went(names, 0, apart=3), 300, world)
    assert standing(world) == expected
    assert len(world.published) == len(expected), "nothing was told of that was taken back later"


def test_a_rack_that_goes_dark_and_a_node_elsewhere_are_two() -> None:
    world = told([*went(NAMES[8:16], 0), *went(["n50"], 5)], 250)
    assert standing(world) == {("power_cooling", "rack/r1"), ("node_down", "node/n50")}


def test_an_outage_that_grows_slowly_takes_in_what_was_told_of_before() -> None:
    world = told(went(SPREAD, 0, apart=40), 600)
    assert standing(world) == {("nodes_not_ready", "cluster")}
    assert {i.merged_into for i in world.published.values() if i.family == "node_down"} <= {world.only().id}


def test_waves_for_an_hour_are_one_incident_with_a_count() -> None:
    signals: list[Signal] = []
    for wave in range(5):
        signals += [*went(NAMES[:50], 700 * wave), *back(NAMES[:50], 700 * wave + 200)]
    world = told(signals, 700 * 6, step=20)
    incident = world.only()
    assert incident.family == "nodes_not_ready"
    assert incident.flaps >= 2
    assert incident.state is IncidentState.RESOLVED


def test_a_job_that_goes_on_shows_that_nodes_live() -> None:
    moving = [progress("llama", 30 * i, 100 + i) for i in range(-10, 20)]
    world = told([*moving, *went(NAMES[:40], 0)], 400)
    incident = world.only()
    assert incident.facts["nodes_live"] is True
    assert "go on" in incident.reason


def test_that_all_are_not_ready_does_not_prove_a_hang_on_one() -> None:
    """Ranks that only seem silent: what makes a suspect certain is that its node alone is NotReady."""
    signals = [*went(NAMES[:60], 590, apart=0.1), *timeouts("llama", range(16, 128), 600)]
    world = told(signals, 900)
    accused = [i for i in world.incidents() if i.family == "silent_node"]
    assert all(i.certainty is not Certainty.DECISIVE or "NotReady" not in i.reason for i in accused)


def test_a_restart_in_the_middle_changes_nothing() -> None:
    signals = [*went(NAMES[:40], 0), *back(NAMES[1:40], 200)]
    world = World(facts())
    told([s for s in signals if s.observed_at < at(100)], 100, world)
    world.restart()
    told([s for s in signals if s.observed_at >= at(100)], 1000, world)
    whole = told(signals, 1000)
    assert standing(world) == standing(whole) == {("nodes_not_ready", "cluster"), ("node_down", "node/n00")}


def some_outage(chance: random.Random) -> list[Signal]:
    """Nodes that go and come back, together and alone, in two waves."""
    signals: list[Signal] = []
    for start in (0.0, chance.choice([150.0, 700.0])):
        for node in chance.sample(NAMES[:16], chance.choice([1, 2, 4, 6, 10, 14])):
            gone = start + chance.choice([0, 1, 5, 20, 50, 90]) + chance.random()
            signals.append(not_ready(node, gone))
            if chance.random() < 0.8:
                signals.append(not_ready(node, gone + chance.choice([10, 45, 120, 350]), ready=True))
    if chance.random() < 0.5:
        signals.append(xid(chance.choice(NAMES[:16]), 79, chance.choice([10, 60, 200])))
    if chance.random() < 0.5:
        signals += [progress("llama", 30 * i, i) for i in range(chance.choice([2, 8]))]
    return signals


@pytest.mark.parametrize("seed", range(12))
def test_in_whatever_order_it_is_told_it_is_the_same_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    signals = some_outage(chance)

    def ended(order: Sequence[Signal], *, restarts: bool) -> set[tuple[object, ...]]:
        world = World(facts(16))
        for number, signal in enumerate(order):
            world.see(signal)
            if number % 3 == 0:
                world.pass_to((world.now - at(0)).total_seconds() + 1)
            if restarts and number % 7 == 6:
                world.restart()
        world.pass_to(2400, step=20)
        return {
            (i.id, i.family, i.fault_at, i.state, i.certainty, i.flaps, i.facts.get("nodes_hit"))
            for i in world.incidents()
            if not i.reason.startswith("Withdrawn")
        }

    first = ended(sorted(signals, key=lambda s: s.observed_at), restarts=False)
    assert first == ended(chance.sample(signals, len(signals)), restarts=False)
    assert first == ended(list(reversed(signals)), restarts=True)


def test_nodes_that_join_a_cluster_are_no_outage_and_what_goes_later_is() -> None:
    world = World(facts())
    joiners = [f"new{i:02d}" for i in range(12)]
    for i, name in enumerate(joiners):
        world.pass_to(3 * i)
        world.tell(node_fact(name, since=3 * i, ready=False, joining=True))
    world.pass_to(240, step=5)
    for name in joiners:
        world.tell(node_fact(name, since=240, ready=True, ready_since=at(240)))
    world.pass_to(600, step=5)
    assert not world.incidents()
    world.tell(node_fact(joiners[0], since=600, ready=False))
    world.pass_to(1200, step=5)
    assert standing(world) == {("node_down", f"node/{joiners[0]}")}


@pytest.mark.parametrize("owners", ["{}", "inc-0123456789abcdef,{}"])
def test_a_node_that_is_being_handled_stays_so_when_it_goes_again_with_all_others(owners: str) -> None:
    dead = NAMES[5]
    world = told([not_ready(dead, 0)], 400)
    mine = world.only()
    assert mine.certainty is Certainty.DECISIVE
    closed = {"unschedulable": True, "owner_incident": owners.format(mine.id), "rack": "r0", "leaf": "leaf-5"}
    world.see(run("started", mine.id, 401))
    world.tell(node_fact(dead, since=402, ready=False, **closed))
    told(back([dead], 450), 500, world)
    told(went(NAMES[:58], 520), 900, world)
    found = {i.id: i for i in world.incidents()}
    assert found[mine.id].state is not IncidentState.MERGED
    assert ("nodes_not_ready", "cluster") in standing(world)


@pytest.mark.parametrize("by_facts", [True, False])
def test_nodes_whose_absence_was_forgotten_still_count_as_away(by_facts: bool) -> None:
    """A person closed their incidents, and after the retention only the inventory knows that they are NotReady."""
    world = World(facts(8))
    for i, name in enumerate(NAMES[4:8]):
        world.tell(node_fact(name, since=300.0 * i, ready=False))
        world.pass_to(300.0 * i + 250, step=5)
    for incident in world.incidents():
        world.see(run("resolved", incident.id, 1300))
    if not by_facts:
        for name in NAMES[4:8]:
            world.tell(node_fact(name, since=1310, ready=False, maintenance=True))
    world.pass_to(6000, step=60)
    told([not_ready("n00", 6000)], 9000, world, step=20)
    last = max(world.incidents(), key=lambda i: i.fault_at)
    assert last.root.node == "n00"
    assert last.certainty is (Certainty.LIKELY if by_facts else Certainty.DECISIVE)


def unreached(names: Sequence[str], since: float, until: float, every: float = 10) -> list[Signal]:
    """Kubelets that say every few seconds that they do not reach the API server."""
    times = [since + every * i for i in range(int((until - since) / every) + 1)]
    return [sign("node.condition", n, t + 0.1 * i, "node_status") for t in times for i, n in enumerate(names)]


def test_kubelets_that_do_not_reach_the_api_server_are_one_incident() -> None:
    world = told(unreached(NAMES, 0, 600, every=60), 700)
    incident = world.only()
    assert (incident.family, incident.root.kind) == ("nodes_not_ready", "cluster")
    assert "API server" in incident.reason
    assert incident.facts["nodes_live"] is True
    world.pass_to(1000, step=20)
    assert world.only().state is IncidentState.RESOLVED


def test_an_api_server_that_is_upgraded_is_none() -> None:
    world = told(unreached(NAMES, 0, 50), 700)
    assert not world.published


def test_a_few_kubelets_that_do_not_reach_it_are_none() -> None:
    world = told(unreached(SPREAD[:4], 0, 600, every=60), 700)
    assert not world.published


@pytest.mark.parametrize("order", ["as it was", "backwards"])
def test_what_the_api_server_says_when_it_is_back_is_the_same_outage(order: str) -> None:
    signals = [*unreached(NAMES[:40], 0, 300, every=60), *went(NAMES[:40], 310), *back(NAMES[:40], 430)]
    world = World(facts())
    if order == "backwards":
        world.see(*sorted(signals, key=lambda s: s.observed_at, reverse=True))
        world.pass_to(1500, step=20)
    else:
        told(signals, 1500, world)
    incident = world.only()
    assert (incident.family, incident.root.kind) == ("nodes_not_ready", "cluster")
    assert incident.facts["nodes_hit"] == 40
    assert len(world.published) == 1
