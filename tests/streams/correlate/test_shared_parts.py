"""Whatever nodes share: trouble on many of them at once is one incident of the smallest part that covers them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.model.facts import Fact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal, SignalState
from tests.streams.correlate.world import (
    World,
    at,
    cluster,
    nic,
    node_fact,
    not_ready,
    progress,
    sign,
    timeouts,
    xid,
)

NAMES = [f"n{i:02d}" for i in range(48)]


def facts(*, jobs: bool = True, **more: Any) -> list[Fact]:
    """Six racks of eight on two power feeds, coolant loops of twelve, two pools, all in one zone."""
    made = cluster({"llama": NAMES[:16]} if jobs else {}, spare=NAMES)
    for i, name in enumerate(NAMES):
        parts = {"power-feed": f"F{i % 2}", "coolant-loop": f"c{i // 12}", "zone": "z1"}
        made.append(node_fact(name, since=-3500, rack=f"r{i // 8}", pool=f"p{i // 24}", parts=parts, **more))
    return made


def went(names: Sequence[str], seconds: float, apart: float = 0.5) -> list[Signal]:
    return [not_ready(n, seconds + apart * i) for i, n in enumerate(names)]


def back(names: Sequence[str], seconds: float, apart: float = 0.5) -> list[Signal]:
    return [not_ready(n, seconds + apart * i, ready=True) for i, n in enumerate(names)]


def told(signals: Sequence[Signal], until: float, world: World | None = None, step: float = 5) -> World:
    world = world or World(facts())
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=step)
        world.see(signal)
    world.pass_to(until, step=step)
    return world


def lost_gpus(names: Sequence[str], seconds: float) -> list[Signal]:
    return [xid(n, 79, seconds + 2 * i) for i, n in enumerate(names)]


def standing(world: World) -> set[tuple[str, str]]:
    return {(i.family, i.root.key) for i in world.incidents()}


FEED, LOOP = NAMES[1::2], NAMES[12:24]
ONE: dict[str, tuple[list[Signal], str, str]] = {
    "a power feed that goes dark": (went(FEED, 0), "power_cooling", "part/power-feed/F1"),
    "most of a feed": (went(FEED[3:], 0), "power_cooling", "part/power-feed/F1"),
    "a coolant loop, over two racks": (
        [sign("gpu.power", n, 10 * i, "power_brake", index=0) for i, n in enumerate(LOOP)],
        "power_cooling",
        "part/coolant-loop/c1",
    ),
    "a rack, which stands on a part of everything else": (went(NAMES[8:16], 0), "power_cooling", "rack/r1"),
    "GPUs lost in one rack": (lost_gpus(NAMES[8:14], 0), "shared_fault", "rack/r1"),
    "a pool": (went(NAMES[24:], 0), "nodes_not_ready", "part/pool/p1"),
    "one part that loses links, hosts and nodes": (
        [
            *(nic(n, "mlx5_0", i) for i, n in enumerate(NAMES[8:12])),
            *(sign("node.kernel", n, 5 + i, "hard_lockup") for i, n in enumerate(NAMES[12:14])),
            *went(NAMES[14:16], 8),
            sign("node.condition", NAMES[8], 9, "container_runtime"),
        ],
        "shared_fault",
        "rack/r1",
    ),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("order", ["as it was", "backwards", "restarted"])
def test_trouble_at_once_is_one_incident_of_the_smallest_part_that_covers_it(name: str, order: str) -> None:
    signals, family, root = ONE[name]
    world = World(facts(jobs=False))
    if order == "as it was":
        told(signals, 0, world)
    else:
        for signal in reversed(signals):
            world.see(signal)
            if order == "restarted":
                world.restart()
    world.pass_to(400, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key, incident.certainty) == (family, root, Certainty.LIKELY)
    assert not any(i.root.node and i.certainty is Certainty.DECISIVE for i in world.incidents())


def test_a_part_that_falls_ill_node_by_node_is_not_told_again_at_each() -> None:
    """Numbers and nodes follow every 15 seconds; the last of them are told as well."""
    hot = [sign("gpu.power", n, 2 * i, "power_brake", index=0) for i, n in enumerate(FEED)]
    world = told(hot, 60, World(facts(jobs=False)), step=1)
    feed = [r for r in world.revisions if r.root.part is not None]
    assert 3 <= len(feed) <= 6
    world.pass_to(90, step=1)
    assert "24 of 24 nodes" in world.only().reason
    assert set(world.only().nodes) == set(FEED)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("gone_first", [False, True])
def test_nodes_that_come_in_the_place_of_others_change_no_earlier_event(
    gone_first: bool, restarts: bool
) -> None:
    rack, signals = NAMES[8:16], went(NAMES[8:16], 0)
    world = told([*signals, *back(rack, 200)], 600)
    before = standing(world)
    assert before == {("power_cooling", "rack/r1")}
    fresh = [node_fact(f"m{i:02d}", since=600, rack="r1", pool="p0", created_at=at(600)) for i in range(12)]
    olds = [node_fact(n, rack="r1", pool="p0") for n in rack]
    for fact in [] if gone_first else fresh:
        world.tell(fact)
    for fact in olds:
        world.gone(fact, 610)
    for fact in fresh if gone_first else []:
        world.tell(fact)
    if restarts:
        world.restart()
    world.see(*went(NAMES[40:42], 620))
    world.pass_to(1000, step=20)
    assert {i.root.key for i in world.incidents() if i.fault_at < at(300)} == {"rack/r1"}
    assert "8 of 8 nodes of rack r1" in next(i.reason for i in world.incidents() if i.root.rack)


def test_it_is_told_in_the_words_of_people() -> None:
    incident = told(went(FEED, 0), 400).only()
    assert incident.title == "Power or cooling trouble at power feed F1"
    assert "24 of 24 nodes of power feed F1 went dark within 12 s" in incident.reason


def test_a_guess_is_told_as_one() -> None:
    world = World(facts(jobs=False, guessed_parts=("power-feed",)))
    incident = told(went(FEED, 0), 400, world).only()
    assert "a guess from labels or names" in incident.reason
    assert incident.facts["guessed"] is True


def halls(*, loops: int = 18, feeds: bool = False) -> list[Fact]:
    """Racks of eighteen, the last of them smaller; coolant loops of so many nodes, and two power feeds for each rack."""
    made = cluster({}, spare=NAMES)
    for i, name in enumerate(NAMES):
        parts = {"coolant-loop": f"c{i // loops}", "nvlink-domain": f"d{i // 18}"}
        parts |= {"power-feed": f"{'ab'[i % 2]}-{i // 18}"} if feeds else {}
        made.append(node_fact(name, since=-3500, rack=f"r{i // 18}", parts=parts))
    return made


SCATTERED = [n for i, n in enumerate(NAMES) if i % 10]
"""Nine in ten, wherever they stand."""
R0, R1, R2 = NAMES[:18], NAMES[18:36], NAMES[36:]
MANY: dict[str, tuple[list[Fact], list[Signal], set[tuple[str, str]]]] = {
    "nine in ten of a loop of two racks and a rack": (
        halls(loops=36), went(SCATTERED, 0, 0.3), {("nodes_not_ready", "cluster")}
    ),
    "nine in ten of two loops": (halls(loops=24), went(SCATTERED, 0, 0.3), {("nodes_not_ready", "cluster")}),
    "all of them, on six feeds": (halls(feeds=True), went(NAMES, 0, 0.3), {("nodes_not_ready", "cluster")}),
    "half of everything": (halls(loops=36), went(NAMES[::2], 0, 0.3), {("nodes_not_ready", "cluster")}),
    "two thirds of a loop and half of the rest": (
        halls(loops=36), went([*R0[:12], *R1[:12], *R2[:6]], 0, 0.3), {("nodes_not_ready", "cluster")}
    ),
    "a loop that is most of the cluster": (
        halls(loops=36), went([*R0, *R1], 0, 0.3), {("power_cooling", "part/coolant-loop/c0")}
    ),
    "nearly all of that loop, and a node elsewhere": (
        halls(loops=36), went([*R0, *R1[:14], R2[3]], 0, 0.3),
        {("power_cooling", "part/coolant-loop/c0"), ("node_down", f"node/{R2[3]}")},
    ),
    "a rack of three, while a fifth of the others go": (
        halls(), went([*R0, *R1[:3], *R2[:2]], 0, 0.3),
        {("power_cooling", "rack/r0"), ("nodes_not_ready", "cluster")},
    ),
    "all of them, and one rack's coolant unit tells of itself": (
        halls(), [*went(NAMES, 0, 0.3), sign("node.power", "c2", 5, "feed", alert="CduPowerLost")],
        {("power_cooling", "part/coolant-loop/c2"), ("nodes_not_ready", "cluster")},
    ),
    "all of them, and one locks up": (
        halls(), [*went(NAMES, 0, 0.3), sign("node.kernel", R1[0], 5, "hard_lockup")],
        {("nodes_not_ready", "cluster"), ("host_fault", f"node/{R1[0]}")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("backwards", [False, True])
def test_parts_that_go_dark_explain_nothing_where_the_others_go_as_well(name: str, backwards: bool) -> None:
    made, signals, expected = MANY[name]
    world = World(made)
    if backwards:
        for signal in reversed(signals):
            world.see(signal)
        world.pass_to(400, step=5)
    else:
        told(signals, 400, world)
    assert standing(world) == expected


QUIET: dict[str, tuple[list[Signal], set[str]]] = {
    "four unrelated nodes that share only a zone": (
        went([NAMES[0], NAMES[9], NAMES[18], NAMES[35]], 0, apart=10),
        {"node/n00", "node/n09", "node/n18", "node/n35"},
    ),
    "two GPUs of a rack": (lost_gpus(NAMES[8:10], 0), {"gpu/n08/0000:10:00", "gpu/n09/0000:10:00"}),
    "a GPU lost as its rack goes dark": (
        [*went(NAMES[9:16], 0), xid("n08", 79, 3)],
        {"rack/r1", "gpu/n08/0000:10:00"},
    ),
    "GPUs of a rack, minutes apart": (
        [xid(n, 79, 400 * i) for i, n in enumerate(NAMES[8:13])],
        {f"gpu/{n}/0000:10:00" for n in NAMES[8:13]},
    ),
    "kubelets of a pool that restart": ([*went(NAMES[24:], 0), *back(NAMES[24:], 20)], set()),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_chance_or_habit_is_nobodys_part(name: str) -> None:
    signals, expected = QUIET[name]
    world = told(signals, 2200, World(facts(jobs=False)), step=10)
    assert {i.root.key for i in world.incidents()} == expected


def test_a_wave_of_reboots_through_a_rack_is_no_fault_of_the_rack() -> None:
    """Patching goes from node to node: never more than one is away, however fast it goes."""
    signals: list[Signal] = []
    for i, name in enumerate(NAMES[8:16]):
        signals += [not_ready(name, 50 * i), not_ready(name, 50 * i + 45, ready=True)]
    world = told(signals, 900, World(facts(jobs=False)))
    assert {i.root.key for i in world.published.values()} <= {f"node/{n}" for n in NAMES}


def test_nodes_that_an_autoscaler_takes_away_are_no_fault_of_their_pool() -> None:
    world = World(facts(jobs=False))
    leaving = NAMES[24:34]
    made = {f.name: f for f in facts(jobs=False) if f.kind == "node"}
    for i, name in enumerate(leaving):
        world.tell(
            node_fact(name, since=i, maintenance=True, taints=("ToBeDeletedByClusterAutoscaler=:NoSchedule",))
        )
    told(went(leaving, 60), 100, world)
    for name in leaving:
        world.gone(made[name], 110)
    world.pass_to(900, step=10)
    assert {i.state for i in world.revisions} <= {IncidentState.SUPPRESSED, IncidentState.RESOLVED}
    assert not [i for i in world.incidents() if i.root.node is None]


def some_trouble(chance: random.Random) -> list[Signal]:
    signals: list[Signal] = []
    for start in (0.0, chance.choice([40.0, 120.0, 700.0])):
        group = chance.choice([NAMES[8:16], FEED[:12], LOOP, NAMES[24:36]])
        for node in chance.sample(group, chance.choice([2, 4, 6, 8])):
            when = start + chance.choice([0, 2, 20, 55])
            made = chance.choice(
                [
                    not_ready(node, when),
                    xid(node, 79, when),
                    nic(node, "mlx5_0", when),
                    sign("gpu.power", node, when, "power_brake", index=0),
                ]
            )
            signals.append(made)
            if made.kind == "node.not_ready" and chance.random() < 0.6:
                signals.append(not_ready(node, when + chance.choice([20, 90, 300]), ready=True))
    if chance.random() < 0.5:
        signals += [progress("llama", 30 * i, i) for i in range(chance.choice([2, 8]))]
    return signals


@pytest.mark.parametrize("seed", range(10))
def test_in_whatever_order_trouble_is_told_it_is_the_same_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    signals = some_trouble(chance)

    def ended(order: Sequence[Signal], *, restarts: bool) -> set[tuple[object, ...]]:
        world = World(facts())
        for number, signal in enumerate(order):
            world.see(signal)
            if number % 3 == 0:
                world.pass_to((world.now - at(0)).total_seconds() + 1)
            if restarts and number % 5 == 4:
                world.restart()
        world.pass_to(1800, step=20)
        return {
            (i.id, i.family, i.fault_at, i.state, i.certainty, i.facts.get("nodes_hit"))
            for i in world.incidents()
            if not i.reason.startswith("Withdrawn")
        }

    first = ended(sorted(signals, key=lambda s: s.observed_at), restarts=False)
    assert first == ended(chance.sample(signals, len(signals)), restarts=False)
    assert first == ended(list(reversed(signals)), restarts=True)


def test_the_silence_of_ranks_on_one_node_of_a_dark_rack_is_the_racks() -> None:
    made = [f for f in cluster({"gemma": [NAMES[8], *NAMES[16:23]]}) if f.kind != "node"]
    world = told(
        [*went(NAMES[8:16], 0), *timeouts("gemma", range(8, 64), 610)], 900, World([*facts(), *made])
    )
    incident = world.only()
    assert incident.root.rack == "r1"
    assert "gemma" in {j.name for j in incident.jobs}


@pytest.mark.parametrize("rest", [0, 8])
def test_a_dark_rack_under_a_job_whose_ranks_complain_is_one_incident(rest: int) -> None:
    ranks = range(64 if rest else 0, 128 if rest else 64)
    world = told([*went(NAMES[8:16] if not rest else NAMES[:8], 0), *timeouts("llama", ranks, 640)], 900)
    incident = world.only()
    assert incident.root.rack == ("r0" if rest else "r1")
    assert [j.name for j in incident.jobs] == ["llama"]


def named_feeds() -> list[Fact]:
    made = cluster({}, spare=NAMES)
    parts = [{"power-feed": f"pdu-{'ab'[i % 2]}"} for i in range(len(NAMES))]
    return [
        *made,
        *(
            node_fact(n, since=-3500, parts=p, rack=f"r{i // 8}")
            for i, (n, p) in enumerate(zip(NAMES, parts, strict=True))
        ),
    ]


PDU = sign("node.power", "pdu-b", 0, "feed", alert="PDUInputLost", severity=Severity.ERROR)


@pytest.mark.parametrize("order", ["first", "last", "before the inventory"])
def test_what_a_pdu_tells_of_itself_is_the_cause_of_what_its_nodes_suffer(order: str) -> None:
    dark = went(FEED[:4], 20)
    world = World([] if order == "before the inventory" else named_feeds())
    for signal in [*dark, PDU] if order == "last" else [PDU, *dark]:
        world.see(signal)
    if order == "before the inventory":
        for fact in named_feeds():
            world.tell(fact)
    world.pass_to(300, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("power_cooling", "part/power-feed/pdu-b")
    assert "power feed pdu-b tells of itself" in incident.reason
    assert incident.nodes == tuple(FEED[:4])
    assert incident.facts["not_ready"] == 4


def test_a_pdu_that_no_node_is_known_to_hang_on_is_told_under_its_own_name() -> None:
    world = World(facts(jobs=False))
    world.see(PDU)
    world.pass_to(300, step=5)
    assert world.only().root.key == "node/pdu-b"


def test_a_pdu_and_a_node_of_another_feed_are_two() -> None:
    world = told([PDU, not_ready(NAMES[0], 10)], 300, World(named_feeds()))
    assert {i.root.key for i in world.incidents()} == {"part/power-feed/pdu-b", "node/n00"}


@pytest.mark.parametrize(("lasts", "sick", "told_at"), [
    (600, False, None), (None, False, 960), (600, True, 120)
])  # fmt: skip
def test_heat_that_a_part_tells_of_itself_must_last_or_be_felt(
    lasts: float | None, sick: bool, told_at: float | None
) -> None:
    hot = sign("node.thermal", "pdu-b", 0, "cooling", alert="CoolantFlowLow", severity=Severity.CRITICAL)
    world = World(named_feeds())
    world.see(hot, *(went(FEED[:4], 30) if sick else []))
    first = None
    for now in range(10, 1500, 10):
        world.pass_to(now)
        if lasts == now:
            world.see(replace(hot, state=SignalState.CLEARED, occurred_at=at(now), observed_at=at(now)))
        if first is None and any(i.root.part for i in world.incidents()):
            first = now
    assert (first is None) if told_at is None else (first is not None and first <= told_at)


@pytest.mark.parametrize("late", [False, True])
def test_links_of_hosts_whose_switch_nobody_knows_are_told_of_by_what_the_hosts_share(late: bool) -> None:
    blocks = [node_fact(n, since=-3500, parts={"block": f"b{i // 12}"}) for i, n in enumerate(NAMES)]
    world = World(
        cluster({"llama": NAMES[10:14]}, spare=NAMES)
        if late
        else [*cluster({"llama": NAMES[10:14]}, spare=NAMES), *blocks]
    )
    world.see(*(nic(n, "mlx5_0", i) for i, n in enumerate(NAMES[12:22])))
    if late:
        for fact in blocks:
            world.tell(fact)
    world.pass_to(300, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("fabric_fault", "part/block/b1")
    assert "one switch of block b1" in incident.reason


def test_links_all_over_the_cluster_are_of_no_block() -> None:
    blocks = [node_fact(n, since=-3500, parts={"block": f"b{i // 12}"}) for i, n in enumerate(NAMES)]
    world = World([*cluster({"llama": NAMES[10:14]}, spare=NAMES), *blocks])
    world.see(*(nic(n, "mlx5_0", i) for i, n in enumerate(NAMES[::5])))
    world.pass_to(300, step=5)
    assert world.only().root.key == "cluster"


def in_hand(names: Sequence[str], seconds: float) -> list[Fact]:
    """These nodes as somebody has cordoned them."""
    return [node_fact(n, since=seconds, rack=f"r{NAMES.index(n) // 8}", unschedulable=True) for n in names]


@pytest.mark.parametrize(("closed", "since", "rack", "state"), [
    (8, -600, 2, IncidentState.SUPPRESSED),
    (8, -600, 0, IncidentState.OPEN),
    (4, -600, 2, IncidentState.OPEN),
    (8, 60, 2, IncidentState.OPEN),
], ids=["emptied for work", "a job runs there", "half of it", "closed because of it"])  # fmt: skip
def test_what_an_emptied_rack_shows_while_people_work_on_it_is_left_to_them(
    closed: int, since: float, rack: int, state: IncidentState
) -> None:
    names = NAMES[8 * rack : 8 * rack + 8]
    world = World(facts())
    faults = [xid(n, 149, 0.2 * i, family="gpu_nvlink", action="reset_gpu") for i, n in enumerate(names)]
    if since < 0:
        for fact in in_hand(names[:closed], since):
            world.tell(fact)
    world.see(*faults)
    world.pass_to(50, step=5)
    if since > 0:
        for fact in in_hand(names[:closed], since):
            world.tell(fact)
    world.pass_to(300, step=5)
    assert {i.state for i in world.incidents() if i.root.rack == f"r{rack}"} == {state}
