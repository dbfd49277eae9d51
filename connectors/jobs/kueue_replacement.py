"""Lets Kueue replace the closed node of a job under topology-aware scheduling: its pods there are evicted, the rest stays.

Only where Kueue would do so (`connectors.jobs.kueue_topology`), and only for a while: the deadline is written on the Workload
before the first eviction and lies well inside of Kueue's `recoveryTimeout`, after which it would evict the whole job and count
that against its requeues. Past the deadline the job goes back to its queue in the ordinary way, in the same step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from connectors.base import AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Result, Waiting
from connectors.jobs import resume_check
from connectors.jobs.job_objects import NAMED, is_stuck
from connectors.jobs.kueue_settings import kueue_settings
from connectors.jobs.kueue_topology import (
    REPLACES,
    Replacement,
    assigned_nodes,
    replacement_of,
    unhealthy_nodes,
    why_not,
    within_s,
)
from connectors.jobs.kueue_workload import is_active, path_of_workload
from connectors.jobs.suspension import PODS_PAUSE_S, suspend_annotations_of
from connectors.kubernetes.annotations import INCIDENT, MANAGED, opted_out
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.drain import BUDGET_PAUSE_S, EVICTIONS_A_ROUND
from connectors.kubernetes.errors import Conflict
from connectors.kubernetes.eviction import evict
from connectors.kubernetes.guarded_patch import GuardedChange, change
from connectors.kubernetes.objects import name_of
from streams.model.clock import Clock
from streams.model.kube_objects import condition, holds
from streams.model.signal import Attribute


class KueueReplacement:
    """The way of `KueueLever` for jobs whose nodes Kueue assigns. Every method takes the Workload as it was just read."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def stop(
        self,
        effect: Effect,
        workload: Object,
        pods: Sequence[Object],
        closed: Mapping[str, Object],
        lease: LeaseHeld,
    ) -> Outcome | None:
        """Evict what is on the closed node, and wait for Kueue; None where the job has to go back to its queue instead."""
        if suspend_annotations_of(workload).suspended == effect.key or opted_out(workload):
            return None
        begun, told = begun_by(workload, effect), dict[str, Attribute]()
        if begun is None:
            settings = await kueue_settings(self._cluster)
            if why_not(workload, pods, closed, settings):
                return None
            (node,) = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName") in closed}
            begun = Replacement(effect.key, node, self._clock() + timedelta(seconds=within_s(settings)))
            told = {"within_s": within_s(settings), "kueue": settings.version or "unknown"}
            written = await self._write(workload, effect, begun, lease)
            if not isinstance(written, Waiting):
                return written
        if self._clock() >= begun.until or not is_active(workload):
            return None
        blocked: dict[str, str] = {}
        for pod in [one for one in pods if one["spec"].get("nodeName") == begun.node][:EVICTIONS_A_ROUND]:
            if not pod["metadata"].get("deletionTimestamp") and (
                by := (await evict(self._cluster, pod, lease)).blocked
            ):
                blocked[name_of(pod)] = by
        if blocked:
            by = ", ".join(sorted(set(blocked.values())))
            kept = ", ".join(sorted(blocked)[:NAMED])
            return Blocked(
                by, f"{by} keeps {kept} on a closed node", BUDGET_PAUSE_S, {**told, "node": begun.node}
            )
        judged = self.judged(effect, workload, pods, closed, begun, ours=bool(effect.prior or told))
        if isinstance(judged, Done | AlreadyDone | Waiting):
            return replace(judged, result={**told, **judged.result})
        return judged

    def judged(
        self,
        effect: Effect,
        workload: Object,
        pods: Sequence[Object],
        closed: Mapping[str, Object],
        begun: Replacement,
        *,
        ours: bool,
    ) -> Outcome:
        """Whether the node's pods are gone and Kueue has found another for them."""
        name, result = f"{effect.target.namespace}/{effect.target.name}", {"node": begun.node}
        left = [pod for pod in pods if pod["spec"].get("nodeName") == begun.node]
        if left and all(is_stuck(pod, closed, self._clock()) for pod in left):
            names = tuple(str(pod["metadata"]["name"]) for pod in left[: resume_check.LISTED])
            full: Result = {**result, "hanging": names, "nodes": (begun.node,)}
            text = f"{len(left)} pods of {name} are stuck on {begun.node}, which is dead: Kueue replaces it once they are gone"
            return Done(full, text) if ours else AlreadyDone(full, text)
        if left:
            names_left = ", ".join(str(pod["metadata"]["name"]) for pod in left[:NAMED])
            return Waiting(
                PODS_PAUSE_S, f"{len(left)} pods terminating on {begun.node}: {names_left}", result
            )
        if holds(workload, "Evicted"):
            why = condition(workload, "Evicted").get("reason")
            text = f"Kueue has evicted {name} as a whole ({why}) and admits it anew"
        elif begun.node in assigned_nodes(workload) | set(unhealthy_nodes(workload)):
            return Waiting(
                PODS_PAUSE_S, f"Kueue looks for a node in place of {begun.node} for {name}", result
            )
        else:
            text = f"Kueue has replaced {begun.node} in {name}; the rest of it stays where it is"
        return Done(result, text) if ours else AlreadyDone(result, text)

    async def take_back(self, effect: Effect, workload: Object, lease: LeaseHeld) -> Outcome:
        """Take the annotation off: an eviction is not reverted, and Kueue places what was evicted."""

        def decide(now: Object) -> GuardedChange | Outcome:
            if begun_by(now, effect) is None:
                return AlreadyDone(detail=f"no node of {name_of(now)} is replaced for this effect")
            if opted_out(now):
                return Blocked.person(f"{name_of(now)} is opted out ({MANAGED}=false)")
            detail = f"Kueue places the evicted pods of {effect.target.name} anew"
            return GuardedChange(
                {"metadata": {"annotations": dict.fromkeys((INCIDENT, REPLACES))}}, Done(detail=detail)
            )

        gone = AlreadyDone(detail=f"there is no Workload {name_of(workload)} any more")
        return await change(self._cluster, path_of_workload(workload), decide, lease, if_gone=gone)

    async def _write(self, workload: Object, effect: Effect, begun: Replacement, lease: LeaseHeld) -> Outcome:
        """Write down what is about to be done; `Waiting` once it is there.

        Raises:
            Conflict: the Workload has changed since it was judged.
        """
        version = workload["metadata"]["resourceVersion"]

        def decide(now: Object) -> GuardedChange | Outcome:
            if now["metadata"]["resourceVersion"] != version:
                raise Conflict(f"{name_of(now)} has changed since it was judged")
            marks = {INCIDENT: effect.incident, REPLACES: str(begun)}
            said = f"{begun.node} is to be replaced in {effect.target.name}"
            return GuardedChange({"metadata": {"annotations": marks}}, Waiting(0.0, said))

        return await change(
            self._cluster,
            path_of_workload(workload),
            decide,
            lease,
            if_gone=AlreadyDone(detail=f"there is no Workload {name_of(workload)} any more"),
        )


def begun_by(workload: Object, effect: Effect) -> Replacement | None:
    """The replacement that this effect has begun; None where it has not."""
    found = replacement_of(workload)
    return found if found is not None and found.key == effect.key else None
