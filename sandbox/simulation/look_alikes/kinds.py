"""What look-alikes share, and the two that are played where another has no place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node

ALONE = timedelta(minutes=3)
"""No fault begins on the node for so long: it would take the look-alike for part of itself, and rightly so."""

Play = Callable[[Stage, Node, datetime], None]
"""Plays a look-alike on a node at a time."""


def killed_program(stage: Stage, node: Node, at: datetime) -> None:
    """Somebody ends a program with Ctrl-C: 45 alone."""
    gpu = stage.rng.randrange(GPUS)
    stage.xid(
        node,
        gpu,
        at,
        driver_logs.xid(
            node, gpu, 45, f"Ch {gpu + 8:08x}", pid=stage.rng.randrange(50_000, 400_000), process="python"
        ),
    )


def register_flood(stage: Stage, node: Node, at: datetime) -> None:
    """mlx5 refuses a register access, many times a minute: harmless."""
    for number in range(12):
        text = (
            f"mlx5_core {node.nic_pci(number % GPUS)}: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed, "
            "status bad operation(0x2), syndrome (0x305684), err(-22)"
        )
        stage.kernel(node, at + timedelta(seconds=number * 0.8), text)
