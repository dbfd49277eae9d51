"""GPU software that breaks in the same way on node after node: an upgrade that goes wrong, and no fault of any of them.

One node with a mismatched library may have been upgraded by hand. The third one within hours shares what was rolled out with the
others: the version that its lines name, else how it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_series import series, shown
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.node_work import work_at
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.correlate.state.rows import NodeRow
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.PLATFORM_FAULT


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
    return series(
        cluster,
        group,
        evidence,
        incarnations,
        part_policy().software,
        family=FAMILY,
        why=lambda nodes: (
            f"GPU software is broken in the same way on {len(nodes)} nodes, one after the other ({shown(nodes)}): look at what "
            f"was rolled out to them ({group.name}) before at any of them"
        ),
        alike="break in this way",
    )
