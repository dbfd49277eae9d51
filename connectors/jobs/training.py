"""The connector for training jobs: stops a job by the lever its kind has, starts it again, and checks that it really runs again.

Acts only on the top-most owner, always through the job's own controller or queue: no pod of a job is ever deleted
directly. What can be done for a job is declared in `streams.job_kinds`; each lever is a module here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.jobs import resume_check
from connectors.jobs.command_lever import CommandLever
from connectors.jobs.evict_lever import EvictLever
from connectors.jobs.job_objects import job_of, made_job, pods_of
from connectors.jobs.kueue_lever import KueueLever
from connectors.jobs.lever import JobLever
from connectors.jobs.suspend_lever import SuspendLever, gone
from connectors.jobs.suspension import suspend_annotations_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import Forbidden, NotFound, Unauthorized
from connectors.kubernetes.guarded_patch import attempted
from streams.job_kinds.kind import JobKind, Lever
from streams.job_kinds.known import KNOWN
from streams.job_kinds.rights import how_to_permit
from streams.model.clock import Clock, utc_now

NODES_ONE_BY_ONE = 500
"""Up to so many nodes of a job are read one by one."""

Pull = Callable[[JobLever], Awaitable[Outcome]]


class TrainingJobs:
    """Effects on the jobs of one cluster. The target's `kind` is one of `KNOWN`; its `uid`, if given, must be the job's."""

    actions = frozenset({"suspend_job", "resume_job", "verify_job"})

    def __init__(self, cluster: Cluster, clock: Clock = utc_now) -> None:
        self._cluster = cluster
        self._queue = KueueLever(cluster, clock)
        self._levers: Mapping[Lever, JobLever] = {
            Lever.SUSPEND: SuspendLever(cluster, clock),
            Lever.EVICT: EvictLever(cluster, clock),
            Lever.QUEUE: self._queue,
            Lever.COMMAND: CommandLever(cluster, clock),
        }

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Stop, start or verify a job.

        suspend_job  `Waiting` until its pods are gone, then `Done` (see the levers for what else it may say)
        resume_job   only what this incident stopped; `Blocked` after a manual change in between
        verify_job   `Waiting` until its pods are ready elsewhere, then `Done` with `placements`; changes nothing
        """
        kind = _kind(effect)
        if isinstance(kind, Refused):
            return kind
        match effect.action:
            case "suspend_job":
                return await self._pull(effect, kind, lambda lever: lever.stop(effect, kind, lease))
            case "resume_job":
                return await self._pull(effect, kind, lambda lever: lever.start(effect, kind, lease))
            case "verify_job":
                return await attempted(lambda: self._verify(effect, kind))
        return _unknown(effect)

    async def lookup(self, effect: Effect) -> Outcome:
        """Ask the lever, which changes nothing; for `verify_job` check again."""
        kind = _kind(effect)
        if isinstance(kind, Refused):
            return kind
        if effect.action not in self.actions:
            return _unknown(effect)
        if effect.action == "verify_job":
            judged = await attempted(lambda: self._verify(effect, kind))
            match judged:
                case Done():
                    return AlreadyDone(judged.result, judged.detail)
                case Refused() | Blocked():
                    # It changes nothing, so the next `apply` may report this itself.
                    return Absent(judged.reason)
            return judged
        found = await self._pull(effect, kind, lambda lever: lever.find(effect, kind))
        return Absent(found.reason) if isinstance(found, Refused) and found.moot else found

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Start again what this very effect stopped. `Blocked` when it was started manually before."""
        kind = _kind(effect)
        if isinstance(kind, Refused):
            return kind
        if effect.action != "suspend_job":
            return Refused(f"{effect.action} cannot be undone")
        back = await self._pull(effect, kind, lambda lever: lever.take_back(effect, kind, lease))
        return AlreadyDone(detail=back.reason) if isinstance(back, Refused) and back.moot else back

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _pull(self, effect: Effect, kind: JobKind, pull: Pull) -> Outcome:
        """Call the lever that this very job has; `Refused` where it has none."""

        async def once() -> Outcome:
            try:
                job = await job_of(self._cluster, kind, effect)
            except NotFound:
                return Refused(gone(effect), moot=True)
            except Unauthorized:
                raise
            except Forbidden as error:
                return Refused(f"not permitted: {how_to_permit(kind.watched_as[0])} ({error})")
            means = kind.means(job)
            # What was begun is ended, although it could not be begun now: its last restart may be the one that we have used.
            lever = means.lever or (kind.own_lever if _is_begun(job, effect) else None)
            if lever is None:
                return Refused(f"{effect.target} cannot be stopped and started again: {means.reason}")
            return await pull(self._levers[lever])

        return await attempted(once)

    async def _verify(self, effect: Effect, kind: JobKind) -> Outcome:
        try:
            job = await job_of(self._cluster, kind, effect)
        except NotFound:
            return Refused(gone(effect), moot=True)
        if effect.target.uid is not None and job["metadata"].get("uid") != effect.target.uid:
            return Refused(
                f"{effect.target.name} was replaced: the uid of the {kind.name} differs from the one in the plan"
            )
        wanted, pods = await self._wanted(job, kind), await pods_of(self._cluster, kind, job)
        judged: Outcome = (
            wanted
            if isinstance(wanted, Waiting)
            else resume_check.judge(
                job, kind, wanted, pods, await self._nodes(resume_check.places(job, kind, wanted, pods))
            )
        )
        if not isinstance(judged, Waiting | Blocked) or kind.means(job).lever is not Lever.QUEUE:
            return judged
        return await self._queue.wait(effect, job, resume_check.unfinished(pods), judged)

    async def _wanted(self, job: Object, kind: JobKind) -> int | Waiting:
        """How many pods should run: as the job says it, or else what it has made."""
        made = kind.made_of(job)
        if not made or kind.end(job) is not None:
            return kind.pods(job)
        wanted = 0
        for name, called in made:
            try:
                part = await made_job(self._cluster, KNOWN[name], job, called)
            except NotFound:
                return Waiting(resume_check.LOOK_AGAIN_S, f"its {name} {called} is not made yet")
            wanted += KNOWN[name].pods(part)
        return wanted

    async def _nodes(self, names: Collection[str]) -> dict[str, Object]:
        """These nodes, as far as they exist: one by one, for a list of them all is a hundred megabytes on a large cluster."""
        if len(names) > NODES_ONE_BY_ONE:
            listed = await self._cluster.list_all(path_of("v1", "nodes"))
            return {node["metadata"]["name"]: node for node in listed}
        found = await self._cluster.get_each(path_of("v1", "nodes", name=name) for name in sorted(names))
        return {node["metadata"]["name"]: node for node in found.values()}


def _is_begun(job: Object, effect: Effect) -> bool:
    marks = suspend_annotations_of(job)
    return effect.key in (marks.suspended, marks.resumed) or (
        marks.held and marks.incident == effect.incident
    )


def _kind(effect: Effect) -> JobKind | Refused:
    kind = KNOWN.get(effect.target.kind)
    if kind is None:
        return Refused(
            f"job kind {effect.target.kind} not supported for suspend; supported: {', '.join(sorted(KNOWN))}"
        )
    if not effect.target.namespace:
        return Refused(f"{effect.action}: the target has no namespace")
    return kind


def _unknown(effect: Effect) -> Refused:
    return Refused(f"unknown job action {effect.action}")
