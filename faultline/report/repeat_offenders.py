"""Parts, nodes and cables that broke more than once. Pure.

A GPU is known by its UUID where one was seen, so that it stays the same in another slot; a cable by its switch port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from faultline.report.figures import Times, times_of
from streams.model.entity import Entity
from streams.model.incident import Incident


@dataclass(frozen=True, slots=True)
class Offender:
    """Something that broke more than once: in the time reported, or before it as the latest incident's facts say."""

    kind: str
    """`gpu`, `node` or `cable`."""
    name: str
    node: str
    count: int
    earlier: int
    """Further incidents before those counted here, as far as the correlator remembers."""
    families: tuple[str, ...]
    interval: Times
    """Between the faults of those counted."""
    incidents: tuple[str, ...]


def offenders_of(incidents: Iterable[Incident]) -> tuple[Offender, ...]:
    """What broke more than once, the worst first."""
    groups: dict[tuple[str, str], list[Incident]] = {}
    for incident in sorted(incidents, key=lambda one: (one.fault_at, one.id)):
        for kind, name in _names(incident.root):
            groups.setdefault((kind, name), []).append(incident)
    found = [
        _offender(kind, name, group)
        for (kind, name), group in groups.items()
        # A node whose incidents are all of one GPU is that GPU's row.
        if not (kind == "node" and len({one.root.key for one in group}) < 2 and group[0].root.kind != "node")
    ]
    repeated = [one for one in found if one.count + one.earlier > 1]
    return tuple(sorted(repeated, key=lambda one: (-one.count - one.earlier, one.kind, one.name)))


def _names(root: Entity) -> Iterator[tuple[str, str]]:
    if root.node is not None:
        if root.gpu is not None:
            yield "gpu", root.gpu.uuid or f"{root.node} {root.gpu.key}"
        yield "node", root.node
    if root.switch is not None and root.port is not None:
        yield "cable", f"{root.switch} {root.port}"
    elif root.node is not None and root.nic is not None:
        yield "cable", f"{root.node} {root.nic}"


def _offender(kind: str, name: str, group: list[Incident]) -> Offender:
    oldest = group[0]
    fact = oldest.facts.get("node_repeats" if kind == "node" and oldest.root.kind != "node" else "repeats")
    times = [one.fault_at for one in group]
    gaps = [
        (one.id, (one.fault_at - before).total_seconds())
        for before, one in zip(times, group[1:], strict=False)
    ]
    return Offender(
        kind=kind,
        name=name,
        node=oldest.root.node or "",
        count=len(group),
        earlier=fact if isinstance(fact, int) and not isinstance(fact, bool) else 0,
        families=tuple(sorted({one.family for one in group})),
        interval=times_of(gaps),
        incidents=tuple(one.id for one in group),
    )
