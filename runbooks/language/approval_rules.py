"""Who may approve a step and how many approvals it needs. Pure.

A step has one or two `Demand`s, each for a number of different people out of a group: one by the class of its action (`close`,
`move`, `reset`, `reboot`, `replace`), another where the runbook names a group of its own. A runbook can ask for more, never for
less. Without groups anybody may approve, or whoever `responder.approvers` names, and one approval is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streams.config.settings import GRAVE, ActionClass, ApprovalClass, ResponderSettings
from streams.model.conversation import is_group
from streams.model.run import Demand, PlannedStep

CLASSES: Mapping[str, ActionClass] = {
    "cordon_node": "close",
    "cordon_slow_nodes": "close",
    "drain_node": "move",
    "suspend_job": "move",
    "reset_gpu": "reset",
    "reboot_node": "reboot",
    "power_cycle_node": "reboot",
    "replace_node": "replace",
}
"""The class of each destructive action, as `responder.approval_classes` names it."""

APPROVERS = "responder.approvers"
"""The group name shown for the people in that setting."""

ANY_GROUP = "an approval group"
"""The group name shown for the members of all groups, where a class has no group of its own."""


def rules(planned: PlannedStep, policy: ResponderSettings) -> tuple[Demand, ...]:
    """The demands of a step before any approval."""
    kind = CLASSES.get(planned.action) or _class_of_template(planned)
    of_class = (policy.approval_classes.get(kind) if kind else None) or ApprovalClass()
    usual = 2 if kind in GRAVE and policy.approval_groups else 1
    group, people = _people(of_class.group, policy)
    demand = Demand(group, of_class.quorum or usual, people)
    if planned.approval_group in ("", group):
        return (replace(demand, quorum=max(demand.quorum, planned.quorum)),)
    own = Demand(
        planned.approval_group, planned.quorum, policy.approval_groups.get(planned.approval_group, ())
    )
    # A class that anybody may approve is met by the approvals of the step's own group.
    met = demand.people is None and demand.quorum <= own.quorum
    return (own,) if met else (demand, own)


def _class_of_template(planned: PlannedStep) -> ActionClass | None:
    """The class that the runbook says a template counts as."""
    said = planned.params.get("as") if planned.action == "apply_template" else None
    return next((kind for kind in CLASSES.values() if kind == said), None)


def unanswerable(planned: PlannedStep, policy: ResponderSettings) -> str:
    """Why the step could never be approved, and how to fix that; empty when it can."""
    known = ", ".join(sorted(policy.approval_groups)) or "none"
    for demand in rules(planned, policy):
        if demand.people is None or len(demand.people) >= demand.quorum or any(map(is_group, demand.people)):
            continue
        if not demand.people:
            return (
                f"there is no approval group {demand.group}, so the step cannot be approved: known are {known}; "
                f"name one of them, or set responder.approval_groups.{demand.group}"
            )
        return (
            f"{demand.quorum} people of {demand.group} are required, and it has {len(demand.people)}: "
            "lower the quorum, or add people to it"
        )
    return ""


def _people(group: str, policy: ResponderSettings) -> tuple[str, tuple[str, ...] | None]:
    if group:
        return group, policy.approval_groups.get(group, ())
    if policy.approvers:
        return APPROVERS, policy.approvers
    if policy.approval_groups:
        everyone = [member for members in policy.approval_groups.values() for member in members]
        return ANY_GROUP, tuple(dict.fromkeys(everyone))
    return "", None
