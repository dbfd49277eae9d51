"""Checks that a resumed job runs completely again. Pure, over the current job, pods and nodes.

That means: as many pods as the job should have, each Running and Ready, none on a node that is NotReady or cordoned by Faultline.
Training progress is checked elsewhere (`await_progress`): the API server does not know it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.base import AlreadyDone, Blocked, Done, Outcome, Refused, Waiting
from connectors.jobs.suspension import not_ours, suspend_annotations_of
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import is_marked
from connectors.kubernetes.objects import condition, has_ended, is_ready, name_of
from streams.job_kinds.kind import JobKind

LOOK_AGAIN_S = 3.0
LISTED = 64
"""Most placements in a result: it is stored in the run document."""


def unfinished(pods: Sequence[Object]) -> list[Object]:
    """The pods that still use resources of a node: all that have not ended."""
    return [pod for pod in pods if not has_ended(pod)]


def places(job: Object, kind: JobKind, wanted: int, pods: Sequence[Object]) -> frozenset[str]:
    """Names of the nodes that `judge` has to know; none as long as fewer than `wanted` pods run."""
    whole = [pod for pod in pods if _is_running(pod)]
    if kind.end(job) is not None or kind.is_suspended(job) or len(whole) < wanted:
        return frozenset()
    return frozenset(str(pod["spec"]["nodeName"]) for pod in whole)


def judge(
    job: Object, kind: JobKind, wanted: int, pods: Sequence[Object], nodes: Mapping[str, Object]
) -> Outcome:
    """`Done` with `placements` (`pod=node`, at most 64), `nodes` and `pods`, or what it is still waiting for.

    `wanted` is how many pods should run.
    """
    name = name_of(job)
    end = kind.end(job)
    if end is not None:
        return Refused(f"{name} has failed") if end.failed else AlreadyDone(detail=f"{name} has completed")
    if kind.is_suspended(job):
        marks, text = suspend_annotations_of(job), f"{name} is suspended"
        return Blocked("Faultline", text) if marks.held else not_ours(marks, text)
    whole = [pod for pod in pods if _is_running(pod)]
    wanted -= sum(map(_has_succeeded, pods)) if kind.keeps_finished else 0
    if len(whole) < wanted:
        return Waiting(LOOK_AGAIN_S, f"{len(whole)} of {wanted} pods of {name} are ready{_why(pods)}")
    placed = {pod["metadata"]["name"]: str(pod["spec"]["nodeName"]) for pod in whole}
    if bad := {node: why for node in sorted(set(placed.values())) if (why := _unfit(nodes.get(node)))}:
        unusable = ", ".join(f"{node} ({why})" for node, why in bad.items())
        return Waiting(LOOK_AGAIN_S, f"pods of {name} are on nodes that are not usable: {unusable}")
    if not kind.is_whole(job):
        return Waiting(LOOK_AGAIN_S, f"the {kind.name} controller does not report {name} as ready yet")
    listed = tuple(f"{pod}={node}" for pod, node in sorted(placed.items())[:LISTED])
    return Done(
        {"placements": listed, "pods": len(whole), "nodes": len(set(placed.values()))},
        f"all {wanted} pods of {name} are ready on {len(set(placed.values()))} nodes",
    )


def _is_running(pod: Object) -> bool:
    return (
        pod.get("status", {}).get("phase") == "Running"
        and not pod["metadata"].get("deletionTimestamp")
        and bool(pod.get("spec", {}).get("nodeName"))
        and is_ready(pod)
    )


def _has_succeeded(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") == "Succeeded" and not pod["metadata"].get("deletionTimestamp")


def _unfit(node: Object | None) -> str | None:
    if node is None:
        return "gone"
    if is_marked(node):
        return "cordoned by Faultline"
    return None if is_ready(node) else "NotReady"


def _why(pods: Sequence[Object]) -> str:
    """The scheduler's message for the first unschedulable pod: most waits turn out to be about capacity."""
    for pod in pods:
        if unscheduled := condition(pod, "PodScheduled", "False"):
            return f"; {pod['metadata']['name']}: {str(unscheduled.get('message', ''))[:200]}"
    return ""
