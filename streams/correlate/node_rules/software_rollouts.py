"""GPU software that breaks in the same way on node after node: an upgrade that goes wrong, and no fault of any of them.

One node with a mismatched library may have been upgraded by hand. The third one within hours shares what was rolled out with the
others: the version that its lines name, else how it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families
from streams.correlate.sightings import latest_end, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations
from streams.correlate.state.node_work import work_at
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.correlate.state.rows import NodeRow
from streams.model.clock import span
from streams.model.entity import Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.PLATFORM_FAULT
_MAX_SHOWN = 6


def of_software(row: NodeRow, hypotheses: Iterable[Hypothesis]) -> dict[SharedGroup, tuple[Hypothesis, ...]]:
    """A node's broken GPU software, by what it may share with other nodes; nothing while somebody works on the node."""
    found: dict[SharedGroup, tuple[Hypothesis, ...]] = {}
    for h in hypotheses:
        lines = [s for s in h.causes if s.kind == SignalKind.GPU_DRIVER] if h.family == FAMILY else []
        if lines and work_at(row, h.fault_at) is None:
            versions = {version for s in lines if (version := s.text("client_version"))}
            name = versions.pop() if len(versions) == 1 else lines[0].text("subtype")
            group = SharedGroup(GroupKind.SOFTWARE, name)
            found[group] = (*found.get(group, ()), h)
    return found


def rollouts(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The times when enough nodes broke in this way, one after the other."""
    rule = part_policy().software
    pairs = sorted(
        ((node, h) for node, found in evidence for h in found), key=lambda p: (p[1].fault_at, p[1].id)
    )
    root = Entity(cluster, part=Part("gpu-software", group.name))
    by_line: dict[str, list[tuple[str, Hypothesis]]] = {}
    stretches = []
    for episode in split_at_gaps(pairs, lambda p: p[1].fault_at, timedelta(seconds=rule.within_s)):
        if len({node for node, _ in episode}) < rule.nodes:
            continue
        lines = (episode[0][1].causes[0],)
        by_line[lines[0].id] = episode
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
    for session in incarnations.sessions(root, families()[FAMILY].domain, stretches):
        mine = [pair for s in session.sightings for pair in by_line[s.id]]
        nodes = sorted({node for node, _ in mine})
        shown = ", ".join(nodes[:_MAX_SHOWN]) + (" …" if len(nodes) > _MAX_SHOWN else "")
        hypotheses = [h for _, h in mine]
        faults.append(
            SharedFault(
                Hypothesis(
                    place=group.place,
                    root=root,
                    family=FAMILY,
                    **session.times(*(h.last_at for h in hypotheses)),
                    certainty=Certainty.LIKELY,
                    ready_at=sorted(h.ready_at for h in hypotheses)[rule.nodes - 1],
                    rule="shared by a part",
                    why=f"GPU software is broken in the same way on {len(nodes)} nodes, one after the other ({shown}): look at "
                    f"what was rolled out to them ({group.name}) before at any of them",
                    causes=tuple({h.causes[0].id: h.causes[0] for h in hypotheses}.values()),
                    facts={"nodes_hit": len(nodes)},
                    candidates=tuple(
                        rejected(
                            h.root,
                            h.family,
                            "one node's trouble",
                            "others have it too",
                            f"fewer than {rule.nodes} nodes that break in this way, each within {span(rule.within)} of the "
                            f"one before; {len(nodes)} did",
                        )
                        for h in hypotheses[:_MAX_SHOWN]
                    ),
                    stops=families()[FAMILY].stops,
                    nodes=tuple(nodes),
                ),
                {h.id: node for node, h in mine},
            )
        )
    return faults
