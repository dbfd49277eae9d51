"""Asks a job for a checkpoint before it is stopped, in the way that it declares (`streams.job_kinds.checkpoint_way`).

The request is written on the job first, under its resourceVersion; only then is anybody asked by HTTP or a signal. So it is asked
at most once for an incident and an incarnation, whatever crashes: what finds the request there waits for the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome, Refused, Waiting
from connectors.jobs import checkpoint_hook, checkpoint_marks
from connectors.jobs.checkpoint_marks import Request
from connectors.jobs.job_objects import job_of, path_of_job, pods_of
from connectors.jobs.suspend_lever import gone
from connectors.kubernetes.annotations import labels_of
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import Forbidden, MaybeApplied, NotFound, Unauthorized
from connectors.kubernetes.guarded_patch import attempted, change
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.pod_exec import run_in
from streams.job_kinds.checkpoint_way import CheckpointWay, Way, declared, way_of
from streams.job_kinds.kind import JobKind
from streams.job_kinds.known import KNOWN
from streams.job_kinds.rights import how_to_permit
from streams.model.clock import Clock, to_the_second, utc_now

LOOK_AGAIN_S = 5.0
_ROLE = "training.kubeflow.org/replica-type"
_FIRST = ("master", "chief")
_INDEX = ("training.kubeflow.org/replica-index", "batch.kubernetes.io/job-completion-index")


class CheckpointRequests:
    """`request_checkpoint` on the jobs of one cluster. `reachable` says which addresses a pod may have."""

    actions = frozenset({"request_checkpoint"})

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock = utc_now,
        reachable: checkpoint_hook.Reachable = checkpoint_hook.is_pod_address,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._reachable = reachable

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Ask, or look whether the job has answered: `Waiting` until it tells of a checkpoint younger than the request."""

        async def asked(job: Object, kind: JobKind) -> Outcome:
            if (known := checkpoint_marks.request_on(job, kind, effect, self._clock())) is not None:
                return await self._look(job, kind, effect, known)
            return await self._ask(job, kind, effect, lease)

        return await self._with_job(effect, asked)

    async def lookup(self, effect: Effect) -> Outcome:
        """Whether the job bears this effect's request, and has answered it."""

        async def found(job: Object, kind: JobKind) -> Outcome:
            known = checkpoint_marks.request_on(job, kind, effect, self._clock())
            if known is None or not known.ours:
                return Absent()
            seen = await self._look(job, kind, effect, known)
            match seen:
                case Done():
                    return AlreadyDone(seen.result, seen.detail)
                case Refused():
                    return Waiting(LOOK_AGAIN_S, seen.reason)
            return seen

        outcome = await self._with_job(effect, found)
        return Absent(outcome.reason) if isinstance(outcome, Refused) else outcome

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """A job that was asked cannot be un-asked."""
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    async def _ask(self, job: Object, kind: JobKind, effect: Effect, lease: LeaseHeld) -> Outcome:
        asked = declared(job)
        said, way = asked.by, way_of(asked.by)
        if way is None:
            return Refused(f"{effect.target} declares no way in which it can be asked for a checkpoint")
        # Whom to ask is found before the request is written: what cannot be asked bears none.
        pods = await self._running(job, kind) if way.way is not Way.ANNOTATION else ()
        url = self._url(pods, way)
        if isinstance(url, Refused):
            return url
        if way.way is Way.SIGNAL and (no := _no_signal(pods)):
            return Refused(f"{effect.target}: {no}")
        now, target = self._clock(), effect.target
        path = await path_of_job(self._cluster, kind, str(target.namespace), target.name)
        written = Waiting(LOOK_AGAIN_S, _waits(said, to_the_second(now)), {"asked_at": to_the_second(now)})
        marked = await change(
            self._cluster,
            path,
            lambda job: checkpoint_marks.ask(job, kind, effect, now, written),
            lease,
            if_gone=Refused(gone(effect), moot=True),
        )
        if marked is not written or way.way is Way.ANNOTATION:
            return marked
        if way.way is Way.SIGNAL:
            return await self._signal(pods[0], way, lease, written)
        body = {"request": effect.key, "incident": effect.incident, "within_s": asked.within_s}
        return await checkpoint_hook.post(url, body, lease)

    async def _look(self, job: Object, kind: JobKind, effect: Effect, request: Request) -> Outcome:
        """What has become of a request that the job bears."""
        said = declared(job).by
        if request.saved_at is not None:
            saved = to_the_second(request.saved_at)
            told = f"it has saved a checkpoint at {saved}"
            return Done({"checkpoint_at": saved}, told) if effect.prior else AlreadyDone({}, told)
        way = way_of(said)
        if way is not None and way.way is Way.HTTP:
            url = self._url(await self._running(job, kind), way)
            if not isinstance(url, Refused):
                return await checkpoint_hook.poll(url)
        asked_at = to_the_second(request.at)
        return Waiting(LOOK_AGAIN_S, _waits(said, asked_at), {"asked_at": asked_at})

    def _url(self, pods: Sequence[Object], way: CheckpointWay) -> str | Refused:
        return checkpoint_hook.url_of(pods, way, self._reachable) if way.way is Way.HTTP else ""

    async def _signal(self, pod: Object, way: CheckpointWay, lease: LeaseHeld, sent: Waiting) -> Outcome:
        """Send the signal to the first process of the container, once: whatever becomes of the call, it is not sent again."""
        lease.check()
        about = pod["metadata"]
        command = ("kill", "-s", way.signal, "1")
        try:
            ran = await run_in(
                self._cluster, about["namespace"], about["name"], command, container=way.container
            )
        except Forbidden as error:
            return Refused(f"no right to send a signal: k8s/components/pod-exec gives it ({error})")
        except MaybeApplied as error:
            return Waiting(LOOK_AGAIN_S, f"{error}; no newer checkpoint yet", sent.result)
        if ran.exit_code == 0:
            return sent
        return Refused(
            f"kill -s {way.signal} in {about['name']} failed: {(ran.output or ran.reason).strip()[:200]}"
        )

    async def _running(self, job: Object, kind: JobKind) -> Sequence[Object]:
        """The pods that are ready, that of the first rank first."""
        pods = [pod for pod in await pods_of(self._cluster, kind, job) if is_ready(pod)]
        return sorted(pods, key=_place)

    async def _with_job(
        self, effect: Effect, act: Callable[[Object, JobKind], Awaitable[Outcome]]
    ) -> Outcome:
        kind = KNOWN.get(effect.target.kind)
        if effect.action not in self.actions or kind is None or not effect.target.namespace:
            return Refused(f"{effect.action} {effect.target}: no such action, or no job of a known kind")

        async def once() -> Outcome:
            try:
                job = await job_of(self._cluster, kind, effect)
            except NotFound:
                return Refused(gone(effect), moot=True)
            except Unauthorized:
                raise
            except Forbidden as error:
                return Refused(f"not permitted: {how_to_permit(kind.watched_as[0])} ({error})")
            return await act(job, kind)

        return await attempted(once)


def _waits(said: str | None, asked_at: str) -> str:
    return f"asked by {said} at {asked_at}, and no newer checkpoint yet"


def _no_signal(pods: Sequence[Object]) -> str:
    """Why no signal is sent; empty where one may be. Where processes are shared, number 1 is not the container's own."""
    if not pods:
        return "none of its pods is ready"
    spec = pods[0].get("spec") or {}
    shared = next((name for name in ("hostPID", "shareProcessNamespace") if spec.get(name)), "")
    return f"its pods have {shared}: process 1 is not their own" if shared else ""


def _place(pod: Object) -> tuple[bool, int, str]:
    """Where a pod stands among those of its job: the one of the first rank first, then by name."""
    labels = labels_of(pod)
    index = next((int(said) for key in _INDEX if (said := labels.get(key, "")).isdecimal()), 0)
    return labels.get(_ROLE, "") not in ("", *_FIRST), index, str(pod["metadata"]["name"])
