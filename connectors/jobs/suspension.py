"""Who holds a job suspended? Pure decisions over a job object as the API server shows it.

Written on the job in the same request as its suspend field:

    annotation  faultline.dev/incident             for which incident Faultline acted last
    annotation  faultline.dev/effect-suspend_job   key of the effect that suspended it
    annotation  faultline.dev/effect-resume_job    key of the effect that resumed it; absent while Faultline holds it

Annotations that do not match the field mean that someone changed it since: the manual change takes precedence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, Outcome, Refused, Waiting
from connectors.jobs.placement import avoiding, can_avoid
from connectors.kubernetes.annotations import (
    INCIDENT,
    MANAGED,
    annotations_of,
    effect_mark,
    opted_out,
)
from connectors.kubernetes.client import FIELD_MANAGER, Object
from connectors.kubernetes.guarded_patch import GuardedChange
from connectors.kubernetes.objects import controller, name_of, set_by_another
from streams.job_kinds.kind import JobKind, Lever

SUSPENDED = effect_mark("suspend_job")
RESUMED = effect_mark("resume_job")
SOMEBODY_ELSE = "a suspension that is not Faultline's"
"""`Blocked.by` when the job was already suspended before Faultline acted."""
PODS_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class SuspendAnnotations:
    """What Faultline has written on a job: the last incident, and the keys of the last suspend and resume."""

    incident: str | None
    suspended: str | None
    resumed: str | None

    @property
    def held(self) -> bool:
        """True from Faultline's suspend to its resume."""
        return self.suspended is not None and self.resumed is None


def suspend_annotations_of(job: Object) -> SuspendAnnotations:
    """Read the annotations."""
    found = annotations_of(job)
    return SuspendAnnotations(found.get(INCIDENT), found.get(SUSPENDED), found.get(RESUMED))


def suspend(job: Object, kind: JobKind, effect: Effect) -> GuardedChange | Outcome:
    """Set the suspend field to true, or find that this effect already did. Pods may still be running: see `_until_gone`."""
    marks, suspended, name = suspend_annotations_of(job), kind.is_suspended(job), name_of(job)
    if marks.held and not suspended and marks.incident == effect.incident and is_target(job, effect):
        return Blocked.person(f"{name} was resumed manually after Faultline had suspended it")
    if marks.suspended == effect.key and is_target(job, effect):
        return AlreadyDone(
            detail=f"{name} is suspended" if suspended else f"{name} was suspended and is resumed"
        )
    if (no := out_of_reach(job, kind, effect)) is not None:
        return no
    if effect.prior.get("suspended"):
        return Blocked.person(
            f"Faultline's annotations were removed manually from {name} after it had suspended it"
        )
    if suspended and marks.held:
        return Blocked(f"incident {marks.incident}", f"{name} is suspended for {marks.incident} already")
    if suspended:
        return not_ours(marks, f"{name} is suspended, and not by Faultline")
    kept = {name: read(job) or None for name, read in kind.remembers.items()}
    patch = _write(kind, True, {INCIDENT: effect.incident, SUSPENDED: effect.key, RESUMED: None, **kept})
    begun = Waiting(PODS_PAUSE_S, f"{name} is suspended, its pods are terminating", {"suspended": True})
    return GuardedChange(patch, begun)


def resume(job: Object, kind: JobKind, effect: Effect, avoid: Sequence[str] = ()) -> GuardedChange | Outcome:
    """Set the suspend field to false, if Faultline set it to true for this incident; its pods prefer other nodes than `avoid`."""
    marks, suspended, name = suspend_annotations_of(job), kind.is_suspended(job), name_of(job)
    if marks.resumed == effect.key and is_target(job, effect):
        if suspended:
            return Blocked.person(f"{name} was suspended manually after Faultline had resumed it")
        return AlreadyDone(detail=f"{name} is resumed")
    if (no := out_of_reach(job, kind, effect)) is not None:
        return no
    if not marks.held:
        if suspended:
            return not_ours(marks, f"{name} is suspended, and not by Faultline")
        return Refused(f"{name} is not suspended")
    if marks.incident != effect.incident:
        return Blocked(f"incident {marks.incident}", f"{name} is suspended for {marks.incident}")
    if not suspended:
        return Blocked.person(f"{name} was resumed manually after Faultline had suspended it")
    if (again := _suspended_again(job, kind)) is not None:
        return again
    patch = _write(kind, False, {RESUMED: effect.key})
    elsewhere = f", away from {', '.join(avoid)} where it can" if avoid and can_avoid(job, kind) else ""
    return GuardedChange(
        _merged(patch, avoiding(job, kind, avoid)), Done(detail=f"{name} is resumed{elsewhere}")
    )


def take_back(job: Object, kind: JobKind, effect: Effect) -> GuardedChange | Outcome:
    """Undo a suspend: reset the field and the annotations, while both are still as the effect left them."""
    marks, name = suspend_annotations_of(job), name_of(job)
    if marks.suspended != effect.key or not marks.held or not is_target(job, effect):
        return AlreadyDone(detail=f"{name} is not suspended by this effect")
    if kind.end(job) is not None:
        return AlreadyDone(detail=f"{name} has ended")
    if not kind.is_suspended(job):
        return Blocked.person(f"{name} was resumed manually after Faultline had suspended it")
    if opted_out(job):
        return Blocked.person(f"{name} is opted out ({MANAGED}=false)")
    if (again := _suspended_again(job, kind)) is not None:
        return again
    patch = _write(kind, False, dict.fromkeys((INCIDENT, SUSPENDED, RESUMED, *kind.remembers)))
    return GuardedChange(patch, Done(detail=f"{name} is resumed"))


def _suspended_again(job: Object, kind: JobKind) -> Blocked | None:
    """`Blocked` when the suspension is somebody else's by now: it was resumed and suspended again since Faultline's."""
    by = set_by_another(job, kind.suspend_at, FIELD_MANAGER) if kind.suspend_at else None
    if by is None:
        return None
    return Blocked.person(f"{name_of(job)} was resumed and suspended again manually (by {by})")


def find(job: Object, effect: Effect) -> Outcome:
    """Whether this effect has set the field, for `lookup`; pods of a suspended job may still be running: see `_until_gone`."""
    marks = suspend_annotations_of(job)
    key = marks.suspended if effect.action == "suspend_job" else marks.resumed
    return AlreadyDone() if key == effect.key and is_target(job, effect) else Absent()


def not_ours(marks: SuspendAnnotations, reason: str) -> Blocked:
    """`Blocked` by a suspension that Faultline does not hold: after Faultline's resume it was a manual change."""
    return Blocked.person(reason) if marks.resumed is not None else Blocked(SOMEBODY_ELSE, reason)


def not_to_be_touched(job: Object, kind: JobKind, effect: Effect) -> Refused | None:
    """Why nothing may be done to this job at all; None when something may."""
    name = name_of(job)
    if not is_target(job, effect):
        return Refused(f"{name} was replaced: the uid of the {kind.name} differs from the one in the plan")
    if (end := kind.end(job)) is not None:
        # A failed job needs no suspend any more; that it cannot be resumed is a failure of what we began.
        moot = not end.failed or effect.action == "suspend_job"
        return Refused(f"{name} has ended: {end.by}", moot=moot)
    if job["metadata"].get("deletionTimestamp"):
        return Refused(f"{name} is being deleted", moot=True)
    if opted_out(job):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    return None


def not_by_any_lever(job: Object, kind: JobKind, effect: Effect) -> Refused | None:
    """Why no lever may move this job: also what another object manages is left alone, for that would undo it."""
    if (no := not_to_be_touched(job, kind, effect)) is not None:
        return no
    if (owner := controller(job)) is not None:
        above = f"{owner.get('kind')} {owner.get('name')}"
        return Refused(f"{name_of(job)} is managed by {above}, which would undo it; act on the parent")
    return None


def out_of_reach(job: Object, kind: JobKind, effect: Effect) -> Refused | None:
    """Why Faultline must not change this job's suspend field; None when it may."""
    name = name_of(job)
    if (no := not_by_any_lever(job, kind, effect)) is not None:
        return no
    means = kind.means(job)
    if means.lever is not Lever.SUSPEND:
        return Refused(f"{name} cannot be suspended: {means.reason or f'it is moved by {means.lever}'}")
    return None


def is_target(job: Object, effect: Effect) -> bool:
    """Whether the job is the very one that was planned for, not another of its name."""
    return effect.target.uid is None or effect.target.uid == job["metadata"].get("uid")


def _merged(patch: Object, more: Object) -> Object:
    """Both patches in one."""
    both = dict(patch)
    for key, value in more.items():
        mine = both.get(key)
        both[key] = _merged(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return both


def _write(kind: JobKind, suspended: bool, marks: dict[str, str | None]) -> Object:
    return {"metadata": {"annotations": marks}} | kind.suspend(suspended)
