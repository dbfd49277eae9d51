"""Who holds a job suspended? Pure decisions over a job object as the API server shows it.

Written on the job together with its switch, in one request:

    annotation  faultline.dev/incident             for which incident Faultline acted last
    annotation  faultline.dev/effect-suspend_job   key of the effect that suspended it
    annotation  faultline.dev/effect-resume_job    key of the effect that resumed it; absent while Faultline holds it

Marks that do not fit the switch mean that somebody else has turned it since: their word counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, Outcome, Refused, Waiting
from connectors.jobs.suspend_fields import Lever
from connectors.kubernetes.annotations import (
    INCIDENT,
    MANAGED,
    annotations_of,
    controller,
    effect_mark,
    labels_of,
    opted_out,
)
from connectors.kubernetes.client import Object
from connectors.kubernetes.guarded_patch import Change

SUSPENDED = effect_mark("suspend_job")
RESUMED = effect_mark("resume_job")
KUEUE = "kueue.x-k8s.io/queue-name"
SOMEBODY_ELSE = "a suspension that is not Faultline's"
"""`Blocked.by` where nobody has overruled Faultline: the job was suspended before it came."""
PODS_PAUSE_S = 2.0
FAILURES = frozenset({"Failed", "FailureTarget"})
"""Ends that are none to be content with."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What Faultline has written on a job: the last incident, and the keys of the last suspend and resume."""

    incident: str | None
    suspended: str | None
    resumed: str | None

    @property
    def held(self) -> bool:
        """True from Faultline's suspend to its resume."""
        return self.suspended is not None and self.resumed is None


def marks_of(job: Object) -> Marks:
    """Read the marks."""
    found = annotations_of(job)
    return Marks(found.get(INCIDENT), found.get(SUSPENDED), found.get(RESUMED))


def suspend(job: Object, lever: Lever, effect: Effect) -> Change | Outcome:
    """Turn the switch off, or find that this effect did. What it finds done may still have pods: see `until_gone`."""
    marks, off, name = marks_of(job), lever.is_suspended(job), _name(job)
    if marks.held and not off and marks.incident == effect.incident and _is_it(job, effect):
        return Blocked.person(f"a person resumed {name} after Faultline had suspended it")
    if marks.suspended == effect.key and _is_it(job, effect):
        return AlreadyDone(detail=f"{name} is suspended" if off else f"{name} was suspended and is resumed")
    if (no := out_of_reach(job, lever, effect)) is not None:
        return no
    if off and marks.held:
        return Blocked(f"incident {marks.incident}", f"{name} is suspended for {marks.incident} already")
    if off:
        return not_ours(marks, f"{name} is suspended, and not by Faultline")
    patch = _write(lever, True, {INCIDENT: effect.incident, SUSPENDED: effect.key, RESUMED: None})
    return Change(patch, Waiting(PODS_PAUSE_S, f"{name} is suspended, its pods are going"))


def resume(job: Object, lever: Lever, effect: Effect) -> Change | Outcome:
    """Turn the switch on again, if it is Faultline that turned it off for this incident."""
    marks, off, name = marks_of(job), lever.is_suspended(job), _name(job)
    if marks.resumed == effect.key and _is_it(job, effect):
        if off:
            return Blocked.person(f"a person suspended {name} after Faultline had resumed it")
        return AlreadyDone(detail=f"{name} is resumed")
    if (no := out_of_reach(job, lever, effect)) is not None:
        return no
    if not marks.held:
        if off:
            return not_ours(marks, f"{name} is suspended, and not by Faultline")
        return Refused(f"{name} is not suspended")
    if marks.incident != effect.incident:
        return Blocked(f"incident {marks.incident}", f"{name} is suspended for {marks.incident}")
    if not off:
        return Blocked.person(f"a person resumed {name} after Faultline had suspended it")
    return Change(_write(lever, False, {RESUMED: effect.key}), Done(detail=f"{name} is resumed"))


def take_back(job: Object, lever: Lever, effect: Effect) -> Change | Outcome:
    """Undo a suspend: turn the switch on and take the marks away, while both are still as the effect left them."""
    marks, name = marks_of(job), _name(job)
    if marks.suspended != effect.key or not marks.held or not _is_it(job, effect):
        return AlreadyDone(detail=f"{name} is not suspended by this effect")
    if lever.end(job) is not None:
        return AlreadyDone(detail=f"{name} has ended")
    if not lever.is_suspended(job):
        return Blocked.person(f"a person resumed {name} after Faultline had suspended it")
    if opted_out(job):
        return Blocked.person(f"a person keeps Faultline off {name}: {MANAGED}=false")
    patch = _write(lever, False, dict.fromkeys((INCIDENT, SUSPENDED, RESUMED)))
    return Change(patch, Done(detail=f"{name} is resumed"))


def find(job: Object, effect: Effect) -> Outcome:
    """Whether this effect has turned the switch, as `lookup` asks; a suspend may still have pods: see `until_gone`."""
    marks = marks_of(job)
    key = marks.suspended if effect.action == "suspend_job" else marks.resumed
    return AlreadyDone() if key == effect.key and _is_it(job, effect) else Absent()


def not_ours(marks: Marks, reason: str) -> Blocked:
    """By a suspension that Faultline does not hold: after Faultline's resume it is a person's decision against it."""
    return Blocked.person(reason) if marks.resumed is not None else Blocked(SOMEBODY_ELSE, reason)


def out_of_reach(job: Object, lever: Lever, effect: Effect) -> Refused | None:
    """Why Faultline must not turn this job's switch at all; None when it may."""
    name = _name(job)
    if not _is_it(job, effect):
        return Refused(f"{name} is another {lever.kind} now: its uid is not the one this was decided for")
    if (end := lever.end(job)) is not None:
        return Refused(f"{name} has ended: {end}", moot=end not in FAILURES)
    if job["metadata"].get("deletionTimestamp"):
        return Refused(f"{name} is being deleted", moot=True)
    if opted_out(job):
        return Refused(f"a person keeps Faultline off {name}: {MANAGED}=false")
    if (owner := controller(job)) is not None:
        above = f"{owner.get('kind')} {owner.get('name')}"
        return Refused(f"{name} belongs to {above}, which would turn the switch back: act on that one")
    if KUEUE in labels_of(job):
        return Refused(f"{name} is managed by Kueue ({KUEUE}), which would turn the switch back")
    return None


def _is_it(job: Object, effect: Effect) -> bool:
    return effect.target.uid is None or effect.target.uid == job["metadata"].get("uid")


def _write(lever: Lever, suspended: bool, marks: dict[str, str | None]) -> Object:
    return {"metadata": {"annotations": marks}} | lever.suspend(suspended)


def _name(job: Object) -> str:
    return f"{job['metadata'].get('namespace')}/{job['metadata'].get('name')}"
