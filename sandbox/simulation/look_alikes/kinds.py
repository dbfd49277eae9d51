"""What look-alikes share, and the two that are played where another has no place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node

ALONE = timedelta(minutes=3)
"""No fault begins on the node for so long: the look-alike would rightly be taken for one of its symptoms."""

Play = Callable[[Simulation, Node, datetime], None]
"""Plays a look-alike on a node at a time."""


def killed_program(sim: Simulation, node: Node, at: datetime) -> None:
    """A user ends a program with Ctrl-C: 45 alone."""
    gpu = sim.rng.randrange(GPUS)
    pid = sim.rng.randrange(50_000, 400_000)
    sim.xid(node, gpu, at, 45, driver_logs.channel(gpu), pid=pid, process="python")


def register_flood(sim: Simulation, node: Node, at: datetime) -> None:
    """mlx5 refuses a register access, many times a minute: harmless."""
    for number in range(12):
        sim.kernel(
            node, at + seconds(number * 0.8), driver_logs.register_refused(node.nic_pci(number % GPUS))
        )
