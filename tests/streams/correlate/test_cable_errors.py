"""A cable between switches that works with errors is an incident when it goes on and stands out, or a job fails over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streams.model.clock import to_millis
from streams.model.incident import IncidentState
from streams.model.signal import Attribute, Signal
from tests.streams.correlate.world import World, at, cluster, link, port

HOUR = 3600
CABLES = 40


def fabric() -> World:
    """Forty cables between four leaves and a spine, and a job that runs well all the time."""
    cables = [link(f"leaf-{i % 4}", f"1/{i}/1", peer="spine-1", peer_port=f"2/{i}/1") for i in range(CABLES)]
    return World([*cluster({"llama": ["a1", "a2"]}), *cables])


def warned(cable: int, seconds: float, **more: Any) -> Signal:
    """What a fabric manager, a switch or a diagnostic run says of the far end of a cable."""
    return port("spine-1", f"2/{cable}/1", seconds, subtype="errors", **more)


def counted(cable: int, seconds: float, rate: float, *, cleared: bool = False, by: str = "series") -> Signal:
    """What a counter of the leaf's port shows (per minute), or an alert on it."""
    more: dict[str, Attribute] = {by: f"s{cable}", "counter": "fcs", "count_per_minute": rate}
    more |= {"since_ms": to_millis(at(seconds - 300))} if by == "series" else {}
    return port(f"leaf-{cable % 4}", f"1/{cable}/1", seconds, subtype="errors", cleared=cleared, **more)


def told(signals: Sequence[Signal], until: float) -> World:
    world = fabric()
    for one in sorted(signals, key=lambda s: s.occurred_at):
        world.pass_to((one.occurred_at - at(0)).total_seconds(), step=60)
        world.see(one)
    world.pass_to(until, step=60)
    return world


def roots(world: World) -> list[str]:
    return [i.root.key for i in world.incidents() if not i.reason.startswith("Withdrawn")]


def key(cable: int) -> str:
    return f"port/leaf-{cable % 4}/1/{cable}/1"


def a_day_of_warnings(every: float, hours: float) -> list[Signal]:
    """One cable after the other, as thresholds are crossed all over a large fabric."""
    return [warned(7 * i % CABLES, every * i) for i in range(int(hours * HOUR / every))]


def test_warnings_of_a_manager_all_day_each_of_another_cable_are_no_incident() -> None:
    assert roots(told(a_day_of_warnings(240, 4), 5 * HOUR)) == []


@pytest.mark.parametrize(
    "seconds",
    [[0], [0, 5, 60], [0, 600], [0, 1500], [0, 3000, 6200]],
    ids=["once", "three times in a minute", "twice", "twice, later", "now and then"],
)
def test_a_cable_that_is_warned_of_now_and_then_is_no_incident(seconds: Sequence[float]) -> None:
    assert roots(told([warned(3, t) for t in seconds], 3 * HOUR)) == []


def test_a_cable_that_is_warned_of_again_and_again_is_told_beside_all_others() -> None:
    bad = [warned(5, t) for t in (60, 660, 1320)]
    world = told([*a_day_of_warnings(240, 1), *bad], HOUR)
    assert roots(world) == [key(5)]
    incident = world.only()
    assert (incident.fault_at, incident.opened_at >= at(1320)) == (at(60), True)


def test_two_cables_that_err_in_one_hour_are_both_told() -> None:
    bad = [warned(cable, t + cable) for cable in (5, 6) for t in (60, 660, 1320)]
    assert sorted(roots(told(bad, HOUR))) == [key(5), key(6)]


def test_where_all_cables_are_warned_of_again_and_again_the_threshold_is_low() -> None:
    all_ = [warned(cable, 600 * i + 10 * cable) for i in range(5) for cable in range(20)]
    assert roots(told(all_, 2 * HOUR)) == []
    far_worse = [warned(33, 20 + 90 * i) for i in range(40)]
    assert roots(told([*all_[:60], *far_worse], HOUR)) == [key(33)]


@pytest.mark.parametrize("by", ["series", "alert"])
def test_errors_that_are_counted_are_told_when_they_last(by: str) -> None:
    brief = [counted(3, 0, 40, by=by), counted(3, 700, 0, cleared=True, by=by)]
    assert roots(told(brief, HOUR)) == []
    assert told(brief[:1], 600).incidents() == []
    assert roots(told(brief[:1], 1500)) == [key(3)]
    over = told([brief[0], counted(3, 2400, 0, cleared=True, by=by)], HOUR)
    assert over.only().state is IncidentState.RESOLVED


def test_of_counters_that_rise_at_many_ports_only_the_one_far_beyond_them_is_told() -> None:
    many = [counted(cable, cable, 40) for cable in range(12)]
    assert roots(told(many, HOUR)) == []
    assert roots(told([*many, counted(20, 30, 900)], HOUR)) == [key(20)]


def test_a_cable_with_errors_that_breaks_is_told_as_ever() -> None:
    world = told([warned(3, 0), port("spine-1", "2/3/1", 30)], 1800)
    assert roots(world) == [key(3)]
    assert "its link is down" in world.only().reason


def test_a_cable_that_came_up_narrower_than_it_can_is_told() -> None:
    assert roots(told([port("spine-1", "2/3/1", 0, subtype="degraded")], 600)) == [key(3)]


def test_what_is_told_does_not_depend_on_the_order() -> None:
    bad = [warned(5, t) for t in (60, 660, 1320)]
    beside = [warned(cable, 30 + cable) for cable in range(10, 20)]
    world = fabric()
    for one in (*reversed(bad), *beside):
        world.see(one)
    world.pass_to(2000, step=60)
    assert roots(world) == [key(5)]
