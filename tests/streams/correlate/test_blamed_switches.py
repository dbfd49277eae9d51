"""A switch that no link tells of: jobs' failing connections meet under it, and all of them are one incident."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.correlate.fabric_rules.switch_faults import switch_faults
from streams.correlate.hypothesis import Blame
from streams.correlate.policy.config import Config
from streams.correlate.sightings import sighting
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.store import State
from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Attribute, Signal
from tests.streams.correlate.deliveries import Arrival, essence, on_time, outcome
from tests.streams.correlate.world import (
    CLUSTER,
    GPUS,
    World,
    _signal,
    at,
    cluster,
    job,
    nccl_error,
    nic,
    not_ready,
    progress,
)
from tests.work import calls_counted

NODES = [f"n{i}" for i in range(12)]
JOBS: dict[str, Sequence[str]] = {
    "llama": ["n0", "n1", "n4", "n5", "n8"],
    "gemma": ["n2", "n3", "n6", "n9", "n10"],
}


def facts() -> list[Fact]:
    return [
        replace(f, leaf=f"leaf-{int(f.name[1:]) // 4}", addresses=(f"10.0.0.{f.name[1:]}",))
        if isinstance(f, NodeFact)
        else f
        for f in cluster(JOBS, spare=NODES)
    ]


def broken(name: str, one: str, other: str, seconds: float) -> Signal:
    """A connection from one node to another is given up."""
    index = JOBS[name].index(one)
    line = nccl_error(name, index * GPUS, seconds)
    attributes: dict[str, Attribute] = {
        "rank": index * GPUS, "subtype": "ib_completion", "status": 12, "vendor_err": 129,
        "peer": f"10.0.0.{other[1:]}",
    }  # fmt: skip
    entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{index}"), rank=index * GPUS)
    return replace(line, id=f"{name}-{one}-{other}-{seconds}", entity=entity, attributes=attributes)


LLAMA = [("n0", "n4"), ("n1", "n5"), ("n0", "n8"), ("n1", "n8")]
GEMMA = [("n2", "n6"), ("n3", "n9"), ("n2", "n10"), ("n3", "n6")]


def failing(name: str, pairs: Sequence[tuple[str, str]], seconds: float) -> list[Signal]:
    return [broken(name, one, other, seconds + 0.2 * i) for i, (one, other) in enumerate(pairs)]


def test_jobs_whose_failing_connections_meet_under_one_leaf_are_one_incident_there() -> None:
    world = World(facts())
    world.see(*failing("llama", LLAMA, 10), *failing("gemma", GEMMA, 14))
    world.pass_to(120)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("fabric_fault", "switch/leaf-0")
    assert incident.jobs == (job("gemma"), job("llama"))
    assert incident.certainty is not Certainty.DECISIVE
    assert len(world.published) == 1


def test_connections_that_fail_everywhere_blame_no_switch() -> None:
    world = World(facts())
    world.see(*failing("llama", LOOSE, 10))
    world.pass_to(140)
    assert world.only().family == "hang"


LOOSE = [("n0", "n4"), ("n5", "n8"), ("n1", "n8")]
APART = [("n2", "n6"), ("n9", "n10"), ("n3", "n10")]


def test_several_jobs_whose_connections_fail_everywhere_at_once_are_one_fault_of_the_network() -> None:
    world = World(facts())
    world.see(*failing("llama", LOOSE, 10), *failing("gemma", APART, 14))
    world.pass_to(900, step=5)
    incident = world.only()
    assert (incident.family, incident.root.kind) == ("fabric_fault", "cluster")
    assert incident.jobs == (job("gemma"), job("llama"))
    assert len(world.published) == 1


def test_what_fails_so_minutes_later_while_it_lasts_belongs_to_it_though_only_one_connection_does() -> None:
    world = World(facts())
    world.see(*failing("llama", LOOSE, 10), *failing("gemma", APART, 14))
    world.pass_to(300, step=5)
    world.see(*failing("gemma", [("n3", "n10")], 310))
    world.pass_to(900, step=5)
    assert [i.family for i in world.published.values()] == ["fabric_fault"]


def test_jobs_whose_connections_fail_minutes_apart_have_nothing_in_common() -> None:
    world = World(facts())
    world.see(*failing("llama", LOOSE, 10))
    world.pass_to(130, step=5)
    world.see(*failing("gemma", APART, 140))
    world.pass_to(600, step=5)
    assert [i.family for i in world.published.values()] == ["hang", "hang"]


def test_two_thousand_jobs_that_lose_the_network_are_compared_in_a_moment() -> None:
    line = sighting(broken("llama", "n0", "n4", 0))
    assert line is not None
    blames = [
        Blame("", job(f"j{i}"), at(i / 100), at(i / 100 + 5), at(60), (replace(line, id=f"{i}"),), "", 3)
        for i in range(2000)
    ]
    state = State(None, CLUSTER)
    with calls_counted() as count:
        (fault,) = switch_faults(
            CLUSTER, "", [], blames, 0, Incarnations(state, Config().linger, Config().flap_quiet), Config()
        )
    assert len(fault.hypothesis.jobs) == 2000
    assert count[0] < 2000 * 300


def test_dead_nodes_of_two_jobs_are_no_fault_of_the_network() -> None:
    world = World(facts())
    dead = ["n8", "n10"]
    pairs = {
        "llama": [("n0", "n8"), ("n4", "n8"), ("n0", "n4")],
        "gemma": [("n2", "n10"), ("n6", "n10"), ("n2", "n6")],
    }
    world.see(*failing("llama", pairs["llama"], 10), *failing("gemma", pairs["gemma"], 12))
    world.pass_to(52, step=2)
    world.see(*(not_ready(node, 52) for node in dead))
    world.pass_to(900, step=5)
    assert sorted((i.family, i.root.node) for i in world.published.values()) == [
        ("node_down", n) for n in sorted(dead)
    ]


def test_links_that_are_told_late_take_over_what_votes_had_found() -> None:
    world = World(facts())
    world.see(*failing("llama", LLAMA, 10))
    world.pass_to(60)
    first = world.only()
    assert first.facts["failing_pairs"] == len(LLAMA)
    world.see(*(replace(nic(n, "eth2", i), observed_at=at(61)) for i, n in enumerate(NODES[:4])))
    world.pass_to(200)
    incident = world.only()
    assert (incident.root.key, incident.facts["links_lost"]) == ("switch/leaf-0", 4)
    assert incident.jobs == (job("llama"),)
    assert not [i for i in world.published.values() if i.state is IncidentState.OPEN and i.id != incident.id]


def test_a_link_with_errors_is_part_of_the_node_at_which_connections_fail_later() -> None:
    world = World(facts())
    world.see(nic("n1", "rdma2", 0, subtype="symbol_errors"))
    world.pass_to(900, step=10)
    world.see(*failing("llama", [("n0", "n1"), ("n1", "n4"), ("n1", "n5")], 900))
    world.pass_to(1400, step=5)
    slow: dict[str, Attribute] = {"subtype": "slow", "percent": 55, "elapsed_ms": 1_200_000}
    world.see(_signal("job.stalled", Entity(CLUSTER, pod=PodRef("train", "llama-worker-0")), 1400, slow))
    world.pass_to(1700, step=5)
    assert [(i.family, i.root.node) for i in world.published.values()] == [("silent_node", "n1")]


def again(name: str, seconds: float, subtype: str = "ib_verbs", device: str = "mlx5_3") -> list[Signal]:
    """A later try of a job: queue pairs cannot be set up on any of its nodes, whatever the peer."""
    found = []
    for index in range(len(JOBS[name])):
        line = nccl_error(name, index * GPUS, seconds + 0.1 * index)
        attributes: dict[str, Attribute] = {"subtype": subtype, "reason": "Invalid argument"}
        if device:
            attributes["device"] = device
        entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{index}"), rank=index * GPUS)
        found.append(
            replace(line, id=f"{name}-{index}-{seconds}-{subtype}", entity=entity, attributes=attributes)
        )
    return found


def out_of_partition(*later: Signal, moved: float | None = None) -> World:
    """The network between two jobs' nodes fails, and what of one job is reported later."""
    world = World(facts())
    world.see(*failing("llama", LOOSE, 10), *failing("gemma", APART, 14))
    world.pass_to(250, step=5)
    if moved is not None:
        world.see(progress("llama", moved, 400))
    for signal in later:
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=10)
        world.see(signal)
    world.pass_to((later[-1].observed_at - at(0)).total_seconds() + 900, step=10)
    return world


def test_later_tries_that_fail_on_the_network_belong_to_it_though_they_name_no_peer() -> None:
    world = out_of_partition(*again("llama", 300), *again("llama", 800), *again("llama", 1300))
    assert [(i.family, i.root.kind) for i in world.published.values()] == [("fabric_fault", "cluster")]


@pytest.mark.parametrize(
    ("tries", "moved"),
    [
        pytest.param([again("llama", t) for t in (1500, 2600)], 400.0, id="it ran in between"),
        pytest.param([again("llama", t) for t in (5000, 6100)], None, id="hours later"),
        pytest.param([again("llama", t, "shared_memory", "") for t in (1500, 2600)], None, id="no network"),
    ],
)
def test_later_tries_are_a_hang_of_their_own_where_the_network_is_not_what_fails(
    tries: list[list[Signal]], moved: float | None
) -> None:
    world = out_of_partition(*(signal for one in tries for signal in one), moved=moved)
    assert sorted(i.family for i in world.published.values()) == ["fabric_fault", "hang"]


STORIES = {
    "and later tries": [
        *failing("llama", LOOSE, 10),
        *failing("gemma", APART, 14),
        *again("llama", 310),
    ],
    "several jobs at once": [*failing("llama", LOOSE, 10), *failing("gemma", APART, 14)],
    "votes": [*failing("llama", LLAMA, 10), *failing("gemma", GEMMA, 14)],
    "votes and links": [
        *(nic(n, "eth2", 0.5 * i) for i, n in enumerate(NODES[:4])),
        *failing("llama", LLAMA, 10),
        *failing("gemma", GEMMA, 14),
    ],
}


@pytest.mark.parametrize("name", STORIES)
def test_whatever_the_order_the_same_switch_is_named(name: str) -> None:
    signals = STORIES[name]
    expected = list(map(essence, outcome(on_time(facts(), signals), until=900)))
    assert len(expected) == 1
    for seed in range(6):
        chance = random.Random(seed)
        arrivals: list[Arrival] = [(-50.0 + chance.choice([0, 0, 40]), fact) for fact in facts()]
        for signal in signals:
            seen = (signal.observed_at - at(0)).total_seconds()
            arrivals += [
                (seen + chance.choice([0, 1, 30, 300]), signal) for _ in range(chance.choice([1, 2]))
            ]
        assert list(map(essence, outcome(arrivals, restarts=0.05, seed=seed, until=900))) == expected
