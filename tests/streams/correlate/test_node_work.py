"""Work by people and by robots: nodes that go because somebody said so are nobody's fault, unless they stay away."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations
from typing import Any

import pytest

from streams.model.facts import NodeWork, WorkEnds
from streams.model.incident import IncidentState
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    failed,
    node_fact,
    not_ready,
    pods,
    progress,
    sign,
    timeouts,
    xid,
)

WAVE = [f"w{i:02d}" for i in range(64)]
HOUR = 3600.0


def work(by: str = "kured", ends: WorkEnds = "back") -> NodeWork:
    return NodeWork(by, "a mark", ends)


def reboot(
    world: World, node: str, start: float, *, back: float | None = 300, mark: NodeWork | None = None
) -> None:
    """Closed, emptied, gone, and after `back` seconds there again and opened."""
    marks: dict[str, Any] = {"unschedulable": True, "work": mark, "maintenance": mark is not None}
    world.tell(node_fact(node, since=start, **marks))
    world.pass_to(start + 60, step=20)
    world.tell(node_fact(node, since=start + 60, ready=False, **marks))
    world.see(not_ready(node, start + 61))
    if back is None:
        return
    world.pass_to(start + 60 + back, step=20)
    world.see(not_ready(node, start + 60 + back, ready=True))
    world.tell(node_fact(node, since=start + 60 + back, ready_since=at(start + 60 + back), **marks))
    world.tell(node_fact(node, since=start + 80 + back))


def told(world: World) -> list[tuple[str, str | None]]:
    """Everything that was ever published, merged and suppressed incidents too."""
    return [(i.family, i.root.node) for i in world.published.values()]


@pytest.mark.parametrize(
    "mark", [None, work(), work("GPU operator")], ids=["by hand", "kured", "GPU operator"]
)
def test_a_wave_of_reboots_over_a_cluster_is_told_to_nobody(mark: NodeWork | None) -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE))
    for i, node in enumerate(WAVE):
        reboot(world, node, 400.0 * i, mark=mark)
    world.pass_to(400.0 * len(WAVE) + HOUR, step=60)
    assert told(world) == []


def test_eight_nodes_of_a_wave_at_once_are_no_outage_either() -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE[:8]))
    for node in WAVE[:8]:
        world.tell(node_fact(node, since=0, unschedulable=True))
    for i, node in enumerate(WAVE[:8]):
        world.see(not_ready(node, 60 + i))
    world.pass_to(900, step=10)
    world.see(*(not_ready(node, 900 + i, ready=True) for i, node in enumerate(WAVE[:8])))
    world.pass_to(2000, step=10)
    assert told(world) == []


def test_a_node_of_a_wave_that_does_not_come_back_is_told_when_it_is_overdue() -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE[:4]))
    for i, node in enumerate(WAVE[:4]):
        reboot(world, node, 600.0 * i, back=None if i == 1 else 300, mark=work())
    world.pass_to(660 + HOUR - 30, step=30)
    assert told(world) == []
    world.pass_to(660 + HOUR + 30, step=10)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.state) == ("node_down", "w01", IncidentState.OPEN)
    assert "expected back by 13:11 UTC" in incident.reason
    world.see(not_ready("w01", 2 * HOUR, ready=True))
    world.pass_to(2 * HOUR + 300, step=30)
    assert world.only().state is IncidentState.RESOLVED


def test_nodes_that_a_person_closed_may_be_away_for_hours() -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE[:6]))
    for i, node in enumerate(WAVE[:6]):
        reboot(world, node, 100.0 * i, back=None)
    world.pass_to(3.9 * HOUR, step=60)
    assert told(world) == []
    world.pass_to(4.5 * HOUR, step=60)
    assert {i.root.node for i in world.incidents()} == set(WAVE[:6])


def test_a_site_where_such_work_takes_long_is_given_longer() -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE[:6]))
    for i, node in enumerate(WAVE[:5]):
        reboot(world, node, 3 * HOUR * i, back=50 * 60, mark=work())
    world.restart()
    start = 15 * HOUR
    reboot(world, WAVE[5], start, back=None, mark=work())
    world.pass_to(start + 70 * 60, step=60)
    assert told(world) == []
    world.pass_to(start + 80 * 60, step=60)
    assert [i.root.node for i in world.incidents()] == [WAVE[5]]


def test_a_gpu_that_dies_during_a_wave_on_another_node_is_told_at_once() -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE[:4]))
    reboot(world, "w00", 0, back=None)
    world.see(xid("n2", 79, 100))
    assert (world.only().root.node, world.only().state) == ("n2", IncidentState.OPEN)


def test_a_gpu_that_dies_on_a_node_in_work_counts_when_the_node_comes_back_with_it() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.tell(node_fact("w00", since=0, unschedulable=True))
    world.see(xid("w00", 79, 100))
    assert world.only().state is IncidentState.SUPPRESSED
    world.tell(node_fact("w00", since=600))
    assert world.only().state is IncidentState.OPEN


def test_a_node_that_somebody_closed_because_its_gpu_died_keeps_its_incident() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(xid("w00", 79, 0))
    world.tell(node_fact("w00", since=60, unschedulable=True))
    world.pass_to(120)
    assert world.only().state is IncidentState.OPEN


def test_a_node_that_a_person_closed_for_a_week_may_be_switched_off_meanwhile() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.tell(node_fact("w00", since=0, unschedulable=True))
    world.pass_to(72 * HOUR, step=600)
    world.see(not_ready("w00", 72 * HOUR))
    world.tell(node_fact("w00", since=72 * HOUR, ready=False, unschedulable=True))
    world.pass_to(168 * HOUR, step=600)
    assert told(world) == []


def test_a_node_with_a_job_that_goes_in_order_is_a_consequence_and_no_fault() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(progress("llama", t, int(t), pod=1) for t in range(-50, 0, 10)))
    world.tell(node_fact("n2", since=0, unschedulable=True, work=work(), maintenance=True))
    world.see(not_ready("n2", 60))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 1], 670))
    world.pass_to(900)
    assert [(i.root.node, i.state) for i in world.incidents()] == [("n2", IncidentState.SUPPRESSED)]
    assert "kured works on it" in world.only().reason


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [("node.maintenance", "shutdown"), ("node.maintenance", "reboot"), ("node.condition", "slurm_drain")],
)
def test_a_host_that_shuts_down_in_order_is_expected_back(kind: str, subtype: str) -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.tell(node_fact("w00", since=-10))
    world.see(sign(kind, "w00", 0, subtype), not_ready("w00", 50))
    world.tell(node_fact("w00", since=55, ready=False))
    world.pass_to(50 + HOUR - 60, step=30)
    assert told(world) == []
    world.pass_to(50 + HOUR + 60, step=30)
    assert told(world) == [("node_down", "w00")]


def test_a_host_that_goes_without_a_word_is_told_as_before() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(not_ready("w00", 50))
    world.pass_to(300)
    assert told(world) == [("node_down", "w00")]


def test_nodes_that_an_autoscaler_takes_away_are_no_fault() -> None:
    world = World(cluster({"llama": FOUR}, spare=WAVE[:8]))
    for i, node in enumerate(WAVE[:8]):
        world.tell(node_fact(node, since=100.0 * i, work=work("Karpenter", "gone"), maintenance=True))
        world.see(not_ready(node, 100.0 * i + 40))
        world.pass_to(100.0 * i + 80, step=10)
        world.gone(node_fact(node), 100.0 * i + 80)
    world.pass_to(HOUR, step=30)
    assert told(world) == []


def test_a_notice_for_a_node_without_a_job_is_told_to_nobody() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(sign("node.maintenance", "w00", 0, "termination"), not_ready("w00", 130))
    world.tell(node_fact("w00", since=131, ready=False))
    world.pass_to(2 * HOUR, step=30)
    assert told(world) == []


@pytest.mark.parametrize("goes", [True, False])
def test_a_notice_is_over_once_its_work_is_done(goes: bool) -> None:
    """Nothing takes it back; what comes to the node afterwards is not told that it goes."""
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(sign("node.maintenance", "w00", 0, "scheduled_event"))
    for i in range(15):
        world.pass_to(100 * i, step=20)
        world.see(failed("bert", 0, 100 * i, "unschedulable", kind="job.stalled"))
    world.pass_to(1500, step=20)
    if goes:
        reboot(world, "w00", 1500, back=700, mark=work("a cloud"))
    else:
        world.tell(node_fact("w00", since=1500, unschedulable=True, work=work("a cloud"), maintenance=True))
        world.pass_to(2260, step=20)
        world.tell(node_fact("w00", since=2260))
    world.pass_to(2500, step=20)
    for fact in pods("bert", ["w00"], since=2500):
        world.tell(fact)
    world.pass_to(2500 + HOUR, step=30)
    assert told(world) == []


def test_what_a_driver_upgrade_does_to_a_node_is_not_told_after_it_either() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.tell(node_fact("w00", since=0, work=work("GPU operator"), maintenance=True))
    world.see(sign("gpu.driver", "w00", 30, "nvml_init"), sign("gpu.driver", "w00", 40, "device_plugin"))
    world.pass_to(300, step=10)
    world.tell(node_fact("w00", since=300))
    world.pass_to(900, step=10)
    assert told(world) == []
    world.see(sign("gpu.driver", "w00", 900, "nvml_init"))
    world.pass_to(1100, step=10)
    assert told(world) == [("platform_fault", "w00")]


def test_a_driver_that_fails_keeps_its_incident_when_somebody_closes_the_node_for_it() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(sign("gpu.driver", "w00", 0, "version_mismatch"))
    world.pass_to(300, step=20)
    world.tell(node_fact("w00", since=300, unschedulable=True))
    world.see(sign("gpu.driver", "w00", 400, "version_mismatch"))
    world.pass_to(700, step=20)
    assert (world.only().family, world.only().state) == ("platform_fault", IncidentState.OPEN)


def test_a_driver_that_fails_after_a_reboot_is_told_once_the_node_has_been_back_for_minutes() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(sign("node.maintenance", "w00", 0, "reboot"), not_ready("w00", 30))
    world.see(not_ready("w00", 200, ready=True), sign("gpu.driver", "w00", 230, "version_mismatch"))
    world.pass_to(320, step=20)
    assert told(world) == []
    world.see(sign("gpu.driver", "w00", 330, "version_mismatch"))
    world.pass_to(640, step=20)
    assert (world.only().family, world.only().state) == ("platform_fault", IncidentState.OPEN)


def essence(world: World) -> set[tuple[str, str | None, str]]:
    return {(i.family, i.root.node, i.state.value) for i in world.incidents() if "Withdrawn" not in i.reason}


def steps() -> list[Iterable[object]]:
    return [
        [node_fact("w00", since=0, unschedulable=True)],
        [not_ready("w00", 60)],
        [node_fact("w00", since=61, ready=False, unschedulable=True)],
        [xid("w00", 79, 30)],
    ]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_facts_and_lines_of_a_node_in_work_end_the_same_in_any_order(order: tuple[int, ...]) -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    for i in order:
        for one in steps()[i]:
            if hasattr(one, "observed_at") and hasattr(one, "attributes"):
                world.see(one)  # type: ignore[arg-type]
            else:
                world.tell(one)  # type: ignore[arg-type]
    world.pass_to(600, step=30)
    assert essence(world) == {("gpu_off_bus", "w00", "suppressed")}


def test_a_person_may_take_a_node_in_hand_after_it_went() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    world.see(not_ready("w00", 0))
    world.pass_to(300)
    assert world.only().state is IncidentState.OPEN
    world.tell(node_fact("w00", since=400, ready=False, work=work("a person", "held"), maintenance=True))
    assert world.only().state is IncidentState.SUPPRESSED


def test_a_node_that_is_worked_on_soon_after_it_went_with_all_others_goes_for_the_work() -> None:
    world = World(cluster({"llama": WAVE[:4]}, spare=WAVE[:16]))
    world.see(*(not_ready(node, 0.5 * i) for i, node in enumerate(WAVE[:16])))
    world.pass_to(200, step=10)
    world.see(*(not_ready(node, 200 + 0.5 * i, ready=True) for i, node in enumerate(WAVE[:16])))
    world.pass_to(540, step=10)
    reboot(world, "w10", 540, mark=work())
    world.pass_to(2 * HOUR, step=60)
    assert told(world) == [("nodes_not_ready", None)]


def test_a_node_that_flaps_before_and_after_a_robot_reboots_it_is_one_incident_with_a_count() -> None:
    world = World(cluster({"llama": FOUR}, spare=["w00"]))
    for start in (0, 500):
        world.see(not_ready("w00", start))
        world.pass_to(start + 300, step=10)
        world.see(not_ready("w00", start + 300, ready=True))
    reboot(world, "w00", 840, back=120, mark=work())
    world.see(not_ready("w00", 1300))
    world.pass_to(1600, step=10)
    world.see(not_ready("w00", 1600, ready=True))
    world.pass_to(1620, step=10)
    incident = world.only()
    assert (incident.flaps, incident.fault_at, incident.state) == (2, at(0), IncidentState.OPEN)


def test_a_node_that_goes_minutes_after_the_work_on_it_goes_for_another_reason() -> None:
    world = World(cluster({"llama": ["w00", "w01"]}, spare=WAVE[:4]))
    reboot(world, "w02", 0, mark=work())
    world.pass_to(700, step=10)
    world.see(not_ready("w02", 700))
    world.tell(node_fact("w02", since=700, ready=False))
    world.pass_to(1100, step=10)
    incident = world.only()
    assert (incident.family, incident.fault_at, incident.state) == ("node_down", at(700), IncidentState.OPEN)
