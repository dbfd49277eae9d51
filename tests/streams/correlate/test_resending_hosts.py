"""A switch that drops packets and says nothing: NICs of its hosts show it, those of others stand still, jobs hang or slow."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty
from streams.model.signal import SERIES, Attribute, Severity, Signal
from tests.streams.correlate.deliveries import essence, on_time, outcome
from tests.streams.correlate.world import (
    CLUSTER,
    GPUS,
    World,
    _signal,
    cluster,
    cut_off,
    job,
    link,
    nic,
    not_ready,
    port,
    sign,
    timeouts,
    xid,
)

NODES = [f"n{i:02}" for i in range(32)]
"""Eight on each of four leafs."""
LEAF = {node: i // 8 for i, node in enumerate(NODES)}
UNDER = [node for node in NODES if LEAF[node] == 0]
JOBS: dict[str, Sequence[str]] = {
    "llama": [*NODES[0:4], *NODES[8:12]],
    "gemma": NODES[4:8],
    "qwen": NODES[12:20],
    "phi": NODES[20:28],
}
"""The first two run under the first leaf; the last hosts are idle."""


def labelled(node: NodeFact) -> NodeFact:
    return replace(node, leaf=f"leaf-{LEAF[node.name]}")


def in_racks(node: NodeFact) -> NodeFact:
    return replace(node, rack=f"r{LEAF[node.name]}")


def in_blocks(node: NodeFact) -> NodeFact:
    """Each rack has two hosts: a leaf serves a whole block."""
    return replace(node, rack=f"r{NODES.index(node.name) // 2}", parts={"block": f"su{LEAF[node.name]}"})


def with_rails(node: NodeFact) -> NodeFact:
    return replace(node, rails={f"mlx5_{i}": f"leaf-{LEAF[node.name]}-{i}" for i in range(4)})


def bare(node: NodeFact) -> NodeFact:
    return node


def facts(known: object = labelled, jobs: Mapping[str, Sequence[str]] = JOBS) -> list[Fact]:
    idle = [n for n in NODES if not any(n in nodes for nodes in jobs.values())]
    return [
        known(fact) if isinstance(fact, NodeFact) else fact  # type: ignore[operator]
        for fact in cluster(dict(jobs), spare=idle)
    ]


def cabled() -> list[Fact]:
    """As LLDP tells it."""
    cables = [link(f"leaf-{LEAF[n]}", f"Ethernet{i}", n, "mlx5_1") for i, n in enumerate(NODES)]
    return [*facts(bare), *cables]


def shows(
    nodes: Iterable[str],
    seconds: float = 0,
    subtype: str = "lost_packets",
    device: str = "mlx5_1",
    *,
    cleared: bool = False,
    **more: Attribute,
) -> list[Signal]:
    """A counter of a NIC of each of these hosts goes up, twenty seconds apart."""
    told: dict[str, Attribute] = {SERIES: "1", "counter": "packet_seq_err", **more}
    return [
        nic(node, device, seconds + 20.0 * i, subtype=subtype, cleared=cleared, **told)
        for i, node in enumerate(nodes)
    ]


def hangs(name: str = "llama", silent: Sequence[str] = (), seconds: float = 1200) -> list[Signal]:
    """Watchdogs of a job that waits for ten minutes; ranks on these hosts say nothing."""
    ranks = [r for r in range(len(JOBS[name]) * GPUS) if JOBS[name][r // GPUS] not in silent]
    return timeouts(name, ranks, seconds)


def slow(name: str = "llama", seconds: float = 1500, since: float = 60) -> Signal:
    pod = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-0"))
    said: dict[str, Attribute] = {
        "subtype": "slow",
        "percent": 40,
        "elapsed_ms": int(1000 * (seconds - since)),
    }
    return _signal("job.stalled", pod, seconds, said, severity=Severity.WARNING)


def given_up(name: str, one: str, other: str, seconds: float, device: str = "mlx5_1") -> Signal:
    """A connection of a job fails; the peer is named by its host."""
    (line,) = cut_off(name, [JOBS[name].index(one) * GPUS], seconds, other, device)
    return line


def seen(signals: Iterable[Signal], known: Sequence[Fact] | None = None, until: float = 3000) -> World:
    world = World(facts() if known is None else known)
    world.play(signals, until)
    return world


SHAPES: dict[str, Sequence[Signal]] = {
    "packets out of order": shows(UNDER, counter="out_of_sequence"),
    "queue pairs that time out": shows(UNDER, subtype="retransmits", counter="local_ack_timeout_err"),
    "buffers that run out": shows(UNDER, subtype="congestion", counter="out_of_buffer"),
    "notifications of congestion": shows(UNDER, subtype="congestion", counter="np_cnp_sent"),
    "an alert of each host": [
        nic(n, "mlx5_1", 9.0 * i, subtype="lost_packets", alert="RoCEPacketSeqErr") for i, n in enumerate(UNDER)
    ],
    "errors of which nobody says what they are": [
        nic(n, "mlx5_1", 9.0 * i, subtype="errors", alert="RoCEErrors") for i, n in enumerate(UNDER)
    ],
    "several NICs of each": [*shows(UNDER), *shows(UNDER, 5, device="mlx5_2")],
    "some by one counter, some by another": [
        *shows(UNDER[:3], counter="out_of_sequence"), *shows(UNDER[3:6], subtype="retransmits", counter="timeouts"),
    ],
    "of most of its hosts": shows(UNDER[:5]),
    "and of their peers elsewhere": [*shows(UNDER), *shows(["n08", "n09"], 40)],
    "and of a busy host elsewhere": [*shows(["n13"], -3000), *shows(UNDER)],
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_hang_over_a_leaf_of_which_most_hosts_lose_packets_is_that_leafs(shape: str) -> None:
    incident = seen([*SHAPES[shape], *hangs()]).only()
    assert (incident.family, incident.root.key) == ("fabric_fault", "switch/leaf-0")
    assert incident.certainty is Certainty.LIKELY
    assert incident.jobs == (job("llama"),)
    assert incident.impact.gpus == 64


HANGS: dict[str, Sequence[Signal]] = {
    "two of its hosts are silent": hangs(silent=["n01", "n03"]),
    "both ends blame each other": [given_up("llama", "n01", "n09", 900), given_up("llama", "n09", "n01", 901)],
    "several connections fail": [
        given_up("llama", "n01", "n09", 900), given_up("llama", "n02", "n10", 900), given_up("llama", "n03", "n11", 901),
    ],
    "two connections meet at one of them": [given_up("llama", "n01", "n09", 900), given_up("llama", "n01", "n10", 900)],
    "long after it began": hangs(seconds=9000),
}  # fmt: skip


@pytest.mark.parametrize("how", HANGS)
def test_however_the_job_hangs_it_is_one_incident(how: str) -> None:
    incident = seen([*shows(UNDER), *HANGS[how]], until=11000 if how.startswith("long") else 3000).only()
    assert (incident.family, incident.root.key, incident.jobs) == (
        "fabric_fault",
        "switch/leaf-0",
        (job("llama"),),
    )


def test_counters_that_are_read_after_the_hang_began_take_it_over() -> None:
    incident = seen([*hangs(seconds=800), *shows(UNDER, 900)]).only()
    assert incident.root.key == "switch/leaf-0"


KNOWN: dict[str, tuple[Sequence[Fact], str]] = {
    "by labels": (facts(labelled), "switch/leaf-0"),
    "by cables": (cabled(), "switch/leaf-0"),
    "by rails": (facts(with_rails), "switch/leaf-0-1"),
    "only the rack": (facts(in_racks), "rack/r0"),
    "only the block": (facts(in_blocks), "part/block/su0"),
}


@pytest.mark.parametrize("how", KNOWN)
def test_what_the_hosts_share_is_named_as_far_as_it_is_known(how: str) -> None:
    known, root = KNOWN[how]
    incident = seen([*shows(UNDER), *hangs()], known).only()
    assert (incident.family, incident.root.key) == ("fabric_fault", root)


def test_the_name_of_a_switch_that_tells_its_rack_is_a_guess_and_told_as_one() -> None:
    heard = port("leaf-r0", "Ethernet3", -200, subtype="optics")
    incident = seen([heard, *shows(UNDER), *hangs()], facts(in_racks)).only()
    assert incident.root.key == "switch/leaf-r0"
    assert "is a guess from its name" in incident.reason


SLOWED: dict[str, Sequence[Signal]] = {
    "by a counter": shows(UNDER),
    "by errors of which nobody says what they are": SHAPES["errors of which nobody says what they are"],
    "beside a faint sign on one of its nodes": [
        *shows(UNDER),
        sign("node.thermal", "n09", 0, "temperature", severity=Severity.WARNING),
    ],
}


@pytest.mark.parametrize("how", SLOWED)
def test_a_job_that_is_only_slowed_is_affected_and_not_stopped(how: str) -> None:
    incident = seen([*SLOWED[how], slow()]).only()
    assert (incident.family, incident.root.key, incident.jobs) == (
        "fabric_fault",
        "switch/leaf-0",
        (job("llama"),),
    )
    assert incident.impact.gpus == 0


def test_one_job_that_hangs_and_one_that_is_slow_are_victims_of_one_fault() -> None:
    incident = seen([*shows(UNDER), *hangs(), slow("gemma")]).only()
    assert incident.jobs == (job("gemma"), job("llama"))
    assert incident.impact.gpus == 64


def test_a_job_of_another_leaf_that_is_slow_has_another_reason() -> None:
    assert not seen([*shows(UNDER), slow("phi")]).incidents()


def test_what_was_over_hours_before_a_job_hangs_is_not_why() -> None:
    signals = [*shows(UNDER), *shows(UNDER, 900, cleared=True), *hangs(seconds=9000)]
    incident = seen(signals, until=11000).only()
    assert incident.family == "hang"


def test_it_is_over_when_most_of_its_hosts_are_quiet() -> None:
    world = seen([*shows(UNDER), slow(), *shows(UNDER, 2400, cleared=True)], until=6000)
    assert world.only().state.is_over


def test_queue_pairs_of_several_jobs_that_time_out_for_long_are_told_without_any_that_suffers() -> None:
    timing_out = shows(UNDER, subtype="retransmits")
    assert not seen(timing_out, until=1100).incidents()
    assert seen(timing_out, until=3000).only().root.key == "switch/leaf-0"


def test_a_leaf_that_came_back_without_its_settings_is_told_though_its_restart_was_ordered() -> None:
    world = World(cabled())
    ordered = nic("leaf-0", "", -300)
    ordered = replace(
        ordered, entity=Entity(CLUSTER, switch="leaf-0"), attributes={"subtype": "switch_reload"}
    )
    down = [port("leaf-0", f"Ethernet{i}", -280 + 0.1 * i) for i in range(8)]
    up = [port("leaf-0", f"Ethernet{i}", -100 + 0.1 * i, cleared=True) for i in range(8)]
    world.play([ordered, *down, *up, *shows(UNDER, 30), slow(since=100)], 3000)
    assert world.only().root.key == "switch/leaf-0"


QUIET: dict[str, Sequence[Signal]] = {
    "no job suffers": shows(UNDER),
    "hosts of most leafs": [*shows(NODES[:28]), slow()],
    "a few hosts everywhere": [*shows(NODES[::4]), slow()],
    "half of the hosts of other leafs, too": [*shows([*UNDER, "n12", "n14", "n16", "n18", "n20", "n22", "n24"]), slow("gemma")],
    "they have shown it for hours": [*(s for i, n in enumerate(UNDER) for s in shows([n], -9000 + 1000 * i)), slow()],
    "one NIC": [*shows(["n01"]), slow()],
    "two hosts": [*shows(["n01", "n05"]), slow()],
    "eight NICs of two hosts": [*(s for i in range(8) for s in shows(["n01", "n05"], device=f"mlx5_{i}")), slow()],
    "one job holds the leaf, and is held up by what it reads": [*shows(NODES[24:28], subtype="congestion"), slow("phi")],
    "a job over two leafs": [*shows(JOBS["llama"]), slow()],
    "it was over before": [*shows(UNDER), *shows(UNDER, 600, cleared=True), slow(seconds=4000, since=3000)],
}  # fmt: skip


@pytest.mark.parametrize("why", QUIET)
def test_nothing_is_opened_where(why: str) -> None:
    assert not seen(QUIET[why], until=6000).incidents()


def test_one_bad_nic_under_a_job_stays_a_nic_though_all_its_peers_send_again() -> None:
    errors = nic("n25", "mlx5_1", 10, subtype="symbol_errors", series="7")
    incident = seen([*shows(NODES[24:28]), errors, slow("phi")]).only()
    assert (incident.family, incident.root.node) == ("nic_link", "n25")
    assert seen([*shows(NODES[24:28]), slow("phi")]).only().root.key == "switch/leaf-3"


def test_of_one_job_that_fills_two_leafs_neither_is_named() -> None:
    known = facts(jobs={"llama": NODES[:16], "qwen": NODES[16:24], "phi": NODES[24:]})
    assert not seen([*shows(NODES[:16]), slow()], known).incidents()
    assert seen([*shows(NODES[:16]), *timeouts("llama", range(128), 1200)], known).only().family == "hang"
    assert seen([*shows(NODES[:8]), *shows(["n08", "n09"]), slow()], known).only().root.key == "switch/leaf-0"


def test_a_busy_day_of_a_whole_cluster_opens_nothing() -> None:
    """Counters of many hosts go up and are quiet again all day; now and then a job is slow for reasons of its own."""
    chance = random.Random(7)
    signals: list[Signal] = []
    for node in NODES:
        for device in ("mlx5_1", "mlx5_2"):
            for subtype in ("congestion", "lost_packets"):
                seconds = chance.uniform(0, 3000)
                while seconds < 20000:
                    signals += shows([node], seconds, subtype, device)
                    seconds += chance.uniform(600, 2400)
                    signals += shows([node], seconds, subtype, device, cleared=True)
                    seconds += chance.uniform(600, 4000)
    signals += [slow(name, t, t - 900) for name, t in (("llama", 6000), ("gemma", 12000), ("phi", 17000))]
    assert not seen(signals, until=21000).incidents()


OTHERS: dict[str, tuple[Sequence[Signal], str]] = {
    "one node is silent, and all others have spoken": ([*shows(UNDER), *hangs(silent=["n01"])], "silent_node"),
    "nobody under it is silent": ([*shows(UNDER), *hangs(silent=["n09", "n10"])], "hang"),
    "hosts of most leafs show it": ([*shows(NODES[:28]), *hangs()], "hang"),
    "a GPU of the job is lost": ([*shows(UNDER), xid("n02", 79, 590), *hangs()], "gpu_off_bus"),
    "a node of the job is gone, and its peers time out": (
        [not_ready("n05", 0), *shows(["n04", "n06", "n07"], 10, subtype="retransmits"), *hangs("gemma", ["n05"])], "node_down",
    ),
    "one job ends, and its peers time out after that": (
        [*shows(NODES[24:28], 700, subtype="retransmits"), *hangs("phi", seconds=1200)], "hang",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", OTHERS)
def test_it_is_not_the_leaf_where(why: str) -> None:
    signals, family = OTHERS[why]
    families = [i.family for i in seen(signals).incidents()]
    assert family in families
    assert "fabric_fault" not in families


def test_whatever_the_order_the_same_switch_is_named() -> None:
    signals = [*shows(UNDER), *shows(["n08"], 30), *hangs(silent=["n01", "n03"]), slow("gemma")]
    expected = list(map(essence, outcome(on_time(facts(), signals), until=3000)))
    assert len(expected) == 1
    for seed in range(3):
        chance = random.Random(seed)
        arrivals = [(when + chance.choice([0, 0, 40, 300]), what) for when, what in on_time(facts(), signals)]
        assert list(map(essence, outcome(arrivals, restarts=0.02, seed=seed, until=3000))) == expected
