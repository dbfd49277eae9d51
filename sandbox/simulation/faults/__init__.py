"""The faults that can be injected: what the hardware does, which component logs what, which jobs suffer, and the truth."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.faults import (
    clusterwide,
    fabric,
    gpus,
    hosts,
    infrastructure,
    platform,
    repeats,
    several,
    shared,
    workloads,
)
from sandbox.simulation.faults.kinds import Kind
from sandbox.simulation.simulation import Simulation
from streams.model.errors import BadInput

KINDS: dict[str, Kind] = {
    name: kind
    for module in (
        gpus,
        hosts,
        workloads,
        fabric,
        shared,
        platform,
        infrastructure,
        repeats,
        clusterwide,
        several,
    )
    for name, kind in module.KINDS.items()
}

_NEEDS = {
    "kubernetes": (
        "image_pull", "volume", "device_plugin", "spot_notice", "control_plane_brownout", "brownout_and_death", "kubelet_dead",
    ),
    "mlx5": ("nic_link_down", "nic_flap", "nic_cable"),
    "roce": ("leaf_down", "uplink_down", "pfc_storm_host", "pfc_storm_port", "pfc_storm_counters", "pause_cycle"),
    "feed": ("power_feed",),
    "loop": ("coolant_loop",),
    "domain": ("switch_tray",),
    "rack": ("rack_cooling", "rack_power_brake", "rack_power_loss"),
}  # fmt: skip


def needs(kind: str) -> frozenset[str]:
    """What a site has to have for a fault of this kind (`Site.features`).

    Raises:
        BadInput: when there is no such kind.
    """
    if kind not in KINDS:
        raise BadInput(f"no fault kind {kind!r}; there are: {', '.join(sorted(KINDS))}")
    return frozenset(feature for feature, kinds in _NEEDS.items() if kind in kinds)


def inject(kind: str, sim: Simulation, at: datetime) -> bool:
    """Play one fault, of a known kind; False when no place for it is free at this time."""
    return KINDS[kind](sim, at)
