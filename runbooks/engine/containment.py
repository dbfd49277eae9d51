"""Pending repairs: nodes that stay cordoned after an incident is over, until they have been repaired.

An incident is over when its job runs again, but its node still has a broken part. While it does, the incident is *contained*.
That is not stored, so it never has to be cleared: it is derived from the cordon in the run and from the annotations that the
inventory shows on the node. It ends when the node is released, uncordoned, replaced or deleted; it holds for every incident that
cordoned the node; and the annotations still show it when the run was deleted long ago.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from runbooks.engine.guardrails.cordoned_nodes import INVENTORY_LAG, cordons, is_held
from streams.model.clock import rfc3339
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import EffectState, Mode, Run

CONTAINED = "contained"
"""The name for an incident that is over but still holds a node cordoned."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """The ticket of an incident: its key, and where it is if the ticket system says so."""

    key: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class PendingRepair:
    """A node that stays cordoned for an incident. `since` is None where only its annotations are known."""

    node: str
    gpus: int
    since: datetime | None = None
    ticket: Ticket | None = None
    opened: bool = False
    """It was uncordoned manually, and our taint still keeps work off it."""

    @property
    def text(self) -> str:
        """The node and the ticket of its repair: `gpu-15 stays cordoned for GPU-61`."""
        stays = "was uncordoned manually but still has Faultline's taint" if self.opened else "stays cordoned"
        if self.ticket is not None:
            return f"{self.node} {stays} for {self.ticket.key}"
        known = self.since is not None
        return f"{self.node} {stays}, " + (
            "without a repair ticket" if known else "and its run is not on record"
        )

    @property
    def way_out(self) -> str:
        """The command that ends it, to be run after the repair."""
        if self.opened:
            # Faultline reverts nothing that a person has changed.
            return f"kubectl taint node {self.node} faultline.dev/incident-"
        return f"faultline nodes release {self.node}"


def pending_repairs(
    incident: str,
    runs: Iterable[Run],
    nodes: Mapping[str, NodeFact],
    marked: Iterable[NodeFact] | None = None,
) -> tuple[PendingRepair, ...]:
    """The nodes that stay cordoned for an incident, by name.

    Args:
        incident: Its id.
        runs: Its known runs.
        nodes: The nodes of its cluster by name, as the inventory shows them; empty where nothing is known of them.
        marked: Those of them with the incident's annotations, if the caller has them at hand; else all nodes are searched.
    """
    runs = list(runs)
    ticket = ticket_of(runs)
    found: dict[str, PendingRepair] = {}
    for run in runs:
        if run.plan.mode is Mode.SHADOW:
            continue
        for record, planned in cordons(run):
            if planned.target is None or record.effect is None or record.kept_for:
                continue
            since, fact = record.effect.confirmed_at, nodes.get(planned.target.name)
            another = fact is not None and planned.target.uid and fact.uid != planned.target.uid
            if another or not may_still_hold(fact, since, known=bool(nodes)):
                continue
            found[planned.target.name] = _repair_of(planned.target.name, fact, since, ticket)
    for fact in nodes.values() if marked is None else marked:
        if incident in fact.owners and fact.name not in found and is_held(fact):
            found[fact.name] = _repair_of(fact.name, fact, None, ticket)
    return tuple(found[name] for name in sorted(found))


def ticket_of(runs: Iterable[Run]) -> Ticket | None:
    """The ticket that the runs of an incident opened, the latest where there are several."""
    found = None
    for run in runs:
        for record in run.steps:
            effect = record.effect
            if effect is None or effect.action != "open_ticket":
                continue
            if effect.state is not EffectState.CONFIRMED and not effect.landed:
                continue
            if key := effect.result.get("ticket"):
                found = Ticket(str(key), str(effect.result.get("url", "")))
    return found


def is_contained(incident: Incident, repairs: Sequence[PendingRepair]) -> bool:
    """Whether the incident is over and a node still stays cordoned for it."""
    return incident.state.is_over and bool(repairs)


def shown_state(incident: Incident, repairs: Sequence[PendingRepair]) -> str:
    """The state to show: `contained` while a node stays cordoned, else the incident's own."""
    return CONTAINED if is_contained(incident, repairs) else incident.state.value


def plain_of(repair: PendingRepair) -> dict[str, str | int]:
    """The pending repair for JSON output; `since` and the ticket are left out where they are not known."""
    plain: dict[str, str | int] = {"node": repair.node, "gpus": repair.gpus}
    if repair.since is not None:
        plain["since"] = rfc3339(repair.since)
    if repair.ticket is not None:
        plain |= {"ticket": repair.ticket.key} | ({"url": repair.ticket.url} if repair.ticket.url else {})
    return plain


def may_still_hold(fact: NodeFact | None, since: datetime | None, *, known: bool) -> bool:
    """Whether a cordon made at `since` (None while that is not confirmed) still keeps work off its node, by the inventory.
    `known` is false where the inventory has no node at all: then the run's own record counts."""
    if fact is None:
        return not known
    if since is None:
        return fact.unschedulable
    # A fact from before our own change says nothing about it.
    return fact.observed_at <= since + INVENTORY_LAG or is_held(fact)


def _repair_of(
    name: str, fact: NodeFact | None, since: datetime | None, ticket: Ticket | None
) -> PendingRepair:
    if fact is None:
        return PendingRepair(name, 0, since, ticket)
    # A schedulable node without our annotations is a fact from before the cordon.
    return PendingRepair(name, fact.gpus, since, ticket, opened=is_held(fact) and not fact.unschedulable)
