"""Devices that tell why nodes are in trouble together: a switch tray of an NVLink domain, a coolant unit, a power feed.

Nobody says which nodes they serve, and their names may not either. The one that complains while one part is in trouble is its
culprit; where several do, none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.nvlink_domains import tray_at
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.sightings import Sighting, tray_of
from streams.inventory.parts import device_kind
from streams.model.entity import Entity, Part
from streams.model.kinds import IncidentFamily, SignalKind

POWER = IncidentFamily.POWER_COOLING
MAX_SHOWN = 6


def complaints_of(device: str, hypotheses: Iterable[Hypothesis]) -> tuple[Hypothesis, ...]:
    """What a coolant unit or a power feed tells of its power or heat; nothing where the name is no such device's."""
    if device_kind(device) not in part_policy().feeds:
        return ()
    return tuple(h for h in hypotheses if h.family == POWER)


def of_tray(fault: SharedFault, trays: Mapping[str, Sequence[Sighting]]) -> SharedFault:
    """The same with its switch tray as the root, if one, and only one, tells of itself meanwhile."""
    h = fault.hypothesis
    spoken = tray_at(trays, h.fault_at, part_policy().sudden.within)
    if spoken is None:
        return fault
    name = tray_of(spoken)
    assert name is not None, "what spoke is a tray"
    tray = Entity(h.root.cluster, switch=name)
    why = f"{tray} says that its NVLinks fail, and {h.why}"
    named = replace(h, root=tray, counted_as=h.root, why=why, causes=(spoken, *h.causes))
    # What it said is kept as long as the incident is open.
    return replace(fault, hypothesis=named, counted=fault.counted | {name})


def of_device(fault: SharedFault, devices: Mapping[str, Sequence[Hypothesis]]) -> SharedFault:
    """The same with its power feed or coolant unit as the root, if one, and only one of its kind, complains meanwhile.

    Coolant fails slowly: the unit may complain long before the first GPU is hot.
    """
    h, policy = fault.hypothesis, part_policy()
    hot = any(s.kind in (SignalKind.GPU_THERMAL, SignalKind.NODE_THERMAL) for s in h.causes)
    kind = policy.feeds_hot if hot else policy.feeds_dark
    near = {
        device: c
        for device, complaints in sorted(devices.items())
        for c in complaints
        if device_kind(device) == kind
        and h.fault_at - policy.complains_before <= c.fault_at <= h.fault_at + policy.power.within
        and (c.cleared_at is None or c.cleared_at >= h.fault_at - policy.power.within)
    }
    if len(near) != 1:
        return fault
    device, complaint = next(iter(near.items()))
    why = f"{device} tells of itself: {signs_of([complaint])}; and {h.why}"
    root = Entity(h.root.cluster, part=Part(kind, device))
    named = replace(h, root=root, counted_as=h.root, why=why, causes=(*complaint.causes[:2], *h.causes))
    return SharedFault(named, {**fault.parts, complaint.id: device}, fault.counted | {device})


def signs_of(power: Iterable[Hypothesis]) -> str:
    """What they show, in short."""
    signs = dict.fromkeys(sign for h in power for sign in h.fact_texts("signs") or (h.family,))
    return ", ".join(list(signs)[:MAX_SHOWN])
