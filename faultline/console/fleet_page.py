"""What the page of the fleet shows: nodes by where they stand, who keeps work off them, and how many GPUs are out. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from faultline.console.board import Places, Row
from faultline.console.incident_page import node_state
from streams.model.facts import NodeFact
from streams.model.message import plain

By = Literal["rack", "leaf", "pool"]
GROUPINGS: tuple[By, ...] = get_args(By)


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node. `out` are its GPUs that take no work; `by` says who cordoned it or works on it, or has announced to take it."""

    name: str
    state: str
    gpus: int
    out: int
    by: str
    incidents: tuple[Row, ...]
    affected: bool
    leaves: bool = False
    """Whether it is announced for a known time that it goes."""

    @property
    def is_well(self) -> bool:
        """Whether it needs no word: in service, nothing is open about it, and nobody has announced to take it."""
        return self.state == "in service" and not self.incidents and not self.out and not self.leaves


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one rack, leaf or pool, those that are not well first."""

    name: str
    nodes: tuple[FleetNode, ...]
    gpus: int
    out: int

    @property
    def unwell(self) -> tuple[FleetNode, ...]:
        """The nodes that need a look."""
        return tuple(node for node in self.nodes if not node.is_well)


@dataclass(frozen=True, slots=True)
class Fleet:
    """One page of a cluster's groups. The totals are of the whole cluster."""

    groups: tuple[Group, ...]
    page: int
    pages: int
    nodes: int
    gpus: int
    out: int
    cordoned: int
    not_ready: int


def fleet(nodes: Mapping[str, NodeFact], places: Places, by: By, page: int, page_size: int) -> Fleet:
    """The groups of a page that holds about `page_size` nodes: groups with something wrong come first, and stay whole.

    Args:
        nodes: The cluster's nodes by name.
        places: Where its open and contained incidents are.
        by: What to group by.
        page: From 1.
        page_size: Nodes of a page; a group larger than that has a page of its own.
    """
    shown = [_node(fact, places) for fact in nodes.values()]
    groups: dict[str, list[FleetNode]] = {}
    for fact, node in zip(nodes.values(), shown, strict=True):
        groups.setdefault(plain(getattr(fact, by) or "", 100), []).append(node)
    made = [_group(name, members) for name, members in groups.items()]
    made.sort(key=lambda group: (-group.out, -len(group.unwell), group.name))
    pages = list(_pages(made, page_size)) or [[]]
    number = min(max(1, page), len(pages))
    return Fleet(
        groups=tuple(pages[number - 1]),
        page=number,
        pages=len(pages),
        nodes=len(shown),
        gpus=sum(node.gpus for node in shown),
        out=sum(node.out for node in shown),
        cordoned=sum(fact.unschedulable for fact in nodes.values()),
        not_ready=sum(not fact.ready for fact in nodes.values()),
    )


def _node(fact: NodeFact, places: Places) -> FleetNode:
    works = fact.ready and not fact.unschedulable
    return FleetNode(
        name=plain(fact.name, 253),
        state=node_state(fact),
        gpus=fact.gpus,
        out=max(0, fact.gpus - fact.gpus_allocatable) if works else fact.gpus,
        by=_by(fact),
        incidents=tuple(places.at_fault.get(fact.name, ())),
        affected=fact.name in places.affected,
        leaves=fact.notice is not None and fact.notice.not_before is not None,
    )


def _by(fact: NodeFact) -> str:
    """Who keeps work off the node; empty where nobody does."""
    if fact.owners and fact.unschedulable:
        return "Faultline"
    work = fact.worked_on
    if work is not None:
        return plain(f"{work.by} ({work.mark})", 200)
    if not fact.managed:
        return "not managed by Faultline"
    notice = fact.notice
    if notice is not None and notice.not_before is not None:
        return plain(f"announced by {notice.by} for {notice.not_before:%d %b %H:%M} UTC ({notice.mark})", 200)
    return ""


def _group(name: str, nodes: Sequence[FleetNode]) -> Group:
    ordered = sorted(nodes, key=lambda node: (node.is_well, -node.out, node.name))
    return Group(name, tuple(ordered), sum(n.gpus for n in nodes), sum(n.out for n in nodes))


def _pages(groups: Iterable[Group], page_size: int) -> Iterable[list[Group]]:
    page: list[Group] = []
    for group in groups:
        if page and sum(len(g.nodes) for g in page) + len(group.nodes) > page_size:
            yield page
            page = []
        page.append(group)
    if page:
        yield page
