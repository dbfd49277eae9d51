"""Look-alikes of the network: pauses that pass, a link that blinks, a driver that grumbles."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation.faults.fabric import nic_state, pauses, port_state, watchdog
from sandbox.simulation.look_alikes.kinds import Play, register_flood
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _brief_pause(stage: Stage, node: Node, at: datetime) -> None:
    """Incast: everybody on a leaf is paused a little, nobody for long."""
    nic = stage.rng.randrange(GPUS)
    for other in stage.cluster.under(node.leaf)[:4]:
        for way in ("received", "transmitted"):
            fractions = [0.0, *(stage.rng.uniform(0.01, 0.4) for _ in range(4)), 0.0]
            pauses(stage, other, nic, at, way, fractions)


def _pause_victim(stage: Stage, node: Node, at: datetime) -> None:
    """A host is told to pause nearly all of the time by a congested network: it suffers, it is not the source."""
    pauses(stage, node, stage.rng.randrange(GPUS), at, "received", [0.0, *[0.95] * 4, 0.1, 0.0, 0.0])


def _congested_uplink(stage: Stage, node: Node, at: datetime) -> None:
    """Traffic across a leaf's uplinks is too much for minutes: all of its hosts are told to pause a good part of the time."""
    nic = stage.rng.randrange(GPUS)
    for other in stage.cluster.under(node.leaf)[:8]:
        fractions = [0.0, *(stage.rng.uniform(0.25, 0.6) for _ in range(10)), 0.05]
        pauses(stage, other, nic, at + _seconds(stage.rng.uniform(0, 15)), "received", fractions)


def _brief_storm(stage: Stage, node: Node, at: datetime) -> None:
    """The switch's watchdog fires and restores within a second: a burst."""
    port = node.port(stage.rng.randrange(GPUS))
    watchdog(stage, node.leaf, port, at, vital=True)
    watchdog(stage, node.leaf, port, at + _seconds(0.45), restored=True, vital=True)


def _link_blink(stage: Stage, node: Node, at: datetime) -> None:
    """One link goes down for two seconds, once: a cable was touched, nobody noticed."""
    nic = stage.rng.randrange(GPUS)
    nic_state(stage, node, nic, at, "down", vital=True)
    port_state(stage, node.leaf, node.port(nic), at + _seconds(0.2), "down", vital=True)
    nic_state(stage, node, nic, at + _seconds(2.1), "up", vital=True)
    port_state(stage, node.leaf, node.port(nic), at + _seconds(2.3), "up", vital=True)


KINDS: dict[str, Play] = {
    "brief_pause": _brief_pause,
    "pause_victim": _pause_victim,
    "congested_uplink": _congested_uplink,
    "brief_storm": _brief_storm,
    "link_blink": _link_blink,
    "register_flood": register_flood,
}
