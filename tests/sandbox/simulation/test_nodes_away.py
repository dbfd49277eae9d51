"""Nodes that look dead, played from raw lines to plans: how many incidents there are, and that no running job is moved."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bench.verdicts import healthy_cordons, pair, stands
from faultline.replay.replay import Replayed, replay_capture
from runbooks.language.loader import load as load_runbooks
from sandbox.simulation.campaign import Simulated, simulate
from sandbox.simulation.scenario import load

SCENARIOS = load(Path(__file__).parents[3] / "bench" / "scenarios.yaml")


@cache
def played(name: str, nodes: int, seed: int = 1) -> tuple[Simulated, Replayed]:
    simulated = simulate(SCENARIOS[name].sized(nodes).bare().model_copy(update={"site": "onprem"}), seed)
    return simulated, replay_capture(simulated.capture, runbooks=load_runbooks())


def closed(decided: Replayed) -> list[str]:
    """Nodes that would be closed, and jobs that would be stopped, without asking anybody."""
    return [
        f"{a.action} {a.target.name}"
        for a in decided.actions
        if a.action in ("cordon_node", "suspend_job") and a.verdict == "would"
    ]


@pytest.mark.parametrize("nodes", [64, 256])
def test_a_brownout_of_the_control_plane_is_one_incident_and_touches_nobody(nodes: int) -> None:
    _, decided = played("control_plane_brownout", nodes)
    (outage,) = [i for i in decided.incidents.values() if i.family == "nodes_not_ready"]
    assert outage.root.kind == "cluster"
    assert outage.revision < 40
    assert not [i for i in decided.incidents.values() if i.family == "node_down"]
    assert closed(decided) == []
    assert not [a for a in decided.actions if a.action == "cordon_node"], "and nobody is asked about a node"
    tickets = [a for a in decided.actions if a.action == "open_ticket" and a.runbook == "many-nodes-down"]
    assert len(tickets) == 1


def test_the_node_that_stays_dead_is_told_of_when_the_others_are_back() -> None:
    simulated, decided = played("brownout_and_death", 64)
    (dead,) = [fault for fault in simulated.truth.faults if fault.kind == "node_power_off"]
    found = {(i.family, i.root.key) for i in decided.incidents.values() if stands(i)}
    assert found == {("nodes_not_ready", "cluster"), ("node_down", f"node/{dead.root.node}")}


@pytest.mark.parametrize(
    ("name", "family"), [("rack_power_loss", "power_cooling"), ("three_deaths", "node_down")]
)
def test_what_few_nodes_have_in_common_decides_how_many_incidents_there_are(name: str, family: str) -> None:
    simulated, decided = played(name, 64)
    told = [i for i in decided.incidents.values() if stands(i)]
    paired = pair(simulated.truth.faults, told)
    assert {i.family for i in paired.values()} == {family}
    assert len(paired) == len(simulated.truth.faults) == len(told)
    assert healthy_cordons(simulated.truth.faults, decided, "would") == []


def test_a_job_is_not_moved_off_a_node_whose_kubelet_died() -> None:
    simulated, decided = played("kubelet_dead", 64)
    assert len(simulated.truth.faults) >= 1
    down = [i for i in decided.incidents.values() if i.family == "node_down"]
    assert len(down) == len(simulated.truth.faults)
    assert all(i.facts.get("lives") is True for i in down)
    assert closed(decided) == []


def test_a_node_that_dies_with_a_job_on_it_is_closed_without_asking() -> None:
    simulated, decided = played("node_power_off", 64)
    nodes = {fault.root.node for fault in simulated.truth.faults}
    cordons = [a for a in decided.actions if a.action == "cordon_node"]
    assert {a.target.name for a in cordons} == nodes
    # The third within minutes is one more than the limits let through unasked, and a person has closed it meanwhile.
    assert sorted(a.verdict for a in cordons) == ["needs_approval", "would", "would"]
