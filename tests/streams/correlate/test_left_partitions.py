"""Ports that a subnet's manager takes out of a partition while a job works in it: links stay up, and connections to them fail."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from streams.correlate.job_rules.left_partitions import guid_of
from streams.correlate.state import store
from streams.correlate.state.place import rows_of_partition
from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Attribute, Severity, Signal
from tests.streams.correlate.deliveries import essence, on_time, outcome
from tests.streams.correlate.world import CLUSTER, GPUS, World, _signal, cluster, job, progress, timeouts

NODES = [f"n{i}" for i in range(8)]
JOBS: dict[str, Sequence[str]] = {"llama": NODES[:6], "gemma": NODES[6:]}
LEFT = ["n0", "n1"]
"""The hosts all of whose ports leave."""
PLACE = "part/infiniband-partition/0x8012"


def facts(jobs: dict[str, Sequence[str]] = JOBS) -> list[Fact]:
    return [
        replace(fact, addresses=(f"10.0.0.{fact.name[1:]}",)) if isinstance(fact, NodeFact) else fact
        for fact in cluster(jobs)
    ]


def guid(node: str, nic: int) -> str:
    return f"0x9c0591030000{nic:02x}{int(node[1:]):02x}"


def gid(node: str, nic: int) -> str:
    return f"fe80::9c05:9103:0:{nic:x}{int(node[1:]):02x}"


def member(node: str, seconds: float, pkey: str = "0x8012", *, joined: bool = False) -> list[Signal]:
    """What UFM logs of the ports of a host that leave a partition, or join it."""
    return [
        _signal(
            "fabric.link",
            Entity(CLUSTER),
            seconds + 0.05 * i,
            {"subtype": "partition", "member": guid(node, i), "pkey": pkey, "manager": "ufm-1"},
            cleared=joined,
            severity=Severity.INFO,
        )
        for i in range(8)
    ]


def leave(seconds: float = 0, pkey: str = "0x8012") -> list[Signal]:
    return [s for i, node in enumerate(LEFT) for s in member(node, seconds + i, pkey)]


def refused(seconds: float) -> Signal:
    said: dict[str, Attribute] = {
        "subtype": "partition_refused",
        "number": "259",
        "lid": "24",
        "manager": "ufm-1",
    }
    return _signal("fabric.link", Entity(CLUSTER), seconds, said, severity=Severity.INFO)


def lost(
    one: str,
    other: str,
    seconds: float,
    *,
    nic: int = 2,
    gids: bool = True,
    name: str = "llama",
    index: int | None = None,
) -> Signal:
    """A connection of a job from one of its nodes to another is given up."""
    index = JOBS[name].index(one) if index is None else index
    said: dict[str, Attribute] = {
        "rank": index * GPUS, "subtype": "ib_completion", "status": 12, "vendor_err": 129, "device": f"mlx5_{nic}",
        "peer": f"10.0.0.{other[1:]}",
    }  # fmt: skip
    if gids:
        said |= {"gid": gid(one, nic), "peer_gid": gid(other, nic)}
    entity = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{index}"), rank=index * GPUS)
    return _signal("nccl.error", entity, seconds, said)


def keys_changed(node: str, seconds: float) -> Signal:
    """What NCCL prints of an event of a NIC of its own host."""
    index = JOBS["llama"].index(node)
    said: dict[str, Attribute] = {
        "subtype": "async_event",
        "device": "mlx5_2",
        "reason": "P_Key table change",
    }
    entity = Entity(CLUSTER, pod=PodRef("train", f"llama-worker-{index}"), rank=index * GPUS)
    return _signal("nccl.error", entity, seconds, said, severity=Severity.WARNING)


def fails(seconds: float = 45, *, gids: bool = True) -> list[Signal]:
    """What a job prints that reaches two of its nodes no more: from both sides, and not only of them."""
    pairs = [("n0", "n3"), ("n2", "n1"), ("n4", "n0"), ("n1", "n5")]
    return [lost(one, other, seconds + i, gids=gids) for i, (one, other) in enumerate(pairs)]


def seen(signals: Iterable[Signal], until: float = 1500) -> list[Incident]:
    world = World(facts())
    world.play(signals, until)
    return list(world.incidents())


def test_the_lower_half_of_a_gid_of_infiniband_is_its_ports_guid() -> None:
    assert guid_of("fe80::9c05:9103:c3:dbb9") == 0x9C05910300C3DBB9
    assert guid_of("::ffff:10.0.0.1") is None
    assert guid_of("no address") is None


EXPLAINED = {
    "by the GUIDs of its connections": [*leave(), *fails()],
    "by those, also where it held out for an hour": [*leave(), *fails(3600)],
    "where its manager prints the key of a limited member": [*leave(pkey="0x12"), *fails()],
    "by its ports' own events": [*leave(), *(keys_changed(n, 5) for n in LEFT), *fails(gids=False)],
    "by the time, where ports refused keys meanwhile": [*leave(), refused(4), refused(30), *fails(gids=False)],
    "where a few others fail after them": [*leave(), *fails(), lost("n4", "n5", 52)],
}  # fmt: skip


@pytest.mark.parametrize("how", EXPLAINED)
def test_a_job_that_loses_connections_to_ports_that_left_its_partition_is_its_victim(how: str) -> None:
    (incident,) = seen(EXPLAINED[how], until=5000)
    assert (incident.family, incident.root.key) == ("fabric_fault", PLACE)
    assert (incident.jobs, incident.certainty) == ((job("llama"),), Certainty.LIKELY)
    assert incident.root.node is None
    assert incident.nodes == tuple(NODES[:6])
    assert "16 ports were taken out of partition 0x8012" in incident.reason


def test_who_asked_for_it_is_in_the_reason() -> None:
    said: dict[str, Attribute] = {
        "subtype": "partition", "pkey": "0x8012", "by": "provisioner", "manager": "ufm-1",
    }  # fmt: skip
    request = _signal("fabric.link", Entity(CLUSTER), -1, said, severity=Severity.INFO)
    (incident,) = seen([request, *leave(), *fails()])
    assert "by provisioner" in incident.reason


def test_a_job_that_fails_again_and_again_there_is_one_incident() -> None:
    tries = [s for seconds in (45, 320, 640) for s in fails(seconds)]
    (incident,) = seen([*leave(), *tries], until=1500)
    assert incident.root.key == PLACE


def test_it_is_over_once_its_members_are_back() -> None:
    back = [s for node in LEFT for s in member(node, 1200, joined=True)]
    (incident,) = seen([*leave(), *fails(), *back], until=2400)
    assert incident.state is IncidentState.RESOLVED


MANY: dict[str, Sequence[str]] = {
    f"tenant-{k}": [f"n{i}" for i in range(8 * k, 8 * k + 8)] for k in range(16)
}


def test_a_thousand_ports_that_leave_at_once_are_one_incident_for_all_of_their_jobs() -> None:
    """Also where hundreds have joined shortly before."""
    before = [s for i in range(40) for s in member(f"n{i}", -2000, joined=True)]
    world = World(facts(MANY))
    world.see(*before, *(s for i in range(128) for s in member(f"n{i}", i / 64)))
    for k, (name, nodes) in enumerate(MANY.items()):
        at_once = 40 + 50 * k
        world.see(*(lost(nodes[i], nodes[i - 1], at_once + i, name=name, index=i) for i in range(8)))
        world.pass_to(at_once + 45, step=15)
    world.restart()
    world.pass_to(1200, step=30)
    incident = world.only()
    assert (incident.root.key, len(incident.jobs)) == (PLACE, 16)
    assert "1024 ports were taken out" in incident.reason
    world.see(*(s for i in range(128) for s in member(f"n{i}", 1300, joined=True)))
    world.pass_to(2400, step=60)
    assert world.only().state is IncidentState.RESOLVED
    assert len(world.revisions) <= 2 * len(MANY)


def test_lines_can_name_any_number_of_members_and_a_bounded_number_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "MAX_GROUPS", 2)
    world = World(facts())
    world.see(*(s for i in range(100) for s in member(f"n{i}", i)))
    kept = [len(world.engine._state.ports[name].seen) for name in rows_of_partition("0x8012")]
    assert set(kept) == {2}


NOTHING = {
    "members leave, and no job suffers": [*leave(), *(progress("llama", t, int(t)) for t in range(0, 1400, 60))],
    "members leave that nobody uses any more, and are refused": [*leave(), *(refused(5 + 10 * i) for i in range(40))],
    "members come and go all day": [
        s for i in range(40) for s in member(f"n{i % 8}", 60 * i, pkey=f"0x80{i % 5}1", joined=bool(i % 2))
    ],
    "ports refuse keys": [refused(10 * i) for i in range(60)],
}  # fmt: skip


@pytest.mark.parametrize("why", NOTHING)
def test_nobody_is_called_where(why: str) -> None:
    assert not seen(NOTHING[why], until=3000)


OTHERS = {
    "it loses connections to other ports": [*leave(), lost("n2", "n3", 45), lost("n4", "n3", 46), lost("n5", "n3", 47)],
    "just one of many ends there": [*leave(), lost("n0", "n3", 45), *(lost("n2", n, 46) for n in ("n3", "n4", "n5"))],
    "it failed before": [*fails(-90), *leave()],
    "the ports had joined another partition": [
        *leave(), *(s for n in LEFT for s in member(n, 30, pkey="0x8044", joined=True)), *fails(900),
    ],
    "they were back": [*leave(), *(s for n in LEFT for s in member(n, 60, joined=True)), *fails(900)],
    "only the time tells, and nobody refused anything": [*leave(), *fails(gids=False)],
    "only the time tells, and it is long ago": [*leave(), refused(4), *fails(1200, gids=False)],
    "its ports' events are of others": [
        *leave(), *(keys_changed(n, 5) for n in LEFT), lost("n2", "n3", 45, gids=False), lost("n4", "n3", 46, gids=False),
    ],
    "all ranks wait": [*leave(), *timeouts("llama", range(6 * GPUS), 700)],
}  # fmt: skip


@pytest.mark.parametrize("why", OTHERS)
def test_it_is_not_the_partition_where(why: str) -> None:
    found = seen(OTHERS[why], until=3000)
    assert found
    assert all(i.root.key != PLACE for i in found)


def test_whatever_the_order_the_same_partition_is_named() -> None:
    signals = [*leave(), refused(4), *fails()]
    expected = list(map(essence, outcome(on_time(facts(), signals), until=1500)))
    assert len(expected) == 1
    for seed in range(4):
        chance = random.Random(seed)
        arrivals = [(when + chance.choice([0, 0, 40, 300]), what) for when, what in on_time(facts(), signals)]
        again = outcome(arrivals, restarts=0.1, seed=seed, until=1500)
        assert list(map(essence, again)) == expected
