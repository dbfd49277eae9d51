"""Faults of what many nodes share, and jobs that crash again and again: what the cluster shows of them, and what is true."""

from __future__ import annotations

from pathlib import Path

from sandbox.simulation.campaign import Simulated, simulate
from sandbox.simulation.scenario import load

SCENARIOS = load(Path(__file__).parents[3] / "bench" / "scenarios.yaml")


def played(name: str, nodes: int = 64) -> Simulated:
    return simulate(SCENARIOS[name].sized(nodes).bare(), 1)


def labels(simulated: Simulated) -> dict[str, dict[str, str]]:
    """The labels of every node by its name."""
    return {
        change.object["metadata"]["name"]: change.object["metadata"]["labels"]
        for change in simulated.capture.kube_changes
        if change.object["kind"] == "Node"
    }


def test_a_feed_takes_its_nodes_and_leaves_the_other_half_of_the_rack() -> None:
    simulated = played("power_feed")
    fault = simulated.truth.faults[0]
    known = labels(simulated)
    assert {known[node]["helios.internal/power-feed"] for node in fault.may_cordon} == {fault.root.shared}
    on_it = {name for name, each in known.items() if each["helios.internal/power-feed"] == fault.root.shared}
    assert set(fault.may_cordon) == {name for name in on_it if name in fault.nodes}
    assert any(
        b"breaker tripped" in (record.value or b"") for record in simulated.capture.records["raw.fabric"]
    )


def test_a_loop_reaches_nodes_of_more_than_one_rack() -> None:
    simulated = played("coolant_loop")
    known = labels(simulated)
    racks = {known[node]["helios.internal/rack"] for node in simulated.truth.faults[0].may_cordon}
    assert len(racks) == 2


def test_gpus_under_a_broken_switch_tray_all_blame_the_other_end() -> None:
    simulated = played("switch_tray")
    lines = [record.value or b"" for record in simulated.capture.records["raw.node-logs"]]
    assert sum(b": 149, NETIR_LINK_EVT" in line for line in lines) >= 3 * 14
    assert all(fault.may_cordon == () for fault in simulated.truth.faults)


def test_a_lemon_is_one_fault_of_one_node_and_the_third_crash_is_not_started_on_it_again() -> None:
    simulated = played("lemon_host")
    fault = simulated.truth.faults[0]
    assert fault.may_cordon == (fault.root.node,)
    assert fault.stopped == fault.jobs


def test_a_program_that_crashes_three_times_is_one_fault_and_no_nodes() -> None:
    for fault in played("program_crashes").truth.faults:
        assert fault.root.job == fault.jobs[0]
        assert fault.may_cordon == ()
