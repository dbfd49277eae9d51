"""A switch that somebody reloads or upgrades: what it takes away is told when a job suffers or it does not come back."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    CLUSTER,
    World,
    cluster,
    link,
    nccl_error,
    nic,
    node_fact,
    not_ready,
    port,
    sign,
)

NAMES = [f"n{i:02}" for i in range(24)]
RACK = NAMES[:8]


def facts(*, cabled: bool = True, job: bool = True, others: tuple[str, ...] = ()) -> list[Fact]:
    made = cluster({"llama": RACK} if job else {}, spare=NAMES)
    rails = [replace(f, leaf=f"leaf-{NAMES.index(f.name) // 8}") for f in made if f.kind == "node"]
    return [*made, *(rails if cabled else [])]


def ordered(switch: str, seconds: float, by: str = "") -> Signal:
    said = sign("fabric.link", "", seconds, "switch_reload", by=by)
    return replace(said, entity=Entity(CLUSTER, switch=switch))


def lose(names: list[str], seconds: float, *, back: bool = False) -> list[Signal]:
    return [nic(n, "eth2", seconds + 0.2 * i, cleared=back) for i, n in enumerate(names)]


@pytest.mark.parametrize("cabled", [True, False])
@pytest.mark.parametrize("order", list(permutations(("order", "down", "up"))))
def test_an_ordered_reload_is_no_incident_in_whatever_order_it_is_read(
    order: tuple[str, ...], cabled: bool
) -> None:
    world = World(facts(cabled=cabled))
    said = {
        "order": [ordered("leaf-0", 0, "jdoe")],
        "down": lose(RACK, 20),
        "up": lose(RACK, 260, back=True),
    }
    for what in order:
        world.see(*said[what])
    world.pass_to(4500, step=5)
    # An order that is read minutes late takes back what was told without it.
    assert [i.reason[:9] for i in world.incidents()] == (["Withdrawn"] if order[-1] == "order" else [])


@pytest.mark.parametrize("cabled", [True, False])
def test_a_switch_that_does_not_come_back_from_its_reload_is_told(cabled: bool) -> None:
    world = World(facts(cabled=cabled))
    world.see(ordered("leaf-0", 0, "jdoe"))
    world.see(*lose(RACK, 20))
    world.pass_to(1700, step=5)
    assert world.incidents() == []
    world.restart()
    world.pass_to(1900, step=5)
    incident = world.only()
    assert incident.family == "fabric_fault"
    assert incident.root.switch == ("leaf-0" if cabled else None)
    assert "Work on leaf-0 was ordered at 12:00 UTC by jdoe" in incident.reason


@pytest.mark.parametrize("cabled", [True, False])
def test_a_job_that_suffers_from_a_reload_is_told_why_at_once(cabled: bool) -> None:
    world = World(facts(cabled=cabled))
    world.see(ordered("leaf-0", 0))
    world.see(*lose(RACK, 20))
    world.see(*(nccl_error("llama", r, 24 + 0.1 * r) for r in range(16)))
    world.pass_to(200)
    incident = world.only()
    assert (incident.family, [j.name for j in incident.jobs]) == ("fabric_fault", ["llama"])


@pytest.mark.parametrize(("before", "told"), [(14, False), (16, True)])
def test_an_order_explains_what_is_lost_soon_after_it(before: float, told: bool) -> None:
    world = World(facts())
    world.see(ordered("leaf-0", 0))
    world.see(*lose(RACK, 60 * before))
    world.pass_to(60 * before + 300)
    assert bool(world.incidents()) is told


def test_an_order_for_another_switch_explains_nothing() -> None:
    world = World(facts())
    world.see(ordered("leaf-2", 0))
    world.see(*lose(RACK, 20))
    world.pass_to(200)
    assert world.only().root.switch == "leaf-0"


def test_hosts_whose_cables_are_known_are_not_excused_by_the_reload_of_a_switch_they_do_not_hang_on() -> None:
    world = World(facts())
    world.see(ordered("leaf-2", 0))
    # Which of its NICs leads where is not known here, only that none leads to leaf-2.
    world.see(*(nic(n, "mlx5_9", 20 + 0.1 * i) for i, n in enumerate(RACK)))
    world.pass_to(300)
    assert world.only().family == "fabric_fault"


RAILS = [
    link(f"rail-{rail}", f"swp{i}", name, f"eth{2 + rail}") for rail in (0, 1) for i, name in enumerate(RACK)
]
"""Cables of the hosts' rails; those of their front end are not known."""


def front_end(switch: str, back: float | None = None, until: float = 300) -> World:
    """Work on a switch is ordered, and all hosts of a rack lose their leg of the front end's bond."""
    world = World([*facts(cabled=False), *RAILS])
    world.see(ordered(switch, 0, "jdoe"))
    world.see(*(nic(n, "eno1", 20 + 0.1 * i) for i, n in enumerate(RACK)))
    if back is not None:
        world.pass_to(back, step=5)
        world.see(*(nic(n, "eno1", back + 0.1 * i, cleared=True) for i, n in enumerate(RACK)))
    world.pass_to(until, step=5)
    return world


def test_a_switch_of_which_no_cable_is_known_explains_links_beside_those_whose_cables_are() -> None:
    assert front_end("tor-a", back=420, until=4500).incidents() == []
    late = front_end("tor-a", until=1900).only()
    assert "Work on tor-a was ordered at 12:00 UTC by jdoe" in late.reason


def test_a_switch_whose_hosts_are_known_explains_no_link_of_other_hosts() -> None:
    others = [link("rail-9", f"swp{i}", name, "eth2") for i, name in enumerate(NAMES[8:16])]
    world = World([*facts(cabled=False), *RAILS, *others])
    world.see(ordered("rail-9", 0))
    world.see(*(nic(n, "eno1", 20 + 0.1 * i) for i, n in enumerate(RACK)))
    world.pass_to(300)
    assert world.only().family == "fabric_fault"


def test_the_reboot_of_a_host_is_no_order_for_a_switch() -> None:
    world = World(facts(cabled=False))
    world.see(ordered("n20", 0))
    world.see(*lose(RACK, 20))
    world.pass_to(300)
    assert world.only().family == "fabric_fault"


def test_two_hosts_of_a_switch_that_is_reloaded_have_no_broken_links() -> None:
    world = World(facts())
    world.see(ordered("leaf-0", 0))
    world.see(*lose(RACK[:2], 20))
    world.pass_to(400)
    assert world.incidents() == []
    world.see(*lose(RACK[:2], 401, back=True))
    world.pass_to(4500, step=5)
    assert world.incidents() == []


def test_a_host_that_is_rebooted_in_the_same_hour_has_no_broken_link_when_the_rest_is_forgotten() -> None:
    world = World(facts())
    world.see(ordered("leaf-0", 0))
    world.see(*lose(RACK, 20))
    world.see(*lose(RACK, 260, back=True))
    for seconds in (800, 1400):
        world.see(*lose(RACK[:1], seconds), *lose(RACK[:1], seconds + 15, back=True))
        world.pass_to(seconds + 60, step=5)
    world.pass_to(6000, step=5)
    assert not [i for i in world.incidents() if i.fault_at.minute == 0]


def test_a_leaf_that_dies_half_an_hour_after_its_reload_is_told_at_once() -> None:
    world = World(facts())
    world.see(ordered("leaf-0", 0))
    world.see(*lose(RACK, 20))
    world.see(*lose(RACK, 260, back=True))
    world.pass_to(2000, step=5)
    world.see(*lose(RACK, 2001))
    world.pass_to(2100)
    assert world.only().root.switch == "leaf-0"


@pytest.mark.parametrize("cabled", [True, False])
def test_a_leaf_of_idle_hosts_that_is_back_within_a_restart_is_no_incident(cabled: bool) -> None:
    world = World(facts(cabled=cabled, job=False))
    world.see(*lose(RACK, 20))
    world.pass_to(700, step=5)
    world.see(*lose(RACK, 701, back=True))
    world.pass_to(4500, step=5)
    assert world.incidents() == []


@pytest.mark.parametrize("cabled", [True, False])
def test_a_leaf_of_idle_hosts_that_stays_away_is_told(cabled: bool) -> None:
    world = World(facts(cabled=cabled, job=False))
    world.see(*lose(RACK, 20))
    world.pass_to(1300, step=5)
    assert world.only().family == "fabric_fault"


def test_hosts_of_an_idle_rack_that_lost_its_power_are_told_as_before() -> None:
    world = World(facts(job=False))
    world.see(*lose(RACK, 20))
    world.see(*(not_ready(n, 65 + 0.1 * i) for i, n in enumerate(RACK)))
    world.pass_to(1300, step=5)
    assert world.incidents()


@pytest.mark.parametrize("missed", [False, True])
def test_ports_of_a_reloaded_switch_that_stay_down_are_told_only_when_a_host_or_a_switch_misses_them(
    missed: bool,
) -> None:
    """Its hosts are off for the same work: where no cable is known, the switch alone cannot tell that from its own fault."""
    world = World(facts(cabled=False, job=False))
    world.see(ordered("leaf-9", 0, "jdoe"))
    world.see(*(port("leaf-9", f"swp{i}", 300 + 0.1 * i) for i in range(32)))
    if missed:
        world.see(*lose(RACK, 301))
    world.pass_to(4500, step=10)
    assert [i.family for i in world.incidents()] == (["fabric_fault"] if missed else [])


def test_an_inventory_that_comes_late_changes_nothing() -> None:
    world = World([node_fact(n) for n in NAMES])
    world.see(*lose(RACK, 20))
    for fact in facts():
        world.tell(fact)
    world.pass_to(200)
    assert world.only().root.switch == "leaf-0"
