"""Hosts that several switches lose at once went dark; a switch that fails loses hosts that run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal, SignalState
from tests.streams.correlate.world import World, at, in_racks, link, nic, pause, port, sign

HOSTS = [f"hx{i:03d}" for i in range(1, 33)]
LEAVES = [f"leaf-{rail}" for rail in range(1, 9)]


def world() -> World:
    """32 hosts with one link to each of eight leaves."""
    return World(
        link(leaf, f"p{number}", host, f"mlx5_{rail}")
        for rail, leaf in enumerate(LEAVES)
        for number, host in enumerate(HOSTS)
    )


def missed(hosts: list[str], leaves: list[str], seconds: float = 0) -> list[Signal]:
    """The ports of these hosts, as their leaves report them down."""
    return [
        port(leaf, f"p{HOSTS.index(host)}", seconds + 0.01 * i)
        for leaf in leaves
        for i, host in enumerate(hosts)
    ]


def opened(signals: list[Signal], until: float = 400) -> list[Incident]:
    w = world()
    w.see(*sorted(signals, key=lambda s: s.observed_at))
    w.pass_to(until, step=5)
    return w.incidents()


def test_a_rack_that_goes_from_all_leaves_is_one_fault_of_the_rack() -> None:
    (incident,) = opened([*in_racks(HOSTS), *missed(HOSTS[12:16], LEAVES)])
    assert incident.root.rack == "R03"
    assert set(incident.nodes) == set(HOSTS[12:16])


def test_where_no_rack_is_known_they_went_together() -> None:
    (incident,) = opened([*in_racks(HOSTS, labelled=False), *missed(HOSTS[12:16], LEAVES)])
    assert (incident.family, str(incident.root)) == ("shared_fault", "the hosts lost with hx013")
    assert set(incident.nodes) == set(HOSTS[12:16])
    assert "8 switches" in incident.reason


def test_one_leaf_that_loses_hosts_is_the_leafs_own_fault() -> None:
    (incident,) = opened([*in_racks(HOSTS), *missed(HOSTS[:12], LEAVES[:1])])
    assert incident.root.switch == "leaf-1"


def test_leaves_that_lose_other_hosts_each_have_faults_of_their_own() -> None:
    found = opened([*missed(HOSTS[:8], LEAVES[:1]), *missed(HOSTS[16:24], LEAVES[1:2])])
    assert sorted(i.root.switch or "" for i in found) == ["leaf-1", "leaf-2"]


def test_hosts_that_say_themselves_that_their_links_are_down_run_on() -> None:
    own = [nic(host, f"mlx5_{rail}", 0.5 + 0.01 * i) for rail in (0, 1) for i, host in enumerate(HOSTS[:12])]
    found = opened([*missed(HOSTS[:12], LEAVES[:2]), *own])
    assert sorted(i.root.switch or "" for i in found) == ["leaf-1", "leaf-2"]


@pytest.mark.parametrize("racks", [True, False])
def test_a_leaf_that_reports_late_is_part_of_it(racks: bool) -> None:
    w = world()
    w.see(*in_racks(HOSTS, labelled=racks), *missed(HOSTS[12:16], LEAVES[:1]))
    w.pass_to(100, step=5)
    late = missed(HOSTS[12:16], LEAVES[1:])
    w.see(*late)
    w.pass_to(400, step=5)
    assert w.only().root.switch is None


def test_what_they_share_may_be_known_only_when_other_hosts_are() -> None:
    """While these four are all hosts that are known, that all of them stand in one rack says nothing."""
    rack, others = HOSTS[12:16], [*HOSTS[:12], *HOSTS[16:]]
    of_host = {s.entity.node: s for s in in_racks(HOSTS)}
    w = world()
    w.see(*(of_host[host] for host in rack), *missed(rack, LEAVES))
    w.pass_to(300, step=5)
    (first,) = w.incidents()
    assert str(first.root) == "the hosts lost with hx013"
    w.see(*(of_host[host] for host in others))
    w.pass_to(600, step=5)
    (incident,) = w.incidents()
    assert incident.root.rack == "R03"
    assert w.published[first.id].merged_into == incident.id


def test_it_is_open_until_the_last_switch_has_them_back() -> None:
    w = world()
    w.see(*in_racks(HOSTS, labelled=False), *missed(HOSTS[12:16], LEAVES))
    w.pass_to(300, step=5)
    back = [replace(s, state=SignalState.CLEARED) for s in missed(HOSTS[12:16], LEAVES, 310)]
    w.see(*back[:-4])
    w.pass_to(500, step=5)
    assert [i.state for i in w.incidents()] == [IncidentState.OPEN]
    w.see(*(replace(s, state=SignalState.CLEARED) for s in missed(HOSTS[12:16], LEAVES[-1:], 510)))
    w.pass_to(700, step=5)
    (incident,) = w.incidents()
    assert incident.state is IncidentState.RESOLVED
    assert incident.closed_at == at(510.03)


def test_that_the_workload_manager_misses_them_later_is_part_of_it() -> None:
    w = world()
    w.see(*in_racks(HOSTS, labelled=False), *missed(HOSTS[12:16], LEAVES))
    w.pass_to(311, step=5)
    w.see(*(sign("node.not_ready", host, 311, reason="not responding") for host in HOSTS[12:16]))
    w.pass_to(900, step=5)
    assert set(w.only().nodes) >= set(HOSTS[12:16])


def test_hosts_that_storm_on_all_of_their_rails_are_not_lost() -> None:
    found = opened(
        [pause(host, f"mlx5_{rail}", "sent", 0.1 * i) for i, host in enumerate(HOSTS[:8]) for rail in (0, 1)]
    )
    assert {i.family for i in found} == {"pfc_storm"}
