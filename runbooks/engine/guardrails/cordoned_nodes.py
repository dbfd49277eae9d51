"""What one run had admitted and which nodes it holds cordoned, by its own record and by the inventory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from streams.model.facts import NodeFact
from streams.model.run import EffectState, Mode, PlannedStep, Run, RunState, StepRecord, StepState, Target

INVENTORY_LAG = timedelta(seconds=10)
"""A node fact observed within this time after our own change may still show the state before it."""

OWN_TAINT = "faultline.dev/incident="
"""Prefix of the taint on a node that Faultline cordoned, as in `NodeFact.taints`."""

MADE = (EffectState.INTENDED, EffectState.UNKNOWN, EffectState.WAITING, EffectState.CONFIRMED)
"""States of a change that was made, or may have been."""

Cordon = tuple[str, datetime | None]
"""A node that a run cordoned, or may have cordoned, and when that was confirmed."""


def is_shadow(run: Run) -> bool:
    """Whether a run changes nothing outside: such runs are counted separately."""
    return run.plan.mode is Mode.SHADOW or run.state is RunState.SHADOWED


def admitted_at(run: Run, record: StepRecord) -> datetime | None:
    """When the limits admitted a destructive step; None while they have not.

    In documents from before steps kept this themselves, the admission of the run covers all of its steps.
    """
    if record.admitted_at is not None or run.admitted_at is None:
        return record.admitted_at
    return None if any(r.admitted_at is not None for r in run.steps) else run.admitted_at


def node_targets(run: Run) -> set[str]:
    """Names of the nodes that the run's destructive steps act on."""
    return {s.target.name for s in run.plan.steps if s.destructive and s.target and s.target.kind == "Node"}


def job_targets(run: Run) -> set[str]:
    """Keys of the jobs that the run suspends."""
    return {s.target.key for s in run.plan.steps if s.action == "suspend_job" and s.target}


def is_confirmed(record: StepRecord) -> bool:
    """Whether the step's change is confirmed."""
    return record.effect is not None and record.effect.state is EffectState.CONFIRMED


def is_in_place(record: StepRecord) -> bool:
    """Whether the step's change is confirmed and not to be undone."""
    return is_confirmed(record) and record.undo is None


def cordons(run: Run) -> Iterator[tuple[StepRecord, PlannedStep]]:
    """Cordons of a run that were made, may have been made, or (in shadow mode) would be made, and are not undone."""
    for planned in run.plan.steps:
        if planned.action != "cordon_node":
            continue
        record = run.step(planned.id)
        if record.undo is not None and record.undo.state is EffectState.UNDONE:
            continue
        would = record.state is StepState.WOULD and not run.undoing
        made = record.effect is not None and record.effect.state in MADE
        if would or (made and not _returned(run, planned)):
            yield record, planned


def confirmed_at(record: StepRecord) -> datetime | None:
    """When the step's change was confirmed; None where it is not."""
    return record.effect.confirmed_at if record.effect is not None else None


def uncordoned_since(cordoned_at: datetime | None, fact: NodeFact) -> bool:
    """Whether the inventory shows the node uncordoned, in a fact that is surely later than this cordon."""
    if cordoned_at is None or fact.unschedulable:
        return False
    return fact.observed_at > cordoned_at + INVENTORY_LAG


def is_held(fact: NodeFact) -> bool:
    """Whether a node is cordoned or tainted for an incident. Annotations alone do not count: they outlast manual uncordoning."""
    tainted = any(taint.startswith(OWN_TAINT) for taint in fact.taints)
    return fact.owner_incident is not None and (fact.unschedulable or tainted)


def _returned(run: Run, cordon: PlannedStep) -> bool:
    """Whether the run itself has uncordoned the node, as the last step of a repair does."""
    return any(
        planned.action == "uncordon_node"
        and same_target(planned.target, cordon.target)
        and is_confirmed(run.step(planned.id))
        for planned in run.plan.steps
    )


def same_target(one: Target | None, other: Target | None) -> bool:
    """Whether two steps act on the same thing."""
    return one is not None and other is not None and one.key == other.key
