"""Everything on one node that can be seen without asking its jobs, of every kind of fault."""

from __future__ import annotations

from collections.abc import Mapping

from streams.correlate.fabric_rules.pfc_storms import host_storms
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.gpus import gpu_faults
from streams.correlate.node_rules.host_signals import place_faults
from streams.correlate.node_rules.node_readiness import node_down
from streams.correlate.policy.config import Config
from streams.correlate.state.incarnations import Lives
from streams.correlate.state.rows import NodeRow, PortRow
from streams.model.entity import Entity


def hard_roots(
    root: Entity, row: NodeRow, ports: Mapping[str, PortRow], lives: Lives, config: Config
) -> list[Hypothesis]:
    """Everything on a node that can be seen without asking its jobs."""
    assert root.node is not None
    seen = [s for group in row.seen.values() for s in group]
    return [
        *gpu_faults(root.node, seen, lives, config),
        *host_storms(root.cluster, root.node, seen, ports, lives, config),
        *node_down(root, row, seen, lives, config),
        *place_faults(root, seen, lives, config),
    ]
