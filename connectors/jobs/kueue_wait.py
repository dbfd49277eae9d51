"""A job that waits for Kueue to admit it: where, behind how many, and why. It has not failed: its turn has not come.

What only adds to the answer (the ClusterQueue's name, the position) is left out where it cannot be read. Source: Kueue, "Pending
workloads on demand" (visibility API).
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.base import Effect, Outcome, Refused, Waiting
from connectors.jobs import kueue_hold
from connectors.jobs.kueue_workload import is_active, is_admitted, why_deactivated, why_pending
from connectors.jobs.suspension import suspend_annotations_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import Forbidden, NotFound, Unauthorized
from connectors.kubernetes.objects import name_of
from streams.model.errors import Temporary
from streams.model.kube_objects import items, part, text, whole

VISIBILITY = ("visibility.kueue.x-k8s.io/v1beta2", "visibility.kueue.x-k8s.io/v1beta1")
LOOK_AGAIN_S = 30.0
STARTING_S = 3.0
AHEAD = "ahead"
"""In a result: how many were before it when that was last told."""
_LONGEST = 200


async def waits(cluster: Cluster, job: Object, workloads: Sequence[Object], effect: Effect) -> Outcome | None:
    """For what a job waits in its queue: quota (`Waiting` with `queued`), or whoever deactivated it; None once it is admitted."""
    for one in workloads:
        if not is_active(one):
            if why := why_deactivated(one):
                return Refused(f"Kueue itself has deactivated {name_of(job)}: {why}")
            return kueue_hold.by_others(one, suspend_annotations_of(one))
    pending = next((one for one in workloads if not is_admitted(one)), None)
    if pending is None:
        return None
    local = text(part(pending, "spec"), "queueName") or "?"
    where = await _cluster_queue(cluster, pending, local)
    ahead = _told(effect.prior.get(AHEAD), await _ahead(cluster, pending, local))
    before = "" if ahead is None else f", with {ahead} before it" if ahead else ", as the first"
    why = why_pending(pending)[:_LONGEST]
    detail = f"{name_of(job)} waits for quota in {where}{before}{f': {why}' if why else ''}"
    return Waiting(LOOK_AGAIN_S, detail, {} if ahead is None else {AHEAD: ahead}, queued=True)


async def _cluster_queue(cluster: Cluster, workload: Object, local: str) -> str:
    version, namespace = str(workload["apiVersion"]), str(workload["metadata"]["namespace"])
    try:
        queue = await cluster.get(path_of(version, "localqueues", namespace=namespace, name=local))
    except Unauthorized:
        raise
    except (NotFound, Forbidden):
        return f"the queue {local}"
    return f"ClusterQueue {text(part(queue, 'spec'), 'clusterQueue') or '?'} (queue {local})"


async def _ahead(cluster: Cluster, workload: Object, local: str) -> int | None:
    """How many Workloads are before it in its ClusterQueue; None where nobody tells."""
    about = workload["metadata"]
    for version in VISIBILITY:
        path = path_of(
            version,
            "localqueues",
            namespace=str(about["namespace"]),
            name=local,
            subresource="pendingworkloads",
        )
        try:
            listed = await cluster.get(path)
        except Unauthorized:
            raise
        except (NotFound, Forbidden, Temporary):  # an API of its own, which may be down while Kueue is not
            continue
        for one in items(listed, "items"):
            if part(one, "metadata").get("name") == about["name"]:
                return whole(one.get("positionInClusterQueue"))
    return None


def _told(before: object, now: int | None) -> int | None:
    """The position to tell: a new one once it is first or has halved or doubled, so that not every step ahead is told."""
    if now is None or not isinstance(before, int) or now in (0, before):
        return now
    return now if now * 2 <= before or now >= before * 2 else before
