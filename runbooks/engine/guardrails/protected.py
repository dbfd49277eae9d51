"""Guardrails for nodes that must stay: the control plane, protected nodes, and what a pool or a job needs to continue."""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import ceil

from runbooks.engine.guardrails.context import GuardContext, Ruling, ask, refuse
from runbooks.engine.guardrails.cordoned_nodes import job_targets


def protected_node(context: GuardContext) -> Ruling | None:
    """Control-plane nodes, and nodes protected by the settings, are never touched."""
    node = context.node
    target = context.step.target
    name = target.name if target is not None and target.kind == "Node" else None
    if node is not None and node.control_plane:
        return refuse("control plane", f"{node.name} is a control-plane node")
    if node is not None and node.protected_by is not None:
        return refuse(
            "protected node", f"{node.name} has the label {node.protected_by} (inventory.protected_labels)"
        )
    pattern = next((p for p in context.policy.protect.nodes if name and fnmatchcase(name, p)), None)
    if pattern is not None:
        return refuse("protected node", f"{name} matches {pattern} of responder.protect.nodes")
    return None


def pool_floor(context: GuardContext) -> Ruling | None:
    """A pool keeps its last schedulable GPU node, and the number and share that the settings require."""
    protect = context.policy.protect
    wanted = {name: fact for name in context.nodes if (fact := context.view.nodes.get(name)) is not None}
    for pool in sorted({fact.pool for fact in wanted.values()}, key=str):
        nodes, cordoned = context.view.gpu_nodes()[pool], context.cordoned
        lost = (nodes.open & wanted.keys()) - cordoned
        left = len(nodes.open) - len(nodes.open & cordoned) - len(lost)
        size = nodes.count
        keep = max(protect.keep_per_pool, ceil(protect.keep_pool_share * size))
        if lost and left < keep:
            return ask(
                "pool floor",
                f"{left} of {size} GPU nodes {_called(pool)} would stay schedulable, {keep} are required "
                f"(keep_per_pool {protect.keep_per_pool}, keep_pool_share {protect.keep_pool_share:g})",
                "clears when approved or when another node there becomes schedulable",
            )
    return None


def job_floor(context: GuardContext) -> Ruling | None:
    """A job is stopped only where enough free nodes are left to run it, as a share of its nodes."""
    share = context.policy.protect.keep_job_share
    if share == 0:
        return None
    for job in sorted(job_targets(context.run)):
        placed = context.view.nodes_of(job)
        needs = ceil(share * len(placed))
        pools = {fact.pool for name in placed if (fact := context.view.nodes.get(name)) is not None}
        open_now = {name for pool in pools for name in context.schedulable(pool)} - context.nodes
        room = {name for name in open_now if name in placed or not _is_taken(context, name, job)}
        if placed and len(room) < needs:
            return ask(
                "job floor",
                f"{job} runs on {len(placed)} nodes, {len(room)} are free for it, {needs} are required "
                f"(keep_job_share {share:g})",
                "clears when approved or when nodes in its pool become free",
            )
    return None


def _called(pool: str | None) -> str:
    return f"of pool {pool}" if pool is not None else "without a pool"


def _is_taken(context: GuardContext, node: str, job: str) -> bool:
    """Whether a pod that is not of the job holds GPUs of the node."""
    pods = context.view.pods_on(node)
    return any(pod.gpus > 0 and (pod.job is None or pod.job.key != job) for pod in pods)
