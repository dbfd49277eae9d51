"""Look-alikes of the network: pauses that pass, a link that blinks, a driver that logs harmless errors."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.faults.fabric import nic_state, pauses, port_state, watchdog
from sandbox.simulation.look_alikes.kinds import Play, register_flood
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node


def _brief_pause(sim: Simulation, node: Node, at: datetime) -> None:
    """Incast: all hosts of a leaf are paused a little, none for long."""
    nic = sim.rng.randrange(GPUS)
    for other in sim.cluster.under(node.leaf)[:4]:
        for way in ("received", "transmitted"):
            fractions = [0.0, *(sim.rng.uniform(0.01, 0.4) for _ in range(4)), 0.0]
            pauses(sim, other, nic, at, way, fractions)


def _pause_victim(sim: Simulation, node: Node, at: datetime) -> None:
    """A host is told to pause nearly all of the time by a congested network: it is a victim, not the source."""
    pauses(sim, node, sim.rng.randrange(GPUS), at, "received", [0.0, *[0.95] * 4, 0.1, 0.0, 0.0])


def _congested_uplink(sim: Simulation, node: Node, at: datetime) -> None:
    """Traffic across a leaf's uplinks is too much for minutes: all of its hosts are told to pause a good part of the time."""
    nic = sim.rng.randrange(GPUS)
    for other in sim.cluster.under(node.leaf)[:8]:
        fractions = [0.0, *(sim.rng.uniform(0.25, 0.6) for _ in range(10)), 0.05]
        pauses(sim, other, nic, at + seconds(sim.rng.uniform(0, 15)), "received", fractions)


def _brief_storm(sim: Simulation, node: Node, at: datetime) -> None:
    """The switch's watchdog fires and restores within a second: a burst."""
    port = node.port(sim.rng.randrange(GPUS))
    watchdog(sim, node.leaf, port, at, vital=True)
    watchdog(sim, node.leaf, port, at + seconds(0.45), restored=True, vital=True)


def _link_blink(sim: Simulation, node: Node, at: datetime) -> None:
    """One link goes down for two seconds, once: a cable was touched."""
    nic = sim.rng.randrange(GPUS)
    nic_state(sim, node, nic, at, "down", vital=True)
    port_state(sim, node.leaf, node.port(nic), at + seconds(0.2), "down", vital=True)
    nic_state(sim, node, nic, at + seconds(2.1), "up", vital=True)
    port_state(sim, node.leaf, node.port(nic), at + seconds(2.3), "up", vital=True)


KINDS: dict[str, Play] = {
    "brief_pause": _brief_pause,
    "pause_victim": _pause_victim,
    "congested_uplink": _congested_uplink,
    "brief_storm": _brief_storm,
    "link_blink": _link_blink,
    "register_flood": register_flood,
}
