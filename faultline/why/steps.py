"""A run's steps as branches: what became of each, and what every guardrail said of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from faultline.why.tree import Branch, branch, printable
from runbooks.engine.guardrails.review import Review, ReviewLog
from runbooks.engine.wait_reasons import ending_reason
from streams.model.counted import many
from streams.model.run import PlannedStep, Run, StepRecord, StepState

_VERDICTS = {"needs_approval": "would ask", "refused": "would be refused"}


def run_branch(run: Run, reviews: ReviewLog | None = None) -> Branch:
    """A run: why this runbook, how it ended, and its steps."""
    plan = run.plan
    records = {record.id: record for record in run.steps}
    return branch(
        "run",
        f"runbook {plan.runbook} revision {plan.runbook_revision}, mode {plan.mode.value}: {run.outcome or run.state.value}",
        (
            branch("purpose", f"purpose: {first_sentence(plan.why)}") if plan.why else None,
            branch("config", f"planned with runbooks and settings of version {run.config}")
            if run.config
            else None,
            branch("ended", why) if (why := ending_reason(run)) else None,
            *(_step(run, step, records.get(step.id), reviews) for step in plan.steps),
        ),
        id=run.id,
        runbook=plan.runbook,
        mode=plan.mode.value,
        outcome=str(run.outcome or run.state.value),
    )


def first_sentence(text: str) -> str:
    """The first sentence of a runbook's purpose."""
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def _step(run: Run, step: PlannedStep, record: StepRecord | None, reviews: ReviewLog | None) -> Branch:
    what = f"{step.action} {step.target}" if step.target else step.action
    state = record.state.value if record else "pending"
    if record is not None and record.state is StepState.WOULD:
        state = _VERDICTS.get(record.verdict, state)
    reason = f": {printable(record.reason)}" if record and record.reason else ""
    return branch(
        "step",
        f"{state:<18} {step.id}: {what}{reason}",
        guardrails(step, record, reviews.of(run.id, step.id) if reviews is not None else None),
        step=step.id,
        action=step.action,
        target=str(step.target) if step.target else None,
        state=state,
        reason=record.reason if record and record.reason else None,
    )


_TOLD = ("blast radius", "window", "certainty")
"""Guardrails whose numbers are told of without being asked for."""


def _largest(passed: Sequence[Review]) -> str:
    return "; ".join(f"{one.guardrail}: {one.numbers}" for one in passed if one.guardrail in _TOLD)


def guardrails(
    step: PlannedStep, record: StepRecord | None, reviewed: tuple[object, Sequence[Review]] | None
) -> Iterator[Branch]:
    """What the guardrails said: each with its numbers where they were recorded, else the objection that counts."""
    if not step.destructive:
        return
    if reviewed is None:
        return
    _, answers = reviewed
    objections = [one for one in answers if one.ruling is not None]
    for one in objections:
        assert one.ruling is not None
        yield branch(
            "objection",
            f"{one.ruling.kind.value}: {one.ruling}",
            guardrail=one.guardrail,
            kind_of=one.ruling.kind.value,
            reason=one.ruling.reason,
            clears=one.ruling.clears,
        )
    passed = [one for one in answers if one.ruling is None]
    counted = sorted(passed, key=lambda one: not one.numbers)
    yield branch(
        "passed",
        f"{many(len(passed), 'guardrail')} passed; {_largest(passed)}",
        (
            branch(
                "pass",
                f"{one.guardrail}: {one.numbers or 'no objection'}",
                guardrail=one.guardrail,
                numbers=one.numbers or None,
            )
            for one in counted
        ),
        count=len(passed),
    )
