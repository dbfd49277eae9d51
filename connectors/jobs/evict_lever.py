"""Moves jobs that have no suspend field by eviction (`Lever.EVICT`): their controller makes what was evicted anew elsewhere.

Only pods of the job on nodes that are cordoned for this incident are evicted, through the Eviction API: budgets of disruption are
respected, and each pod is named by its uid. Where one lost pod makes its whole group anew, one pod per group is evicted.

Written on the job before the evictions, so that neither a crash nor a second process evicts twice:

    annotation  faultline.dev/incident             for which incident
    annotation  faultline.dev/effect-suspend_job   key of the effect
    annotation  faultline.dev/evicted              the chosen pods, `group:uid` each
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
    Waiting,
)
from connectors.jobs import eviction_choice, resume_check, suspension
from connectors.jobs.eviction_choice import Chosen
from connectors.jobs.job_objects import (
    NAMED,
    closed_nodes,
    is_stuck,
    job_of,
    path_of_job,
    pods_of,
    stopped_but_stuck,
)
from connectors.jobs.suspend_lever import gone
from connectors.kubernetes.annotations import INCIDENT, MANAGED, annotations_of, opted_out
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.drain import BUDGET_PAUSE_S, EVICTIONS_A_ROUND
from connectors.kubernetes.errors import Conflict, NotFound
from connectors.kubernetes.eviction import evict
from connectors.kubernetes.guarded_patch import GuardedChange, attempted, change
from connectors.kubernetes.objects import name_of
from streams.job_kinds.kind import JobKind
from streams.model.clock import Clock

EVICTED = "faultline.dev/evicted"


@dataclass(frozen=True, slots=True)
class _Place:
    """A job with its pods that have not ended, and those of its nodes that are closed for the incident."""

    job: Object
    pods: Sequence[Object]
    closed: Mapping[str, Object]

    @property
    def there(self) -> list[Object]:
        """The pods on closed nodes."""
        return [pod for pod in self.pods if pod["spec"].get("nodeName") in self.closed]


class EvictLever:
    """A `JobLever` on the Eviction API.

    A stop is `Done` when no pod of the job is left on the closed nodes, or only ones stuck on dead nodes are: then with `hanging`
    (their names) and `nodes`, and `drain_node` continues from there. A start has nothing to do.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock

    async def stop(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Choose, write the choice down, evict, and wait until the old pods are gone."""

        async def once() -> Outcome:
            place = await self._place(effect, kind)
            if (no := suspension.not_to_be_touched(place.job, kind, effect)) is not None:
                return no
            before = _chosen(place.job, effect)
            chosen = eviction_choice.choose(place.job, place.pods, place.closed, before, self._clock())
            if chosen != before or (place.there and not _is_marked(place.job, effect)):
                written = await self._write(effect, kind, before, chosen, lease)
                if not isinstance(written, Waiting):
                    return written
            blocked = await self._evict(place, chosen, lease)
            if blocked:
                return _blocked(blocked, chosen)
            return self._judged(effect, place, chosen, ours=bool(effect.prior) or chosen != before)

        return await attempted(once)

    async def start(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Nothing: what was evicted comes back by itself."""
        try:
            await job_of(self._cluster, kind, effect)
        except NotFound:
            return Refused(gone(effect), moot=True)
        return AlreadyDone(
            detail=f"nothing to start: the {kind.name} controller makes evicted pods anew elsewhere"
        )

    async def find(self, effect: Effect, kind: JobKind) -> Outcome:
        """By the annotations whether it was begun, and by the pods whether it is over."""

        async def once() -> Outcome:
            try:
                place = await self._place(effect, kind)
            except NotFound:
                return Absent(gone(effect))
            if effect.action != "suspend_job" or not _is_marked(place.job, effect):
                return Absent()
            return self._judged(effect, place, _chosen(place.job, effect), ours=False)

        return await attempted(once)

    async def take_back(self, effect: Effect, kind: JobKind, lease: LeaseHeld) -> Outcome:
        """Take the annotations off: an eviction is not reverted, its controller makes the pods anew."""
        path = await path_of_job(self._cluster, kind, str(effect.target.namespace), effect.target.name)

        def decide(job: Object) -> GuardedChange | Outcome:
            if not _is_marked(job, effect):
                return AlreadyDone(detail=f"{name_of(job)} was not evicted by this effect")
            if opted_out(job):
                return Blocked.person(f"{name_of(job)} is opted out ({MANAGED}=false)")
            marks = dict.fromkeys((INCIDENT, suspension.SUSPENDED, EVICTED))
            detail = f"the {kind.name} controller makes the evicted pods of {name_of(job)} anew"
            return GuardedChange({"metadata": {"annotations": marks}}, Done(detail=detail))

        return await change(self._cluster, path, decide, lease, if_gone=AlreadyDone(detail=gone(effect)))

    async def _place(self, effect: Effect, kind: JobKind) -> _Place:
        job = await job_of(self._cluster, kind, effect)
        pods = resume_check.unfinished(await pods_of(self._cluster, kind, job))
        closed = await closed_nodes(self._cluster, pods, effect.incident)
        return _Place(job, pods, closed)

    async def _write(
        self, effect: Effect, kind: JobKind, before: Chosen, chosen: Chosen, lease: LeaseHeld
    ) -> Outcome:
        """Write the choice on the job; `Waiting` once it is there.

        Raises:
            Conflict: another process has chosen meanwhile.
        """
        path = await path_of_job(self._cluster, kind, str(effect.target.namespace), effect.target.name)
        marks = {
            INCIDENT: effect.incident,
            suspension.SUSPENDED: effect.key,
            suspension.RESUMED: None,
            EVICTED: ",".join(f"{group}:{uid}" for group, uid in chosen),
        }

        def decide(job: Object) -> GuardedChange | Outcome:
            if (no := suspension.not_to_be_touched(job, kind, effect)) is not None:
                return no
            if _chosen(job, effect) != before:
                raise Conflict(f"{name_of(job)}: another process has chosen pods meanwhile")
            return GuardedChange({"metadata": {"annotations": marks}}, Waiting(0.0, "written"))

        return await change(self._cluster, path, decide, lease, if_gone=Refused(gone(effect), moot=True))

    async def _evict(self, place: _Place, chosen: Chosen, lease: LeaseHeld) -> dict[str, str]:
        """Ask for the evictions that were chosen and not yet made; what prevents which, by pod."""
        wanted = {uid for _, uid in chosen}
        blocked: dict[str, str] = {}
        for pod in [pod for pod in place.there if pod["metadata"]["uid"] in wanted][:EVICTIONS_A_ROUND]:
            if pod["metadata"].get("deletionTimestamp"):
                continue
            if by := (await evict(self._cluster, pod, lease)).blocked:
                blocked[name_of(pod)] = by
        return blocked

    def _judged(self, effect: Effect, place: _Place, chosen: Chosen, *, ours: bool) -> Outcome:
        """Whether the old pods are gone, and whose doing that is."""
        name, groups = f"{effect.target.namespace}/{effect.target.name}", {group for group, _ in chosen}
        result: Result = {"evicted": len(chosen)}
        left = place.there
        if left and all(is_stuck(pod, place.closed, self._clock()) for pod in left):
            return stopped_but_stuck(f"{name} is evicted from the closed nodes", left, result, ours=ours)
        if left:
            names = [str(pod["metadata"]["name"]) for pod in left]
            text = f"{len(left)} pods of {name} are still on closed nodes: {', '.join(names[:NAMED])}"
            return Waiting(suspension.PODS_PAUSE_S, text, result)
        if not chosen:
            return AlreadyDone(
                result, f"no pod of {name} is on a node that is cordoned for {effect.incident}"
            )
        count = f"{len(groups)} groups" if len(groups) != 1 else "1 group"
        done = f"{count} of {name} evicted from the closed nodes; its controller makes them anew elsewhere"
        return Done(result, done) if ours else AlreadyDone(result, done)


def _is_marked(job: Object, effect: Effect) -> bool:
    uid = effect.target.uid
    same = uid is None or uid == job["metadata"].get("uid")
    return same and annotations_of(job).get(suspension.SUSPENDED) == effect.key


def _chosen(job: Object, effect: Effect) -> Chosen:
    """What this effect has chosen so far; an earlier effect's choice is none of its business."""
    if not _is_marked(job, effect):
        return ()
    pairs = (entry.partition(":") for entry in annotations_of(job).get(EVICTED, "").split(",") if entry)
    return tuple((group, uid) for group, _, uid in pairs)


def _blocked(blocked: Mapping[str, str], chosen: Chosen) -> Blocked:
    by = ", ".join(sorted(set(blocked.values())))
    reason = f"{by} keeps {', '.join(sorted(blocked)[:NAMED])} on a closed node"
    return Blocked(by, reason, BUDGET_PAUSE_S, {"evicted": len(chosen)})
