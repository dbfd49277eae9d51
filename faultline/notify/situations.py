"""What an incident waits for, as far as anybody has to be told: one word, since when, and the words for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from runbooks.engine.containment import PendingRepair
from runbooks.engine.wait_reasons import ending_reason, held_by
from streams.model.control import Control
from streams.model.incident import Incident, IncidentState
from streams.model.node_notice import opens_in
from streams.model.run import Mode, PlannedStep, Run, RunOutcome, StepRecord, StepState


class Situation(StrEnum):
    """What an incident waits for."""

    HANDLED = "handled"
    """Faultline is at it."""
    APPROVAL = "approval"
    HELD = "held"
    """The kill switch or the breaker keeps a run from acting."""
    FAILED = "failed"
    """The last run has ended, and the incident has not."""
    UNATTENDED = "unattended"
    """It has no run at all: no runbook applies, or nobody has answered."""
    SHADOW = "shadow"
    """Only a plan in shadow mode."""
    PERSON = "person"
    """A person has taken it, or has decided that nothing is done."""
    CONTAINED = "contained"
    SUPPRESSED = "suppressed"
    OVER = "over"

    @property
    def is_settled(self) -> bool:
        """True when nothing is left to do at once."""
        return self in (Situation.CONTAINED, Situation.SUPPRESSED, Situation.OVER)


@dataclass(frozen=True, slots=True)
class Standing:
    """A situation, since when it lasts, and what it waits for in words. `actor` is the person who has it, if known."""

    situation: Situation
    since: datetime
    text: str = ""
    actor: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """What people have done about an incident: who has taken it over, and until when it is to be silent."""

    taken_by: str = ""
    silent_until: datetime | None = None

    def is_silent(self, now: datetime) -> bool:
        """Whether nobody is to be told anything about it now."""
        return self.silent_until is not None and now < self.silent_until


_DECIDED = frozenset({RunOutcome.REJECTED, RunOutcome.CANCELLED, RunOutcome.HANDED_OVER})
"""Ends of a run that a person has brought about."""


def standing_of(
    incident: Incident,
    runs: Sequence[Run],
    repairs: Sequence[PendingRepair],
    control: Control | None,
    attention: Attention,
    *,
    approval_expiry: timedelta,
) -> Standing:
    """The situation of an incident, from its runs (in any order), the cluster's controls and what people did.

    `approval_expiry` is how long a guardrail's question stays open: with its deadline, it says since when a run waits.
    """
    if incident.state.is_over:
        ended = incident.closed_at or incident.updated_at
        text = "; ".join(repair.text for repair in repairs)
        return Standing(Situation.CONTAINED if repairs else Situation.OVER, ended, text)
    if incident.state is IncidentState.SUPPRESSED:
        return Standing(Situation.SUPPRESSED, incident.updated_at)
    found = _by_runs(
        incident, sorted(runs, key=lambda run: (run.created_at, run.id)), control, approval_expiry
    )
    if attention.taken_by and found.situation is not Situation.HANDLED:
        return Standing(Situation.PERSON, found.since, found.text, attention.taken_by)
    return found


def _by_runs(
    incident: Incident, runs: Sequence[Run], control: Control | None, approval_expiry: timedelta
) -> Standing:
    live = [run for run in runs if run.plan.mode is not Mode.SHADOW]
    if not live:
        # What a cloud announced days before is nobody's to attend to until it is told.
        since = max(incident.opened_at, opens_in(incident.facts) or incident.opened_at)
        if runs:
            return Standing(Situation.SHADOW, since, "a plan in shadow mode; nothing is done")
        return Standing(Situation.UNATTENDED, since, "no runbook applies")
    for run in reversed(live):
        if not run.state.is_over:
            return _of_active(run, control, approval_expiry)
    last = live[-1]
    ended = last.finished_at or last.updated_at
    why = ending_reason(last)
    text = f"run {last.outcome or last.state}" + (f": {why}" if why else "")
    if last.overruled or last.outcome in _DECIDED:
        return Standing(Situation.PERSON, ended, text)
    if last.outcome is RunOutcome.SUCCEEDED and incident.state is not IncidentState.AWAITING_HUMAN:
        return Standing(Situation.HANDLED, ended, "the runbook is done; waiting for the signals to end")
    return Standing(Situation.FAILED, ended, text)


def _of_active(run: Run, control: Control | None, approval_expiry: timedelta) -> Standing:
    asked = [
        _asked_at(run, planned, record, approval_expiry)
        for planned, record in zip(run.plan.steps, run.steps, strict=True)
        if record.state is StepState.AWAITING_APPROVAL
    ]
    if asked:
        return Standing(Situation.APPROVAL, min(asked), held_by(run))
    stop = (control.kill_switch or control.breaker) if control is not None else None
    blocked = any(
        record.state is StepState.BLOCKED or (record.state is StepState.PENDING and record.reason)
        for record in run.steps
    )
    if stop is not None and blocked:
        return Standing(Situation.HELD, max(run.created_at, stop.at), held_by(run))
    return Standing(Situation.HANDLED, run.created_at, held_by(run))


def _asked_at(run: Run, planned: PlannedStep, record: StepRecord, approval_expiry: timedelta) -> datetime:
    """Since when a step waits for approval, which only its deadline tells of: too early rather than too late."""
    if record.deadline_at is None:
        return run.created_at
    length = timedelta(seconds=planned.deadline_s) if planned.action == "ask" else approval_expiry
    return min(max(record.deadline_at - length, run.created_at), max(run.updated_at, run.created_at))
