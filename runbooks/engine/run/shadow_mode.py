"""A run in shadow: it decides everything and touches nothing, not even by looking."""

from __future__ import annotations

from dataclasses import replace

from runbooks.engine.guardrails import Case, Kind, judge
from runbooks.engine.run.transition import Desk, Situation
from runbooks.language.schema import TICKETS
from streams.model.run import PlannedStep, StepState


def shadow(desk: Desk, situation: Situation) -> None:
    """Decide everything, touch nothing, not even by looking. A new revision makes every step pending again."""
    for planned in desk.run.plan.steps:
        record = desk.records[planned.id]
        if record.state is not StepState.PENDING:
            continue
        if planned.action in TICKETS and planned.action not in situation.actions:
            verdict, reason = "", "no ticket system configured"
        else:
            verdict, reason = _verdict(desk, planned, situation)
        state = StepState.WOULD if verdict else StepState.SKIPPED
        if verdict == "would" and planned.destructive and record.admitted_at is None:
            desk.admit()
        desk.set(
            planned.id,
            state=state,
            verdict=verdict,
            reason=reason,
            started_at=record.started_at or desk.now,
            finished_at=desk.now,
        )
        if (record.verdict, record.reason) != (verdict, reason):
            text = f"{planned.action} {planned.target}: {verdict or 'skipped'} {reason}".strip()
            desk.note(f"step.{verdict or 'skipped'}", text, step=planned.id)


def _verdict(desk: Desk, planned: PlannedStep, situation: Situation) -> tuple[str, str]:
    refused = [need for need in planned.needs if desk.records[need].verdict == "refused"]
    if refused:
        return "refused", f"it needs {refused[0]}, which is refused"
    if planned.action == "ask":
        return "needs_approval", planned.describe
    ruling = judge(case(desk, planned, situation))
    if ruling is None:
        return "would", planned.describe
    return ("needs_approval" if ruling.kind is Kind.ASK else "refused"), str(ruling)


def case(desk: Desk, planned: PlannedStep, situation: Situation) -> Case:
    """What the guardrails look at for one step, as the run stands on the desk."""
    run = replace(desk.run, steps=tuple(desk.records.values()))
    return Case(
        situation.incident,
        run,
        planned,
        situation.view,
        situation.others,
        situation.policy,
        desk.now,
        situation.control,
        situation.census,
    )
