"""Faults of the control plane and of kubelets: nodes that look dead but are alive, one at a time or nearly all at once."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation.faults import hosts
from sandbox.simulation.faults.kinds import Kind, record_truth
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import Node
from sandbox.simulation.truth import TrueRoot

SHARE = 0.9
"""Of the nodes whose leases come too late for an API server that is overloaded."""
SPREAD_S = 15.0
"""Leases are renewed every ten seconds, and checked every five."""


def _late_leases(sim: Simulation, nodes: list[Node], at: datetime, lasts: timedelta) -> datetime:
    """Nodes become NotReady one after the other, and Ready again once their leases get through. Returns when all are."""
    for node in nodes:
        sim.not_ready(node, at + seconds(sim.rng.uniform(0, SPREAD_S)))
        sim.ready_again(node, at + lasts + seconds(sim.rng.uniform(0, SPREAD_S)))
    return at + lasts + seconds(SPREAD_S)


def _brownout(sim: Simulation, at: datetime) -> bool:
    """The API server is overloaded: nearly all nodes look dead for some minutes, and every job goes on."""
    nodes = list(sim.cluster.nodes.values())
    if not all(sim.is_free(node, at) for node in nodes):
        return False
    late = sim.rng.sample(nodes, max(3, round(SHARE * len(nodes))))
    until = _late_leases(sim, late, at, timedelta(minutes=sim.rng.uniform(3, 8)))
    root = TrueRoot(cluster=sim.cluster.name)
    record_truth(sim, "control_plane_brownout", at, until, "nodes_not_ready", root, nodes=nodes)
    return True


def _brownout_and_death(sim: Simulation, at: datetime) -> bool:
    """The same, and one of the nodes really dies meanwhile: it does not come back with the others."""
    nodes, idle = list(sim.cluster.nodes.values()), sim.idle_nodes(at)
    if not all(sim.is_free(node, at) for node in nodes) or not idle:
        return False
    dead = sim.rng.choice(idle)
    gone = at + seconds(sim.rng.uniform(0, SPREAD_S))
    sim.not_ready(dead, gone)
    others = [node for node in nodes if node is not dead]
    late = sim.rng.sample(others, max(3, round(SHARE * len(others))))
    until = _late_leases(sim, late, at, timedelta(minutes=sim.rng.uniform(3, 5)))
    root = TrueRoot(node=dead.name)
    record_truth(sim, "node_power_off", gone, until, "node_down", root, nodes=[dead], may_cordon=[dead])
    root = TrueRoot(cluster=sim.cluster.name)
    record_truth(sim, "brownout_and_death", at, until, "nodes_not_ready", root, nodes=others)
    return True


def _three_deaths(sim: Simulation, at: datetime) -> bool:
    """Three nodes with nothing in common die within the same minute: three faults."""
    if len(sim.free_jobs(at, pods=2)) < 3:
        return False
    played = [hosts.KINDS["node_power_off"](sim, at + seconds(offset)) for offset in (0, 12, 30)]
    return any(played)


def _kubelet_dead(sim: Simulation, at: datetime) -> bool:
    """A kubelet dies and its node's containers run on: the node is NotReady for long, and its job makes progress."""
    job = sim.free_job(at)
    if job is None:
        return False
    node = sim.rng.choice(job.nodes)
    sim.daemon(node, at, "systemd[1]", "kubelet.service: Main process exited, code=killed, status=9/KILL")
    gone = at + seconds(sim.rng.uniform(*hosts.GRACE_S))
    sim.not_ready(node, gone)
    until = at + timedelta(minutes=sim.rng.uniform(20, 30))
    sim.ready_again(node, until)
    record_truth(
        sim, "kubelet_dead", at, until, "node_down", TrueRoot(node=node.name),
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
