"""Who owns the cordon of a node? Pure decisions over a Node object as the API server shows it.

A node that Faultline cordons carries, written in one request together with `spec.unschedulable`:

    taint       faultline.dev/incident=<first owner>:NoSchedule
    annotation  faultline.dev/incident   owners (incidents), oldest first, separated by commas
    annotation  faultline.dev/effect     the effect key of each owner, in the same order
    annotation  faultline.dev/prior      what spec.unschedulable was before the first owner came

A dead node may also be declared out of service (`out_of_service`); that ends with the incident it was done for.

The last owner to release the node restores `prior`. Annotations that do not match the state of the node mean that someone changed
it since: then nothing is touched, and only a new incident may cordon the node again.
Design decision: docs/decisions/004-who-owns-a-cordon.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, Outcome, Refused, Result
from connectors.kubernetes.annotations import (
    EFFECT,
    GIVEN_UP,
    INCIDENT,
    MANAGED,
    POWER,
    PRIOR,
    SLINKY_REASON,
    annotations_of,
    opted_out,
)
from connectors.kubernetes.client import FIELD_MANAGER, Object
from connectors.kubernetes.guarded_patch import GuardedChange
from connectors.kubernetes.objects import set_by_another
from connectors.kubernetes.out_of_service import OUT_OF_SERVICE, given_up_for, without_declaration

_OURS = "faultline "
"""What the reason that slurm-operator is told begins with, where Faultline wrote it."""

Prior = Literal["schedulable", "unschedulable"]


@dataclass(frozen=True, slots=True)
class CordonOwner:
    """One incident that holds a node, and the key of its effect."""

    incident: str
    key: str


@dataclass(frozen=True, slots=True)
class CordonOwnership:
    """What Faultline has written on a node. `prior` is the state that the last owner restores."""

    owners: tuple[CordonOwner, ...]
    prior: Prior

    def by_key(self, key: str) -> bool:
        """True when the effect with this key holds the node."""
        return any(owner.key == key for owner in self.owners)

    def by_incident(self, incident: str) -> bool:
        """True when any effect of this incident holds the node."""
        return any(owner.incident == incident for owner in self.owners)


def ownership_of(node: Object) -> CordonOwnership | None:
    """The ownership that the annotations record, even if the state of the node differs now; None without readable annotations."""
    marks = annotations_of(node)
    incidents, keys, prior = (marks.get(name, "") for name in (INCIDENT, EFFECT, PRIOR))
    owners = tuple(CordonOwner(*pair) for pair in zip(incidents.split(","), keys.split(","), strict=False))
    whole = incidents.count(",") == keys.count(",") and all(owner.incident and owner.key for owner in owners)
    if not whole or prior not in ("schedulable", "unschedulable"):
        return None
    return CordonOwnership(owners, "schedulable" if prior == "schedulable" else "unschedulable")


def is_marked(node: Object) -> bool:
    """True when the node has a taint or annotation of Faultline, readable or not."""
    marks = annotations_of(node)
    return _own_taint(node) is not None or any(name in marks for name in (INCIDENT, EFFECT, PRIOR))


def is_held_for(node: Object, incident: str) -> bool:
    """True while the node is cordoned as Faultline left it, for this incident among others."""
    hold = ownership_of(node)
    return hold is not None and hold.by_incident(incident) and taken_over(node, hold) is None


def taken_over(node: Object, hold: CordonOwnership) -> str | None:
    """What someone else changed since Faultline cordoned the node, as a sentence; None while it is unchanged."""
    name = node["metadata"]["name"]
    taint = _own_taint(node)
    if not node.get("spec", {}).get("unschedulable") and taint is not None:
        left = f"{INCIDENT}-" if given_up_for(node) is None else f"{INCIDENT}- {OUT_OF_SERVICE}-"
        return (
            f"{name} was uncordoned manually; `kubectl taint node {name} {left}` removes what Faultline left"
        )
    if not node.get("spec", {}).get("unschedulable"):
        return f"{name} was uncordoned and its taint removed manually"
    if taint is None:
        return f"the taint {INCIDENT} was removed manually from {name}"
    if taint.get("value") != hold.owners[0].incident:
        return f"the taint {INCIDENT} of {name} was changed manually"
    by = (
        set_by_another(node, ("spec", "unschedulable"), FIELD_MANAGER)
        if hold.prior == "schedulable"
        else None
    )
    return f"{name} was uncordoned and cordoned again manually (by {by})" if by is not None else None


def cordon(node: Object, effect: Effect, *, slinky: bool = False) -> GuardedChange | Outcome:
    """Cordon a node for an effect, or add its incident to those that hold it already.

    With `slinky` slurm-operator is told why: it drains the node of Slurm on it, with that as the reason.
    """
    name = node["metadata"]["name"]
    if replaced(node, effect):
        return Refused(f"{name} was replaced: its uid differs from the one in the plan")
    hold = ownership_of(node)
    if hold is None and is_marked(node):
        return Blocked("foreign marks", f"{name} has {INCIDENT} annotations that Faultline cannot parse")
    if hold is not None and (change := taken_over(node, hold)):
        if hold.by_incident(effect.incident):
            return Blocked.person(change)
        hold = None  # the manual change ended the earlier hold; a new incident may cordon the node again
    if hold is not None and hold.by_key(effect.key):
        return AlreadyDone(_result(hold))
    if opted_out(node):
        return Refused(f"{name} is opted out ({MANAGED}=false)")
    owner = CordonOwner(effect.incident, effect.key)
    if hold is None:
        hold = CordonOwnership(
            (owner,), "unschedulable" if node.get("spec", {}).get("unschedulable") else "schedulable"
        )
    else:
        hold = replace(hold, owners=(*hold.owners, owner))
    patch = _cordoned(node, hold)
    if slinky and (annotations_of(node).get(SLINKY_REASON) is None or _tells_slinky(node)):
        why = str(effect.context.get("reason") or effect.context.get("title") or "")
        patch["metadata"]["annotations"][SLINKY_REASON] = _told_slinky(hold.owners, why)
    return GuardedChange(patch, Done(_result(hold), _detail(name, hold)))


def find(node: Object, effect: Effect) -> Outcome:
    """Whether this effect holds the node, for `lookup`."""
    hold = None if replaced(node, effect) else ownership_of(node)
    if hold is None or not hold.by_key(effect.key):
        return Absent()
    return AlreadyDone(_result(hold), taken_over(node, hold) or "")


def release(node: Object, effect: Effect, mine: Callable[[CordonOwner], bool]) -> GuardedChange | Outcome:
    """Remove the owners that are `mine`; the last one uncordons the node, if it was schedulable before."""
    name = node["metadata"]["name"]
    hold = None if replaced(node, effect) else ownership_of(node)
    gone = [owner for owner in hold.owners if mine(owner)] if hold else []
    if hold is None or not gone:
        return AlreadyDone(detail=f"{name} is not held for {effect.incident}")
    theirs_is_over = _is_open_with_our_marks(node, hold)
    if not theirs_is_over and (change := taken_over(node, hold)):
        return Blocked.person(change)
    if opted_out(node):
        return Blocked.person(f"{name} is opted out ({MANAGED}=false)")
    left = tuple(owner for owner in hold.owners if owner not in gone)
    if left:
        still = ", ".join(owner.incident for owner in left)
        patch = _in_service(_marked(node, replace(hold, owners=left)), node, left)
        if _tells_slinky(node):
            why = annotations_of(node)[SLINKY_REASON].partition(": ")[2]
            patch["metadata"]["annotations"][SLINKY_REASON] = _told_slinky(left, why)
        return GuardedChange(patch, Done(detail=f"{name} stays cordoned for {still}"))
    as_before = hold.prior == "unschedulable" and not theirs_is_over
    kept = "stays cordoned, as it was before" if as_before else "is schedulable again"
    return GuardedChange(_in_service(_uncordoned(node, hold), node, left), Done(detail=f"{name} {kept}"))


def replaced(node: Object, effect: Effect) -> bool:
    """True when the node of this name is not the one the effect was planned for."""
    return effect.target.uid is not None and effect.target.uid != node["metadata"].get("uid")


def _own_taint(node: Object) -> Object | None:
    taints = node.get("spec", {}).get("taints") or []
    return next((taint for taint in taints if taint.get("key") == INCIDENT), None)


def _other_taints(node: Object) -> list[Object]:
    return [taint for taint in node.get("spec", {}).get("taints") or [] if taint.get("key") != INCIDENT]


def _is_open_with_our_marks(node: Object, hold: CordonOwnership) -> bool:
    """Whether the cordon that was there before ours has been taken away, and nothing else: what is left is ours alone."""
    taint = _own_taint(node)
    whole = taint is not None and taint.get("value") == hold.owners[0].incident
    return hold.prior == "unschedulable" and whole and not node.get("spec", {}).get("unschedulable")


def _cordoned(node: Object, hold: CordonOwnership) -> Object:
    patch = _marked(node, hold)
    return patch | {"spec": {"unschedulable": True, **patch["spec"]}}


def _marked(node: Object, hold: CordonOwnership) -> Object:
    """The taint and the annotations of a hold; `unschedulable` stays as it is."""
    taint = {"key": INCIDENT, "value": hold.owners[0].incident, "effect": "NoSchedule"}
    marks = {
        INCIDENT: ",".join(owner.incident for owner in hold.owners),
        EFFECT: ",".join(owner.key for owner in hold.owners),
        PRIOR: hold.prior,
    }
    return {"metadata": {"annotations": marks}, "spec": {"taints": [*_other_taints(node), taint]}}


def _uncordoned(node: Object, hold: CordonOwnership) -> Object:
    # A cordon that was there before ours is not ours to write: it stays, or is gone, as its owner has left it.
    ours: Object = {"unschedulable": None} if hold.prior == "schedulable" else {}
    return {
        "metadata": {"annotations": dict.fromkeys((INCIDENT, EFFECT, PRIOR, POWER, *_slinky_reason(node)))},
        "spec": {**ours, "taints": _other_taints(node) or None},
    }


def _slinky_reason(node: Object) -> tuple[str, ...]:
    """The annotation for slurm-operator where Faultline wrote it, whatever the settings say now."""
    return (SLINKY_REASON,) if _tells_slinky(node) else ()


def _told_slinky(owners: tuple[CordonOwner, ...], why: str) -> str:
    return f"{_OURS}{','.join(owner.incident for owner in owners)}: {' '.join(why.split())[:200]}"


def _tells_slinky(node: Object) -> bool:
    return annotations_of(node).get(SLINKY_REASON, "").startswith(_OURS)


def _in_service(patch: Object, node: Object, left: tuple[CordonOwner, ...]) -> Object:
    """The patch, which also ends an out-of-service declaration whose incident is not among those `left`."""
    given_up = given_up_for(node)
    if given_up is None or given_up in {owner.incident for owner in left}:
        return patch
    marks = patch["metadata"]["annotations"] | {GIVEN_UP: None}
    taints = without_declaration(patch["spec"]["taints"] or []) or None
    return patch | {"metadata": {"annotations": marks}, "spec": patch["spec"] | {"taints": taints}}


def _result(hold: CordonOwnership) -> Result:
    return {"prior": hold.prior, "owners": tuple(owner.incident for owner in hold.owners)}


def _detail(name: str, hold: CordonOwnership) -> str:
    if len(hold.owners) > 1:
        return f"{name} was already cordoned for {hold.owners[0].incident}; now held for this incident too"
    if hold.prior == "unschedulable":
        return f"{name} was already cordoned by someone else; Faultline only adds its taint"
    return f"{name} is cordoned"
