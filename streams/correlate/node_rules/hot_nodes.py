"""Nodes of several racks that grow hot in the same minute: what cools them all is why, and none of them is broken.

A coolant unit, a pump or a chiller serves several racks. Few sites label which, and many of these devices report nothing that
anybody reads. So where no one part has most of the nodes, the heat is one event of the cluster's cooling (`COOLING`), and an
operator is shown the racks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import POWER, signs_of
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.node_rules.shared_parts import GONE, Trouble, common_part, is_heat, peak, together
from streams.correlate.sightings import split_at_gaps
from streams.correlate.state.parts import PartIndex
from streams.correlate.state.place import COOLING
from streams.model.clock import span
from streams.model.entity import Part
from streams.model.signal import Attribute

_MAX_PLACES = 6


def by_heat(
    found: Mapping[str, Part],
    troubles: Iterable[Trouble],
    parts: PartIndex,
    known: Callable[[datetime], int],
) -> dict[str, Part]:
    """By id of a hypothesis: the part that it is one event of (`found`), with all heat of one moment under one.

    That is the part that has nearly all of the hot nodes, else the smallest that all of them share, else the cluster's cooling.
    What was part of the same event of a smaller part goes along: a node that shut down for its heat. A part that reports its own
    heat explains its own nodes. `known` is how many nodes the cluster had at a time.
    """
    policy, moved = part_policy(), dict(found)
    of_parts: dict[Part, list[Trouble]] = defaultdict(list)
    ordered = sorted(troubles, key=lambda t: (t.start, t.hypothesis.id))
    for t in ordered:
        if (part := found.get(t.hypothesis.id)) is not None:
            of_parts[part].append(t)
    explained = {part for part, mine in of_parts.items() if any(t.of_itself for t in mine)}
    hot = (
        t for t in ordered if not t.of_itself and is_heat(t) and found.get(t.hypothesis.id) not in explained
    )
    for episode in split_at_gaps(hot, lambda t: t.start, policy.heat.within):
        nodes = {t.node for t in episode}
        if len(nodes) < policy.heat.nodes:
            continue
        if peak((t.start, t.hypothesis.cleared_at, t.node) for t in episode) < policy.heat.nodes:
            continue
        mine = {t.hypothesis.id for t in episode}
        hit = {part: {t.node for t in theirs} & nodes for part, theirs in of_parts.items()}
        if any(len(of_part) >= policy.covers * len(nodes) for of_part in hit.values()):
            continue
        root = common_part(nodes, parts, known(episode[0].start)) or Part(*COOLING)
        joined = [
            t
            for part in {found[name] for name in mine if name in found}
            for group in together(of_parts[part], policy.power.within)
            if any(t.hypothesis.id in mine for t in group)
            for t in group
        ]
        moved |= {t.hypothesis.id: root for t in (*episode, *joined)}
    return moved


def of_cooling(
    fault: SharedFault, troubles: Iterable[Trouble], known: Callable[[datetime], int]
) -> SharedFault:
    """The fault of the cluster's cooling as it is reported: how many nodes, of which racks. Itself where a part is at fault."""
    h = fault.hypothesis
    if h.place != COOLING.place:
        return fault
    mine = [t for t in troubles if t.hypothesis.id in fault.parts]
    hot = [t for t in mine if t.hypothesis.family == POWER]
    gone = {t.node for t in mine if t.hypothesis.family == GONE}
    count = max(known(h.fault_at), len(h.nodes))
    facts: dict[str, Attribute] = {**h.facts, "nodes_known": count}
    if places := _places(mine):
        facts["racks"] = tuple(places)
    took = max(t.start for t in hot) - min(t.start for t in hot)
    where = (
        f" ({', '.join(places[:_MAX_PLACES])}{' …' if len(places) > _MAX_PLACES else ''})" if places else ""
    )
    why = (
        f"{len(h.nodes)} of {count} nodes{where} grew hot within {span(took)}: {signs_of(t.hypothesis for t in hot)}"
        f"{f'; {len(gone)} of them are not ready' if gone else ''}. What cools them all is not known by name: look at the "
        "coolant unit, pump, chiller or air that they share before at any of them. The nodes are victims of it"
    )
    return replace(fault, hypothesis=replace(h, why=why, facts=facts))


def _places(mine: Sequence[Trouble]) -> list[str]:
    """The racks or chassis that these nodes stand in, where that is known of all of them."""
    of_node = {
        t.node: next((part for part in sorted(t.parts) if part.kind in part_policy().places), None)
        for t in mine
    }
    return sorted({str(part) for part in of_node.values() if part}) if None not in of_node.values() else []
