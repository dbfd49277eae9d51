"""Targets in waves: a few first, the others only once those have succeeded. Part of `machine.py`."""

from __future__ import annotations

from datetime import timedelta

from runbooks.engine.run.left_jobs import halts_no_wave
from runbooks.engine.run.other_teams import goes_ahead
from runbooks.engine.run.transition import RunTransition
from streams.model.run import PlannedStep, StepRecord, StepState


def held_by_wave(transition: RunTransition, planned: PlannedStep) -> bool:
    """Whether the step has to wait for an earlier wave of its targets. A step that can never start is cancelled here."""
    before = _before(transition, planned)
    if any(not record.state.is_over for record in before):
        return True
    unwell = [record for record in before if not _is_well(record, planned)]
    if unwell:
        why = f"wave {planned.wave} is not started: {unwell[0].id} is {unwell[0].state}"
        transition.finish(planned.id, StepState.CANCELLED, why)
        return True
    last = max((record.finished_at for record in before if record.finished_at is not None), default=None)
    if last is None or transition.now >= (due := last + timedelta(seconds=planned.wave_pause_s)):
        return False
    transition.set(planned.id, due_at=due)
    return True


def _before(transition: RunTransition, planned: PlannedStep) -> list[StepRecord]:
    """The records of the same step's targets in all earlier waves."""
    if planned.wave == 0:
        return []
    name = planned.id.split(":", 1)[0]
    return [
        transition.records[other.id]
        for other in transition.run.plan.steps
        if other.wave < planned.wave
        and other.id.split(":", 1)[0] == name
        and not halts_no_wave(transition, other)
        and not goes_ahead(transition, planned, other.id)
    ]


def _is_well(record: StepRecord, planned: PlannedStep) -> bool:
    """Over without a failure, or with one after which the runbook continues."""
    if record.state is StepState.FAILED:
        return planned.on_failure == "continue"
    return record.state is not StepState.CANCELLED
