"""Trouble that comes to node after node for a reason that lies in none of them: one incident of what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.part_policy import Enough
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families
from streams.correlate.sightings import latest_end, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations
from streams.correlate.state.place import SharedGroup
from streams.model.clock import span
from streams.model.entity import Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily
from streams.model.signal import Attribute

MAX_SHOWN = 6
"""Nodes that a sentence lists."""


def shown(nodes: Sequence[str]) -> str:
    """The first of the nodes, for a sentence."""
    return ", ".join(nodes[:MAX_SHOWN]) + (" …" if len(nodes) > MAX_SHOWN else "")


def series(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    incarnations: Incarnations,
    rule: Enough,
    *,
    family: IncidentFamily,
    why: Callable[[Sequence[str]], str],
    alike: str,
    facts: Mapping[str, Attribute] = {},
    sooner: Enough | None = None,
) -> list[SharedFault]:
    """The times when `rule.nodes` nodes had it, each within `rule.within` of the one before. The root is the group as a part.

    Args:
        cluster: Whose nodes they are.
        group: What the nodes share.
        evidence: Nodes with the hypotheses that become part of it.
        incarnations: How often each root was there.
        rule: How many nodes, how soon after one another.
        family: The family of the fault.
        why: Its reason, from the names of the nodes.
        alike: What the nodes do, for what would have convinced of one node's own fault.
        facts: What is said of it besides how many nodes it hit.
        sooner: How many nodes are enough already where they have it sooner after one another, and each an incident of its own.
    """
    pairs = sorted(
        ((node, h) for node, found in evidence for h in found), key=lambda p: (p[1].fault_at, p[1].id)
    )
    root = Entity(cluster, part=Part(group.kind, group.name))
    by_line: dict[str, list[tuple[str, Hypothesis]]] = {}
    stretches, ready = [], dict[str, datetime]()
    for episode in split_at_gaps(pairs, lambda p: p[1].fault_at, rule.within):
        if (ready_at := _enough_at(episode, rule, sooner)) is None:
            continue
        lines = (episode[0][1].causes[0],)
        by_line[lines[0].id], ready[lines[0].id] = episode, ready_at
        found = [h for _, h in episode]
        stretches.append(
            FiringInterval(
                found[0].fault_at,
                max(h.last_at for h in found),
                latest_end(h.cleared_at for h in found),
                lines,
            )
        )
    faults = []
    for session in incarnations.sessions(root, families()[family].domain, stretches):
        mine = [pair for s in session.sightings for pair in by_line[s.id]]
        nodes = sorted({node for node, _ in mine})
        hypotheses = [h for _, h in mine]
        enough = sooner if sooner is not None and len(nodes) < rule.nodes else rule
        faults.append(
            SharedFault(
                Hypothesis(
                    place=group.place,
                    root=root,
                    family=family,
                    **session.times(*(h.last_at for h in hypotheses)),
                    certainty=Certainty.LIKELY,
                    ready_at=min(ready[s.id] for s in session.sightings),
                    rule="shared by a part",
                    why=why(nodes),
                    causes=tuple({h.causes[0].id: h.causes[0] for h in hypotheses}.values()),
                    facts={"nodes_hit": len(nodes), **facts},
                    candidates=tuple(
                        rejected(
                            h.root,
                            h.family,
                            "one node's trouble",
                            "others have it too",
                            f"fewer than {enough.nodes} nodes that {alike}, each within {span(enough.within)} of the one before; "
                            f"{len(nodes)} did",
                        )
                        for h in hypotheses[:MAX_SHOWN]
                    ),
                    stops=families()[family].stops,
                    nodes=tuple(nodes),
                ),
                {h.id: node for node, h in mine},
            )
        )
    return faults


_Pairs = Sequence[tuple[str, Hypothesis]]
"""Nodes with what they had, by its time."""


def _enough_at(episode: _Pairs, rule: Enough, sooner: Enough | None) -> datetime | None:
    """When as many nodes as it takes had it for long enough; None where they are too few."""
    found = [_last_ready(episode, rule.nodes)]
    if sooner is not None:
        # A GPU that is given up is its own trouble, and what opens no incident by itself may be over in a minute.
        own = [(node, h) for node, h in episode if h.alone and h.root.gpu is None]
        close = split_at_gaps(own, lambda p: p[1].fault_at, sooner.within)
        found += [_last_ready(some, sooner.nodes) for some in close]
    return min((at for at in found if at is not None), default=None)


def _last_ready(episode: _Pairs, nodes: int) -> datetime | None:
    """When the last of so many nodes was ready; None where there are fewer."""
    ready: dict[str, datetime] = {}
    for node, h in episode:
        ready[node] = min(h.ready_at, ready.get(node, h.ready_at))
    return sorted(ready.values())[nodes - 1] if len(ready) >= nodes else None
