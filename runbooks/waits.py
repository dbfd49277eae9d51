"""What an incident waits for, in a few words: a person, a switch, a limit, the next try, a repair. Pure.

`mitigating` says that a run is at work. Where it stands still all the same, a reader of the list has to see on what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from runbooks.approvals import wanted
from runbooks.containment import Owed
from streams.model.clock import to_the_second
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepRecord, StepState


class _Weight(IntEnum):
    """Of several things that a run waits for, the least is told."""

    PERSON = 0
    HELD = 1
    RETRY = 2


def waits_for(incident: Incident, runs: Sequence[Run], owing: Sequence[Owed] = ()) -> str:
    """What has to happen before the incident goes on, or is done with; empty where it is worked on or nothing is left.

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
    """What the run's open steps wait for, the gravest first; empty where a step is simply under way."""
    found = [said for planned in run.plan.steps for said in _held(planned, run.step(planned.id))]
    if not found:
        return ""
    _, text = min(found, key=lambda said: said[0])
    return text


def ending_reason(run: Run) -> str:
    """Why a run was called off; empty for one that was not, which keeps the incident's own reason."""
    return run.reason if run.outcome not in ("", "succeeded", "handed_over", "shadowed") else ""


def _held(planned: PlannedStep, record: StepRecord) -> Iterator[tuple[_Weight, str]]:
    effect = record.effect
    if record.state is StepState.AWAITING_APPROVAL:
        until = f" until {to_the_second(record.deadline_at)}" if record.deadline_at else ""
        yield (
            _Weight.PERSON,
            f"approval of {_name(planned)} by {wanted(record.demands) or 'one person'}{until}",
        )
    elif record.state is StepState.BLOCKED or (record.state is StepState.PENDING and record.reason):
        yield _Weight.HELD, f"{_name(planned)} held: {record.reason}"
    elif effect is None or record.state.is_over:
        return
    elif effect.state is EffectState.UNKNOWN:
        yield _Weight.RETRY, f"what became of {_name(planned)}, looked up{_at(record)}: {record.reason}"
    elif effect.state is EffectState.WAITING and effect.failures:
        yield _Weight.RETRY, f"{_name(planned)} tried again{_at(record)}: {record.reason}"


def _at(record: StepRecord) -> str:
    return f" at {to_the_second(record.due_at)}" if record.due_at else ""


def _name(planned: PlannedStep) -> str:
    return f"{planned.action} {planned.target.name}" if planned.target is not None else planned.action
