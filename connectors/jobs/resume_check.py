"""Is a resumed job whole again? Pure judgement over the job, its pods and the nodes as they are now.

Whole means: as many pods as the job should have, every one Running and Ready, none of them on a node that is NotReady or
that Faultline closed. That it also makes progress is asked elsewhere: the API server cannot know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.base import AlreadyDone, Blocked, Done, Outcome, Refused, Waiting
from connectors.jobs.suspend_fields import Lever
from connectors.jobs.suspension import marks_of, not_ours
from connectors.kubernetes.annotations import controller
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import is_marked
from connectors.kubernetes.out_of_service import is_ready

LOOK_AGAIN_S = 3.0
LISTED = 64
"""Placements that a result carries at most: it travels in the run document."""


def owned(pods: Sequence[Object], job: Object) -> list[Object]:
    """The pods that this very job controls, whatever their labels say."""
    uid = job["metadata"]["uid"]
    return [pod for pod in pods if (controller(pod) or {}).get("uid") == uid]


def unfinished(pods: Sequence[Object]) -> list[Object]:
    """The pods that hold on to a node's resources: all but those that have ended."""
    return [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]


def judge(job: Object, lever: Lever, pods: Sequence[Object], nodes: Mapping[str, Object]) -> Outcome:
    """`Done` with `placements` (`pod=node`, at most 64), `nodes` and `pods`, or what it is still waiting for."""
    name = f"{job['metadata'].get('namespace')}/{job['metadata'].get('name')}"
    end = lever.end(job)
    if end in ("Complete", "Succeeded", "SuccessCriteriaMet"):
        return AlreadyDone(detail=f"{name} has ended well")
    if end is not None:
        return Refused(f"{name} has failed")
    if lever.is_suspended(job):
        marks, text = marks_of(job), f"{name} is suspended"
        return Blocked("Faultline", text) if marks.held else not_ours(marks, text)
    wanted, whole = lever.pods(job), [pod for pod in pods if _is_ready(pod)]
    if len(whole) < wanted:
        return Waiting(LOOK_AGAIN_S, f"{len(whole)} of {wanted} pods of {name} are ready{_why(pods)}")
    placed = {pod["metadata"]["name"]: str(pod["spec"]["nodeName"]) for pod in whole}
    if bad := {node: why for node in sorted(set(placed.values())) if (why := _unfit(nodes.get(node)))}:
        told = ", ".join(f"{node} ({why})" for node, why in bad.items())
        return Waiting(LOOK_AGAIN_S, f"pods of {name} are on nodes that do not count: {told}")
    listed = tuple(f"{pod}={node}" for pod, node in sorted(placed.items())[:LISTED])
    return Done(
        {"placements": listed, "pods": len(whole), "nodes": len(set(placed.values()))},
        f"all {wanted} pods of {name} are ready on {len(set(placed.values()))} nodes",
    )


def _is_ready(pod: Object) -> bool:
    status = pod.get("status", {})
    return (
        status.get("phase") == "Running"
        and not pod["metadata"].get("deletionTimestamp")
        and bool(pod.get("spec", {}).get("nodeName"))
        and any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or []
        )
    )


def _unfit(node: Object | None) -> str | None:
    if node is None:
        return "gone"
    if is_marked(node):
        return "closed by Faultline"
    return None if is_ready(node) else "not ready"


def _why(pods: Sequence[Object]) -> str:
    """What the scheduler says of the first pod that it cannot place; most waits end up being about capacity."""
    for pod in pods:
        for condition in pod.get("status", {}).get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"; {pod['metadata']['name']}: {str(condition.get('message', ''))[:200]}"
    return ""
