"""Which nodes Faultline holds closed, by its own runs and by the marks that inventory sees."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from runbooks.guardrails.case import Case
from streams.model.inventory import NodeFact
from streams.model.run import EffectState, Mode, PlannedStep, Run, RunState, StepRecord, StepState

INVENTORY_LAG = timedelta(seconds=10)
"""How old news of a node may be: a fact observed this soon after our own change may still show the state before it."""

OWN_TAINT = "faultline.dev/incident="
"""How the taint of a node that Faultline closed begins, in a `NodeFact`."""

_MADE = (EffectState.INTENDED, EffectState.CONFIRMED, EffectState.UNKNOWN, EffectState.WAITING)


def closed_nodes(case: Case) -> set[str]:
    """Nodes that Faultline holds closed: by the other runs' own record, and by the marks that inventory sees."""
    closed = {name for name, fact in case.view.nodes.items() if _is_held(fact)}
    for other in case.others:
        # A run that was never admitted has closed nothing; most runs are of that kind when there are many.
        if other.admitted_at is None or is_shadow(other) is not case.shadow:
            continue
        for record, planned in cordons(other):
            if planned.target is None:
                continue
            fact = case.view.nodes.get(planned.target.name)
            if (fact is None and not _gone_for_good(record, case)) or (
                fact and not opened_since(record, fact)
            ):
                closed.add(planned.target.name)
    return closed


def cordons(run: Run) -> Iterator[tuple[StepRecord, PlannedStep]]:
    """Cordons of a run that are made, may be made, or (in shadow) would be made, and are not taken back."""
    for planned in run.plan.steps:
        if planned.action != "cordon_node":
            continue
        record = run.step(planned.id)
        if record.undo is not None and record.undo.state is EffectState.UNDONE:
            continue
        would = record.state is StepState.WOULD and not run.undoing
        if would or (record.effect is not None and record.effect.state in _MADE):
            yield record, planned


def opened_since(record: StepRecord, fact: NodeFact) -> bool:
    """Whether inventory shows a node open that this cordon had closed, by news that is surely later."""
    effect = record.effect
    if effect is None or effect.confirmed_at is None or fact.unschedulable:
        return False
    return fact.observed_at > effect.confirmed_at + INVENTORY_LAG


def is_shadow(run: Run) -> bool:
    """Whether a run touches nothing: such runs are counted among themselves."""
    return run.plan.mode is Mode.SHADOW or run.state is RunState.SHADOWED


def _is_held(fact: NodeFact) -> bool:
    """Closed under our name: who opens a node again by hand often leaves our annotations on it, and they mean nothing then."""
    tainted = any(taint.startswith(OWN_TAINT) for taint in fact.taints)
    return fact.owner_incident is not None and (fact.unschedulable or tainted)


def _gone_for_good(record: StepRecord, case: Case) -> bool:
    """A closed node that has left the cluster is under nobody's action any more; for one window it may only be not seen yet."""
    effect = record.effect
    if effect is None or effect.confirmed_at is None:
        return False
    return effect.confirmed_at + timedelta(seconds=case.policy.blast_radius.window_s) < case.now
