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

from runbooks.engine.call_slots import Room
from runbooks.engine.run.transition import BLIND_S, IN_THE_AIR, CallKind, Desk, Situation, same_target
from runbooks.language.schema import DISRUPTIVE
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, PlannedStep, StepRecord, StepState

NOTHING: Mapping[str, str] = MappingProxyType({})

KEPT_LOOK_S = 30.0
"""How often what is kept for another incident is looked at."""

_LASTING = (*IN_THE_AIR, EffectState.WAITING, EffectState.CONFIRMED)


def call_off(
    desk: Desk,
    outcome: str,
    reason: str,
    *,
    release: bool = False,
    undo: bool = False,
    keep: Mapping[str, str] = NOTHING,
) -> None:
    """Decide how the run ends. Steps not begun are cancelled; a call in the air is still waited for.

    `undo` takes back all that may be, later on targets whose names are in `keep` (with the incident they are kept for);
    `release` only resumes jobs.
    """
    if desk.stopping:
        if desk.run.overruled and desk.run.outcome == "escalated":
            # A person's word outweighs the next rung, also while the run still gives back its jobs.
            desk.change(outcome=outcome, reason=reason)
            desk.note("run.called_off", f"{outcome}: {reason}; the next rung is not begun", outcome=outcome)
        return
    desk.change(outcome=outcome, reason=reason)
    desk.note("run.called_off", f"{outcome}: {reason}", outcome=outcome)
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        in_the_air = record.effect is not None and record.effect.state in IN_THE_AIR
        if not record.state.is_over and not in_the_air:
            desk.finish(planned.id, StepState.CANCELLED, reason)
    if undo or release:
        take_back(desk, reason, only_jobs=not undo, keep=keep)
    if not undo:
        _say_what_stands(desk)


def fail(desk: Desk, planned: PlannedStep, reason: str) -> None:
    """A step has failed for good: go on without it or end the run as the step says."""
    desk.finish(planned.id, StepState.FAILED, reason)
    if desk.stopping:
        return
    why = f"{planned.id} failed: {reason}"
    match planned.on_failure:
        case "continue":
            pass
        case "escalate":
            call_off(desk, "escalated", why, release=True)
        case "undo":
            call_off(desk, "failed", why, undo=True)
        case _:
            call_off(desk, "failed", why, release=True)


def take_back(desk: Desk, reason: str, *, only_jobs: bool = False, keep: Mapping[str, str] = NOTHING) -> None:
    """Mark what the run did, or may have done, for taking back."""
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        made = record.effect is not None and record.effect.state in _LASTING
        wanted = planned.action == "suspend_job" if only_jobs else planned.undo
        if not made or not wanted or record.undo is not None:
            continue
        assert record.effect is not None
        assert planned.target is not None
        row = way_back(desk, planned, record.effect)
        kept = keep.get(planned.target.name, "")
        if not kept and planned.action == "cordon_node" and _is_in_work(desk, planned):
            text = (
                f"{planned.target} stays closed and is left to you: what was begun on it may not have ended"
            )
            desk.note("run.leaves", text, step=planned.id)
            continue
        if kept:
            desk.note("run.keeps", f"{planned.target} stays closed: {kept} accuses it too", step=planned.id)
        due = record.due_at if record.effect.state in IN_THE_AIR else None
        desk.set(planned.id, undo=row, due_at=due, kept_for=kept)
        desk.change(undoing=reason)


def is_worked_on(planned: PlannedStep, record: StepRecord) -> bool:
    """Whether the step has begun to reset or reboot its node: that goes on whether or not anybody waits for it."""
    return planned.action in DISRUPTIVE and record.effect is not None and record.effect.state in _LASTING


def _is_in_work(desk: Desk, cordon: PlannedStep) -> bool:
    """Whether a reset or reboot of the node of a cordon has begun, and nobody has seen it end."""
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        if is_worked_on(planned, record) and same_target(planned.target, cordon.target):
            assert record.effect is not None
            if record.effect.state is not EffectState.CONFIRMED:
                return True
    return False


def way_back(desk: Desk, planned: PlannedStep, effect: EffectRecord) -> EffectRecord:
    """The row of an undo that is meant: of the connector's own, or of the action that the runbook names instead."""
    row = replace(effect, state=EffectState.WAITING, attempts=0, failures=0, reason="", confirmed_at=None)
    if planned.compensation is None:
        return row
    key, action = desk.key(planned, "compensation"), planned.compensation.action
    return replace(row, key=key, action=action, result={})


def advance_undo(desk: Desk, situation: Situation) -> None:
    """Take the next thing back, the latest first, once nothing of the run is in the air."""
    for planned in reversed(desk.run.plan.steps):
        record = desk.records[planned.id]
        if not record.is_being_undone:
            continue
        if _needless(desk, planned, record):
            desk.set(planned.id, undo=None, due_at=None, kept_for="")
            continue
        if record.kept_for:
            _hand_over(desk, planned, record, situation)
            continue
        if _anything_in_the_air(desk) or is_busy(desk, planned, situation):
            return
        if record.due_at is not None and desk.now < record.due_at:
            continue
        if _rests_on_it(desk, planned):
            continue
        kind: CallKind = "compensate" if planned.compensation else "undo"
        if not desk.has_room(planned, kind, situation.room):
            return
        desk.intend(planned, situation.policy.lease_s, undo=True)
        return


def is_busy(desk: Desk, planned: PlannedStep, situation: Situation) -> bool:
    """Whether a call to the step's target is in the air in another run: two must never be."""
    if planned.target is None:
        return False
    return bool(situation.busy.get(planned.target.key, frozenset()) - {desk.run.id})


def _hand_over(desk: Desk, planned: PlannedStep, record: StepRecord, situation: Situation) -> None:
    """Let go of what is kept for another incident, once its run holds the same or it is over."""
    survivor = _survivor(record.kept_for, situation)
    if survivor is None:
        _keep_for_the_lost(desk, planned, record)
        return
    if record.keeper_lost_since is not None:
        desk.set(planned.id, keeper_lost_since=None)
    held = any(
        same_target(step.target, planned.target) and _stands(other.step(step.id))
        for other in situation.others
        if other.incident == survivor.id and other.admitted_at is not None
        for step in other.plan.steps
        if step.action == planned.action
    )
    if held or survivor.state.is_over:
        why = "is held by its run now" if held else "is over"
        desk.note(
            "run.hands_over", f"{planned.target} is let go of: {record.kept_for} {why}", step=planned.id
        )
        desk.set(planned.id, kept_for="", due_at=None)
    elif record.due_at is None or desk.now >= record.due_at:
        desk.set(planned.id, due_at=desk.in_seconds(KEPT_LOOK_S))


def _keep_for_the_lost(desk: Desk, planned: PlannedStep, record: StepRecord) -> None:
    """Wait for the record of an incident that is not there, and in the end leave what was kept for it to a person."""
    since = record.keeper_lost_since or desk.now
    if desk.now < since + timedelta(seconds=BLIND_S):
        look_at = min(desk.in_seconds(KEPT_LOOK_S), since + timedelta(seconds=BLIND_S))
        if record.keeper_lost_since is None or record.due_at is None or desk.now >= record.due_at:
            desk.set(planned.id, keeper_lost_since=since, due_at=look_at)
        return
    assert record.undo is not None
    why = f"{record.kept_for}, which accuses it too, could not be read for {BLIND_S:.0f} s"
    row = replace(record.undo, state=EffectState.REFUSED, reason=why)
    desk.set(planned.id, undo=row, due_at=None, kept_for="", keeper_lost_since=None)
    desk.note("run.leaves", f"{planned.target} stays closed and is left to you: {why}", step=planned.id)


def _survivor(name: str, situation: Situation) -> Incident | None:
    """The incident itself, or where it went when it was merged in turn; None where the last of them cannot be read."""
    found, seen = situation.incidents.get(name), {name}
    while found is not None and found.state is IncidentState.MERGED and found.merged_into not in seen:
        seen.add(found.merged_into or "")
        found = situation.incidents.get(found.merged_into or "")
    return found


def _stands(record: StepRecord) -> bool:
    effect = record.effect
    return effect is not None and effect.state is EffectState.CONFIRMED and record.undo is None


def _rests_on_it(desk: Desk, planned: PlannedStep) -> bool:
    """Whether something that needed this step is still to be taken back: a put-off call must not turn the order around."""
    reached = {planned.id}
    for other in desk.run.plan.steps:  # what is needed stands before what needs it
        if reached.isdisjoint(other.needs):
            continue
        reached.add(other.id)
        if desk.records[other.id].is_being_undone:
            return True
    return False


def look_up_undo(desk: Desk, planned: PlannedStep, again_s: float, room: Room) -> None:
    """An undo whose fate is unknown is looked up before it is sent again."""
    record = desk.records[planned.id]
    if record.undo is None or record.undo.state is not EffectState.UNKNOWN:
        return
    kind: CallKind = "compensate_lookup" if planned.compensation else "undo_lookup"
    is_due = record.due_at is None or desk.now >= record.due_at
    if is_due and desk.has_room(planned, kind, room):
        desk.set(planned.id, due_at=desk.in_seconds(again_s))
        desk.call(planned, kind)


def holds_a_job(desk: Desk) -> bool:
    """Whether the run has suspended a job, or may have, and has not resumed it."""
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        if planned.action == "suspend_job" and record.effect is not None and record.effect.state in _LASTING:
            undone = record.undo is not None and record.undo.state is EffectState.UNDONE
            if not undone and not _needless(desk, planned, record):
                return True
    return False


def _needless(desk: Desk, planned: PlannedStep, record: StepRecord) -> bool:
    """Nothing was made after all, or the run itself has resumed the job."""
    if record.effect is None or record.effect.state is EffectState.REFUSED:
        return True
    if planned.action != "suspend_job":
        return False
    for other in desk.run.plan.steps:
        if other.action == "resume_job" and same_target(other.target, planned.target):
            effect = desk.records[other.id].effect
            return effect is not None and effect.state is EffectState.CONFIRMED
    return False


def _anything_in_the_air(desk: Desk) -> bool:
    rows: list[EffectRecord | None] = []
    for record in desk.records.values():
        rows += [record.effect if not record.state.is_over else None, record.undo]
    return any(row is not None and row.state in IN_THE_AIR for row in rows)


def _say_what_stands(desk: Desk) -> None:
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        stands = record.effect is not None and record.effect.state in _LASTING and record.undo is None
        if planned.undo and stands and not _needless(desk, planned, record):
            desk.note(
                "run.leaves", f"{planned.action} {planned.target} stands and is left to you", step=planned.id
            )
