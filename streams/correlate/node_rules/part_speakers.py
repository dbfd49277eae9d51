"""What switch trays of an NVLink domain report of themselves while the links of its nodes fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.nvlink_domains import tray_at
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.sightings import ACCESS_PORT, Sighting
from streams.model.entity import Entity
from streams.model.kinds import IncidentFamily, SignalKind

POWER = IncidentFamily.POWER_COOLING
MAX_SHOWN = 6


class TrayReports(NamedTuple):
    """What a switch tray says of itself or of another one, and the faults of its own that follow from the same lines."""

    said: tuple[Sighting, ...] = ()
    own: tuple[Hypothesis, ...] = ()


def of_tray(
    fault: SharedFault,
    trays: Mapping[str, TrayReports],
    stands_here: Callable[[str], bool | None],
    links: int,
) -> SharedFault:
    """The same with its switch tray as the root, if one, and only one, reports trouble meanwhile.

    Args:
        fault: The fault of the part.
        trays: What trays report, by name.
        stands_here: Tells by a tray's name whether it is one of these nodes' part; None where the name does not tell.
        links: How many links failed on one GPU, at most. Ports that went down are no more than their other ends, and each tray
            reports its own: they prove something only where all of a GPU's links that failed may end at one tray.
    """
    h = fault.hypothesis
    within, at = part_policy().sudden.within, h.fault_at
    faults = {n: [s for s in t.said if s.text("subtype") != ACCESS_PORT] for n, t in trays.items()}
    found = tray_at(faults, at, within, stands_here)
    if found is None and links <= part_policy().nvlink.to_one_tray:
        found = tray_at({n: t.said for n, t in trays.items()}, at, within, stands_here)
    if found is None:
        return fault
    name, spoken = found
    tray = Entity(h.root.cluster, switch=name)
    if spoken.kind == SignalKind.NODE_POWER:
        lost = "it lost its power"
    else:
        lost = "its ports go down" if spoken.text("subtype") == ACCESS_PORT else "its NVLinks fail"
    why = f"{tray} says that {lost}, and {h.why}"
    named = replace(h, root=tray, counted_as=h.root, why=why, causes=(spoken, *h.causes))
    own = {one.id: name for one in trays[name].own if abs(one.fault_at - h.fault_at) <= within}
    # What it said is kept as long as the incident is open.
    return SharedFault(named, {**fault.parts, **own}, fault.counted | {name})


def signs_of(power: Iterable[Hypothesis]) -> str:
    """What they show, in short."""
    signs = dict.fromkeys(sign for h in power for sign in h.fact_texts("signs") or (h.family,))
    return ", ".join(list(signs)[:MAX_SHOWN])
