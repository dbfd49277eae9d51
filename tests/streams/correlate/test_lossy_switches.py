"""A switch that drops what is sent to most of its hosts: its counters and theirs, and the jobs whose connections fail of it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.deliveries import essence, on_time, outcome
from tests.streams.correlate.world import (
    CLUSTER,
    GPUS,
    World,
    _signal,
    cluster,
    job,
    link,
    nccl_error,
    nic,
    nic_names,
    port,
    progress,
    timeouts,
)

NODES = [f"n{i}" for i in range(8)]
JOBS: dict[str, Sequence[str]] = {"llama": NODES[:4], "gemma": NODES[4:]}


def facts() -> list[Fact]:
    """Eight hosts with two rails, each on its own leaf, whose ports bear the names of rails."""
    found: list[Fact] = [
        replace(fact, addresses=(f"10.0.0.{fact.name[1:]}",)) if isinstance(fact, NodeFact) else fact
        for fact in cluster(JOBS)
    ]
    for i, node in enumerate(NODES):
        found += [link(f"leaf-{rail}", f"Ethernet{i}", node, f"rail{rail}") for rail in (1, 2)]
    return found


def drops(
    ports: Iterable[int], seconds: float, *, cleared: bool = False, leaf: str = "leaf-1"
) -> list[Signal]:
    return [
        port(
            leaf, f"Ethernet{i}", seconds + 0.1 * i, subtype="drops", counter="out-discards", cleared=cleared
        )
        for i in ports
    ]


def sent_again(
    nodes: Iterable[str],
    seconds: float,
    device: str = "mlx5_1",
    *,
    subtype: str = "retransmits",
    cleared: bool = False,
) -> list[Signal]:
    return [
        nic(node, device, seconds + 0.1 * i, subtype=subtype, cleared=cleared) for i, node in enumerate(nodes)
    ]


def given_up(
    name: str, one: int, other: int, seconds: float, device: str = "mlx5_1", status: int = 12
) -> Signal:
    """A connection of a job from one of its nodes to another fails."""
    line = nccl_error(name, one * GPUS, seconds)
    attributes: dict[str, Attribute] = {
        "rank": one * GPUS, "subtype": "ib_completion", "status": status, "vendor_err": 129, "device": device,
        "peer": f"10.0.0.{JOBS[name][other][1:]}",
    }  # fmt: skip
    entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{one}"), rank=one * GPUS)
    return replace(line, entity=entity, attributes=attributes)


LOSSY = [*drops(range(8), 0), *sent_again(NODES, 20)]
FAILS = given_up("llama", 0, 2, 600)


def seen(signals: Iterable[Signal], until: float = 1500) -> list[Incident]:
    world = World(facts())
    ordered = sorted(signals, key=lambda s: s.observed_at)
    for signal in ordered:
        world.see(signal)
    world.pass_to(until, step=10)
    return list(world.published.values())


def test_a_job_that_loses_connections_over_a_switch_that_drops_is_its_victim() -> None:
    (incident,) = seen([*LOSSY, FAILS])
    assert (incident.family, incident.root.key) == ("fabric_fault", "switch/leaf-1")
    assert incident.certainty is Certainty.LIKELY
    assert incident.jobs == (job("llama"),)
    assert incident.facts["nics"] == ("mlx5_1",)
    assert "drops what is sent to 8 of its 8 hosts" in incident.reason


@pytest.mark.parametrize("subtype", ["retransmits", "lost_packets"])
def test_whatever_counter_of_its_hosts_shows_the_loss(subtype: str) -> None:
    (incident,) = seen([*drops(range(8), 0), *sent_again(NODES, 20, subtype=subtype), FAILS])
    assert (incident.family, incident.root.key) == ("fabric_fault", "switch/leaf-1")


def test_so_are_several_that_fail_one_after_the_other_and_move_in_between() -> None:
    (incident,) = seen(
        [
            *LOSSY,
            FAILS,
            *(progress("gemma", t, int(t)) for t in range(60, 2400, 60)),
            given_up("gemma", 1, 3, 2500),
        ],
        until=3600,
    )
    assert (incident.root.switch, incident.jobs) == ("leaf-1", (job("gemma"), job("llama")))


def test_two_connections_that_meet_by_chance_accuse_no_host_of_it() -> None:
    (incident,) = seen([*LOSSY, FAILS, given_up("llama", 1, 2, 601)])
    assert incident.root.key == "switch/leaf-1"


def test_as_long_as_no_job_fails_of_it_nobody_is_called() -> None:
    assert not seen(LOSSY)


def slow(name: str = "llama", seconds: float = 1500, since: float = 60) -> Signal:
    """A pod's log says that its steps have become slower."""
    pod = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-0"))
    told: dict[str, Attribute] = {
        "subtype": "slow",
        "percent": 40,
        "elapsed_ms": int(1000 * (seconds - since)),
    }
    return _signal("job.stalled", pod, seconds, told, severity=Severity.WARNING)


def test_a_job_that_becomes_slower_as_its_switch_begins_to_drop_is_affected_and_not_stopped() -> None:
    (incident,) = seen([*LOSSY, slow()], until=3000)
    assert (incident.root.key, incident.jobs) == ("switch/leaf-1", (job("llama"),))
    assert incident.impact.gpus == 0


def test_a_job_that_is_slow_first_and_fails_later_is_stopped() -> None:
    (incident,) = seen([*LOSSY, slow(), given_up("llama", 0, 2, 2400)], until=3000)
    assert (incident.root.key, incident.jobs) == ("switch/leaf-1", (job("llama"),))


NOT_SLOWED = {
    "all switches drop": [
        *LOSSY, *drops(range(8), 30, leaf="leaf-2"), *drops(range(8), 40, leaf="leaf-3"), slow(),
    ],
    "it was slow an hour before": [*LOSSY, slow(since=-3600)],
    "it is slow long after that began": [*LOSSY, slow(seconds=6000, since=5000)],
    "only its counters tell": [*drops(range(8), 0), slow()],
}  # fmt: skip


@pytest.mark.parametrize("why", NOT_SLOWED)
def test_a_slow_job_has_another_reason_where(why: str) -> None:
    assert not seen(NOT_SLOWED[why], until=6600)


OTHERS = {
    "its counters alone": [*drops(range(8), 0), FAILS],
    "the NICs alone": [*sent_again(NODES, 20), FAILS],
    "of few of its hosts": [*drops(range(3), 0), *sent_again(NODES, 20), FAILS],
    "two NICs only": [*drops(range(8), 0), *sent_again(NODES[:2], 20), FAILS],
    "over another NIC": [*LOSSY, given_up("llama", 0, 2, 600, "mlx5_2")],
    "it was over": [
        *LOSSY, *drops(range(8), 200, cleared=True), *sent_again(NODES, 200, cleared=True), given_up("llama", 0, 2, 1500),
    ],
    "a NIC that hangs on another switch": [
        *(nic_names(n, -60, "mlx5_1", netdev="rail2") for n in NODES), *LOSSY, FAILS,
    ],
}  # fmt: skip


@pytest.mark.parametrize("why", OTHERS)
def test_it_is_not_the_switch_where(why: str) -> None:
    (incident,) = seen(OTHERS[why], until=2400)
    assert (incident.family, incident.root.key) == ("hang", f"job/{job('llama').key}")


def test_whatever_the_order_the_same_switch_is_named() -> None:
    signals = [*LOSSY, FAILS]
    expected = list(map(essence, outcome(on_time(facts(), signals), until=1500)))
    assert len(expected) == 1
    for seed in range(4):
        chance = random.Random(seed)
        arrivals = [(when + chance.choice([0, 0, 40, 300]), what) for when, what in on_time(facts(), signals)]
        again = outcome(arrivals, restarts=0.1, seed=seed, until=1500)
        assert list(map(essence, again)) == expected


MANY = [f"n{i}" for i in range(24)]
OF_MANY: dict[str, Sequence[str]] = {"llama": MANY[:4], "gemma": MANY[4:12], "qwen": MANY[12:]}


def uncabled() -> list[Fact]:
    """Of the leafs nobody knows what hangs on them."""
    return [
        replace(fact, addresses=(f"10.0.0.{fact.name[1:]}",)) if isinstance(fact, NodeFact) else fact
        for fact in cluster(OF_MANY)
    ]


def lost_over(device: str, seconds: float = 600) -> Signal:
    line = nccl_error("llama", 0, seconds)
    attributes: dict[str, Attribute] = {
        "rank": 0, "subtype": "ib_completion", "status": 12, "device": device, "peer": "10.0.0.2",
    }  # fmt: skip
    return replace(
        line, entity=Entity(CLUSTER, pod=PodRef("train", "llama-worker-0"), rank=0), attributes=attributes
    )


def watched(
    signals: Iterable[Signal], until: float = 2400, known: Sequence[Fact] | None = None
) -> list[Incident]:
    world = World(uncabled() if known is None else known)
    world.play(signals, until)
    return list(world.incidents())


WAITS = timeouts("llama", range(4 * GPUS), 1200)
UNCABLED: dict[str, Sequence[Signal]] = {
    "connections that fail over the NICs that send again": [
        *drops(range(20), 0), *sent_again(MANY[:6], 20, subtype="lost_packets"), lost_over("mlx5_1"),
    ],
    "all ranks wait, and hosts of them send again": [
        *drops(range(20), 0), *sent_again(MANY[:6], 20, subtype="lost_packets"), *WAITS,
    ],
    "few ports, and hosts send again": [*drops(range(10), 0), *sent_again(MANY[:6], 20), lost_over("mlx5_1")],
    "no host's counters are read": [*drops(range(20), 0), lost_over("mlx5_5")],
    "another switch drops at a few of its ports": [
        *drops(range(20), 0), *drops(range(6), 10, leaf="leaf-2"), lost_over("mlx5_5"),
    ],
    "another one did an hour ago": [
        *drops(range(20), -7200, leaf="leaf-2"), *drops(range(20), -3600, leaf="leaf-2", cleared=True),
        *drops(range(20), 0), lost_over("mlx5_5"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("how", UNCABLED)
def test_a_switch_alone_that_drops_at_most_ports_is_named_though_its_cables_are_not_known(how: str) -> None:
    (incident,) = watched(UNCABLED[how])
    assert (incident.family, incident.root.key) == ("fabric_fault", "switch/leaf-1")
    assert incident.certainty is Certainty.LIKELY
    assert incident.jobs == (job("llama"),)
    assert "Which hosts hang on it is not known" in incident.reason


NOT_BY_PORTS: dict[str, Sequence[Signal]] = {
    "as many ports as one host has": [*drops(range(8), 0), *sent_again(MANY[:6], 20), lost_over("mlx5_1")],
    "few ports, and no host sends again": [*drops(range(12), 0), lost_over("mlx5_1")],
    "all switches drop": [
        *drops(range(20), 0), *drops(range(20), 30, leaf="leaf-2"), *drops(range(16), 60, leaf="leaf-3"),
        *sent_again(MANY[:6], 20), lost_over("mlx5_1"),
    ],
    "the others only a while later": [
        *drops(range(20), 0), *sent_again(MANY[:6], 20), lost_over("mlx5_1", 60),
        *drops(range(20), 90, leaf="leaf-2"), *drops(range(20), 100, leaf="leaf-3"),
    ],
    "most of its ports do not": [
        *(port("leaf-1", f"Ethernet{i}", -60, subtype="link_down", standing="true") for i in range(20, 70)),
        *drops(range(20), 0), lost_over("mlx5_1"),
    ],
    "hosts of other jobs send again": [*drops(range(20), 0), *sent_again(MANY[12:], 20), lost_over("mlx5_1")],
    "over other NICs": [*drops(range(20), 0), *sent_again(MANY[:6], 20), lost_over("mlx5_2")],
    "it was over": [
        *drops(range(20), 0), *drops(range(20), 300, cleared=True), lost_over("mlx5_1", 2000),
    ],
    "it has dropped for hours": [*drops(range(20), -9000), lost_over("mlx5_1")],
    "somebody ordered that it restarts": [
        port("leaf-1", "", -10, subtype="switch_reload"), *drops(range(20), 0), lost_over("mlx5_1", 60),
    ],
}  # fmt: skip


@pytest.mark.parametrize("why", NOT_BY_PORTS)
def test_nor_is_it_the_switch_where(why: str) -> None:
    found = watched(NOT_BY_PORTS[why], until=2400)
    assert [(i.family, i.root.key) for i in found] == [("hang", f"job/{job('llama').key}")]


def test_it_stays_the_switch_as_long_as_it_drops() -> None:
    """Counters say once that they began: what is older than what is kept of other evidence still holds."""
    signals = next(iter(UNCABLED.values()))
    for until in (2800, 4000, 9000):
        assert [i.root.key for i in watched(signals, until)] == ["switch/leaf-1"]


def test_what_a_job_lost_over_it_stays_its_fault_when_it_is_over_an_hour_later() -> None:
    signals = [*next(iter(UNCABLED.values())), progress("llama", 700, 1)]
    over = [
        *drops(range(20), 3600, cleared=True),
        *sent_again(MANY[:6], 3605, subtype="lost_packets", cleared=True),
    ]
    found = watched([*signals, *over], 5000)
    assert [(i.root.key, i.state) for i in found] == [("switch/leaf-1", IncidentState.RESOLVED)]


def test_ports_that_drop_on_a_busy_switch_call_nobody_while_jobs_go_on() -> None:
    goes_on = [progress(name, t, int(t)) for name in OF_MANY for t in range(0, 3600, 60)]
    assert not watched([*drops(range(40), 0), *sent_again(MANY, 20), *goes_on], until=3600)


def test_a_program_that_stops_beside_it_is_still_the_programs() -> None:
    """No NIC sends again, and no connection is lost."""
    (incident,) = watched([*drops(range(20), 0), *WAITS])
    assert incident.family == "hang"


def test_once_its_hosts_are_known_they_are_counted() -> None:
    cables = [link("leaf-1", f"Ethernet{i}", node, "mlx5_1") for i, node in enumerate(MANY[:4])]
    signals = [*drops(range(20), 0), *sent_again(MANY[:6], 20), lost_over("mlx5_1")]
    (incident,) = watched(signals, known=[*uncabled(), *cables])
    assert "drops what is sent to 4 of its 4 hosts" in incident.reason
