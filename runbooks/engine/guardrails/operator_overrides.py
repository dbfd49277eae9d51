"""What people have said or done: their opt-outs, their changes, their cordons."""

from __future__ import annotations

from runbooks.engine.guardrails.closed_nodes import cordons, opened_since
from runbooks.engine.guardrails.context import Case, Kind, Ruling


def opted_out(case: Case) -> Ruling | None:
    """What a person has told us to keep off is never touched."""
    node, target = case.node, case.step.target
    if node is not None and not node.managed:
        return Ruling(
            Kind.REFUSE, "opt-out", f"{node.name} has faultline.dev/managed=false", "a person acts here"
        )
    job = case.view.jobs.get(target.key) if target else None
    if job is not None and not job.managed:
        return Ruling(
            Kind.REFUSE, "opt-out", f"{job.job} has faultline.dev/managed=false", "a person acts here"
        )
    return None


def reopened(case: Case) -> Ruling | None:
    """A person who opened our node again has decided otherwise."""
    for record, planned in cordons(case.run):
        fact = case.view.nodes.get(planned.target.name) if planned.target else None
        if fact is not None and opened_since(record, fact):
            return Ruling(
                Kind.REFUSE, "a person's change", f"{fact.name} was uncordoned", "a person acts here"
            )
    return None


def known_node(case: Case) -> Ruling | None:
    """A node that inventory does not know cannot be checked for an opt-out or counted."""
    target = case.step.target
    if target is None or target.kind != "Node" or case.node is not None:
        return None
    return Ruling(
        Kind.ASK, "inventory", f"{target.name} is not in the inventory", "an approval or its arrival lifts it"
    )


def foreign_cordon(case: Case) -> Ruling | None:
    """A node that a person has closed, or put in maintenance, already has somebody's attention."""
    node = case.node
    if node is None or node.owner_incident is not None:
        return None
    if node.maintenance:
        return Ruling(Kind.ASK, "maintenance", f"{node.name} is in maintenance", "an approval lifts it")
    if node.unschedulable:
        return Ruling(
            Kind.ASK, "foreign cordon", f"a person has cordoned {node.name}", "an approval lifts it"
        )
    return None
