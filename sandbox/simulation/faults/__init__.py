"""The faults that can be injected: what the hardware does, which component logs what, which jobs suffer, and the truth."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.faults import clusterwide, fabric, gpus, hosts, platform, several, shared, workloads
from sandbox.simulation.faults.kinds import Kind
from sandbox.simulation.simulation import Simulation
from streams.model.errors import BadInput

KINDS: dict[str, Kind] = {
    name: kind
    for module in (gpus, hosts, workloads, fabric, shared, platform, clusterwide, several)
    for name, kind in module.KINDS.items()
}


def inject(kind: str, sim: Simulation, at: datetime) -> bool:
    """Play one fault; False when no place for it is free at this time.

    Raises:
        BadInput: when there is no such kind.
    """
    if kind not in KINDS:
        raise BadInput(f"no fault kind {kind!r}; there are: {', '.join(sorted(KINDS))}")
    return KINDS[kind](sim, at)
