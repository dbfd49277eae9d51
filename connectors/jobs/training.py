"""The connector for training jobs: `suspend_job`, `resume_job` and `verify_job`, for every kind that has a `SuspendField`.

It changes the job that the target names and never its pods: the job's own controller deletes and recreates them. A job that
another object controls is refused, because that object would revert the suspend field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.jobs import resume_check, suspension
from connectors.jobs.suspend_fields import SUSPEND_FIELDS, SuspendField
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_held_for
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change, look
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.out_of_service import hangs
from streams.model.clock import Clock, utc_now

Decide = Callable[[Object, SuspendField, Effect], GuardedChange | Outcome]


class TrainingJobs:
    """Effects on the jobs of one cluster. The target's `kind` has a `SuspendField`; its `uid`, if given, must be the job's."""

    actions = frozenset({"suspend_job", "resume_job", "verify_job"})

    def __init__(self, cluster: Cluster, clock: Clock = utc_now) -> None:
        self._cluster = cluster
        self._clock = clock

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Suspend, resume or verify a job.

        suspend_job  `Waiting` until its pods are gone, or stuck on dead nodes cordoned for this incident: then `Done`
                     with `hanging` (their names) and `nodes`, and `drain_node` continues from there;
                     `Blocked` where a person or another incident suspended it before
        resume_job   only what this incident suspended; `Blocked` after a manual change in between
        verify_job   `Waiting` until its pods are ready elsewhere, then `Done` with `placements`; changes nothing
        """
        field = _suspend_field(effect)
        if isinstance(field, Refused):
            return field
        match effect.action:
            case "suspend_job":
                changed = await self._change(effect, field, suspension.suspend, lease)
                return await self._until_gone(effect, field, changed)
            case "resume_job":
                return await self._change(effect, field, suspension.resume, lease)
            case "verify_job":
                return await attempted(lambda: self._verify(effect, field))
        return _unknown(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """Read the job's annotations; for `suspend_job` also whether its pods are gone; for `verify_job` check again."""
        field = _suspend_field(effect)
        if isinstance(field, Refused):
            return field
        if effect.action not in self.actions:
            return _unknown(effect)
        if effect.action == "verify_job":
            judged = await attempted(lambda: self._verify(effect, field))
            match judged:
                case Done():
                    return AlreadyDone(judged.result, judged.detail)
                case Refused() | Blocked():
                    # It changes nothing, so the next `apply` may report this itself.
                    return Absent(judged.reason)
            return judged
        found = await look(
            self._cluster,
            _path(effect, field),
            lambda job: suspension.find(job, effect),
            if_gone=Absent(_gone(effect)),
        )
        return await self._until_gone(effect, field, found) if effect.action == "suspend_job" else found

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Resume what this very effect suspended. `Blocked` when it was resumed manually before."""
        field = _suspend_field(effect)
        if isinstance(field, Refused):
            return field
        if effect.action == "suspend_job":
            gone = AlreadyDone(detail=_gone(effect))
            return await self._change(effect, field, suspension.take_back, lease, if_gone=gone)
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _change(
        self,
        effect: Effect,
        field: SuspendField,
        decide: Decide,
        lease: LeaseHeld,
        if_gone: Outcome | None = None,
    ) -> Outcome:
        return await change(
            self._cluster,
            _path(effect, field),
            lambda job: decide(job, field, effect),
            lease,
            if_gone=if_gone or Refused(_gone(effect), moot=True),
        )

    async def _until_gone(self, effect: Effect, field: SuspendField, changed: Outcome) -> Outcome:
        """A suspend is done once the pods are gone: only then are their GPUs free and no checkpoint is being written."""
        if not isinstance(changed, AlreadyDone | Waiting):
            return changed

        async def once() -> Outcome:
            job = await self._job(effect, field)
            if not field.is_suspended(job):
                return changed
            left = resume_check.unfinished(await self._pods(effect, field, job))
            # Started by an earlier call, or by this one.
            ours = bool(effect.prior) or isinstance(changed, Waiting)
            if not left and not field.is_suspension_seen(job):
                waiting = f"waiting for the {effect.target.kind} controller to observe the suspension"
                return Waiting(suspension.PODS_PAUSE_S, waiting, {"suspended": True})
            if not left:
                done = f"{effect.target.namespace}/{effect.target.name} is suspended and its pods are gone"
                return Done(detail=done) if ours else AlreadyDone(detail=done)
            if field.is_suspension_seen(job) and (stuck := await self._stuck(effect, left, ours)) is not None:
                return stuck
            names = ", ".join(pod["metadata"]["name"] for pod in left[:5])
            return Waiting(
                suspension.PODS_PAUSE_S, f"{len(left)} pods terminating: {names}", {"suspended": True}
            )

        return await attempted(once)

    async def _stuck(self, effect: Effect, left: Sequence[Object], ours: bool) -> Outcome | None:
        """A suspend is also done when only pods stuck on dead nodes are left, which never end. None while any other is left."""
        now = self._clock()
        if not all(hangs(pod, now) for pod in left):
            return None
        where = sorted({str(pod["spec"].get("nodeName")) for pod in left})
        for name in where:
            try:
                node = await self._cluster.get(path_of("v1", "nodes", name=name))
            except NotFound:
                return None
            if is_ready(node) or not is_held_for(node, effect.incident):
                return None
        names = [str(pod["metadata"]["name"]) for pod in left]
        result = {"hanging": tuple(names[: resume_check.LISTED]), "nodes": tuple(where)}
        stuck = (
            f"{len(left)} of its pods are stuck on {', '.join(where)}, which is dead: {', '.join(names[:5])}"
        )
        done = f"{effect.target.namespace}/{effect.target.name} is suspended; {stuck}"
        return Done(result, done) if ours else AlreadyDone(result, done)

    async def _verify(self, effect: Effect, field: SuspendField) -> Outcome:
        try:
            job = await self._job(effect, field)
        except NotFound:
            return Refused(_gone(effect), moot=True)
        if effect.target.uid is not None and job["metadata"].get("uid") != effect.target.uid:
            return Refused(
                f"{effect.target.name} was replaced: the uid of the {field.kind} differs from the one in the plan"
            )
        pods = await self._pods(effect, field, job)
        nodes = await self._cluster.list_all(path_of("v1", "nodes"))
        return resume_check.judge(job, field, pods, {node["metadata"]["name"]: node for node in nodes})

    async def _job(self, effect: Effect, field: SuspendField) -> Object:
        return await self._cluster.get(_path(effect, field))

    async def _pods(self, effect: Effect, field: SuspendField, job: Object) -> list[Object]:
        path = path_of("v1", "pods", namespace=effect.target.namespace)
        query = {"labelSelector": f"{field.pod_label}={effect.target.name}"}
        return resume_check.owned(await self._cluster.list_all(path, query=query), job)


def _suspend_field(effect: Effect) -> SuspendField | Refused:
    field = SUSPEND_FIELDS.get(effect.target.kind)
    if field is None:
        return Refused(
            f"job kind {effect.target.kind} not supported for suspend; supported: {', '.join(sorted(SUSPEND_FIELDS))}"
        )
    if not effect.target.namespace:
        return Refused(f"{effect.action}: the target has no namespace")
    return field


def _path(effect: Effect, field: SuspendField) -> str:
    return field.path(str(effect.target.namespace), effect.target.name)


def _gone(effect: Effect) -> str:
    return f"there is no {effect.target}"


def _unknown(effect: Effect) -> Refused:
    return Refused(f"unknown job action {effect.action}")
