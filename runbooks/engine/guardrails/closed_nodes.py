"""What one run has let in and holds closed, by its own record and by the marks that inventory sees."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from streams.model.facts import NodeFact
from streams.model.run import EffectState, Mode, PlannedStep, Run, RunState, StepRecord, StepState

INVENTORY_LAG = timedelta(seconds=10)
"""How old news of a node may be: a fact observed this soon after our own change may still show the state before it."""

OWN_TAINT = "faultline.dev/incident="
"""How the taint of a node that Faultline closed begins, in a `NodeFact`."""

_MADE = (EffectState.INTENDED, EffectState.CONFIRMED, EffectState.UNKNOWN, EffectState.WAITING)


def is_shadow(run: Run) -> bool:
    """Whether a run touches nothing: such runs are counted among themselves."""
    return run.plan.mode is Mode.SHADOW or run.state is RunState.SHADOWED


def admitted_at(run: Run, record: StepRecord) -> datetime | None:
    """When the limits let a destructive step in; None while they have not.

    A run that was let in before steps kept this themselves was let in whole.
    """
    if record.admitted_at is not None or run.admitted_at is None:
        return record.admitted_at
    return None if any(r.admitted_at is not None for r in run.steps) else run.admitted_at


def node_targets(run: Run) -> set[str]:
    """Names of the nodes that the run's destructive steps act on."""
    return {s.target.name for s in run.plan.steps if s.destructive and s.target and s.target.kind == "Node"}


def cordons(run: Run) -> Iterator[tuple[StepRecord, PlannedStep]]:
    """Cordons of a run that are made, may be made, or (in shadow) would be made, and are not taken back."""
    for planned in run.plan.steps:
        if planned.action != "cordon_node":
            continue
        record = run.step(planned.id)
        if record.undo is not None and record.undo.state is EffectState.UNDONE:
            continue
        would = record.state is StepState.WOULD and not run.undoing
        made = record.effect is not None and record.effect.state in _MADE
        if would or (made and not _given_back(run, planned)):
            yield record, planned


def opened_since(record: StepRecord, fact: NodeFact) -> bool:
    """Whether inventory shows a node open that this cordon had closed, by news that is surely later."""
    effect = record.effect
    if effect is None or effect.confirmed_at is None or fact.unschedulable:
        return False
    return fact.observed_at > effect.confirmed_at + INVENTORY_LAG


def is_held(fact: NodeFact) -> bool:
    """Closed under our name: who opens a node again by hand often leaves our annotations on it, and they mean nothing then."""
    tainted = any(taint.startswith(OWN_TAINT) for taint in fact.taints)
    return fact.owner_incident is not None and (fact.unschedulable or tainted)


def _given_back(run: Run, cordon: PlannedStep) -> bool:
    """Whether the run itself has opened the node again, as the last step of a repair does."""
    for planned in run.plan.steps:
        same = (
            planned.target is not None
            and cordon.target is not None
            and planned.target.key == cordon.target.key
        )
        if planned.action == "uncordon_node" and same:
            effect = run.step(planned.id).effect
            if effect is not None and effect.state is EffectState.CONFIRMED:
                return True
    return False
