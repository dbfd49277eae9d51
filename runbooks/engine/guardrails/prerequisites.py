"""Guardrail: every destructive step that this one needs is confirmed."""

from __future__ import annotations

from runbooks.engine.guardrails.context import GuardContext, Ruling, hold
from runbooks.engine.guardrails.cordoned_nodes import is_in_place
from runbooks.engine.guardrails.left_jobs import goes_without
from streams.model.run import StepState


def confirmed_before(context: GuardContext) -> Ruling | None:
    """A destructive step is taken only when each destructive step it needs is confirmed and not rolled back.

    A job that is moved before its node is cordoned could come back to it. The state machine keeps the order of steps; this checks
    the outcomes themselves, so that no other way into a step bypasses it.
    """
    for need in context.step.needs:
        planned, record = context.run.planned(need), context.run.step(need)
        if not planned.destructive:
            continue
        ignored = record.state is StepState.FAILED and planned.on_failure == "continue"
        to_come = context.shadow and not record.state.is_over
        if ignored or to_come or record.state in (StepState.SKIPPED, StepState.WOULD):
            continue
        if goes_without(context.run, context.step, need, context.view):
            continue
        if not is_in_place(record):
            how = record.effect.state if record.effect is not None else record.state
            return hold(
                "earlier step",
                f"it needs {need} ({planned.action} {planned.target}), which is "
                + ("being rolled back" if record.undo is not None else f"{how}, not confirmed"),
                "clears when that step is confirmed",
            )
    return None
