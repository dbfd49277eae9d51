"""Nodes that are kept: those that carry the cluster, those named in the settings, and what a pool or a job needs to go on."""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import ceil

from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind


def protected_node(context: GuardContext) -> Ruling | None:
    """The control plane, and what the settings name, is never touched."""
    node = context.node
    target = context.step.target
    name = target.name if target is not None and target.kind == "Node" else None
    if node is not None and node.control_plane:
        return Ruling(
            RulingKind.REFUSE, "control plane", f"{node.name} carries the control plane", "a person acts here"
        )
    if node is not None and node.protected_by is not None:
        return Ruling(
            RulingKind.REFUSE,
            "protected node",
            f"{node.name} has the label {node.protected_by} of inventory.protected_labels",
            "a person acts here",
        )
    pattern = next((p for p in context.policy.protect.nodes if name and fnmatchcase(name, p)), None)
    if pattern is not None:
        return Ruling(
            RulingKind.REFUSE,
            "protected node",
            f"{name} is {pattern} of responder.protect.nodes",
            "a person acts here",
        )
    return None


def pool_floor(context: GuardContext) -> Ruling | None:
    """A pool keeps its last schedulable GPU node, and the share of them that the settings say."""
    protect = context.policy.protect
    closing = {name: fact for name in context.nodes if (fact := context.view.nodes.get(name)) is not None}
    for pool in sorted({fact.pool for fact in closing.values()}, key=str):
        open_now = context.schedulable(pool)
        lost = open_now & closing.keys()
        left = len(open_now) - len(lost)
        size = context.view.gpu_nodes()[pool].count
        keep = max(protect.keep_per_pool, ceil(protect.keep_pool_share * size))
        if lost and left < keep:
            return Ruling(
                RulingKind.ASK,
                "pool floor",
                f"{left} of {size} GPU nodes {_called(pool)} would be left schedulable, {keep} are kept "
                f"(keep_per_pool {protect.keep_per_pool}, keep_pool_share {protect.keep_pool_share:g})",
                "an approval or another schedulable node there lifts it",
            )
    return None


def job_floor(context: GuardContext) -> Ruling | None:
    """A job is moved only where there is room for the share of its nodes that the settings say."""
    share = context.policy.protect.keep_job_share
    if share == 0:
        return None
    for job in sorted(_moved(context)):
        placed = context.view.nodes_of(job)
        needs = ceil(share * len(placed))
        pools = {fact.pool for name in placed if (fact := context.view.nodes.get(name)) is not None}
        open_now = {name for pool in pools for name in context.schedulable(pool)} - context.nodes
        room = {name for name in open_now if name in placed or not _is_taken(context, name, job)}
        if placed and len(room) < needs:
            return Ruling(
                RulingKind.ASK,
                "job floor",
                f"{job} runs on {len(placed)} nodes and would find room on {len(room)}, {needs} are asked for "
                f"(keep_job_share {share:g})",
                "an approval or free nodes in its pool lift it",
            )
    return None


def _called(pool: str | None) -> str:
    return f"of pool {pool}" if pool is not None else "without a pool"


def _moved(context: GuardContext) -> set[str]:
    """Keys of the jobs that the run stops."""
    return {
        s.target.key for s in context.run.plan.steps if s.destructive and s.target and s.target.kind != "Node"
    }


def _is_taken(context: GuardContext, node: str, job: str) -> bool:
    """Whether a pod that is not of the job holds GPUs of the node."""
    pods = context.view.pods_on(node)
    return any(pod.gpus > 0 and (pod.job is None or pod.job.key != job) for pod in pods)
