"""A link that stays up and logs nothing: counters of both of its ends, and of its NIC's lost packets, show that it is bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.model.clock import to_millis
from streams.model.entity import Entity
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.link_stories import bounce, closes_a_node, story
from tests.streams.correlate.test_slow_jobs import slow
from tests.streams.correlate.world import CLUSTER, at, job, nic, port


def counter(seconds: float, rate: float, subtype: str, **more: Any) -> dict[str, Any]:
    series = f"{subtype}-{more.get('counter', '')}"
    since = {"since_ms": to_millis(at(seconds - 180))}
    return {"subtype": subtype, "series": series, "count_per_minute": rate, **since, **more}


def of_host(seconds: float, subtype: str = "symbol_errors", *, node: str = "n2", end: bool = False) -> Signal:
    return nic(node, "mlx5_0", seconds, cleared=end, **counter(seconds, 900, subtype))


def of_port(seconds: float, name: str = "Ethernet4", *, end: bool = False) -> Signal:
    return port("leaf-1", name, seconds, cleared=end, **counter(seconds, 2400, "errors", counter="in_errors"))


LOST = [of_host(20, "lost_packets"), of_host(200, "retransmits")]
PEERS = [of_host(30, "lost_packets", node="n1"), of_host(40, "lost_packets", node="n3")]
BOTH_ENDS = [of_host(0), of_port(35)]
CASES = {
    "both ends, and lost packets": [*BOTH_ENDS, *LOST, *PEERS],
    "the switch first": [of_port(-60), of_host(90), *LOST],
    "its peers are not read": [*BOTH_ENDS, *LOST],
}


@pytest.mark.parametrize("name", CASES)
def test_a_link_that_errs_at_both_ends_and_loses_packets_for_long_is_an_incident(name: str) -> None:
    world = story(*CASES[name], until=1000)
    assert world.published == {}, "it may be over soon"
    world.pass_to(1800)
    incident = world.only()
    root = incident.root
    assert (incident.family, root.node, root.nic) == ("nic_link", "n2", "mlx5_0")
    assert (root.switch, root.port) == ("leaf-1", "Ethernet4")
    assert incident.certainty is Certainty.LIKELY
    assert not closes_a_node(incident)
    assert "both of its ends count errors and its NIC loses packets" in incident.reason


def test_a_job_that_becomes_slower_is_its_victim_and_need_not_wait() -> None:
    world = story(*BOTH_ENDS, *LOST, *PEERS, slow(600), until=700)
    incident = world.only()
    assert (incident.root.nic, incident.jobs, incident.impact.gpus) == ("mlx5_0", (job("llama"),), 0)
    over = [of_host(2400, end=True), of_port(2420, end=True)]
    over += [replace(s, id=f"{s.id}-", state=over[0].state, occurred_at=at(2400)) for s in LOST]
    for one in over:
        world.see(one)
    world.pass_to(9000)
    assert [(i.root.nic, i.state) for i in world.incidents()] == [("mlx5_0", IncidentState.RESOLVED)]


def test_an_optic_that_is_seated_anew_at_last_leaves_what_was_wrong_with_it() -> None:
    seated = [*bounce("n2", "mlx5_0", 1980, 20), of_host(2100, end=True), of_port(2120, end=True)]
    incident = story(*BOTH_ENDS, *LOST, *seated, until=4000).only()
    assert "both of its ends count errors" in incident.reason
    assert (incident.state, incident.root.port) == (IncidentState.RESOLVED, "Ethernet4")


def test_one_end_that_errs_is_told_with_the_job_that_becomes_slower() -> None:
    assert story(of_port(0), *LOST, slow(600), until=700).only().root.port == "Ethernet4"


BACKGROUND: dict[str, Sequence[Signal]] = {
    "one end errs, for hours": [of_host(0), *LOST],
    "the port alone": [of_port(0)],
    "both ends err, and nothing is lost": BOTH_ENDS,
    "packets are lost on a busy rail": [*LOST, *PEERS],
    "congestion beside errors": [*BOTH_ENDS, of_host(20, "congestion")],
    "a port that is brought up": [*BOTH_ENDS, *LOST, of_host(400, end=True), of_port(420, end=True)],
    "two ends of different links": [of_host(0), of_port(35, "Ethernet8"), *LOST],
    "packets are lost on another host": [*BOTH_ENDS, *PEERS],
    "shipped twice": [*BOTH_ENDS, *BOTH_ENDS, *BOTH_ENDS],
}


@pytest.mark.parametrize("name", BACKGROUND)
def test_what_a_healthy_fabric_counts_is_none(name: str) -> None:
    assert story(*BACKGROUND[name], until=5000).incidents() == []


def test_a_reboot_that_resets_counters_is_none() -> None:
    entity = Entity(CLUSTER, node="n2")
    boot = replace(of_host(0), kind="node.condition", entity=entity, attributes={"subtype": "rebooted"})
    assert story(boot, *BOTH_ENDS, *LOST, until=5000).incidents() == []
