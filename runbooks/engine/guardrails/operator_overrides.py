"""What people have said or done: their opt-outs, their changes, their cordons."""

from __future__ import annotations

from runbooks.engine.guardrails.closed_nodes import cordons, opened_since
from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind


def opted_out(context: GuardContext) -> Ruling | None:
    """What a person has told us to keep off is never touched."""
    node, target = context.node, context.step.target
    if node is not None and not node.managed:
        return Ruling(
            RulingKind.REFUSE, "opt-out", f"{node.name} has faultline.dev/managed=false", "a person acts here"
        )
    job = context.view.jobs.get(target.key) if target else None
    if job is not None and not job.managed:
        return Ruling(
            RulingKind.REFUSE, "opt-out", f"{job.job} has faultline.dev/managed=false", "a person acts here"
        )
    return None


def reopened(context: GuardContext) -> Ruling | None:
    """A person who opened our node again has decided otherwise."""
    for record, planned in cordons(context.run):
        fact = context.view.nodes.get(planned.target.name) if planned.target else None
        if fact is not None and opened_since(record, fact):
            return Ruling(
                RulingKind.REFUSE, "a person's change", f"{fact.name} was uncordoned", "a person acts here"
            )
    return None


def known_node(context: GuardContext) -> Ruling | None:
    """A node that inventory does not know cannot be checked for an opt-out or counted."""
    target = context.step.target
    if target is None or target.kind != "Node" or context.node is not None:
        return None
    return Ruling(
        RulingKind.ASK,
        "inventory",
        f"{target.name} is not in the inventory",
        "an approval or its arrival lifts it",
    )


def foreign_cordon(context: GuardContext) -> Ruling | None:
    """A node that a person has closed, or put in maintenance, already has somebody's attention."""
    node = context.node
    if node is None or node.owner_incident is not None:
        return None
    if node.maintenance:
        return Ruling(RulingKind.ASK, "maintenance", f"{node.name} is in maintenance", "an approval lifts it")
    if node.unschedulable:
        return Ruling(
            RulingKind.ASK, "foreign cordon", f"a person has cordoned {node.name}", "an approval lifts it"
        )
    return None
