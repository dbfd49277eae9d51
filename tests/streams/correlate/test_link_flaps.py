"""Links that bounce or flap: one incident with a count, a victim's reason, or nothing at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.incident import IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.link_stories import (
    MANY,
    all_lose,
    bounce,
    closes_a_node,
    counted,
    failing,
    flapping,
    rack,
    ranks_beside,
    story,
    suffering,
)
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    job,
    link,
    nccl_error,
    nic,
    port,
    sign,
    timeouts,
    xid,
)


def test_a_bounce_that_cost_a_job_its_connections_explains_them_and_closes_nothing() -> None:
    incident = story(*bounce("n2", "eth2", 0, 4), *failing(8)).only()
    assert (incident.family, incident.root.node, incident.jobs) == ("nic_link", "n2", (job("llama"),))
    assert not closes_a_node(incident)


@pytest.mark.parametrize(
    "beside",
    [
        [xid("n1", 13, 40, index=2), xid("n1", 45, 41, index=2)],
        [replace(nccl_error("llama", 3, 31), attributes={"subtype": "async_event", "reason": "port error"})],
    ],
    ids=["codes of a program", "the library saw the port bounce"],
)
def test_a_bounce_that_a_job_does_not_feel_is_no_incident(beside: list[Signal]) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*bounce("n1", "eth0", 30, 2), *beside)
    world.pass_to(600)
    assert world.incidents() == []


def test_a_hang_that_begins_minutes_after_a_bounce_has_another_reason() -> None:
    late = timeouts("llama", ranks_beside("n2"), 815, waited=600)
    world = story(*bounce("n2", "eth2", 0, 2), *late, until=900)
    assert [(i.family, i.root.node) for i in world.incidents()] == [("silent_node", "n2")]


@pytest.mark.parametrize(("bounced", "explains"), [(440, False), (130, False), (30, True)])
def test_a_bounce_minutes_after_a_hang_began_is_not_its_reason(bounced: float, explains: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*bounce("n2", "mlx5_0", bounced, 1))
    world.see(*timeouts("llama", range(32), 600, waited=600))
    world.pass_to(900)
    assert (world.only().family == "nic_link") is explains


def test_a_flapping_link_is_one_incident_with_a_count() -> None:
    world = story(*flapping(5), until=260)
    incident = world.only()
    assert (incident.family, incident.flaps, incident.facts["link"]) == ("nic_link", 4, "link flaps")
    assert len(world.published) == 1


@pytest.mark.parametrize("read", [135, 150])
def test_a_link_that_flaps_and_then_stays_down_is_one_incident_whatever_a_counter_calls_it(
    read: float,
) -> None:
    world = World(cluster({"llama": FOUR}))
    for begin in (0, 41, 82):
        world.see(*bounce("n2", "ens3np0", begin, 2))
    for one in sorted(
        [nic("n2", "mlx5_3", read, subtype="link_downed"), nic("n2", "ens3np0", 143)],
        key=lambda s: s.occurred_at,
    ):
        world.pass_to(one.occurred_at.timestamp() - at(0).timestamp())
        world.see(one)
    world.pass_to(400)
    assert (world.only().root.nic, world.only().flaps) == ("ens3np0", 4)


def test_a_link_that_flaps_for_long_stays_one_incident_and_ends_when_it_is_quiet() -> None:
    world = story(*flapping(60, every=50), until=3100)
    assert (world.only().incarnation, len(world.published)) == (1, 1)
    assert world.only().state is IncidentState.OPEN
    world.pass_to(4000, step=10)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize("told_up", [True, False])
def test_a_reboot_in_order_is_no_flap_of_the_hosts_links(told_up: bool) -> None:
    """Two bounces around a reboot that takes all links down: a switch's manager may not tell that they came back."""
    signals = [sign("node.maintenance", "n2", 100, "reboot")]
    for begin in (0.0, 1200.0):
        signals += bounce("n2", "mlx5_0", begin, 1)
    for name in ("leaf-1", "leaf-2"):
        signals.append(port(name, "Ethernet4", 101))
        signals += [port(name, "Ethernet4", 540, cleared=True)] if told_up else []
    signals.append(nic("n2", "mlx5_0", 540, cleared=True))
    assert story(*signals, until=2400).incidents() == []


def test_links_that_bounce_all_over_a_large_cluster_are_no_fault_of_the_fabric() -> None:
    world = World(rack(labels=False))
    for i, node in enumerate(MANY):
        world.see(*bounce(node, "eth2", 2 * i, 1.5))
    world.pass_to(300)
    assert world.incidents() == []


def all_bounced() -> World:
    """A rack of which nobody knows the leaf, whose links all bounced at one moment."""
    world = World(rack(labels=False))
    world.see(*all_lose())
    world.see(*all_lose(18, cleared=True))
    return world


def test_links_that_bounce_at_one_moment_and_cost_a_job_its_connections_are_the_fabrics() -> None:
    world = all_bounced()
    world.see(*suffering(8, 9))
    world.pass_to(400)
    incident = world.only()
    assert (incident.family, incident.root.kind, len(incident.jobs)) == ("fabric_fault", "cluster", 8)
    assert not closes_a_node(incident)


def test_links_that_bounce_at_one_moment_are_no_incident_while_nobody_suffers() -> None:
    world = all_bounced()
    world.pass_to(400)
    assert world.incidents() == []


def test_a_link_that_flaps_stays_its_hosts_when_it_once_bounced_with_all_the_others() -> None:
    world = all_bounced()
    for again in (60, 100, 140):
        world.see(*bounce(MANY[0], "eth2", again, 5))
    world.pass_to(400)
    assert [(i.family, i.root.node) for i in world.incidents()] == [("nic_link", MANY[0])]


def flapped(times: int) -> World:
    """A host of two cables, of which one flapped so many times."""
    ports = [link("leaf-1", "Ethernet8", "n1", "mlx5_2"), link("leaf-2", "Ethernet8", "n1", "mlx5_3")]
    world = World([*cluster({"llama": FOUR}), *ports])
    for one in flapping(times, every=20, lasts=8, node="n1", device="mlx5_2"):
        world.see(one)
    return world


def test_a_link_that_flaps_is_not_hard_and_soft_in_turns() -> None:
    """The runbook is chosen by it: each turn would be another run."""
    world = flapped(12)
    world.pass_to(400)
    assert world.only().facts["link"] == "link flaps"
    assert {i.facts["hard"] for i in world.revisions} == {False}


def test_a_link_that_flapped_and_stays_down_is_hard_when_it_is_told_again() -> None:
    world = flapped(4)
    world.see(nic("n1", "mlx5_2", 100), nic("n1", "mlx5_2", 140))
    assert world.only().facts["hard"] is True


@pytest.mark.parametrize(("downs", "incidents"), [(4, 1), (1, 2)])
def test_a_link_that_flapped_is_the_same_fault_for_an_hour(downs: int, incidents: int) -> None:
    world = World(cluster({"llama": FOUR}))
    for start in (0, 2400):
        for i in range(downs):
            world.see(
                nic("n2", "mlx5_1", start + 60 * i), *([] if i else [nccl_error("llama", 9, start + 5)])
            )
            world.see(nic("n2", "mlx5_1", start + 60 * i + 30, cleared=True))
        world.pass_to(start + 2300, step=20)
    assert len([i for i in world.incidents() if i.root.nic]) == incidents


def test_falls_that_counters_tell_again_later_are_counted_once() -> None:
    bounces = [*bounce("gpu-1", "ens6", 0, 3), *bounce("gpu-1", "ens6", 200, 3)]
    again = [counted("gpu-1", "mlx5_5", 50, 1, since=-10), counted("gpu-1", "mlx5_5", 250, 2, since=190)]
    world = story(*bounces, *again, until=900)
    assert not [i for i in world.incidents() if i.facts.get("link") == "link flaps"]


def test_falls_that_only_counters_tell_are_falls() -> None:
    rises = [counted("gpu-1", "mlx5_5", 50 + 90 * i, 1 + i, since=90 * i - 10) for i in range(4)]
    assert story(*rises, until=900).only().facts["link"] == "link flaps"
