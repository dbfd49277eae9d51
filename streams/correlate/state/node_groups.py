"""Which sightings of a node are kept and counted together."""

from __future__ import annotations

from streams.correlate.policy.families import storage_system
from streams.correlate.sightings import ABOUT, EACH_MINUTE, Sighting
from streams.correlate.state.allocations import is_by_slurm
from streams.model.kinds import SignalKind


def node_group(seen: Sighting) -> str:
    """Which sightings of a node, or unknown errors of a switch, are counted together.

    Of a group only the first and the last few are kept. So what must not push one another out is told apart: devices, codes,
    queues, storage systems, ranks and their process groups, and whose pods say it.
    """
    if is_by_slurm(seen):
        return f"node.not_ready|{seen.firing}|slurm"
    if seen.kind == SignalKind.NODE_NOT_READY:
        return f"node.not_ready|{seen.firing}"  # the same group as `FactRows` keeps a fact's readiness in
    rank = seen.entity.rank if seen.entity.rank is not None else seen.text("rank")
    ranks = f"|{rank}|{seen.text('pg')}" if seen.kind.startswith("nccl") else ""
    said = seen.text("subtype")
    if seen.kind == SignalKind.UNKNOWN and not said:
        said = f"{seen.text('author')} {seen.text(ABOUT)}"
    detail = seen.text("xid") or seen.text("direction") or f"{said}|{seen.text('sxid')}"
    if seen.kind == SignalKind.NODE_STORAGE:
        detail = f"{detail}|{storage_system(seen) or ''}"
    elif EACH_MINUTE in seen.attributes:
        detail = f"{detail}|{seen.text(EACH_MINUTE)}"
    return f"{seen.kind}|{seen.entity.key}|{detail}|{seen.text('queue')}|{seen.firing}{ranks}"
