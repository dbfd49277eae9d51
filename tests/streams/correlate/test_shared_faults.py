"""What several nodes share: racks, storage, NVLink domains. One incident where it is, and what looks like one and is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streams.model.facts import Fact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import World, at, cluster, node_fact, not_ready, sign, timeouts, xid

RACK = ["n1", "n2", "n3", "n4"]
OTHERS = ["n5", "n6", "n7", "n8"]
CRITICAL, WARNING = Severity.CRITICAL, Severity.WARNING
OST, MDT = "lfs1-OST0001", "lfs1-MDT0000"


def facts(**more: Any) -> list[Fact]:
    """Two racks of four nodes, a job across each."""
    made = cluster({"llama": RACK, "gemma": OTHERS})
    made += [node_fact(n, since=-3500, rack="r1", **more) for n in RACK]
    return [*made, *(node_fact(n, since=-3500, rack="r2", **more) for n in OTHERS)]


def lost(node: str, seconds: float, target: str = OST, *, back: bool = False) -> Signal:
    return sign("node.storage", node, seconds, "lustre", target=target, peer="10.0.8.12@o2ib", cleared=back)


def hung(node: str, seconds: float) -> Signal:
    return sign("node.kernel", node, seconds, "hung_task")


def brakes(nodes: Sequence[str], seconds: float, apart: float = 20) -> list[Signal]:
    return [sign("gpu.power", n, seconds + apart * i, "power_brake", index=0) for i, n in enumerate(nodes)]


ONE: dict[str, tuple[list[Signal], str, str]] = {
    "a rack that brakes for power": (brakes(RACK, 0), "power_cooling", "rack/r1"),
    "a rack that is hot": (
        [
            sign("gpu.thermal", n, 20 * i, "temperature", index=g, severity=WARNING)
            for i, n in enumerate(RACK[:3])
            for g in (0, 5)
        ],
        "power_cooling",
        "rack/r1",
    ),
    "a rack that goes dark": ([not_ready(n, 5 * i) for i, n in enumerate(RACK)], "power_cooling", "rack/r1"),
    "supplies that fail and nodes that follow": (
        [sign("node.power", "n1", 0, "psu"), *(not_ready(n, 45 + i) for i, n in enumerate(RACK))],
        "power_cooling",
        "rack/r1",
    ),
    "a storage target that two nodes lost": (
        [lost("n1", 0), lost("n6", 15)],
        "storage_fault",
        f"storage/{OST}",
    ),
    "a file system of which several targets are gone": (
        [lost("n1", 0), lost("n2", 3, MDT), lost("n6", 15, "lfs1-OST0002")],
        "storage_fault",
        "storage/lfs1",
    ),
    "a filer that does not respond": (
        [sign("node.storage", n, i, "nfs", server="filer-3") for i, n in enumerate(RACK)],
        "storage_fault",
        "storage/filer-3",
    ),
    "storage lost and tasks that hang of it": (
        [lost("n1", 0), lost("n2", 4), *(hung(n, 130 + i) for i, n in enumerate([*RACK, *OTHERS]))],
        "storage_fault",
        f"storage/{OST}",
    ),
    "tasks that hang on many nodes, of what nobody names": (
        [hung(n, i) for i, n in enumerate([*RACK, *OTHERS])],
        "storage_fault",
        "storage/not named",
    ),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("backwards", [False, True])
def test_what_nodes_share_is_one_incident_where_it_is_shared(name: str, backwards: bool) -> None:
    signals, family, root = ONE[name]
    world = World(facts())
    for signal in reversed(signals) if backwards else signals:
        world.see(signal)
    world.pass_to(400, step=5)
    incident = world.only()
    assert (incident.family, incident.root.key, incident.certainty) == (family, root, Certainty.LIKELY)
    assert incident.root.node is None


MANY: dict[str, tuple[list[Signal], set[tuple[str, str]]]] = {
    "two nodes of a rack of four": (
        brakes(RACK[:2], 0),
        {("power_cooling", "gpu/n1/0000:10:00"), ("power_cooling", "gpu/n2/0000:10:00")},
    ),
    "three nodes of two racks": (
        brakes(["n1", "n2", "n5"], 0),
        {("power_cooling", f"gpu/{n}/0000:10:00") for n in ("n1", "n2", "n5")},
    ),
    "three nodes of a rack, hours apart": (
        brakes(RACK[:3], 0, apart=1200),
        {("power_cooling", f"gpu/{n}/0000:10:00") for n in RACK[:3]},
    ),
    "half of a rack not ready": (
        [not_ready("n1", 0), not_ready("n2", 5)],
        {("node_down", "node/n1"), ("node_down", "node/n2")},
    ),
    "one node that goes on without its storage": (
        [lost("n1", seconds) for seconds in (0, 300, 610, 920, 1210)],
        {("storage_fault", f"storage/{OST}")},
    ),
    "two file systems": (
        [lost("n1", 0), lost("n2", 1), lost("n5", 2, "lfs2-OST0001"), lost("n6", 3, "lfs2-OST0001")],
        {("storage_fault", f"storage/{OST}"), ("storage_fault", "storage/lfs2-OST0001")},
    ),
    "hung tasks on two nodes": (
        [hung(node, at) for node in ("n1", "n5") for at in (0, 120, 240)],
        {("host_fault", "node/n1"), ("host_fault", "node/n5")},
    ),
    "a rack that is hot and a GPU lost elsewhere": (
        [*brakes(RACK, 0), xid("n6", 79, 30)],
        {("power_cooling", "rack/r1"), ("gpu_off_bus", "gpu/n6/0000:10:00")},
    ),
    "a rack that is hot and a GPU lost in it": (
        [*brakes(RACK, 0), xid("n2", 79, 30, index=3)],
        {("power_cooling", "rack/r1"), ("gpu_off_bus", "gpu/n2/0000:13:00")},
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_what_only_looks_shared_stays_where_it_is(name: str) -> None:
    signals, expected = MANY[name]
    world = World(facts())
    for signal in signals:
        world.see(signal)
    world.pass_to(3000, step=20)
    assert {(i.family, i.root.key) for i in world.incidents()} == expected


def test_storage_that_came_back_within_a_minute_is_no_incident() -> None:
    world = World(facts())
    world.see(lost("n1", 0), lost("n2", 1), lost("n1", 30, back=True), lost("n2", 40, back=True))
    world.pass_to(300)
    assert world.incidents() == []


def test_storage_that_is_back_ends_its_incident_and_not_before_all_are_back() -> None:
    world = World(facts())
    world.see(lost("n1", 0), lost("n6", 1), lost("n1", 200, back=True))
    world.pass_to(400)
    assert world.only().state is IncidentState.OPEN
    world.see(lost("n6", 410, back=True))
    world.pass_to(600)
    assert (world.only().state, world.only().closed_at) == (IncidentState.RESOLVED, at(410))


def test_jobs_that_wait_for_storage_blame_no_node() -> None:
    world = World(facts())
    world.see(lost("n1", 0), lost("n2", 2), lost("n6", 3), *timeouts("llama", range(8, 32), 640))
    world.pass_to(760)
    incident = world.only()
    assert incident.family == "storage_fault"
    assert {j.name for j in incident.jobs} == {"llama", "gemma"}
    assert {"nccl.timeout"} <= {p.kind for p in incident.proofs}


def test_a_hang_of_a_job_that_reaches_its_storage_is_its_own() -> None:
    world = World(facts())
    world.see(lost("n6", 0), lost("n7", 2), *timeouts("llama", range(8, 32), 640))
    world.pass_to(760)
    assert {i.family for i in world.incidents()} == {"storage_fault", "silent_node"}


def test_nodes_that_were_told_of_alone_become_part_of_their_rack() -> None:
    world = World(facts())
    world.see(*brakes(RACK[:1], 0))
    world.pass_to(70)
    first = world.only()
    world.see(*brakes(RACK[1:], 100))
    rack = world.only()
    merged = world.published[first.id]
    assert (rack.root.rack, merged.state, merged.merged_into) == ("r1", IncidentState.MERGED, rack.id)
    assert rack.nodes == tuple(RACK)
    assert [j.name for j in rack.jobs] == ["llama"]


def test_a_rack_that_goes_dark_takes_its_jobs_as_victims() -> None:
    world = World(facts())
    world.see(*(not_ready(n, 5 * i) for i, n in enumerate(RACK)), *timeouts("gemma", range(8, 32), 620))
    world.pass_to(760)
    assert {(i.family, i.root.key) for i in world.incidents()} == {
        ("power_cooling", "rack/r1"),
        ("silent_node", "node/n5"),
    }


def test_a_rack_in_maintenance_is_nobodys_alarm() -> None:
    world = World(facts(maintenance=True))
    world.see(*(not_ready(n, 5 * i) for i, n in enumerate(RACK)))
    world.pass_to(300)
    assert {i.state for i in world.incidents()} == {IncidentState.SUPPRESSED}


def test_the_far_ends_of_a_link_in_another_tray_follow_the_gpu_that_failed() -> None:
    world = World(facts(nvlink_domain="d1"))
    world.see(
        xid("n2", 149, 0.5, index=1, reason="peer device", action="reset_gpu"),
        xid("n1", 149, 1, index=2, action="reset_gpu"),
        xid("n3", 149, 4, index=0, reason="sympathetic", action="reset_gpu"),
        xid("n5", 149, 300, index=0, action="reset_gpu"),
    )
    world.pass_to(400)
    assert {i.root.key for i in world.incidents()} == {"gpu/n1/0000:12:00", "gpu/n5/0000:10:00"}


def test_links_that_fail_in_two_domains_are_two_faults() -> None:
    world = World(
        [*facts(nvlink_domain="d1"), *(node_fact(n, since=-3000, nvlink_domain="d2") for n in OTHERS)]
    )
    world.see(xid("n1", 149, 0, action="reset_gpu"), xid("n6", 149, 1, action="reset_gpu"))
    world.pass_to(10)
    assert len(world.incidents()) == 2


def test_racks_that_are_learned_late_are_still_put_together() -> None:
    world = World(cluster({"llama": RACK}))
    world.see(*brakes(RACK, 0))
    world.pass_to(200)
    assert len(world.incidents()) == 4
    for name in RACK:
        world.tell(node_fact(name, since=-3000, rack="r1"))
    world.pass_to(300)
    assert world.only().root.key == "rack/r1"


def test_a_rack_is_the_same_after_a_restart_and_forgotten_after_it_is_over() -> None:
    world = World(facts())
    world.see(*brakes(RACK, 0))
    before = world.only()
    world.restart()
    world.pass_to(100)
    assert world.only().id == before.id
    world.see(*(sign("gpu.power", n, 200, "power_brake", index=0, cleared=True) for n in RACK))
    world.pass_to(9000, step=60)
    assert world.only().state is IncidentState.RESOLVED
    world.see(*brakes(RACK, 9001))
    assert sorted(i.incarnation for i in world.incidents() if i.root.rack) == [1, 2]


def test_a_lost_line_about_one_node_keeps_no_storage_lost_that_all_others_reach() -> None:
    world = World(facts())
    world.see(
        *(lost(n, i) for i, n in enumerate(RACK)),
        *(lost(n, 200 + i, back=True) for i, n in enumerate(RACK[1:])),
    )
    world.pass_to(500)
    assert (world.only().state, world.only().closed_at) == (IncidentState.RESOLVED, at(202))


MANY_NODES = [f"s{i:02d}" for i in range(20)]


def hiccup(nodes: Sequence[str], lasts: float) -> list[Signal]:
    gone = [lost(n, 0.3 * i) for i, n in enumerate(nodes)]
    return [*gone, *(lost(n, lasts + 0.3 * i, back=True) for i, n in enumerate(nodes))]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("count", "lasts", "fails", "told"), [
    (20, 25, False, 0), (20, 80, False, 0), (20, 140, False, 1),
    (20, 25, True, 1), (12, 25, True, 1), (9, 25, True, 0), (20, 6, True, 0)
])  # fmt: skip
def test_a_hiccup_of_storage_on_most_nodes_is_a_fault_only_where_a_job_hangs_with_it(
    count: int, lasts: float, fails: bool, told: int, backwards: bool
) -> None:
    world = World([*cluster({"llama": MANY_NODES[:4]}), *(node_fact(n) for n in MANY_NODES[4:])])
    hang = timeouts("llama", range(32), 605, waited=600) if fails else []
    signals = sorted(
        [*hiccup(MANY_NODES[:count], lasts), *hang], key=lambda s: s.observed_at, reverse=backwards
    )
    for signal in signals:
        world.pass_to((signal.observed_at - at(0)).total_seconds())
        world.see(signal)
    world.pass_to(1000, step=5)
    found = [i for i in world.incidents() if i.family == "storage_fault"]
    assert [i.root.key for i in found] == [f"storage/{OST}"] * told


def home(node: str, seconds: float, *, back: bool = False) -> Signal:
    return sign("node.storage", node, seconds, "nfs", cleared=back, server="nfs-home01")


FEW: dict[str, list[Signal]] = {
    "one line of one node": [lost("s00", 0)],
    "a line of another node every ten minutes, and none that ends it": [
        lost(n, 600 * i) for i, n in enumerate(MANY_NODES)
    ],
    "a line of one node an hour after its last": [lost("s00", 0), lost("s00", 3600)],
    "two nodes of twenty": [lost("s00", 0), lost("s01", 20)],
    "two login nodes that lose their home for minutes, again and again": sorted(
        (
            one
            for i in range(9)
            for n, begin in (("s18", 700 * i + 90), ("s19", 700 * i))
            for one in (home(n, begin), home(n, begin + 180), home(n, begin + 300, back=True))
        ),
        key=lambda one: one.observed_at,
    ),
    "a hiccup of three nodes, two of which lost it for minutes before, time and again": [
        one
        for nodes, begin, end in (
            (("s18",), 0, 300),
            (("s19",), 400, 700),
            (("s18",), 900, 1200),
            (("s17", "s18", "s19"), 1500, 1509),
        )
        for at_, back in ((begin, False), (begin + 2, False), (end, True))
        for one in (home(n, at_ + 0.1 * i, back=back) for i, n in enumerate(nodes))
    ],
    "tasks that hang on three nodes of twenty": [hung(n, 30 * i) for i, n in enumerate(MANY_NODES[:3])],
    "the configuration server of a file system": [lost(n, 0.1 * i, "MGS") for i, n in enumerate(MANY_NODES)],
}


@pytest.mark.parametrize("name", FEW)
def test_what_a_busy_cluster_says_of_its_storage_all_day_is_no_incident(name: str) -> None:
    world = World([*cluster({"llama": MANY_NODES[:4]}), *(node_fact(n) for n in MANY_NODES[4:])])
    for signal in FEW[name]:
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=60)
        world.see(signal)
    world.pass_to(FEW[name][-1].observed_at.timestamp() - at(0).timestamp() + 1200, step=20)
    assert world.incidents() == []


@pytest.mark.parametrize("hosts", [2, 3])
def test_where_no_inventory_tells_how_many_nodes_there_are_two_are_no_share_of_them(hosts: int) -> None:
    world = World()
    world.see(*(home(f"login{i}", 10 * i) for i in range(hosts)))
    world.pass_to(1500, step=20)
    assert len(world.incidents()) == (hosts > 2)


def test_what_one_node_had_before_dates_no_storage_that_many_lose() -> None:
    world = World([*cluster({"llama": MANY_NODES[:4]}), *(node_fact(n) for n in MANY_NODES[4:])])
    world.see(lost("s19", 0), lost("s19", 10))
    world.see(*(lost(n, 700 + i) for i, n in enumerate(MANY_NODES[:5])))
    world.pass_to(900)
    assert (world.only().fault_at, world.only().root.key) == (at(700), f"storage/{OST}")


def test_tasks_that_hang_with_a_storage_belong_to_it_also_where_others_hung_before() -> None:
    world = World([*cluster({"llama": MANY_NODES[:4]}), *(node_fact(n) for n in MANY_NODES[4:])])
    world.see(hung("s19", 0), hung("s19", 900), hung("s19", 1020), hung("s19", 1140))
    world.see(*(lost(n, 890 + i) for i, n in enumerate(MANY_NODES)))
    world.pass_to(1500, step=5)
    assert [i.family for i in world.incidents()] == ["storage_fault"]


@pytest.mark.parametrize(("server", "told"), [
    ("attic", {"storage/10.3.0.9"}),
    ("s19", {"storage/10.3.0.9"}),
    ("s18", {"storage/10.3.0.9", "node/s18"}),
])  # fmt: skip
@pytest.mark.parametrize("backwards", [False, True])
def test_the_disk_of_what_serves_a_storage_is_part_of_its_fault(
    server: str, told: set[str], backwards: bool
) -> None:
    nodes = [node_fact(n) for n in MANY_NODES[4:19]]
    world = World(
        [*cluster({"llama": MANY_NODES[:4]}), *nodes, node_fact("s19", addresses=("10.3.0.9", "fe80::9"))]
    )
    disk = sign("node.storage", server, 0, "disk_failed", severity=CRITICAL)
    lines = [
        disk,
        *(sign("node.storage", n, 60 + i, "nfs", server="10.3.0.9") for i, n in enumerate(MANY_NODES[:9])),
    ]
    for line in reversed(lines) if backwards else lines:
        world.see(line)
    world.pass_to(400, step=5)
    assert {i.root.key for i in world.incidents()} == told
