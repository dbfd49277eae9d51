"""Power and cooling that the nodes of a rack share, and links that the nodes of an NVLink domain share.

One node that is hot or loses a supply has a fault of its own; three of a rack within minutes share one, and none of them is the
cause. The far ends of a failed link report it within seconds, on whatever node they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families
from streams.correlate.sightings import latest_end, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily

POWER, GONE = IncidentFamily.POWER_COOLING, IncidentFamily.NODE_DOWN
_MAX_SHOWN = 6

NodeHypothesis = tuple[str, Hypothesis]
"""A node and one of its hypotheses."""


def of_rack(hypotheses: Sequence[Hypothesis], gone_alone: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """A node's hypotheses that may be its rack's: power faults, and absences that only power explains."""
    power = [h for h in hypotheses if h.family == POWER]
    gone = [h for h in hypotheses if h.family == GONE] if power else gone_alone
    return tuple(h for h in (*power, *gone) if h.facts.get("maintenance") is not True)


def of_nvlink_domain(hypotheses: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
    """A node's hypotheses that may be the near or the far end of an NVLink fault."""
    return tuple(
        h for h in hypotheses if (h.domain == "gpu" and h.certainty is not Certainty.WEAK) or _link(h)
    )


def rack_faults(
    cluster: str,
    rack: str,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    known: int,
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The faults of a rack. `known` is how many nodes it has."""
    root = Entity(cluster, rack=rack)
    within = timedelta(seconds=families().shared.rack.within_s)
    stretches: list[FiringInterval] = []
    members: dict[str, NodeHypothesis] = {}
    for episode in split_at_gaps(_by_time(evidence), lambda p: p[1].fault_at, within):
        if not _is_shared(episode, known):
            continue
        end = latest_end(h.cleared_at for _, h in episode)
        lines = tuple(h.causes[0] for _, h in episode)
        stretches.append(
            FiringInterval(episode[0][1].fault_at, max(h.last_at for _, h in episode), end, lines)
        )
        members |= {h.causes[0].id: (node, h) for node, h in episode}
    return [
        _rack_fault(root, session, [members[s.id] for s in session.sightings], known)
        for session in incarnations.sessions(root, families()[POWER].domain, stretches)
    ]


def nvlink_faults(evidence: Sequence[tuple[str, Sequence[Hypothesis]]]) -> list[SharedFault]:
    """The faults in an NVLink domain that far ends on other nodes report too. The root stays that of its own node."""
    within = timedelta(seconds=families().shared.nvlink.within_s)
    roots: list[tuple[NodeHypothesis, dict[str, str]]] = []
    for node, h in sorted(_by_time(evidence), key=lambda p: -p[1].strength[0]):
        near = [
            r for r in roots if r[0][0] != node and _link(h) and abs(h.fault_at - r[0][1].fault_at) <= within
        ]
        if near:
            near[0][1][h.id] = node
        else:
            roots.append(((node, h), {}))
    return [SharedFault(h, parts) for (_, h), parts in roots if parts]


def _link(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.GPU_NVLINK


def _by_time(evidence: Sequence[tuple[str, Sequence[Hypothesis]]]) -> list[NodeHypothesis]:
    pairs = ((node, h) for node, found in evidence for h in found)
    return sorted(pairs, key=lambda p: (p[1].fault_at, p[1].id))


def _is_shared(episode: Sequence[NodeHypothesis], known: int) -> bool:
    rack = families().shared.rack
    nodes = {node for node, _ in episode}
    if len(nodes) < max(2, min(rack.nodes, known)):
        return False
    if any(h.family == POWER for _, h in episode):
        return True
    return len(nodes) >= rack.nodes and len(nodes) >= rack.share * known


def _rack_fault(root: Entity, session: Session, mine: Sequence[NodeHypothesis], known: int) -> SharedFault:
    nodes = sorted({node for node, _ in mine})
    power = [h for _, h in mine if h.family == POWER]
    gone = sorted({node for node, h in mine if h.family == GONE})
    share = f"{len(nodes)} of {known} nodes" if known >= len(nodes) else f"{len(nodes)} nodes"
    why = f"{share} of {root} within minutes"
    why += (
        f": {_signs(power)}"
        if power
        else " went silent together: its power, or the switch that all of it hangs on"
    )
    if power and gone:
        why += f"; {len(gone)} of them are not ready"
    needed = sorted(h.ready_at for _, h in mine)[min(len(mine), families().shared.rack.nodes) - 1]
    hypothesis = Hypothesis(
        place=SharedGroup(GroupKind.RACK, root.rack or "").place,
        root=root,
        family=POWER,
        **session.times(*(h.last_at for _, h in mine)),
        certainty=Certainty.LIKELY,
        ready_at=needed,
        rule="shared by a rack",
        why=f"{why}. The nodes are victims of it",
        causes=tuple({s.id: s for _, h in mine for s in h.causes[:2]}.values()),
        facts={"nodes_hit": len(nodes), "nodes_known": known, "not_ready": len(gone)},
        candidates=tuple(
            rejected(h.root, h.family, "one node's trouble", "its neighbours in the rack have it too")
            for _, h in mine[:_MAX_SHOWN]
        ),
        stops="never",
        nodes=tuple(nodes),
    )
    return SharedFault(hypothesis, {h.id: node for node, h in mine})


def _signs(power: Sequence[Hypothesis]) -> str:
    signs = dict.fromkeys(sign for h in power for sign in h.fact_texts("signs") or (h.family,))
    return ", ".join(list(signs)[:_MAX_SHOWN])
