"""Ending a run before its time, and taking back what it did: in reverse order, each under the guard of its connector.

A step is taken back by its connector's own undo, or by the action that the runbook names as its compensation. Either way it
is an effect like any other: intended, made, looked up when its end was not seen.

What is taken back depends on why. A revision that removes the reason takes back everything the runbook marked with `undo`. A
failure, an expiry, a refusal or a person's change only releases what must not be left waiting for a run that has ended: a
suspended job; so does a person who resolves the incident. A bad node stays closed. A person's `stop` stops everything, this
too.

A cordon that another incident's node needs as well (`keep`) is neither given back nor forgotten: it is given back once that
incident's own run holds the node, or once that incident is over. Where that incident cannot be read any more, nobody can tell
whether the node is well: it stays closed and is left to a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from runbooks.engine.call_slots import FreeSlots
from runbooks.engine.run.transition import (
    BLIND_S,
    IN_FLIGHT,
    CallKind,
    RunContext,
    RunTransition,
    calls_in_flight,
    same_target,
)
from runbooks.language.schema import DISRUPTIVE
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, PlannedStep, RunOutcome, StepRecord, StepState

NOTHING: Mapping[str, str] = MappingProxyType({})

KEPT_LOOK_S = 30.0
"""How often what is kept for another incident is looked at."""

_LASTING = (*IN_FLIGHT, EffectState.WAITING, EffectState.CONFIRMED)


def call_off(
    transition: RunTransition,
    outcome: RunOutcome,
    reason: str,
    *,
    release: bool = False,
    undo: bool = False,
    keep: Mapping[str, str] = NOTHING,
) -> None:
    """Decide how the run ends. Steps not begun are cancelled; a call in the in_flight is still waited for.

    `undo` takes back all that may be, later on targets whose names are in `keep` (with the incident they are kept for);
    `release` only resumes jobs.
    """
    if transition.stopping:
        if transition.run.overruled and transition.run.outcome is RunOutcome.ESCALATED:
            # A person's word outweighs the next rung, also while the run still gives back its jobs.
            transition.change(outcome=outcome, reason=reason)
            transition.note(
                "run.called_off", f"{outcome}: {reason}; the next rung is not begun", outcome=str(outcome)
            )
        return
    transition.change(outcome=outcome, reason=reason)
    transition.note("run.called_off", f"{outcome}: {reason}", outcome=str(outcome))
    for planned in transition.run.plan.steps:
        record = transition.records[planned.id]
        in_flight = record.effect is not None and record.effect.state in IN_FLIGHT
        if not record.state.is_over and not in_flight:
            transition.finish(planned.id, StepState.CANCELLED, reason)
    if undo or release:
        take_back(transition, reason, only_jobs=not undo, keep=keep)
    if not undo:
        _say_what_stands(transition)


def fail(transition: RunTransition, planned: PlannedStep, reason: str) -> None:
    """A step has failed for good: go on without it or end the run as the step says."""
    transition.finish(planned.id, StepState.FAILED, reason)
    if transition.stopping:
        return
    why = f"{planned.id} failed: {reason}"
    match planned.on_failure:
        case "continue":
            pass
        case "escalate":
            call_off(transition, RunOutcome.ESCALATED, why, release=True)
        case "undo":
            call_off(transition, RunOutcome.FAILED, why, undo=True)
        case _:
            call_off(transition, RunOutcome.FAILED, why, release=True)


def take_back(
    transition: RunTransition, reason: str, *, only_jobs: bool = False, keep: Mapping[str, str] = NOTHING
) -> None:
    """Mark what the run did, or may have done, for taking back."""
    for planned in transition.run.plan.steps:
        record = transition.records[planned.id]
        made = record.effect is not None and record.effect.state in _LASTING
        wanted = planned.action == "suspend_job" if only_jobs else planned.undo
        if not made or not wanted or record.undo is not None:
            continue
        assert record.effect is not None
        assert planned.target is not None
        row = way_back(transition, planned, record.effect)
        kept = keep.get(planned.target.name, "")
        if not kept and planned.action == "cordon_node" and _is_in_work(transition, planned):
            text = (
                f"{planned.target} stays closed and is left to you: what was begun on it may not have ended"
            )
            transition.note("run.leaves", text, step=planned.id)
            continue
        if kept:
            transition.note(
                "run.keeps", f"{planned.target} stays closed: {kept} accuses it too", step=planned.id
            )
        due = record.due_at if record.effect.state in IN_FLIGHT else None
        transition.set(planned.id, undo=row, due_at=due, kept_for=kept)
        transition.change(undoing=reason)


def is_worked_on(planned: PlannedStep, record: StepRecord) -> bool:
    """Whether the step has begun to reset or reboot its node: that goes on whether or not anybody waits for it."""
    return planned.action in DISRUPTIVE and record.effect is not None and record.effect.state in _LASTING


def _is_in_work(transition: RunTransition, cordon: PlannedStep) -> bool:
    """Whether a reset or reboot of the node of a cordon has begun, and nobody has seen it end."""
    for planned in transition.run.plan.steps:
        record = transition.records[planned.id]
        if is_worked_on(planned, record) and same_target(planned.target, cordon.target):
            assert record.effect is not None
            if record.effect.state is not EffectState.CONFIRMED:
                return True
    return False


def way_back(transition: RunTransition, planned: PlannedStep, effect: EffectRecord) -> EffectRecord:
    """The row of an undo that is meant: of the connector's own, or of the action that the runbook names instead."""
    row = replace(effect, state=EffectState.WAITING, attempts=0, failures=0, reason="", confirmed_at=None)
    if planned.compensation is None:
        return row
    key, action = transition.key(planned, "compensation"), planned.compensation.action
    return replace(row, key=key, action=action, result={})


def advance_undo(transition: RunTransition, context: RunContext) -> None:
    """Take the next thing back, the latest first, once nothing of the run is in the in_flight."""
    for planned in reversed(transition.run.plan.steps):
        record = transition.records[planned.id]
        if not record.is_being_undone:
            continue
        if _needless(transition, planned, record):
            transition.set(planned.id, undo=None, due_at=None, kept_for="")
            continue
        if record.kept_for:
            _hand_over(transition, planned, record, context)
            continue
        if any(map(calls_in_flight, transition.records.values())) or is_busy(transition, planned, context):
            return
        if record.due_at is not None and transition.now < record.due_at:
            continue
        if _rests_on_it(transition, planned):
            continue
        kind: CallKind = "compensate" if planned.compensation else "undo"
        if not transition.has_free_slot(planned, kind, context.free_slots):
            return
        transition.intend(planned, context.policy.lease_s, undo=True)
        return


def is_busy(transition: RunTransition, planned: PlannedStep, context: RunContext) -> bool:
    """Whether a call to the step's target is in the in_flight in another run: two must never be."""
    if planned.target is None:
        return False
    return bool(context.busy.get(planned.target.key, frozenset()) - {transition.run.id})


def _hand_over(
    transition: RunTransition, planned: PlannedStep, record: StepRecord, context: RunContext
) -> None:
    """Let go of what is kept for another incident, once its run holds the same or it is over."""
    survivor = _survivor(record.kept_for, context)
    if survivor is None:
        _keep_for_the_lost(transition, planned, record)
        return
    if record.keeper_lost_since is not None:
        transition.set(planned.id, keeper_lost_since=None)
    held = any(
        same_target(step.target, planned.target) and _stands(other.step(step.id))
        for other in context.others
        if other.incident == survivor.id and other.admitted_at is not None
        for step in other.plan.steps
        if step.action == planned.action
    )
    if held or survivor.state.is_over:
        why = "is held by its run now" if held else "is over"
        transition.note(
            "run.hands_over", f"{planned.target} is let go of: {record.kept_for} {why}", step=planned.id
        )
        transition.set(planned.id, kept_for="", due_at=None)
    elif record.due_at is None or transition.now >= record.due_at:
        transition.set(planned.id, due_at=transition.in_seconds(KEPT_LOOK_S))


def _keep_for_the_lost(transition: RunTransition, planned: PlannedStep, record: StepRecord) -> None:
    """Wait for the record of an incident that is not there, and in the end leave what was kept for it to a person."""
    since = record.keeper_lost_since or transition.now
    if transition.now < since + timedelta(seconds=BLIND_S):
        look_at = min(transition.in_seconds(KEPT_LOOK_S), since + timedelta(seconds=BLIND_S))
        if record.keeper_lost_since is None or record.due_at is None or transition.now >= record.due_at:
            transition.set(planned.id, keeper_lost_since=since, due_at=look_at)
        return
    assert record.undo is not None
    why = f"{record.kept_for}, which accuses it too, could not be read for {BLIND_S:.0f} s"
    row = replace(record.undo, state=EffectState.REFUSED, reason=why)
    transition.set(planned.id, undo=row, due_at=None, kept_for="", keeper_lost_since=None)
    transition.note("run.leaves", f"{planned.target} stays closed and is left to you: {why}", step=planned.id)


def _survivor(name: str, context: RunContext) -> Incident | None:
    """The incident itself, or where it went when it was merged in turn; None where the last of them cannot be read."""
    found, seen = context.incidents.get(name), {name}
    while found is not None and found.state is IncidentState.MERGED and found.merged_into not in seen:
        seen.add(found.merged_into or "")
        found = context.incidents.get(found.merged_into or "")
    return found


def _stands(record: StepRecord) -> bool:
    effect = record.effect
    return effect is not None and effect.state is EffectState.CONFIRMED and record.undo is None


def _rests_on_it(transition: RunTransition, planned: PlannedStep) -> bool:
    """Whether something that needed this step is still to be taken back: a put-off call must not turn the order around."""
    reached = {planned.id}
    for other in transition.run.plan.steps:  # what is needed stands before what needs it
        if reached.isdisjoint(other.needs):
            continue
        reached.add(other.id)
        if transition.records[other.id].is_being_undone:
            return True
    return False


def look_up_undo(
    transition: RunTransition, planned: PlannedStep, again_s: float, free_slots: FreeSlots
) -> None:
    """An undo whose fate is unknown is looked up before it is sent again."""
    record = transition.records[planned.id]
    if record.undo is None or record.undo.state is not EffectState.UNKNOWN:
        return
    kind: CallKind = "compensate_lookup" if planned.compensation else "undo_lookup"
    is_due = record.due_at is None or transition.now >= record.due_at
    if is_due and transition.has_free_slot(planned, kind, free_slots):
        transition.set(planned.id, due_at=transition.in_seconds(again_s))
        transition.call(planned, kind)


def holds_a_job(transition: RunTransition) -> bool:
    """Whether the run has suspended a job, or may have, and has not resumed it."""
    for planned in transition.run.plan.steps:
        record = transition.records[planned.id]
        if planned.action == "suspend_job" and record.effect is not None and record.effect.state in _LASTING:
            undone = record.undo is not None and record.undo.state is EffectState.UNDONE
            if not undone and not _needless(transition, planned, record):
                return True
    return False


def _needless(transition: RunTransition, planned: PlannedStep, record: StepRecord) -> bool:
    """Nothing was made after all, or the run itself has resumed the job."""
    if record.effect is None or record.effect.state is EffectState.REFUSED:
        return True
    if planned.action != "suspend_job":
        return False
    for other in transition.run.plan.steps:
        if other.action == "resume_job" and same_target(other.target, planned.target):
            effect = transition.records[other.id].effect
            return effect is not None and effect.state is EffectState.CONFIRMED
    return False


def _say_what_stands(transition: RunTransition) -> None:
    for planned in transition.run.plan.steps:
        record = transition.records[planned.id]
        stands = record.effect is not None and record.effect.state in _LASTING and record.undo is None
        if planned.undo and stands and not _needless(transition, planned, record):
            transition.note(
                "run.leaves", f"{planned.action} {planned.target} stands and is left to you", step=planned.id
            )
