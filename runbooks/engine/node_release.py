"""Returning a node to service by command: which runs hold it, what prevents it, and the undo that does it. Pure.

A node is held by each incident whose run cordoned it. A command releases the hold of one of them, through the same guarded undo
that a run uses itself: what a person has changed since stays, and a node that somebody else holds too stays cordoned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from runbooks.engine.approvals import may_relax_controls, stale
from runbooks.engine.guardrails.cordoned_nodes import MADE
from runbooks.engine.run.human_decisions import MAX_COMMANDS, because
from runbooks.engine.run.rollback import undo_row
from runbooks.engine.run.transition import RunTransition, TransitionResult
from streams.config.settings import ResponderSettings
from streams.model.conversation import Command
from streams.model.facts import NodeFact
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord

SCOPE = "node:"
"""Prefix of the scope of a `release`; the name of the node follows."""

_NODE = re.compile(r"node:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class NodeHold:
    """One cordon that is in place, or may be, and the run that made it."""

    run: Run
    planned: PlannedStep
    record: StepRecord

    @property
    def since(self) -> datetime | None:
        """When the node was cordoned, as far as that is known."""
        return self.record.effect.confirmed_at if self.record.effect else None


def holds_of(runs: Iterable[Run], node: str) -> tuple[NodeHold, ...]:
    """The cordons of the node that have not been undone, the oldest first."""
    found: list[NodeHold] = []
    for run in runs:
        if run.plan.mode is Mode.SHADOW:
            continue
        for planned in run.plan.steps:
            if planned.action != "cordon_node" or planned.target is None or planned.target.name != node:
                continue
            record = run.step(planned.id)
            back = record.undo is not None and record.undo.state is EffectState.UNDONE
            if record.effect is not None and record.effect.state in MADE and not back:
                found.append(NodeHold(run, planned, record))
    return tuple(sorted(found, key=lambda hold: (hold.run.created_at, hold.run.id)))


def node_of(command: Command) -> str:
    """The node that a `release` names."""
    return command.scope.removeprefix(SCOPE)


def choose(
    command: Command, runs: Sequence[Run], fact: NodeFact | None, policy: ResponderSettings, now: datetime
) -> NodeHold | str:
    """The hold to release, or the reason why none can be.

    `runs` are those of the cluster that act on the node, `fact` is what inventory shows of the node.
    """
    node = node_of(command)
    if not _NODE.fullmatch(command.scope):
        return f"{command.scope[:80]!r} names no node: node:NAME"
    if not may_relax_controls(command, policy):
        return f"{command.actor} is not an approver"
    if why := stale(command, policy, now):
        return why
    holds = holds_of(runs, node)
    mine = [hold for hold in holds if command.incident in ("", hold.run.incident)]
    if not mine:
        return _nothing_held(node, command.incident, holds, fact)
    incidents = sorted({hold.run.incident for hold in mine})
    if len(incidents) > 1:
        return f"{node} is held for {' and '.join(incidents)}: choose one with --incident"
    if at_work := next((run for run in runs if _works_on(run, node)), None):
        return (
            f"{at_work.id} ({at_work.plan.runbook}) of {at_work.incident} is still at work on {node}; "
            f"`faultline incidents stop {at_work.incident}` ends it"
        )
    for hold in mine:
        if hold.record.is_being_undone and not hold.record.kept_for:
            return f"{node} is already being returned to service by {hold.run.id}: {hold.run.undoing}"
    return mine[-1]


def release(hold: NodeHold, command: Command, others: Sequence[NodeHold], now: datetime) -> TransitionResult:
    """Mark the cordon to be undone: the run does it at its next `advance`. A repeated command changes nothing."""
    transition = RunTransition(hold.run, now)
    if command.id in hold.run.commands:
        return transition.result()
    assert hold.record.effect is not None
    why = f"released by {command.actor}{because(command)}"
    row = undo_row(transition, hold.planned, hold.record.effect)
    transition.change(commands=(*hold.run.commands, command.id)[-MAX_COMMANDS:], undoing=why)
    transition.set(hold.planned.id, undo=row, due_at=None, kept_for="")
    text = f"{hold.planned.target} {why}"
    if still := sorted({other.run.incident for other in others if other.run.incident != hold.run.incident}):
        text += f"; it stays cordoned for {' and '.join(still)}"
    transition.note(
        "person.released", text, actor=command.actor,
        command=command.id, via=command.via, step=hold.planned.id, node=node_of(command),
    )  # fmt: skip
    return transition.result()


def _works_on(run: Run, node: str) -> bool:
    """Whether a run that is not over acts on the node, or may start to at any moment."""
    if run.state.is_over or run.plan.mode is Mode.SHADOW or run.admitted_at is None:
        return False
    return any(s.destructive and s.target is not None and s.target.name == node for s in run.plan.steps)


def _nothing_held(node: str, incident: str, holds: Sequence[NodeHold], fact: NodeFact | None) -> str:
    if holds:
        return f"{node} is not held for {incident}, but for {holds[0].run.incident}"
    if fact is None:
        return f"no node {node} in the inventory, and no run holds one of that name"
    if fact.owner_incident is not None:
        return (
            f"{node} has annotations of {fact.owner_incident}, and no known run has set them; "
            f"docs/operations.md says how to remove them by hand"
        )
    if fact.unschedulable:
        return f"{node} was cordoned by somebody else, and Faultline undoes only its own changes"
    return f"{node} is not held"
