"""Things that resemble faults: what users, schedulers, monitors and healthy hardware do all day. None may get a node cordoned."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.look_alikes import devices, network, people
from sandbox.simulation.look_alikes.kinds import ALONE, Play
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.truth import LookAlike
from streams.model.errors import BadInput

KINDS: dict[str, Play] = {
    name: kind for module in (devices, network, people) for name, kind in module.KINDS.items()
}

_NEEDS = {
    **dict.fromkeys(("brief_pause", "pause_victim", "congested_uplink", "brief_storm"), "roce"),
    **dict.fromkeys(("link_blink", "register_flood"), "mlx5"),
    **dict.fromkeys(("kubelet_restart", "maintenance", "maintenance_drain", "preempted_job"), "kubernetes"),
}
"""What a site has to have for some of them (`Site.features`)."""


def play(sim: Simulation, at: datetime) -> bool:
    """Play one of those that the scenario names, on a node where nothing else happens; False when there is none."""
    wanted = sim.scenario.look_alikes.kinds or tuple(KINDS)
    if unknown := set(wanted) - KINDS.keys():
        raise BadInput(f"no look-alike {min(unknown)!r}; there are: {', '.join(sorted(KINDS))}")
    kinds = [kind for kind in wanted if sim.has(_NEEDS.get(kind, sim.cluster.site.fabric))]
    free = [node for node in sim.cluster.nodes.values() if sim.is_free(node, at)]
    if not free or not kinds:
        return False
    kind, node = sim.rng.choice(kinds), sim.rng.choice(free)
    KINDS[kind](sim, node, at)
    sim.reserve(at + ALONE, [node])
    sim.truth.look_alikes.append(LookAlike(kind, at, node.name))
    return True
