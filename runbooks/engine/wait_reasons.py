"""What an incident waits for, in a few words: an approval, a switch, a limit, a retry, pods, progress, a repair. Pure.

`mitigating` means that a run is active. Where it is waiting all the same, the list of incidents has to say for what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import IntEnum

from runbooks.engine.approvals import wanted
from runbooks.engine.containment import PendingRepair
from runbooks.engine.escalation import is_for_owner
from runbooks.language.schema import TICKETS
from streams.model.clock import to_the_second
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord, StepState

FOR_OWNER = "its job's owner; nobody on call has to act"


class _Weight(IntEnum):
    """Of several things that a run waits for, the lowest is shown."""

    APPROVAL = 0
    HELD = 1
    RETRY = 2
    IN_PROGRESS = 3


def waits_for(incident: Incident, runs: Sequence[Run], repairs: Sequence[PendingRepair] = ()) -> str:
    """What the incident waits for; empty while a call is in flight or when nothing is left to do.

    Args:
        incident: Its latest revision.
        runs: Its runs, oldest first.
        repairs: The nodes that stay cordoned for it.
    """
    if incident.state.is_over:
        return "; ".join(f"repair: {one.text}" for one in repairs)
    for run in reversed(runs):
        if run.plan.mode is not Mode.SHADOW and run.has_work and (reason := held_by(run)):
            return reason
    if is_for_owner(incident, runs):
        return FOR_OWNER
    if incident.state is not IncidentState.AWAITING_HUMAN or not all(run.state.is_over for run in runs):
        return ""
    last = next((run for run in reversed(runs) if run.plan.mode is not Mode.SHADOW), None)
    if last is None:
        return "manual action: no runbook applies"
    return f"manual action: run {last.outcome or last.state}" + (
        f", {why}" if (why := ending_reason(last)) else ""
    )


def held_by(run: Run) -> str:
    """What the run's open steps wait for, the most severe; empty while a call is just in flight."""
    found = [
        (_order(weight, planned), text)
        for planned in run.plan.steps
        for weight, text in _held(planned, run.step(planned.id))
    ]
    if not found:
        return ""
    _, text = min(found, key=lambda entry: entry[0])
    return text


def _order(weight: _Weight, planned: PlannedStep) -> tuple[bool, bool, _Weight, bool]:
    """The order of importance. A waiting ticket delays neither the mitigation nor the job, whatever it waits for."""
    return weight is not _Weight.APPROVAL, planned.action in TICKETS, weight, not planned.destructive


def who_started(run: Run) -> str:
    """Who started a run, where a person did, in words; empty for one that Faultline started by itself."""
    if not run.started_by:
        return ""
    return (
        f"{run.started_by} took up {run.continues} again" if run.continues else f"started by {run.started_by}"
    )


def ending_reason(run: Run) -> str:
    """Why a run was ended early; empty for one that was not: its `reason` is the incident's."""
    return run.reason if run.outcome.is_early else ""


def _held(planned: PlannedStep, record: StepRecord) -> Iterator[tuple[_Weight, str]]:
    effect = record.effect
    if record.state is StepState.AWAITING_APPROVAL:
        people = wanted(record.demands) or "one person"
        asked = f"{people}{_until(record.deadline_at)}"
        yield _Weight.APPROVAL, _question(planned, asked, cause_of(record.reason))
    elif record.state is StepState.BLOCKED or (record.state is StepState.PENDING and record.reason):
        yield _Weight.HELD, f"{_name(planned)} held: {record.reason}"
    elif record.state.is_over:
        return
    elif effect is None:
        if planned.action == "await_work" and record.state is StepState.RUNNING:
            yield _Weight.IN_PROGRESS, record.reason or f"the end of planned work on {planned.target}"
        elif planned.action == "await_progress" and record.state is StepState.RUNNING:
            yield (
                _Weight.IN_PROGRESS,
                f"progress of {planned.target}{_until(record.due_at or record.deadline_at)}",
            )
    elif effect.state is EffectState.UNKNOWN:
        yield _Weight.RETRY, f"status of {_name(planned)}, checked{_at(record)}: {record.reason}"
    elif effect.state is EffectState.WAITING and effect.failures:
        yield _Weight.RETRY, f"retry of {_name(planned)}{_at(record)}: {record.reason}"
    elif effect.landed and record.reason and effect.state in (EffectState.WAITING, EffectState.INTENDED):
        # It has taken hold and is checked every few seconds, so that a check in flight changes nothing.
        pods = planned.action == "suspend_job" and planned.target is not None
        text = f"pods of {planned.target} to end" if pods else f"{_name(planned)}: {record.reason}"
        yield _Weight.IN_PROGRESS, f"{text}{_until(record.deadline_at)}"


def _until(at: datetime | None) -> str:
    return f" until {to_the_second(at)}" if at else ""


def cause_of(ruling: str) -> str:
    """The reason of a guardrail's ruling without its rule and what clears it; empty for an empty text."""
    _, _, reason = ruling.partition(": ")
    return reason.partition("; ")[0]


def _question(planned: PlannedStep, people: str, cause: str) -> str:
    """What a person is asked. An `ask` step is not approved but taken over, and its own text says what."""
    if planned.action == "ask":
        return f"{people} to take it over: {planned.describe or 'an operator is asked to investigate'}"
    return f"approval of {_name(planned)} by {people}" + (f": {cause}" if cause else "")


def _at(record: StepRecord) -> str:
    return f" at {to_the_second(record.due_at)}" if record.due_at else ""


def _name(planned: PlannedStep) -> str:
    return f"{planned.action} {planned.target.name}" if planned.target is not None else planned.action
