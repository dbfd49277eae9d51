"""Moves jobs that Kueue admits (`Lever.QUEUE`), whatever their kind: by their Workloads, never by the job's own suspend field.

A Workload that is deactivated is evicted: Kueue suspends its job (or deletes its pods) and takes the quota back once they have
ended. Activated again it goes back to its queue, and its job starts when it is admitted anew. A job with several Workloads (the
groups of a LeaderWorkerSet) loses only those that have a pod on a node closed for the incident. Where Kueue assigns the nodes
itself, it replaces the closed one, and the rest of the job stays (`connectors.jobs.kueue_replacement`).

Ownership, and what is written where: `connectors.jobs.kueue_hold`. Source: Kueue, "Workload", "active".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Waiting,
)
from connectors.jobs import kueue_hold, kueue_wait, resume_check, suspension
from connectors.jobs.job_objects import NAMED, closed_nodes, is_stuck, job_of, pods_of, stopped_but_stuck
from connectors.jobs.kueue_replacement import KueueReplacement, begun_by
from connectors.jobs.kueue_workload import (
    holds_quota,
    is_active,
    of_pod,
    path_of_workload,
    was_stopped,
    workloads_of,
)
from connectors.jobs.suspend_lever import gone
from connectors.jobs.suspension import suspend_annotations_of
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import Forbidden, NotFound, Unauthorized
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.objects import name_of
from streams.job_kinds import kueue
from streams.job_kinds.kind import JobKind
from streams.model.clock import Clock

Decide = Callable[[Object, Effect], GuardedChange | Outcome]


@dataclass(frozen=True, slots=True)
class _Place:
    """A job with its pods that have not ended, its Workloads, and those of its nodes that are closed for the incident."""

    job: Object
    pods: Sequence[Object]
    workloads: Sequence[Object]
    closed: Mapping[str, Object]

    def chosen(self, effect: Effect) -> list[Object]:
        """The Workloads that this effect is about: the only one, else those it has marked or that have pods on closed nodes."""
        if len(self.workloads) == 1:
            return list(self.workloads)
        there = {of_pod(pod) for pod in self.pods if pod["spec"].get("nodeName") in self.closed}
        # Where a pod does not tell whose it is, its group may be any.
        return [
            one
            for one in self.workloads
            if None in there or one["metadata"]["name"] in there or _is_marked(one, effect)
        ]

    def pods_of(self, chosen: Sequence[Object]) -> Sequence[Object]:
        """The pods of these Workloads."""
        if len(chosen) == len(self.workloads):
            return self.pods
        names = {one["metadata"]["name"] for one in chosen}
        return [pod for pod in self.pods if of_pod(pod) in names]


class KueueLever:
    """A `JobLever` on `spec.active` of a job's Workloads.

    A stop is `Done` when Kueue has evicted them, their pods are gone and their quota is taken back; or when only pods stuck on
    dead nodes are left: then with `hanging` (their names) and `nodes`, and `drain_node` continues from there.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._replacement = KueueReplacement(cluster, clock)

    async def stop(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Let Kueue replace the node where it does that; else deactivate, then wait for Kueue and the pods."""

        async def once() -> Outcome:
            place = await self._place(effect, kind)
            if isinstance(place, Refused | Blocked):
                return place
            if (no := suspension.not_by_any_lever(place.job, kind, effect)) is not None:
                return no
            chosen = place.chosen(effect)
            if not chosen:
                return AlreadyDone(
                    detail=f"no pod of {_name(effect)} is on a node that is closed for {effect.incident}"
                )
            if _only_waits(place, chosen):
                return Refused(f"{_name(effect)} waits in its queue: nothing of it runs", moot=True)
            if len(place.workloads) == 1:
                (one,) = chosen
                replaced = await self._replacement.stop(effect, one, place.pods, place.closed, lease)
                if replaced is not None:
                    return replaced
            changed = await self._each(chosen, effect, kueue_hold.deactivate, lease)
            if isinstance(changed, Waiting):
                return replace(changed, result={"workloads": len(chosen)})
            if not isinstance(changed, AlreadyDone):
                return changed
            return _judged(effect, kind, place, chosen, self._clock, ours=bool(effect.prior))

        return await attempted(once)

    async def start(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Activate what this incident deactivated. Where it comes back Kueue decides: param `avoid` is only told."""

        async def once() -> Outcome:
            place = await self._place(effect, kind)
            if isinstance(place, Refused | Blocked):
                return place
            if (no := suspension.not_by_any_lever(place.job, kind, effect)) is not None:
                return no
            held = [one for one in place.workloads if _concerns(one, effect)]
            if not held:
                return _nothing_to_start(place, effect)
            changed = await self._each(held, effect, kueue_hold.activate, lease)
            if not isinstance(changed, Done | AlreadyDone):
                return changed
            avoid = str(effect.params.get("avoid") or "")
            may = f"; Kueue places it, so it may come back to {avoid}" if avoid else ""
            queued = f"{_name(effect)} is back in the queue {kueue.queue_of(place.job)}{may}"
            return Done(detail=queued) if isinstance(changed, Done) else AlreadyDone(detail=queued)

        return await attempted(once)

    async def find(self, effect: Effect, kind: JobKind) -> Outcome:
        """By the annotations whether it was begun; for `suspend_job` by Workloads and pods whether it is over."""

        async def once() -> Outcome:
            place = await self._place(effect, kind)
            if isinstance(place, Refused | Blocked):
                return Absent(place.reason) if isinstance(place, Blocked) else place
            if effect.action == "suspend_job":
                chosen = place.chosen(effect)
                marked = [one for one in chosen if _is_marked(one, effect)]
                if not marked:
                    return self._found_replacement(effect, place)
                if len(marked) < len(chosen):
                    return Waiting(
                        suspension.PODS_PAUSE_S, f"{len(marked)} of {len(chosen)} Workloads are deactivated"
                    )
                return _judged(effect, kind, place, chosen, self._clock, ours=False)
            begun = [one for one in place.workloads if suspend_annotations_of(one).resumed == effect.key]
            if not begun:
                return Absent()
            left = [one for one in place.workloads if _concerns(one, effect) and one not in begun]
            text = f"{len(begun)} of {len(begun) + len(left)} Workloads are active again"
            return Waiting(suspension.PODS_PAUSE_S, text) if left else AlreadyDone(detail=text)

        return await attempted(once)

    async def take_back(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Activate what this very effect deactivated; `Blocked` when it was activated manually before."""

        async def once() -> Outcome:
            place = await self._place(effect, kind)
            if isinstance(place, Blocked):
                return AlreadyDone(detail=place.reason)
            if isinstance(place, Refused):
                return place
            if kind.end(place.job) is not None:
                return AlreadyDone(detail=f"{_name(effect)} has ended")
            for one in place.workloads:
                if begun_by(one, effect) is not None and not _is_marked(one, effect):
                    return await self._replacement.take_back(effect, one, lease)
            return await self._each(place.workloads, effect, kueue_hold.take_back, lease)

        return await attempted(once)

    async def wait(
        self, effect: Effect, job: Object, pods: Sequence[Object], judged: Waiting | Blocked
    ) -> Outcome:
        """For `verify_job` of a job that is not whole: what it waits for. `judged` is what its pods alone say."""
        try:
            workloads = await workloads_of(self._cluster, job, pods)
        except Unauthorized:
            raise
        except (Forbidden, NotFound) as error:
            # It may come back all the same, so this alone is no reason to give up.
            seen = judged.detail if isinstance(judged, Waiting) else judged.reason
            unread = f"{seen}; its queue cannot be read: {_unreadable(effect, error).reason}"
            return Waiting(kueue_wait.STARTING_S, unread)
        if not workloads:
            return Waiting(kueue_wait.STARTING_S, f"Kueue has no Workload of {_name(effect)} yet")
        waiting = await kueue_wait.waits(self._cluster, job, workloads, effect)
        if waiting is not None:
            return waiting
        starting = Waiting(kueue_wait.STARTING_S, f"Kueue has admitted {_name(effect)} and starts it")
        return judged if pods and isinstance(judged, Waiting) else starting

    def _found_replacement(self, effect: Effect, place: _Place) -> Outcome:
        """For `lookup`: how far Kueue is with the node that this effect has it replace."""
        for one in place.workloads:
            if (begun := begun_by(one, effect)) is not None:
                return self._replacement.judged(effect, one, place.pods, place.closed, begun, ours=False)
        return Absent()

    async def _each(
        self, workloads: Sequence[Object], effect: Effect, decide: Decide, lease: LeaseHeld
    ) -> Outcome:
        """Bring each Workload to where `decide` wants it, up to the first that cannot be. `AlreadyDone` where all were."""
        changed: Outcome = AlreadyDone(detail=f"{_name(effect)}: nothing is left to change")
        for one in workloads:
            done = await change(
                self._cluster,
                path_of_workload(one),
                lambda workload: decide(workload, effect),
                lease,
                if_gone=AlreadyDone(detail=f"there is no Workload {name_of(one)} any more"),
            )
            if isinstance(done, Done) or (isinstance(done, Waiting) and decide is kueue_hold.deactivate):
                changed = done
            elif not isinstance(done, AlreadyDone):
                return done
        return changed

    async def _place(self, effect: Effect, kind: JobKind) -> _Place | Refused | Blocked:
        try:
            job = await job_of(self._cluster, kind, effect)
        except NotFound:
            return Refused(gone(effect), moot=True)
        pods = resume_check.unfinished(await pods_of(self._cluster, kind, job))
        try:
            workloads = await workloads_of(self._cluster, job, pods)
        except Unauthorized:
            raise
        except (Forbidden, NotFound) as error:
            return _unreadable(effect, error)
        if not workloads:
            queue = kueue.queue_of(job)
            return Blocked(
                kueue_hold.KUEUE,
                f"Kueue has no Workload of {_name(effect)}: it has not taken it into {queue} yet, or leaves its kind alone",
            )
        return _Place(job, pods, workloads, await closed_nodes(self._cluster, pods, effect.incident))


def _unreadable(effect: Effect, error: Forbidden | NotFound) -> Refused:
    """What is said where the queue cannot be read: what Kueue does with the job is not known, so nothing is done."""
    name = _name(effect)
    if isinstance(error, Forbidden):
        return Refused(f"not permitted: apply k8s/components/{kueue.COMPONENT} ({error})")
    return Refused(
        f"{name} has a Kueue queue, but this cluster has no Workloads of Kueue: install Kueue, or take the label "
        f"{kueue.QUEUE_NAME} off, so that it is known who starts and stops it"
    )


def _judged(
    effect: Effect, kind: JobKind, place: _Place, chosen: Sequence[Object], clock: Clock, *, ours: bool
) -> Outcome:
    """Whether Kueue has stopped it, the pods are gone and the quota is taken back."""
    name, result = _name(effect), {"workloads": len(chosen)}
    if all(is_active(one) for one in chosen):
        return AlreadyDone(result, f"{name} was stopped and is active again")
    if not all(was_stopped(one) for one in chosen):
        return Waiting(suspension.PODS_PAUSE_S, f"waiting for Kueue to stop {name}", result)
    left = place.pods_of(chosen)
    if left and all(is_stuck(pod, place.closed, clock()) for pod in left):
        return stopped_but_stuck(f"Kueue has stopped {name}", left, result, ours=ours)
    if left:
        names = ", ".join(str(pod["metadata"]["name"]) for pod in left[:NAMED])
        return Waiting(suspension.PODS_PAUSE_S, f"{len(left)} pods terminating: {names}", result)
    whole = len(chosen) == len(place.workloads)
    if (
        whole
        and kind.suspend_at
        and not (kind.is_suspended(place.job) and kind.is_suspension_seen(place.job))
    ):
        text = f"waiting for Kueue and the {kind.name} controller to suspend {name}"
        return Waiting(suspension.PODS_PAUSE_S, text, result)
    if any(holds_quota(one) for one in chosen):
        return Waiting(suspension.PODS_PAUSE_S, f"waiting for Kueue to take back the quota of {name}", result)
    done = f"{name} is out of the queue {kueue.queue_of(place.job)} and its pods are gone"
    return Done(result, done) if ours else AlreadyDone(result, done)


def _only_waits(place: _Place, chosen: Sequence[Object]) -> bool:
    """Whether nothing runs that could be stopped, nor anything was stopped: it has not been admitted yet."""
    return not place.pods and all(
        is_active(one) and not holds_quota(one) and not suspend_annotations_of(one).held for one in chosen
    )


def _nothing_to_start(place: _Place, effect: Effect) -> Outcome:
    """Nothing was stopped for this incident: fine where Kueue may start it, else somebody else has stopped it."""
    for one in place.workloads:
        if not is_active(one):
            return kueue_hold.by_others(one, suspend_annotations_of(one))
    return AlreadyDone(detail=f"nothing to start: {_name(effect)} was not stopped, and Kueue admits it")


def _concerns(workload: Object, effect: Effect) -> bool:
    """Whether a start has to do with it: this incident holds it deactivated, or this effect has activated it."""
    marks = suspend_annotations_of(workload)
    return marks.resumed == effect.key or (marks.held and marks.incident == effect.incident)


def _is_marked(workload: Object, effect: Effect) -> bool:
    return suspend_annotations_of(workload).suspended == effect.key


def _name(effect: Effect) -> str:
    return f"{effect.target.namespace}/{effect.target.name}"
