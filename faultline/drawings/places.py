"""Which places an incident touches, grouped by what they hang on. Pure: the incident and the inventory's nodes in.

A group is the part at fault, a leaf, a rack or an NVLink domain; nodes of which the inventory knows none stand together under
`place not known`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streams.model.entity import Entity
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.message import some

UNKNOWN = "place not known"
MAX_RACKS = 3


@dataclass(frozen=True, slots=True)
class Group:
    """The affected nodes of one leaf or rack. `culprit` is the node of the root cause, where it stands here."""

    name: str
    kind: str
    """`leaf`, `rack` …; empty where the place is not known."""
    racks: str
    """The racks of a leaf's nodes; empty where they are not known, or are the group itself."""
    culprit: str
    victims: tuple[str, ...]
    is_root: bool = False
    """The leaf, rack or part is itself the root cause."""

    @property
    def size(self) -> int:
        """How many nodes it has, the culprit included."""
        return len(self.victims) + bool(self.culprit)


def groups_of(incident: Incident, nodes: Mapping[str, NodeFact]) -> tuple[Group, ...]:
    """The groups of an incident's nodes: the root's own first, then the larger before the smaller."""
    root = incident.root
    named = dict.fromkeys([*([root.node] if root.node else []), *incident.nodes])
    found: dict[tuple[str, str], list[str]] = {}
    for name in sorted(named, key=natural):
        found.setdefault(_place(root, nodes.get(name)), []).append(name)
    groups = [
        Group(
            name=name,
            kind=kind,
            racks=_racks(members, nodes) if kind == "leaf" else "",
            culprit=root.node if root.node in members else "",
            victims=tuple(member for member in members if member != root.node),
            is_root=_is_root(root, kind, name),
        )
        for (kind, name), members in found.items()
    ]
    return tuple(
        sorted(groups, key=lambda g: (not (g.culprit or g.is_root), not g.kind, -g.size, natural(g.name)))
    )


def gpus_of(incident: Incident, fact: NodeFact | None) -> tuple[int, int | None]:
    """How many GPUs the culprit's node has (0 where that is not known), and which of them is the culprit, from 0.

    A GPU that is only known by its PCI address has no place among the others: then the second is None.
    """
    gpu = incident.root.gpu
    total = fact.gpus if fact is not None else 0
    index = gpu.index if gpu is not None else None
    return total, index if index is not None and 0 <= index < max(total, 1) else None


def beside(root: Entity) -> str:
    """The place that is the root cause where that is neither a node nor a leaf or rack that a group shows; empty otherwise."""
    return "" if root.node is not None or root.kind in ("job", "rank", "pod", "cluster") else str(root)


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A key that sorts `gpu-2` before `gpu-10`."""
    pieces: Iterable[str] = re.split(r"(\d{1,18})", name)
    return tuple((0, int(p)) if p.isdecimal() and p.isascii() else (1, p) for p in pieces if p)


def _place(root: Entity, fact: NodeFact | None) -> tuple[str, str]:
    """Kind and name of what a node hangs on: the part that is the root cause, if it has that, else its leaf, else its rack …"""
    if fact is None:
        return "", UNKNOWN
    if root.part is not None and root.part in fact.shared_parts:
        return root.part.kind, root.part.name
    own = (("leaf", fact.leaf), ("rack", fact.rack), ("nvlink-domain", fact.nvlink_domain))
    return next(((kind, name) for kind, name in own if name), ("", UNKNOWN))


def _racks(members: Iterable[str], nodes: Mapping[str, NodeFact]) -> str:
    found = sorted({fact.rack for name in members if (fact := nodes.get(name)) and fact.rack}, key=natural)
    if not found or (len(found) == 1 and found[0].lower().startswith("rack")):
        return "".join(found)
    return f"rack{'s' * (len(found) > 1)} {some(found, MAX_RACKS)}"


def _is_root(root: Entity, kind: str, name: str) -> bool:
    if root.node is not None:
        return False
    if root.part is not None:
        return (kind, name) == (root.part.kind, root.part.name)
    return (kind == "leaf" and root.switch == name) or (kind == "rack" and root.rack == name)
