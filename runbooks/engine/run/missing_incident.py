"""A run whose incident record is missing or damaged: no step is started, and after a timeout suspended jobs are resumed.

That happens after a restart. Without the incident it is unknown whether the reason for the run still holds, so nothing new is
started; but calls in flight are still looked up, deadlines still count, and a suspended job is not left suspended for ever.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from runbooks.engine.call_slots import FreeSlots
from runbooks.engine.run.machine import settle
from runbooks.engine.run.rollback import advance_undo, call_off, end_early, fail, look_up, look_up_undo
from runbooks.engine.run.transition import BLIND_S, RunContext, RunTransition, TransitionResult
from streams.model.entity import Entity
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.kinds import IncidentFamily
from streams.model.run import EffectState, PlannedStep, Run, RunOutcome
from streams.model.signal import Severity

_EXPIRED = f"its incident could not be read for {BLIND_S:.0f} s"


def advance_without_incident(run: Run, context: RunContext, now: datetime) -> TransitionResult:
    """Do what is safe without the incident. `context` has a `placeholder` in its place."""
    transition = RunTransition(run, now)
    expired = run.blind_since is not None and now >= run.blind_since + timedelta(seconds=BLIND_S)
    if run.blind_since is None:
        transition.change(blind_since=now)
        transition.note("run.blind", f"{run.incident} cannot be read: no further step is started for it")
    elif expired and not run.state.is_over:
        call_off(transition, RunOutcome.FAILED, _EXPIRED, release=True)
    for planned in run.plan.steps:
        _step(transition, planned, context.free_slots, expired=expired)
        look_up_undo(transition, planned, context.free_slots)
    advance_undo(transition, context)
    settle(transition, context)
    return transition.result()


def placeholder(run: Run) -> Incident:
    """What the run itself knows of its incident: enough to roll back, too little to act on."""
    at = run.created_at
    return Incident(
        id=run.incident,
        cluster=run.cluster,
        family=str(run.context.get("family", IncidentFamily.UNKNOWN)),
        root=Entity(run.cluster),
        incarnation=run.incarnation,
        revision=run.incident_revision,
        state=IncidentState.OPEN,
        severity=Severity.INFO,
        certainty=Certainty.WEAK,
        title=run.title,
        reason="its record cannot be read",
        fault_at=at,
        opened_at=at,
        updated_at=at,
    )


def _step(transition: RunTransition, planned: PlannedStep, free_slots: FreeSlots, *, expired: bool) -> None:
    record = transition.records[planned.id]
    effect = record.effect
    if record.state.is_over or (effect is not None and effect.state is EffectState.INTENDED):
        return
    if effect is not None and effect.state is EffectState.UNKNOWN:
        look_up(transition, planned, "lookup", free_slots)
    elif transition.stopping:
        end_early(transition, planned, transition.run.reason)
    elif expired:
        # A finished run may still have a ticket to open, but its text was in the incident.
        end_early(transition, planned, _EXPIRED)
    elif effect is not None and record.deadline_at is not None and transition.now >= record.deadline_at:
        fail(transition, planned, f"not done within {planned.deadline_s:.0f} s: {record.reason}")
