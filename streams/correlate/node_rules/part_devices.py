"""Coolant units and power feeds that tell why nodes are hot, or dark, where nobody says which nodes they serve.

The one of its kind that complains while parts are in trouble is the culprit of them all; where several do, none is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import POWER
from streams.correlate.node_rules.shared_parts import Trouble, together
from streams.inventory.parts import device_kind
from streams.model.entity import Part
from streams.model.kinds import SignalKind


def complaints_of(device: str, hypotheses: Iterable[Hypothesis]) -> tuple[Trouble, ...]:
    """What a coolant unit or a power feed tells of its power or heat; nothing where the name is no such device's."""
    kind = device_kind(device)
    if kind is None or kind not in part_policy().feeds:
        return ()
    part = Part(kind, device)
    return tuple(
        Trouble(device, h, (part,), (kind,), of_itself=True) for h in hypotheses if h.family == POWER
    )


def by_device(
    found: Mapping[str, Part], troubles: Iterable[Trouble], devices: Mapping[str, Sequence[Trouble]]
) -> dict[str, Part]:
    """By id of a hypothesis: the part that it is one event of (`found`), now the device of which it is one, and its complaint."""
    of_parts: dict[Part, list[Trouble]] = defaultdict(list)
    for t in sorted(troubles, key=lambda t: (t.start, t.hypothesis.id)):
        if (part := found.get(t.hypothesis.id)) is not None:
            of_parts[part].append(t)
    moved = dict(found)
    for mine in of_parts.values():
        for episode in together(mine, part_policy().power.within):
            if (complaint := _complaint(episode, devices)) is not None:
                moved |= {t.hypothesis.id: complaint.parts[0] for t in (*episode, complaint)}
    return moved


def _complaint(episode: Sequence[Trouble], devices: Mapping[str, Sequence[Trouble]]) -> Trouble | None:
    """What the one device told that complained as these nodes got into trouble; it may have begun long before them."""
    if any(t.of_itself for t in episode) or not any(t.hypothesis.family == POWER for t in episode):
        return None
    policy, began = part_policy(), episode[0].start
    hot = any(s.kind in _HEAT for t in episode for s in t.hypothesis.causes)
    kind = policy.feeds_hot if hot else policy.feeds_dark
    near = {
        device: t
        for device, complaints in sorted(devices.items())
        for t in complaints
        if t.parts[0].kind == kind
        and began - policy.complains_before <= t.start <= began + policy.power.within
        and ((ended := t.hypothesis.cleared_at) is None or ended >= began - policy.power.within)
    }
    return next(iter(near.values())) if len(near) == 1 else None


_HEAT = (SignalKind.GPU_THERMAL, SignalKind.NODE_THERMAL)
