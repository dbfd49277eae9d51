"""Who holds a Workload of Kueue deactivated? Pure decisions over the object as the API server shows it.

Written on the Workload in the same request as `spec.active`, as on a job that is suspended (`connectors.jobs.suspension`): the
incident and the keys of the effects. Annotations that do not match the field mean that somebody changed it since, and what was
deactivated by somebody else (a person, or Kueue itself) is never activated.
"""

from __future__ import annotations

from connectors.base import AlreadyDone, Blocked, Done, Effect, Outcome, Refused, Waiting
from connectors.jobs.kueue_topology import REPLACES
from connectors.jobs.kueue_workload import holds_quota, is_active, why_deactivated
from connectors.jobs.suspension import (
    PODS_PAUSE_S,
    RESUMED,
    SUSPENDED,
    SuspendAnnotations,
    not_ours,
    suspend_annotations_of,
)
from connectors.kubernetes.annotations import INCIDENT, MANAGED, opted_out
from connectors.kubernetes.client import FIELD_MANAGER, Object
from connectors.kubernetes.guarded_patch import GuardedChange
from connectors.kubernetes.objects import name_of, set_by_another

KUEUE = "Kueue"
ACTIVE = ("spec", "active")


def deactivate(workload: Object, effect: Effect) -> GuardedChange | Outcome:
    """Set `spec.active` to false, or find that this effect already did."""
    marks, active, name = suspend_annotations_of(workload), is_active(workload), _named(workload)
    if marks.held and active and marks.incident == effect.incident:
        return Blocked.person(f"{name} was activated manually after Faultline had deactivated it")
    if marks.suspended == effect.key:
        return AlreadyDone(detail=f"{name} was deactivated" + (" and is active again" if active else ""))
    if opted_out(workload):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    if not active and marks.held:
        return Blocked(f"incident {marks.incident}", f"{name} is deactivated for {marks.incident} already")
    if not active:
        return by_others(workload, marks)
    annotations = {INCIDENT: effect.incident, SUSPENDED: effect.key, RESUMED: None}
    return GuardedChange(
        _write(False, annotations), Waiting(PODS_PAUSE_S, f"{name} is deactivated, Kueue stops its job")
    )


def activate(workload: Object, effect: Effect) -> GuardedChange | Outcome:
    """Set `spec.active` to true, if Faultline set it to false for this incident and Kueue has taken its quota back.

    Activated before that, it would keep the quota of its former admission (kueue#14811).
    """
    marks, active, name = suspend_annotations_of(workload), is_active(workload), _named(workload)
    if marks.resumed == effect.key:
        return AlreadyDone(detail=f"{name} is active") if active else by_others(workload, marks)
    if not marks.held:
        return AlreadyDone(detail=f"{name} is active") if active else by_others(workload, marks)
    if marks.incident != effect.incident:
        return Blocked(f"incident {marks.incident}", f"{name} is deactivated for {marks.incident}")
    if active:
        return Blocked.person(f"{name} was activated manually after Faultline had deactivated it")
    if opted_out(workload):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    if (by := set_by_another(workload, ACTIVE, FIELD_MANAGER)) is not None:
        return Blocked.person(f"{name} was activated and deactivated again manually (by {by})")
    if holds_quota(workload):
        return _not_yet(name)
    return GuardedChange(_write(True, {RESUMED: effect.key}), Done(detail=f"{name} is active again"))


def take_back(workload: Object, effect: Effect) -> GuardedChange | Outcome:
    """Undo a deactivation: reset the field and the annotations, while both are still as the effect left them."""
    marks, name = suspend_annotations_of(workload), _named(workload)
    if marks.suspended != effect.key or not marks.held:
        return AlreadyDone(detail=f"{name} is not deactivated by this effect")
    if is_active(workload):
        return Blocked.person(f"{name} was activated manually after Faultline had deactivated it")
    if opted_out(workload):
        return Blocked.person(f"{name} is opted out ({MANAGED}=false)")
    if (by := set_by_another(workload, ACTIVE, FIELD_MANAGER)) is not None:
        return Blocked.person(f"{name} was activated and deactivated again manually (by {by})")
    if holds_quota(workload):
        return _not_yet(name)
    patch = _write(True, dict.fromkeys((INCIDENT, SUSPENDED, RESUMED, REPLACES)))
    return GuardedChange(patch, Done(detail=f"{name} is active again"))


def by_others(workload: Object, marks: SuspendAnnotations) -> Blocked:
    """`Blocked` by a deactivation that is not Faultline's; what Kueue did itself is told with its reason."""
    name = _named(workload)
    if why := why_deactivated(workload):
        return Blocked(
            KUEUE, f"Kueue itself has deactivated {name}: {why}. Its owner decides whether it runs again"
        )
    return not_ours(marks, f"{name} is deactivated (spec.active is false), and not by Faultline")


def _not_yet(name: str) -> Waiting:
    return Waiting(PODS_PAUSE_S, f"Kueue has not yet taken back the quota of {name}")


def _named(workload: Object) -> str:
    return f"the Workload {name_of(workload)}"


def _write(active: bool, marks: dict[str, str | None]) -> Object:
    return {"metadata": {"annotations": marks}, "spec": {"active": active}}
