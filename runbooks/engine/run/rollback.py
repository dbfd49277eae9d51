"""Cancels a run and rolls back its effects: in reverse order, each through a guarded undo of its connector.

A step is rolled back by its connector's own undo, or by the action that the runbook names as its compensation. Either way it is
an effect like any other: intended, made, looked up when its outcome is unknown.

What is rolled back depends on the reason. A revision that removes the reason for the run rolls back the steps marked with `undo`.
A failure, an expiry, a refusal, a person's change or a `resolve` only resumes suspended jobs, and a bad node stays cordoned. A
`stop` rolls back nothing.

A cordon that another incident needs as well (`keep`) is handed over: it is undone once that incident's own run holds the node, or
once that incident is over. While its record cannot be read nobody knows whether the node is well, so the node stays cordoned and
is left for manual handling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

from runbooks.engine.call_slots import FreeSlots
from runbooks.engine.guardrails.cordoned_nodes import MADE, is_confirmed, is_in_place, same_target
from runbooks.engine.run.transition import (
    BLIND_S,
    IN_FLIGHT,
    CallKind,
    RunContext,
    RunTransition,
    calls_in_flight,
)
from runbooks.language.schema import DISRUPTIVE, TICKETS
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, PlannedStep, RunOutcome, StepRecord, StepState

NOTHING: Mapping[str, str] = MappingProxyType({})

LOOKUP_RETRY_S = 30.0
"""A lookup without an answer is sent again after this time."""

KEPT_RECHECK_S = 30.0
"""How often a cordon kept for another incident is checked."""


def call_off(
    transition: RunTransition,
    outcome: RunOutcome,
    reason: str,
    *,
    release: bool = False,
    undo: bool = False,
    keep: Mapping[str, str] = NOTHING,
) -> None:
    """Decide how the run ends. Steps not started are cancelled; a call in flight is still waited for: its outcome, or what
    is found of it, says how its step ends.

    `undo` rolls back every step marked for it, later on targets whose names are in `keep` (with the incident they are kept for);
    `release` only resumes jobs.
    """
    if transition.stopping:
        if transition.run.overruled and transition.run.outcome is RunOutcome.ESCALATED:
            # A person's decision outweighs the escalation, also while the run still resumes its jobs.
            transition.change(outcome=outcome, reason=reason)
            transition.note(
                "run.called_off", f"{outcome}: {reason}; no further escalation", outcome=str(outcome)
            )
        return
    transition.change(outcome=outcome, reason=reason)
    transition.note("run.called_off", f"{outcome}: {reason}", outcome=str(outcome))
    for planned, record in transition.steps():
        in_flight = record.effect is not None and record.effect.state in IN_FLIGHT
        if not record.state.is_over and not in_flight:
            end_early(transition, planned, reason)
    if undo or release:
        roll_back(transition, reason, only_jobs=not undo, keep=keep)
    if not undo:
        _note_what_stays(transition)


def end_early(transition: RunTransition, planned: PlannedStep, reason: str) -> None:
    """End a step of a run that ends before its plan was executed, while none of its calls is in flight.

    A ticket that was made exists whether or not its evidence or its copies were still to be seen to: it is done, so that its
    number is shown wherever the run is.
    """
    effect = transition.records[planned.id].effect
    if effect is None or not effect.landed or planned.action not in TICKETS:
        transition.finish(planned.id, StepState.CANCELLED, reason)
        return
    ticket = effect.result.get("ticket")
    made = f"{ticket} was made before the run ended" if ticket else "made before the run ended"
    row = replace(effect, state=EffectState.CONFIRMED, confirmed_at=transition.now, reason=made)
    transition.set(planned.id, effect=row)
    transition.finish(planned.id, StepState.DONE, made)


def fail(transition: RunTransition, planned: PlannedStep, reason: str) -> None:
    """A step has failed for good: continue without it or end the run, as the step says."""
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


def roll_back(
    transition: RunTransition, reason: str, *, only_jobs: bool = False, keep: Mapping[str, str] = NOTHING
) -> None:
    """Mark what the run did, or may have done, to be rolled back."""
    for planned, record in transition.steps():
        made = record.effect is not None and record.effect.state in MADE
        wanted = planned.action == "suspend_job" if only_jobs else planned.undo
        if not made or not wanted or record.undo is not None:
            continue
        assert record.effect is not None
        assert planned.target is not None
        row = undo_row(transition, planned, record.effect)
        kept = keep.get(planned.target.name, "")
        if not kept and planned.action == "cordon_node" and _is_in_work(transition, planned):
            text = f"{planned.target} stays cordoned for manual handling: a reset or reboot of it may still be running"
            transition.note("run.leaves", text, step=planned.id)
            continue
        if kept:
            transition.note(
                "run.keeps",
                f"{planned.target} stays cordoned: {kept} also names it as root cause",
                step=planned.id,
            )
        due = record.due_at if record.effect.state in IN_FLIGHT else None
        transition.set(planned.id, undo=row, due_at=due, kept_for=kept)
        transition.change(undoing=reason)


def is_worked_on(planned: PlannedStep, record: StepRecord) -> bool:
    """Whether the step has started to reset or reboot its node: that continues whether or not anybody waits for it."""
    return (
        planned.action in DISRUPTIVE
        and planned.destructive
        and record.effect is not None
        and record.effect.state in MADE
    )


def _is_in_work(transition: RunTransition, cordon: PlannedStep) -> bool:
    """Whether a reset or reboot of the cordoned node has started and is not known to have ended."""
    return any(
        is_worked_on(planned, record)
        and same_target(planned.target, cordon.target)
        and not is_confirmed(record)
        for planned, record in transition.steps()
    )


def undo_row(transition: RunTransition, planned: PlannedStep, effect: EffectRecord) -> EffectRecord:
    """The effect row of an undo: by the connector itself, or by the action that the runbook names as compensation."""
    row = replace(
        effect, state=EffectState.WAITING, attempts=0, failures=0, reason="", confirmed_at=None, result={}
    )
    if planned.compensation is None:
        return row
    return replace(row, key=transition.key(planned, "compensation"), action=planned.compensation.action)


def advance_undo(transition: RunTransition, context: RunContext) -> None:
    """Roll back the next step, the latest first, once no call of the run is in flight."""
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
        if _is_needed_by_undo(transition, planned):
            continue
        kind: CallKind = "compensate" if planned.compensation else "undo"
        if not transition.has_free_slot(planned, kind, context.free_slots):
            return
        transition.intend(planned, context.policy.lease_s, undo=True)
        return


def is_busy(transition: RunTransition, planned: PlannedStep, context: RunContext) -> bool:
    """Whether another run has a call in flight to the step's target: there must never be two."""
    if planned.target is None:
        return False
    return bool(context.busy.get(planned.target.key, frozenset()) - {transition.run.id})


def _hand_over(
    transition: RunTransition, planned: PlannedStep, record: StepRecord, context: RunContext
) -> None:
    """Hand over a cordon kept for another incident, once that incident's run holds it too or it is over."""
    survivor = _survivor(record.kept_for, context)
    if survivor is None:
        _keep_for_unreadable(transition, planned, record)
        return
    if record.keeper_lost_since is not None:
        transition.set(planned.id, keeper_lost_since=None)
    held = any(
        same_target(step.target, planned.target) and is_in_place(other.step(step.id))
        for other in context.others
        if other.incident == survivor.id and other.admitted_at is not None
        for step in other.plan.steps
        if step.action == planned.action
    )
    if held or survivor.state.is_over:
        why = "has a run that holds it now" if held else "is over"
        transition.note(
            "run.hands_over", f"{planned.target} handed over: {record.kept_for} {why}", step=planned.id
        )
        transition.set(planned.id, kept_for="", due_at=None)
    elif record.due_at is None or transition.now >= record.due_at:
        transition.set(planned.id, due_at=transition.in_seconds(KEPT_RECHECK_S))


def _keep_for_unreadable(transition: RunTransition, planned: PlannedStep, record: StepRecord) -> None:
    """Wait for the missing record of the other incident, and in the end leave the cordon for manual handling."""
    since = record.keeper_lost_since or transition.now
    if transition.now < since + timedelta(seconds=BLIND_S):
        look_at = min(transition.in_seconds(KEPT_RECHECK_S), since + timedelta(seconds=BLIND_S))
        if record.keeper_lost_since is None or record.due_at is None or transition.now >= record.due_at:
            transition.set(planned.id, keeper_lost_since=since, due_at=look_at)
        return
    assert record.undo is not None
    why = f"{record.kept_for} also names it as root cause and could not be read for {BLIND_S:.0f} s"
    row = replace(record.undo, state=EffectState.REFUSED, reason=why)
    transition.set(planned.id, undo=row, due_at=None, kept_for="", keeper_lost_since=None)
    transition.note(
        "run.leaves", f"{planned.target} stays cordoned for manual handling: {why}", step=planned.id
    )


def _survivor(name: str, context: RunContext) -> Incident | None:
    """The incident itself, or the end of its chain of merges; None where that cannot be read."""
    found, seen = context.incidents.get(name), {name}
    while found is not None and found.state is IncidentState.MERGED and found.merged_into not in seen:
        seen.add(found.merged_into or "")
        found = context.incidents.get(found.merged_into or "")
    return found


def _is_needed_by_undo(transition: RunTransition, planned: PlannedStep) -> bool:
    """Whether a step that needed this one is still to be rolled back: a postponed call must not reverse the order."""
    reached = {planned.id}
    for other in transition.run.plan.steps:  # what is needed stands before what needs it
        if reached.isdisjoint(other.needs):
            continue
        reached.add(other.id)
        if transition.records[other.id].is_being_undone:
            return True
    return False


def look_up(transition: RunTransition, planned: PlannedStep, kind: CallKind, free_slots: FreeSlots) -> None:
    """Look up a call of unknown outcome, when that is due."""
    due_at = transition.records[planned.id].due_at
    is_due = due_at is None or transition.now >= due_at
    if is_due and transition.has_free_slot(planned, kind, free_slots):
        transition.set(planned.id, due_at=transition.in_seconds(LOOKUP_RETRY_S))
        transition.call(planned, kind)


def look_up_undo(transition: RunTransition, planned: PlannedStep, free_slots: FreeSlots) -> None:
    """An undo of unknown outcome is looked up before it is sent again."""
    undo = transition.records[planned.id].undo
    if undo is not None and undo.state is EffectState.UNKNOWN:
        look_up(
            transition, planned, "compensate_lookup" if planned.compensation else "undo_lookup", free_slots
        )


def holds_a_job(transition: RunTransition) -> bool:
    """Whether the run has suspended a job, or may have, and has not resumed it."""
    for planned, record in transition.steps():
        if planned.action == "suspend_job" and record.effect is not None and record.effect.state in MADE:
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
    resume = resume_of(transition, planned)
    return resume is not None and resume.state is EffectState.CONFIRMED


def resume_of(transition: RunTransition, planned: PlannedStep) -> EffectRecord | None:
    """The effect of the run's `resume_job` for the step's job; None while it has not started or where there is none."""
    for other, record in transition.steps():
        if other.action == "resume_job" and same_target(other.target, planned.target):
            return record.effect
    return None


def _note_what_stays(transition: RunTransition) -> None:
    for planned, record in transition.steps():
        stands = record.effect is not None and record.effect.state in MADE and record.undo is None
        if planned.undo and stands and not _needless(transition, planned, record):
            transition.note(
                "run.leaves",
                f"{planned.action} {planned.target} stays in place for manual handling",
                step=planned.id,
            )
