"""Shadow mode: every step is decided, and no call is made, not even a lookup."""

from __future__ import annotations

from runbooks.engine.guardrails import GuardContext, RulingKind, judge
from runbooks.engine.guardrails.left_jobs import goes_without
from runbooks.engine.guardrails.notices import too_late
from runbooks.engine.run.checkpoint_request import not_asked
from runbooks.engine.run.job_already_moved import moved_already
from runbooks.engine.run.other_teams import goes_ahead
from runbooks.engine.run.transition import RunContext, RunTransition
from runbooks.language.schema import TICKETS
from streams.model.run import PlannedStep, StepState

NO_TICKET_SYSTEM = "no ticket system configured"


def shadow(transition: RunTransition, context: RunContext) -> None:
    """Decide every step without a call. A new revision makes every step pending again."""
    for planned, record in transition.steps():
        if record.state is not StepState.PENDING:
            continue
        rule = ""
        if planned.action in TICKETS and planned.action not in context.actions:
            verdict, reason = "", NO_TICKET_SYSTEM
        elif moved := moved_already(transition, planned, context):
            verdict, reason = "", moved
        elif late := too_late(planned, context.incident, context.policy.notices, transition.now):
            verdict, reason = "", late
        elif why_not := not_asked(planned, context, transition.now):
            verdict, reason = "", why_not
        else:
            verdict, reason, rule = _verdict(transition, planned, context)
        state = StepState.WOULD if verdict else StepState.SKIPPED
        if verdict == "would" and planned.destructive and record.admitted_at is None:
            transition.admit()
        transition.set(
            planned.id,
            state=state,
            verdict=verdict,
            reason=reason,
            started_at=record.started_at or transition.now,
            finished_at=transition.now,
        )
        if (record.verdict, record.reason) != (verdict, reason):
            transition.note(
                f"step.{verdict or 'skipped'}",
                _sentence(planned, verdict, reason),
                step=planned.id,
                action=planned.action,
                **({"rule": rule} if rule else {}),
            )


def _verdict(transition: RunTransition, planned: PlannedStep, context: RunContext) -> tuple[str, str, str]:
    """What would have become of a step, why, and by which guardrail; empty where none objects."""
    refused = [
        need
        for need in planned.needs
        if transition.records[need].verdict == "refused"
        and not goes_without(transition.so_far(), planned, need, context.view)
        and not goes_ahead(transition, planned, need)
    ]
    if refused:
        return "refused", f"it needs {refused[0]}, which is refused", ""
    if planned.action == "ask":
        return "needs_approval", planned.describe, ""
    guards = guard_context(transition, planned, context)
    if context.reviews is not None:
        context.reviews.note(guards)
    ruling = judge(guards)
    if ruling is None:
        return "would", planned.describe, ""
    return ("needs_approval" if ruling.kind is RulingKind.ASK else "refused"), str(ruling), ruling.rule


def _sentence(planned: PlannedStep, verdict: str, reason: str) -> str:
    """What would have become of a step, as a person reads it."""
    does = planned.action.replace("_", " ")
    at = "" if planned.target is None or planned.target.kind == "Incident" else f" ({planned.target})"
    about = f": {planned.describe}" if planned.describe else ""
    match verdict:
        case "would":
            return f"would {does}{at}{about}"
        case "needs_approval":
            return (
                f"would ask first: {does}{at}: {reason}"
                if planned.action != "ask"
                else f"would ask: {reason}"
            )
        case "refused":
            return f"would not {does}{at}: {reason}"
        case _:
            return f"skipped {does}{at}: {reason}"


def guard_context(transition: RunTransition, planned: PlannedStep, context: RunContext) -> GuardContext:
    """What the guardrails are given for one step, with the run as the transition has it."""
    return GuardContext(
        context.incident,
        transition.so_far(),
        planned,
        context.view,
        context.others,
        context.policy,
        transition.now,
        context.control,
        context.run_counts,
    )
