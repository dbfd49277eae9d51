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
    kind = class_of(planned)
    of_class = (policy.approval_classes.get(kind) if kind else None) or ApprovalClass()
    usual = 2 if kind in GRAVE and policy.approval_groups else 1
    group, people = _people(of_class.group, policy)
    demand = Demand(group, of_class.quorum or usual, people)
    if kind != "close" and (teams := _of_teams(planned, policy, demand.quorum)):
        # What is done to a job is its team's to decide; a node that jobs are on stays the platform's as well.
        on_node = planned.target is not None and planned.target.kind == "Node"
        asked = {one.group for one in teams}
        own_of_step = tuple(one for one in _own(planned, policy) if one.group not in asked)
        return (*((demand,) if on_node and demand.people is not None else ()), *teams, *own_of_step)
    if planned.approval_group in ("", group):
        return (replace(demand, quorum=max(demand.quorum, planned.quorum)),)
    (own,) = _own(planned, policy)
    # A class that anybody may approve is met by the approvals of the step's own group.
    met = demand.people is None and demand.quorum <= own.quorum
    return (own,) if met else (demand, own)


def class_of(planned: PlannedStep) -> ActionClass | None:
    """The class of a step's action; None for one that is not destructive, or of no class."""
    return CLASSES.get(planned.action) or _class_of_template(planned)


def _own(planned: PlannedStep, policy: ResponderSettings) -> tuple[Demand, ...]:
    """What the runbook asks of a group of its own."""
    name = planned.approval_group
    return (Demand(name, planned.quorum, policy.approval_groups.get(name, ())),) if name else ()


def _of_teams(planned: PlannedStep, policy: ResponderSettings, quorum: int) -> tuple[Demand, ...]:
    """What the teams are asked whose jobs it touches, each that names approvers by itself."""
    groups = dict.fromkeys(
        row.approvers for row in policy.tenants if row.team in (planned.teams or ()) and row.approvers
    )
    wanted = max(quorum, 1 if planned.approval_group else planned.quorum)
    on_job = planned.target is None or planned.target.kind != "Node"
    return tuple(
        Demand(name, wanted if on_job else 1, policy.approval_groups.get(name, ())) for name in groups
    )


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
