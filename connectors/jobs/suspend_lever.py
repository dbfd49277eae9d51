"""Stops and starts jobs by their own suspend field (`Lever.SUSPEND`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.jobs import resume_check, suspension
from connectors.jobs.job_objects import (
    NAMED,
    closed_nodes,
    is_stuck,
    job_of,
    path_of_job,
    pods_of,
    stopped_but_stuck,
)
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.out_of_service import hangs
from streams.job_kinds.kind import JobKind
from streams.model.clock import Clock

Decide = Callable[[Object, JobKind, Effect], GuardedChange | Outcome]


class SuspendLever:
    """A `JobLever` on the field `JobKind.suspend_at`.

    A stop is `Waiting` until the pods are gone, or stuck on dead nodes cordoned for this incident: then `Done` with `hanging`
    (their names) and `nodes`, and `drain_node` continues from there. It is `Blocked` where a person or another incident
    suspended the job before.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def stop(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Set the field, then wait for the pods."""
        changed = await self._change(effect, kind, suspension.suspend, lease)
        return await self._until_gone(effect, kind, changed)

    async def start(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Reset the field. Param `avoid` names nodes, separated by commas, that its pods are to avoid where they can."""
        avoid = [node for node in str(effect.params.get("avoid") or "").split(",") if node]
        resume = partial(suspension.resume, avoid=avoid)
        done = await self._change(effect, kind, resume, lease)
        if not avoid or not isinstance(done, Refused) or done.moot:
            return done
        # Which fields of a suspended job may change depends on the server's version: starting it again is what counts.
        plain = await self._change(effect, kind, suspension.resume, lease)
        if not isinstance(plain, Done):
            return plain
        return Done(plain.result, f"{plain.detail}; it may come back to {', '.join(avoid)}: {done.reason}")

    async def find(self, effect: Effect, kind: JobKind) -> Outcome:
        """Read the job's annotations; for `suspend_job` also whether its pods are gone."""

        async def once() -> Outcome:
            try:
                return suspension.find(await job_of(self._cluster, kind, effect), effect)
            except NotFound:
                return Absent(gone(effect))

        found = await attempted(once)
        return await self._until_gone(effect, kind, found) if effect.action == "suspend_job" else found

    async def take_back(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Reset the field; `Blocked` when it was reset manually before."""
        if_gone = AlreadyDone(detail=gone(effect))
        return await self._change(effect, kind, suspension.take_back, lease, if_gone=if_gone)

    async def _change(
        self, effect: Effect, kind: JobKind, decide: Decide, lease: LeaseHeld, if_gone: Outcome | None = None
    ) -> Outcome:
        target = effect.target
        path = await path_of_job(self._cluster, kind, str(target.namespace), target.name)
        missing = if_gone or Refused(gone(effect), moot=True)
        # An older operator's kind may lack the field: dropped silently, it would look like a job that a person resumed.
        return await change(
            self._cluster,
            path,
            lambda job: decide(job, kind, effect),
            lease,
            if_gone=missing,
            strict=True,
        )

    async def _until_gone(self, effect: Effect, kind: JobKind, changed: Outcome) -> Outcome:
        """A suspend is done once the pods are gone: only then are their GPUs free and no checkpoint is being written."""
        if not isinstance(changed, AlreadyDone | Waiting):
            return changed

        async def once() -> Outcome:
            job = await job_of(self._cluster, kind, effect)
            if not kind.is_suspended(job):
                return changed
            left = resume_check.unfinished(await pods_of(self._cluster, kind, job))
            # Started by an earlier call, or by this one.
            ours = bool(effect.prior) or isinstance(changed, Waiting)
            seen = kind.is_suspension_seen(job)
            if not left and not seen:
                waiting = f"waiting for the {kind.name} controller to observe the suspension"
                return Waiting(suspension.PODS_PAUSE_S, waiting, {"suspended": True})
            if not left:
                done = f"{effect.target.namespace}/{effect.target.name} is suspended and its pods are gone"
                return Done(detail=done) if ours else AlreadyDone(detail=done)
            if seen and await self._are_stuck(effect, left):
                return stopped_but_stuck(
                    f"{effect.target.namespace}/{effect.target.name} is suspended", left, ours=ours
                )
            names = ", ".join(pod["metadata"]["name"] for pod in left[:NAMED])
            return Waiting(
                suspension.PODS_PAUSE_S, f"{len(left)} pods terminating: {names}", {"suspended": True}
            )

        return await attempted(once)

    async def _are_stuck(self, effect: Effect, left: Sequence[Object]) -> bool:
        """Whether only pods stuck on dead nodes that are cordoned for this incident are left: those never end."""
        now = self._clock()
        if not all(hangs(pod, now) for pod in left):
            return False
        closed = await closed_nodes(self._cluster, left, effect.incident)
        return all(is_stuck(pod, closed, now) for pod in left)


def gone(effect: Effect) -> str:
    """That the target does not exist."""
    return f"there is no {effect.target}"
