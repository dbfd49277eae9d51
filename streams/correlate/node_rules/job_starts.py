"""Jobs that cannot start on node after node, for the step before them fails there: a service that the step asks, and no node.

A prolog that fails on one node has found something wrong there. One that fails on several nodes within minutes, where nothing
else is wrong with any of them, asks something that is gone for all: the directory of users, a mount, a licence; or it was
changed. The workload manager drains each of them meanwhile. What runs there already goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_series import series, shown
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import GroupKind, Place, PlaceKind, SharedGroup
from streams.correlate.state.rows import NodeRow
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.PLATFORM_FAULT
_SAYS_MORE = frozenset({SignalKind.NODE_STORAGE, SignalKind.NODE_NOT_READY})
"""What a node tells besides of which its prolog may fail."""


def of_starts(
    cluster: str, node: str, row: NodeRow, hypotheses: Iterable[Hypothesis]
) -> dict[SharedGroup, tuple[Hypothesis, ...]]:
    """When a step before jobs failed on a node with which nothing else is wrong, by the step; alone it is no incident."""
    steps: defaultdict[str, list[Sighting]] = defaultdict(list)
    for s in (s for group in row.seen.values() if _is_of_start(group[0]) for s in group):
        if (step := s.text("reason").lower()) in part_policy().starts.steps:
            steps[step].append(s)
    if not steps:
        return {}
    rule = part_policy().starts
    told = [s for group in row.seen.values() if group[0].kind in _SAYS_MORE for s in group if s.firing]
    troubled = [*(h.fault_at for h in hypotheses), *(s.at for s in told)]
    found: dict[SharedGroup, tuple[Hypothesis, ...]] = {}
    for step, lines in sorted(steps.items()):
        group = SharedGroup(GroupKind.STARTS, step)
        for stretch in split_at_gaps(sorted(lines, key=order), lambda s: s.at, rule.within):
            first, last = stretch[0].at - rule.within, stretch[-1].at + rule.within
            if not any(first <= at <= last for at in troubled):
                found[group] = (*found.get(group, ()), _failed(cluster, node, stretch))
    return found


def _is_of_start(s: Sighting) -> bool:
    return s.kind == SignalKind.NODE_CONDITION and s.text("subtype") == "slurm_prolog"


def _failed(cluster: str, node: str, lines: Sequence[Sighting]) -> Hypothesis:
    first, last = lines[0], lines[-1]
    return Hypothesis(
        place=Place(PlaceKind.NODE, node),
        root=Entity(cluster, node=node),
        family=FAMILY,
        incarnation=0,
        certainty=Certainty.WEAK,
        fault_at=first.at,
        last_at=last.at,
        ready_at=min(s.seen_at for s in lines),
        cleared_at=last.at + part_policy().starts.quiet,
        rule="shared by a part",
        causes=tuple(lines),
    )


def start_faults(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The times when the step failed on enough nodes, one after the other."""
    found = series(
        cluster,
        group,
        evidence,
        incarnations,
        part_policy().starts,
        family=FAMILY,
        why=lambda nodes: (
            f"the {group.name} of jobs fails on {len(nodes)} nodes, one after the other ({shown(nodes)}), and nothing else is "
            "wrong with them: look at what it asks for (the directory of users, a mount, a licence) and at what was changed "
            "in it before at any of them. The workload manager may drain each of them, and hold the jobs"
        ),
        alike=f"fail in their {group.name}",
    )
    # Neither the nodes nor what runs on them suffer.
    return [replace(fault, hypothesis=replace(fault.hypothesis, nodes=())) for fault in found]
