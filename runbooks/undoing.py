"""Ending a run before its time, and taking back what it did: in reverse order, each under the guard of its connector.

What is taken back depends on why. A revision that removes the reason takes back everything the runbook marked with `undo`. A
failure, an expiry, a refusal or a person's change only releases what must not be left waiting for a run that has ended: a
suspended job; so does a person who resolves the incident. A bad node stays closed. A person's `stop` stops everything, this
too.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from runbooks.desk import Desk, same_target
from streams.model.run import EffectRecord, EffectState, PlannedStep, StepRecord, StepState

_IN_THE_AIR = (EffectState.INTENDED, EffectState.UNKNOWN)
_LASTING = (*_IN_THE_AIR, EffectState.WAITING, EffectState.CONFIRMED)


def call_off(
    desk: Desk,
    outcome: str,
    reason: str,
    *,
    release: bool = False,
    undo: bool = False,
    keep: Container[str] = (),
) -> None:
    """Decide how the run ends. Steps not begun are cancelled; a call in the air is still waited for.

    `undo` takes back all that may be, except on targets whose names are in `keep`; `release` only resumes jobs.
    """
    if desk.stopping:
        return
    desk.change(outcome=outcome, reason=reason)
    desk.note("run.called_off", f"{outcome}: {reason}", outcome=outcome)
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        in_the_air = record.effect is not None and record.effect.state in _IN_THE_AIR
        if not record.state.is_over and not in_the_air:
            desk.finish(planned.id, StepState.CANCELLED, reason)
    if undo or release:
        take_back(desk, reason, only_jobs=not undo, keep=keep)
    if not undo:
        _say_what_stands(desk)


def fail(desk: Desk, planned: PlannedStep, reason: str) -> None:
    """A step has failed for good: go on without it or end the run, giving back what only waits for the end."""
    desk.finish(planned.id, StepState.FAILED, reason)
    if planned.on_failure == "stop" and not desk.stopping:
        call_off(desk, "failed", f"{planned.id} failed: {reason}", release=True)


def take_back(desk: Desk, reason: str, *, only_jobs: bool = False, keep: Container[str] = ()) -> None:
    """Mark what the run did, or may have done, for taking back."""
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        made = record.effect is not None and record.effect.state in _LASTING
        wanted = planned.action == "suspend_job" if only_jobs else planned.undo
        if (
            not made
            or not wanted
            or record.undo is not None
            or (planned.target and planned.target.name in keep)
        ):
            continue
        assert record.effect is not None
        row = replace(record.effect, state=EffectState.WAITING, attempts=0, reason="", confirmed_at=None)
        desk.set(planned.id, undo=row, due_at=record.due_at if record.effect.state in _IN_THE_AIR else None)
        desk.change(undoing=reason)


def advance_undo(desk: Desk, lease_s: float) -> None:
    """Take the next thing back, the latest first, once nothing of the run is in the air."""
    for planned in reversed(desk.run.plan.steps):
        record = desk.records[planned.id]
        if not record.is_being_undone:
            continue
        if _needless(desk, planned, record):
            desk.set(planned.id, undo=None, due_at=None)
            continue
        if _anything_in_the_air(desk):
            return
        if record.due_at is not None and desk.now < record.due_at:
            continue
        desk.intend(planned, lease_s, undo=True)
        return


def look_up_undo(desk: Desk, planned: PlannedStep, again_s: float) -> None:
    """An undo whose fate is unknown is looked up before it is sent again."""
    record = desk.records[planned.id]
    if record.undo is None or record.undo.state is not EffectState.UNKNOWN:
        return
    if record.due_at is None or desk.now >= record.due_at:
        desk.set(planned.id, due_at=desk.in_seconds(again_s))
        desk.call(planned, "undo_lookup")


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
    return any(row is not None and row.state in _IN_THE_AIR for row in rows)


def _say_what_stands(desk: Desk) -> None:
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        stands = record.effect is not None and record.effect.state in _LASTING and record.undo is None
        if planned.undo and stands and not _needless(desk, planned, record):
            desk.note(
                "run.leaves", f"{planned.action} {planned.target} stands and is left to you", step=planned.id
            )
