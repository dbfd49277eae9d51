"""The faults that can be injected, each a small story: what the hardware does, who says what, who suffers, what is true."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.faults import clusterwide, fabric, gpus, hosts, platform, several, shared, workloads
from sandbox.simulation.faults.kinds import Kind
from sandbox.simulation.timeline import Stage
from streams.model.errors import BadInput

KINDS: dict[str, Kind] = {
    name: kind
    for module in (gpus, hosts, workloads, fabric, shared, platform, clusterwide, several)
    for name, kind in module.KINDS.items()
}


def inject(kind: str, stage: Stage, at: datetime) -> bool:
    """Play one fault; False when no place for it is calm at this time.

    Raises:
        BadInput: when there is no such kind.
    """
    if kind not in KINDS:
        raise BadInput(f"no fault kind {kind!r}; there are: {', '.join(sorted(KINDS))}")
    return KINDS[kind](stage, at)
