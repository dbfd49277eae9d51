"""Faults of what watches nodes, and of kubelets: nodes that look dead and live, one at a time or nearly all at once."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation.faults import hosts
from sandbox.simulation.faults.kinds import Kind, write_down
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import Node
from sandbox.simulation.truth import TrueRoot

SHARE = 0.9
"""Of the nodes whose leases come too late for an API server that is overloaded."""
SPREAD_S = 15.0
"""Leases are renewed every ten seconds, and looked at every five."""


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _late_leases(stage: Stage, nodes: list[Node], at: datetime, lasts: timedelta) -> datetime:
    """Nodes are given up one after the other, and believed again as soon as their leases get through. Nothing else happens."""
    for node in nodes:
        stage.not_ready(node, at + _seconds(stage.rng.uniform(0, SPREAD_S)))
        stage.ready_again(node, at + lasts + _seconds(stage.rng.uniform(0, SPREAD_S)))
    return at + lasts + _seconds(SPREAD_S)


def _brownout(stage: Stage, at: datetime) -> bool:
    """The API server is overloaded: nearly all nodes look dead for some minutes, and every job goes on."""
    nodes = list(stage.cluster.nodes.values())
    if not all(stage.calm(node, at) for node in nodes):
        return False
    late = stage.rng.sample(nodes, max(3, round(SHARE * len(nodes))))
    until = _late_leases(stage, late, at, timedelta(minutes=stage.rng.uniform(3, 8)))
    root = TrueRoot(cluster=stage.cluster.name)
    write_down(stage, "control_plane_brownout", at, until, "nodes_not_ready", root, nodes=nodes)
    return True


def _brownout_and_death(stage: Stage, at: datetime) -> bool:
    """The same, and one of the nodes really dies meanwhile: it does not come back with the others."""
    nodes, idle = list(stage.cluster.nodes.values()), stage.idle_nodes(at)
    if not all(stage.calm(node, at) for node in nodes) or not idle:
        return False
    dead = stage.rng.choice(idle)
    gone = at + _seconds(stage.rng.uniform(0, SPREAD_S))
    stage.not_ready(dead, gone)
    others = [node for node in nodes if node is not dead]
    late = stage.rng.sample(others, max(3, round(SHARE * len(others))))
    until = _late_leases(stage, late, at, timedelta(minutes=stage.rng.uniform(3, 5)))
    write_down(
        stage,
        "node_power_off",
        gone,
        until,
        "node_down",
        TrueRoot(node=dead.name),
        nodes=[dead],
        may_cordon=[dead],
    )
    root = TrueRoot(cluster=stage.cluster.name)
    write_down(stage, "brownout_and_death", at, until, "nodes_not_ready", root, nodes=others)
    return True


def _three_deaths(stage: Stage, at: datetime) -> bool:
    """Three nodes die within the same minute that have nothing in common: three faults."""
    if len(stage.calm_jobs(at, pods=2)) < 3:
        return False
    played = [hosts.KINDS["node_power_off"](stage, at + _seconds(offset)) for offset in (0, 12, 30)]
    return any(played)


def _kubelet_dead(stage: Stage, at: datetime) -> bool:
    """A kubelet dies and its node's containers run on: the node is NotReady for long, and its job makes progress."""
    job = stage.calm_job(at)
    if job is None:
        return False
    node = stage.rng.choice(job.nodes)
    stage.daemon(node, at, "systemd[1]", "kubelet.service: Main process exited, code=killed, status=9/KILL")
    gone = at + _seconds(stage.rng.uniform(*hosts.GRACE_S))
    stage.not_ready(node, gone)
    until = at + timedelta(minutes=stage.rng.uniform(20, 30))
    stage.ready_again(node, until)
    write_down(
        stage, "kubelet_dead", at, until, "node_down", TrueRoot(node=node.name),
        jobs=[job], nodes=[node], may_cordon=[node], accepted=("platform_fault",),
        note="nobody may move its job",
    )  # fmt: skip
    return True


KINDS: dict[str, Kind] = {
    "control_plane_brownout": _brownout,
    "brownout_and_death": _brownout_and_death,
    "three_deaths": _three_deaths,
    "kubelet_dead": _kubelet_dead,
}
