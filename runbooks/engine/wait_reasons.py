"""What an incident waits for, in a few words: a person, a switch, a limit, the next try, pods, progress, a repair. Pure.

`mitigating` says that a run is at work. Where it stands still all the same, a reader of the list has to see on what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import IntEnum

from runbooks.engine.approvals import wanted
from runbooks.engine.containment import PendingRepair
from runbooks.language.schema import TICKETS
from streams.model.clock import to_the_second
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord, StepState


class _Weight(IntEnum):
    """Of several things that a run waits for, the least is told."""

    PERSON = 0
    HELD = 1
    RETRY = 2
    UNDER_WAY = 3


def waits_for(incident: Incident, runs: Sequence[Run], owing: Sequence[PendingRepair] = ()) -> str:
    """What has to happen before the incident goes on, or is done with; empty where a call is out or nothing is left.

    Args:
        incident: As it stands.
        runs: Its runs, oldest first.
        owing: The nodes that stay closed for it.
    """
    if incident.state.is_over:
        return "; ".join(f"repair: {one.text}" for one in owing)
    for run in reversed(runs):
        if run.plan.mode is not Mode.SHADOW and run.has_work and (said := held_by(run)):
            return said
    if incident.state is not IncidentState.AWAITING_HUMAN or not all(run.state.is_over for run in runs):
        return ""
    last = next((run for run in reversed(runs) if run.plan.mode is not Mode.SHADOW), None)
    if last is None:
        return "a person: no runbook acts on it"
    return f"a person: run {last.outcome or last.state}" + (
        f", {why}" if (why := ending_reason(last)) else ""
    )


def held_by(run: Run) -> str:
    """What the run's open steps wait for, the gravest first; empty where a call is simply out."""
    found = [
        (_order(weight, planned), text)
        for planned in run.plan.steps
        for weight, text in _held(planned, run.step(planned.id))
    ]
    if not found:
        return ""
    _, text = min(found, key=lambda said: said[0])
    return text


def _order(weight: _Weight, planned: PlannedStep) -> tuple[bool, bool, _Weight, bool]:
    """What goes first. A ticket that waits stops neither the fault nor the job, whatever it waits for."""
    return weight is not _Weight.PERSON, planned.action in TICKETS, weight, not planned.destructive


def ending_reason(run: Run) -> str:
    """Why a run was called off; empty for one that was not, which keeps the incident's own reason."""
    return run.reason if run.outcome.is_early else ""


def _held(planned: PlannedStep, record: StepRecord) -> Iterator[tuple[_Weight, str]]:
    effect = record.effect
    if record.state is StepState.AWAITING_APPROVAL:
        people = wanted(record.demands) or "one person"
        asked = f"{people}{_until(record.deadline_at)}"
        yield _Weight.PERSON, _question(planned, asked, cause_of(record.reason))
    elif record.state is StepState.BLOCKED or (record.state is StepState.PENDING and record.reason):
        yield _Weight.HELD, f"{_name(planned)} held: {record.reason}"
    elif record.state.is_over:
        return
    elif effect is None:
        if planned.action == "await_progress" and record.state is StepState.RUNNING:
            yield (
                _Weight.UNDER_WAY,
                f"progress of {planned.target}{_until(record.due_at or record.deadline_at)}",
            )
    elif effect.state is EffectState.UNKNOWN:
        yield _Weight.RETRY, f"what became of {_name(planned)}, looked up{_at(record)}: {record.reason}"
    elif effect.state is EffectState.WAITING and effect.failures:
        yield _Weight.RETRY, f"{_name(planned)} tried again{_at(record)}: {record.reason}"
    elif effect.landed and record.reason and effect.state in (EffectState.WAITING, EffectState.INTENDED):
        # It has taken hold and is looked at every few seconds, so that a look that is just out changes nothing.
        pods = planned.action == "suspend_job" and planned.target is not None
        text = f"pods of {planned.target} to end" if pods else f"{_name(planned)}: {record.reason}"
        yield _Weight.UNDER_WAY, f"{text}{_until(record.deadline_at)}"


def _until(at: datetime | None) -> str:
    return f" until {to_the_second(at)}" if at else ""


def cause_of(ruling: str) -> str:
    """What a guardrail says against a step, in its first few words; empty where it said nothing."""
    _, _, reason = ruling.partition(": ")
    return reason.partition("; ")[0]


def _question(planned: PlannedStep, people: str, cause: str) -> str:
    """What a person is asked. A step that only asks is not approved but taken on, and its own text says what."""
    if planned.action == "ask":
        return f"{people} to take it on: {planned.describe or 'a person is asked to look'}"
    return f"approval of {_name(planned)} by {people}" + (f": {cause}" if cause else "")


def _at(record: StepRecord) -> str:
    return f" at {to_the_second(record.due_at)}" if record.due_at else ""


def _name(planned: PlannedStep) -> str:
    return f"{planned.action} {planned.target.name}" if planned.target is not None else planned.action
