"""Two leafs of one rack lose the same hosts: the hosts went dark, or the leafs restarted and the hosts run on behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    CLUSTER,
    World,
    at,
    cluster,
    link,
    node_fact,
    not_ready,
    port,
    progress,
    sign,
    timeouts,
)

HOSTS = [f"h{i:02d}" for i in range(1, 9)]
TORS = ["tor-a", "tor-b"]
TOGETHER = ["the hosts lost with h01"]
CABLES = [
    link(tor, f"p{number}", host, f"eth{rail}")
    for rail, tor in enumerate(TORS)
    for number, host in enumerate(HOSTS)
]


def lost(tor: str, seconds: float, *, apart: float = 0.02, back: bool = False) -> list[Signal]:
    """A leaf says of the ports of all hosts, one after another, that they are down, or up."""
    return [port(tor, f"p{i}", seconds + apart * i, cleared=back) for i in range(len(HOSTS))]


def booted(tor: str, seconds: float) -> Signal:
    said = sign("fabric.link", "", seconds, "switch_booted")
    return replace(said, entity=Entity(CLUSTER, switch=tor))


def ordered(tor: str, seconds: float) -> Signal:
    said = sign("fabric.link", "", seconds, "switch_reload", by="jdoe")
    return replace(said, entity=Entity(CLUSTER, switch=tor))


def played(*parts: Sequence[Signal], facts: Sequence[Fact] = (), until: float = 900) -> World:
    world = World([*facts, *CABLES])
    for signal in sorted((s for part in parts for s in part), key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=10)
        world.see(signal)
    world.pass_to(until, step=10)
    return world


def roots(world: World) -> list[str]:
    return sorted(i.root.switch or str(i.root) for i in world.incidents())


OTHERS = [node_fact(f"z{i}", rack=f"r{i // 8}") for i in range(64)]
MISSED = [not_ready(host, 45 + 0.1 * i) for i, host in enumerate(HOSTS)]
"""The kubelets speak over the same leafs."""
BOTH = [*lost("tor-a", 0), *lost("tor-b", 1)]
BACK_BY_LEAF = [*lost("tor-a", 180, back=True), *lost("tor-b", 300, back=True)]
BACK_BY_HOST = [*lost("tor-a", 400, apart=20, back=True), *lost("tor-b", 401, apart=20, back=True)]
ALL_AT_ONCE = [*lost("tor-a", 400, back=True), *lost("tor-b", 401, back=True)]
ELSEWHERE = port("tor-a", "p40", 150)

SEEN: dict[str, tuple[list[Signal], list[str]]] = {
    "nothing else": (BOTH, TOGETHER),
    "both leafs say that they were booted": ([*BOTH, booted("tor-a", 170), booted("tor-b", 290)], TORS),
    "one leaf says that it was booted": ([*BOTH, booted("tor-b", 290)], TORS),
    "a leaf was booted hours before": ([booted("tor-a", -7200), *BOTH], TOGETHER),
    "a leaf is booted an hour after they are back": ([*BOTH, *ALL_AT_ONCE, booted("tor-a", 4000)], TOGETHER),
    "a leaf is booted an hour later, and they stay away": ([*BOTH, booted("tor-a", 3600)], TOGETHER),
    "a host speaks an hour later, elsewhere": ([*BOTH, sign("node.kernel", "h03", 3600, "oom")], TOGETHER),
    "one leaf after the other": ([*lost("tor-a", 0), *lost("tor-b", 40)], TORS),
    "one host after the other": ([*lost("tor-a", 0, apart=6), *lost("tor-b", 1, apart=6)], TOGETHER),
    "each leaf is back with all links": ([*BOTH, *BACK_BY_LEAF], TORS),
    "each host is back with all links": ([*BOTH, *BACK_BY_HOST], TOGETHER),
    "all are back at once": ([*BOTH, *ALL_AT_ONCE], TOGETHER),
    "a host speaks meanwhile": ([*BOTH, sign("node.kernel", "h03", 90, "oom")], TORS),
    "a host speaks when it is back": ([*BOTH, *ALL_AT_ONCE, sign("node.kernel", "h03", 500, "oom")], TOGETHER),
    "a leaf speaks meanwhile": ([*BOTH, ELSEWHERE], TOGETHER),
}  # fmt: skip
SURE = {"one host after the other", "each host is back with all links", "a leaf speaks meanwhile"}


@pytest.mark.parametrize("story", SEEN)
def test_hosts_or_leafs_by_what_else_was_seen(story: str) -> None:
    signals, expected = SEEN[story]
    world = played(signals, until=4500)
    assert roots(world) == expected
    if expected == TOGETHER:
        reason = world.only().reason
        assert ("they went dark together" in reason) is (story in SURE)
        assert ("Either these hosts went dark together, or the switches restarted" in reason) is (
            story not in SURE
        )
    else:
        assert all("did not go dark" in i.reason for i in world.incidents())
        assert {i.family for i in world.incidents()} == {"fabric_fault"}


def test_the_order_in_which_it_is_read_does_not_matter() -> None:
    for story in ("both leafs say that they were booted", "each leaf is back with all links", "nothing else"):
        signals, expected = SEEN[story]
        world = World(CABLES)
        world.play(signals, 4500, seed=7)
        assert roots(world) == expected


def test_where_nothing_tells_it_is_weak_and_told_two_minutes_later() -> None:
    world = played(BOTH, until=100)
    assert world.incidents() == []
    world.pass_to(130)
    incident = world.only()
    assert (incident.certainty, incident.family) == (Certainty.WEAK, "shared_fault")
    assert "nothing shows which. Look at the uptime of the switches first" in incident.reason


def test_what_was_told_of_the_hosts_becomes_the_leafs_once_these_are_up() -> None:
    world = played(BOTH, until=200)
    told = world.only()
    world.see(booted("tor-a", 210), booted("tor-b", 215))
    world.pass_to(400, step=10)
    assert roots(world) == TORS
    assert world.published[told.id].state is IncidentState.MERGED
    assert "tor-b lost the same hosts within a minute" in world.incidents()[0].reason


def test_the_hosts_are_victims_of_leafs_that_restart() -> None:
    stopped = timeouts("llama", range(64), 605)
    signals = [*BOTH, *MISSED, booted("tor-a", 170), booted("tor-b", 290), *stopped]
    world = played(signals, facts=[*cluster({"llama": HOSTS}), *OTHERS])
    assert roots(world) == TORS
    assert {job.name for i in world.incidents() for job in i.jobs} == {"llama"}


def test_a_rack_that_all_of_them_stand_in_is_not_why_its_leafs_restart() -> None:
    facts = [*(node_fact(host, rack="r9") for host in HOSTS), *OTHERS]
    dark = played([*BOTH, *MISSED, ELSEWHERE], facts=facts)
    assert [i.root.rack for i in dark.incidents()] == ["r9"]
    restarted = played([*BOTH, *MISSED, booted("tor-a", 170), booted("tor-b", 290)], facts=facts, until=1500)
    assert roots(restarted) == TORS


def test_nodes_that_stay_ready_did_not_go_dark() -> None:
    world = played(BOTH, facts=[*cluster({"llama": HOSTS}), *OTHERS], until=1500)
    assert roots(world) == TORS
    assert "all of them stayed Ready" in world.incidents()[0].reason


def test_links_of_hosts_that_run_on_behind_switches_that_do_as_well_are_one_event() -> None:
    more = [link(tor, f"q{i}", f"z{i}", f"eth{rail}") for rail, tor in enumerate(TORS) for i in range(8)]
    world = played(BOTH, facts=[*cluster({"llama": HOSTS}), *OTHERS, *more], until=1500)
    assert roots(world) == TOGETHER
    reason = world.only().reason
    assert "neither the hosts nor the switches were gone: all of them stayed Ready" in reason
    assert "other hosts of tor-a, tor-b kept their links" in reason


def test_a_job_that_goes_on_shows_that_its_hosts_run() -> None:
    signals = [*BOTH, *MISSED, progress("llama", 200, 7)]
    world = played(signals, facts=[*cluster({"llama": HOSTS}), *OTHERS], until=1500)
    assert roots(world) == TORS
    assert "train/llama kept running on h01 while its links were down" in world.incidents()[0].reason


def back(boot: str, *, known: str = "b0") -> list[Incident]:
    """All nodes are missed, and back with that boot when their links are."""
    before = [replace(f, boot_id=known) if f.kind == "node" else f for f in cluster({"llama": HOSTS})]
    world = World([*before, *OTHERS, *CABLES])
    world.see(*BOTH)
    world.see(*MISSED)
    world.pass_to(400, step=10)
    world.see(*ALL_AT_ONCE)
    for host in HOSTS:
        world.tell(node_fact(host, since=420, boot_id=boot))
    world.see(*(not_ready(host, 420, ready=True) for host in HOSTS))
    world.pass_to(1500, step=10)
    return world.incidents()


def test_hosts_that_are_back_without_a_new_boot_did_not_go_dark() -> None:
    found = back("b0")
    assert sorted(i.root.switch or "" for i in found) == TORS
    assert "came back without a reboot" in found[0].reason


def test_hosts_that_were_booted_anew_went_dark() -> None:
    assert [i.root.switch for i in back("b1")] == [None]


@pytest.mark.parametrize("later", [1, 40])
@pytest.mark.parametrize("returns", [True, False])
def test_leafs_that_are_upgraded_together_or_in_turn_are_nobodys_fault(later: float, returns: bool) -> None:
    signals = [ordered("tor-a", -30), *lost("tor-a", 0), ordered("tor-b", later - 30), *lost("tor-b", later)]
    world = played([*signals, *(BACK_BY_LEAF if returns else [])], until=1700)
    assert world.incidents() == []
    world.pass_to(2400, step=10)
    assert roots(world) == ([] if returns else TORS)


def test_it_is_over_when_every_host_is_back_at_both_leafs() -> None:
    """One of eight hosts stays away, and then one of its links: each leaf has nearly all of its links by then."""
    first, *rest = lost("tor-a", 400, apart=20, back=True)
    other, *others = lost("tor-b", 401, apart=20, back=True)
    world = played([*BOTH, *rest, *others], until=700)
    assert world.only().state is IncidentState.OPEN
    world.see(replace(first, occurred_at=at(710), observed_at=at(710.5)))
    world.pass_to(800, step=10)
    assert world.only().state is IncidentState.OPEN
    world.see(replace(other, occurred_at=at(810), observed_at=at(810.5)))
    world.pass_to(1000, step=10)
    assert (world.only().state, world.only().closed_at) == (IncidentState.RESOLVED, at(810))


def test_it_is_open_until_the_last_leaf_is_well() -> None:
    world = played([*BOTH, ELSEWHERE, *lost("tor-a", 400, back=True)], until=600)
    assert "hosts" in str(world.only().root)
    assert world.only().state is IncidentState.OPEN
