"""What goes on beside the faults: it is no fault, leaves faults alone, and is the same for the same seed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from sandbox.simulation import background
from sandbox.simulation.campaign import Simulated, simulate
from sandbox.simulation.scenario import Background, Scenario, load
from streams.model.errors import BadInput

SCENARIOS = load(Path(__file__).parents[3] / "bench" / "scenarios.yaml")


def quiet(hours: float = 2.0, site: str = "onprem", **rates: float) -> Scenario:
    """A quiet time with just these kinds of background."""
    every = dict.fromkeys(background.KINDS, 0.0) | rates
    return Scenario.model_validate(
        {"name": "t", "about": "", "site": site, "campaign": {"hours": hours}, "background": {"rates": every}}
    )


def changes_of(simulated: Simulated, kind: str) -> list[tuple[str, str, str]]:
    """Type, uid and phase or readiness of every change of objects of that kind."""
    return [
        (c.type, c.object["metadata"]["uid"], c.object["status"].get("phase", ""))
        for c in simulated.capture.kube_changes
        if c.object["kind"] == kind
    ]


def test_every_kind_has_a_rate_and_every_rate_a_kind() -> None:
    assert background.rates().keys() == background.KINDS.keys()


@pytest.mark.parametrize("kind", sorted(background.KINDS))
def test_each_kind_can_be_played_alone_and_is_no_fault(kind: str) -> None:
    site = "slurm" if background.rates()[kind].needs == "slurm" else "onprem"
    simulated = simulate(quiet(4, site, **{kind: 20}), 1)
    assert simulated.truth.faults == []
    assert set(simulated.truth.background) == {kind}
    assert simulated.capture.records or simulated.capture.kube_changes
    begin, end = simulated.capture.meta.begin, simulated.capture.meta.end
    assert all(begin - timedelta(minutes=1) <= change.at <= end for change in simulated.capture.kube_changes)


@pytest.mark.parametrize(
    "kind", ["notebook", "batch", "spark", "inference", "build", "cron_job", "image_pull"]
)
def test_pods_of_tenants_come_run_and_go(kind: str) -> None:
    pods = changes_of(simulate(quiet(6, "onprem", **{kind: 20}), 1), "Pod")
    added = [uid for change, uid, _ in pods if change == "ADDED"]
    assert len(added) == len(set(added))
    gone = {uid for change, uid, _ in pods if change == "DELETED"}
    tenants = {uid for uid in added if uid in gone}
    assert tenants, "those that came early enough have gone again"


def test_nodes_that_robots_and_people_close_are_open_at_the_end_of_a_long_day() -> None:
    simulated = simulate(quiet(12, patch_wave=1, kured=2, driver_upgrade=2, person_cordon=2), 3)
    last: dict[str, bool] = {}
    ever: set[str] = set()
    early = simulated.capture.meta.end - timedelta(hours=2)
    for change in simulated.capture.kube_changes:
        if change.object["kind"] == "Node":
            closed = change.object["spec"].get("unschedulable", False)
            name = change.object["metadata"]["name"]
            last[name] = closed and change.at < early
            if closed:
                ever.add(name)
    assert ever
    assert not any(last.values())


def test_a_fault_is_the_same_with_and_without_background() -> None:
    scenario = SCENARIOS["gpu_off_bus"].sized(32)
    assert simulate(scenario, 1).truth.faults == simulate(scenario.bare(), 1).truth.faults


@pytest.mark.parametrize("name", ["month", "leaf_down", "three_deaths"])
def test_robots_and_people_leave_nodes_alone_while_faults_touch_them(name: str) -> None:
    busy = {"rates": {"patch_wave": 20.0, "kured": 20.0, "driver_upgrade": 20.0, "person_cordon": 20.0}}
    scenario = SCENARIOS[name].sized(64)
    scenario = scenario.model_copy(update={"site": "onprem", "background": Background.model_validate(busy)})
    simulated = simulate(scenario, 1)
    by_robots = [
        (change.at, change.object["metadata"]["name"])
        for change in simulated.capture.kube_changes
        if change.object["kind"] == "Node"
        and "ops.example/cordoned-by" in change.object["metadata"]["annotations"]
    ]
    assert by_robots
    for at, node in by_robots:
        assert not any(f.at <= at <= f.until for f in simulated.truth.faults if node in f.nodes)


def test_no_pod_of_a_tenant_begins_on_a_node_that_is_closed() -> None:
    simulated = simulate(
        quiet(12, build=60, spark=60, notebook=30, patch_wave=3, kured=5, person_cordon=3), 5
    )
    closed: set[str] = set()
    checked = 0
    for change in simulated.capture.kube_changes:
        thing = change.object
        if thing["kind"] == "Node":
            (closed.add if thing["spec"].get("unschedulable") else closed.discard)(thing["metadata"]["name"])
        elif thing["kind"] == "Pod" and change.type == "ADDED":
            checked += bool(closed)
            assert thing["spec"]["nodeName"] not in closed, f"{thing['metadata']['name']} at {change.at}"
    assert checked > 20


def test_a_scenario_sets_rates_of_its_own() -> None:
    none, many = quiet(build=0), quiet(build=200)
    assert simulate(none, 1).truth.background["build"] == 0
    assert simulate(many, 1).truth.background["build"] > 50


def test_a_rate_of_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="gremlins"):
        simulate(quiet(gremlins=1), 1)
    with pytest.raises(ValidationError):
        Background.model_validate({"scale": -1})


def test_the_quiet_day_lasts_a_day_and_has_no_fault() -> None:
    simulated = simulate(SCENARIOS["quiet_day"].sized(32), 1)
    assert simulated.truth.faults == []
    assert simulated.truth.look_alikes
    assert simulated.capture.meta.end - simulated.capture.meta.begin >= timedelta(hours=24)
