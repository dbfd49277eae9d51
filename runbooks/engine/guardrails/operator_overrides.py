"""Guardrails for what operators have decided: opt-outs, manual changes, manual cordons, maintenance."""

from __future__ import annotations

from runbooks.engine.guardrails.context import GuardContext, Ruling, ask, hold, refuse
from runbooks.engine.guardrails.cordoned_nodes import confirmed_at, cordons, uncordoned_since
from runbooks.engine.guardrails.notices import is_marked_by_notice
from streams.model.incident import NO_NODE

OPT_OUT = "opt-out"
"""The rule about what is opted out."""


def opted_out(context: GuardContext) -> Ruling | None:
    """A node or job opted out of automation is never touched."""
    node, target = context.node, context.step.target
    if node is not None and not node.managed:
        return refuse(OPT_OUT, f"{node.name} has faultline.dev/managed=false")
    job = context.view.jobs.get(target.key) if target else None
    if job is not None and not job.managed:
        return refuse(OPT_OUT, f"{job.job} has faultline.dev/managed=false")
    return None


def reopened(context: GuardContext) -> Ruling | None:
    """A person who uncordoned a node of ours has decided against it."""
    for record, planned in cordons(context.run):
        fact = context.view.nodes.get(planned.target.name) if planned.target else None
        if fact is not None and uncordoned_since(confirmed_at(record), fact):
            return refuse("a person's change", f"{fact.name} was uncordoned manually")
    return None


def known_node(context: GuardContext) -> Ruling | None:
    """A node that the inventory does not know can be neither counted nor checked for an opt-out.

    Where the inventory knows nodes, the host is none of them: a login host, a switch, a name that fits several. Nobody is asked
    to approve what cannot be done.
    """
    target = context.step.target
    if target is None or target.kind != "Node" or context.node is not None:
        return None
    if count := len(context.view.nodes):
        return hold(
            "inventory",
            f"{target.name} is none of the {count} nodes in the inventory",
            "clears when the inventory knows a node by that name",
        )
    if context.incident.facts.get(NO_NODE) is True and target.name == context.incident.root.node:
        return hold(
            "inventory",
            f"{target.name} is none of the hosts that jobs run on",
            "clears when the inventory knows a node by that name",
        )
    return ask(
        "inventory",
        f"{target.name} is not in the inventory",
        "clears when approved or when the node appears in the inventory",
    )


def foreign_cordon(context: GuardContext) -> Ruling | None:
    """A node that a person has cordoned, or put into maintenance, already has somebody's attention."""
    node = context.node
    if node is None or node.owner_incident is not None:
        return None
    if is_marked_by_notice(context, node):
        return None
    if node.maintenance:
        return ask("maintenance", f"{node.name} is in maintenance", "clears when approved")
    if node.unschedulable:
        return ask("foreign cordon", f"{node.name} was cordoned by a person", "clears when approved")
    return None
