"""Texts about a run: the plan with the state of each step, edited in place, and the line that says where it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Literal

from runbooks.engine.wait_reasons import ending_reason, who_started
from runbooks.language.schema import TICKETS
from streams.model.message import (
    MAX_STEPS,
    Block,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Step,
    Steps,
    Table,
    Tone,
)
from streams.model.run import Mode, PlannedStep, Run, RunState, StepState

_STEP = {
    StepState.PENDING: ("▫️", "not started", Tone.QUIET),
    StepState.AWAITING_APPROVAL: ("🟣", "waiting for approval", Tone.ASKING),
    StepState.BLOCKED: ("⏸️", "blocked", Tone.ACTIVE),
    StepState.RUNNING: ("⏳", "in progress", Tone.ACTIVE),
    StepState.DONE: ("✅", "done", Tone.GOOD),
    StepState.SKIPPED: ("⏭️", "skipped", Tone.QUIET),
    StepState.WOULD: ("👁️", "would do", Tone.QUIET),
    StepState.FAILED: ("❌", "failed", Tone.BAD),
    StepState.CANCELLED: ("🚫", "cancelled", Tone.QUIET),
}
_MODE = {
    Mode.SHADOW: "shadow: no changes",
    Mode.APPROVE: "approval required",
    Mode.AUTO: "automatic",
}


def took(span: timedelta) -> str:
    """A duration for people: `42 s`, `3 min 5 s`, `2 h 10 min`."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


_MARK: dict[StepState, Literal["pending", "in_progress", "complete", "error"]] = {
    StepState.PENDING: "pending",
    StepState.AWAITING_APPROVAL: "in_progress",
    StepState.BLOCKED: "in_progress",
    StepState.RUNNING: "in_progress",
    StepState.DONE: "complete",
    StepState.SKIPPED: "complete",
    StepState.WOULD: "complete",
    StepState.FAILED: "error",
    StepState.CANCELLED: "error",
}
EVICTIONS_SHOWN = 8
"""Lines about evictions in one message."""
_SPOKEN = (StepState.PENDING, StepState.RUNNING, StepState.DONE)
"""States that a step's mark says by itself; any other is also said in words."""


def run_message(run: Run) -> Message:
    """The whole run with the state of each step, and why it stands where it stands. One message for as long as the run lives."""
    glyph, tone = _run_look(run)
    heading = f"{glyph} {progress_line(run, with_reason=False)}"
    done = sum(step.state.is_over for step in run.steps)
    title = f"{run.plan.runbook}: {done} of {len(run.plan.steps)} steps finished"
    blocks: list[Block] = [Heading(heading), Steps(title, _folded(run)), *would_evict(run)]
    if run.undoing:
        blocks.append(Paragraph(f"Being undone: {run.undoing}"))
    return Message(heading, tuple(blocks), tone)


def _run_look(run: Run) -> tuple[str, Tone]:
    """Mark and tone of a run: those of its current step, or of its end."""
    if run.state.is_over:
        if run.state is RunState.SUCCEEDED:
            return "✅", Tone.GOOD
        return ("❌", Tone.BAD) if run.state is RunState.FAILED else ("🚫", Tone.QUIET)
    states = [record.state for record in run.steps if not record.state.is_over]
    busy = [state for state in states if state is not StepState.PENDING]
    glyph, _, tone = _STEP[busy[0]] if busy else _STEP[StepState.RUNNING]
    return glyph, tone


def _folded(run: Run) -> tuple[Step, ...]:
    """Its steps, at most `MAX_STEPS`: of a longer run those around the first one that is not over, the others counted."""
    steps = [_step(run, planned, number) for number, planned in enumerate(run.plan.steps, start=1)]
    if len(steps) <= MAX_STEPS:
        return tuple(steps)
    current = next((n for n, record in enumerate(run.steps) if not record.state.is_over), len(steps))
    room = MAX_STEPS - 2
    start = min(max(0, current - room // 2), len(steps) - room)
    before, shown, after = steps[:start], steps[start : start + room], steps[start + room :]
    return (*_rest("before", before), *shown, *_rest("after", after))


def _rest(place: str, steps: Sequence[Step]) -> Iterator[Step]:
    if not steps:
        return
    failed = any(step.state == "error" for step in steps)
    over = all(step.state == "complete" for step in steps)
    state = steps[0].state if over or not failed else "error"
    yield Step(f"{place}-these", f"{len(steps)} steps {place} these", state)


def _step(run: Run, planned: PlannedStep, number: int) -> Step:
    record = run.step(planned.id)
    word = _STEP[record.state][1]
    what, facts = what_of(planned), list[Fact]()
    # Of a ticket the target is the incident, whose thread this is.
    target = planned.target if planned.action not in TICKETS else None
    if target is not None and target.name not in what:
        facts.append(Fact("Target", str(target)))
    if record.started_at and record.finished_at:
        facts.append(Fact("Took", took(record.finished_at - record.started_at)))
    elif record.started_at:
        facts.append(Fact("Since", at=record.started_at))
    if record.undo is not None:
        facts.append(Fact("Undo", f"{record.undo.state} {record.undo.reason}".strip()))
    if record.effect is not None and (ticket := record.effect.result.get("ticket")):
        facts.append(Fact("Ticket", str(ticket), url=str(record.effect.result.get("url") or "") or None))
    said = "" if record.state in _SPOKEN else f" ({word})"
    return Step(planned.id, f"{number}. {what}{said}", _MARK[record.state], tuple(facts), record.reason)


def step_message(run: Run, planned: PlannedStep, number: int) -> Message:
    """The current state of one step."""
    step = run.step(planned.id)
    glyph, word, tone = _STEP[step.state]
    what = what_of(planned)
    facts = [Fact("State", word)]
    if planned.target is not None:
        facts.append(Fact("Target", str(planned.target)))
    if step.started_at:
        facts.append(Fact("Started", at=step.started_at))
    if step.started_at and step.finished_at:
        facts.append(Fact("Took", took(step.finished_at - step.started_at)))
    if step.undo is not None:
        facts.append(Fact("Undo", f"{step.undo.state} {step.undo.reason}".strip()))
    if step.effect is not None and (ticket := step.effect.result.get("ticket")):
        facts.append(Fact("Ticket", str(ticket), url=str(step.effect.result.get("url") or "") or None))
    heading = f"{glyph} {number}/{len(run.plan.steps)} {what}"
    blocks: list[Block] = [Heading(heading), Facts(tuple(facts))]
    if step.reason:
        blocks.append(Paragraph(step.reason))
    return Message(f"{heading}: {word}", tuple(blocks), tone)


def plan_message(run: Run) -> Message:
    """What a runbook in shadow mode would have done."""
    started = f", {who}" if (who := who_started(run)) else ""
    summary = f"👁️ Runbook {run.plan.runbook} would run {len(run.plan.steps)} steps (shadow mode, no changes made{started})"
    blocks: tuple[Block, ...] = (
        Heading(summary),
        plan_table(run),
        *would_evict(run),
        *([Paragraph(why)] if (why := run.reason or run.plan.why) else []),
    )
    return Message(summary, blocks)


def progress_line(run: Run, *, with_reason: bool) -> str:
    """One line on the progress of the run, with the reason of the current step unless the next line gives it."""
    head = f"Runbook {run.plan.runbook} ({'; '.join(filter(None, (_MODE[run.plan.mode], who_started(run))))})"
    if run.state.is_over:
        ending = {RunState.SUCCEEDED: "completed", RunState.SHADOWED: "shadow run complete"}
        end = ending.get(run.state, f"ended, {run.outcome or run.state}")
        return f"{head}: {end}{f' ({why})' if (why := ending_reason(run)) else ''}"
    for number, planned in enumerate(run.plan.steps, start=1):
        step = run.step(planned.id)
        if not step.state.is_over:
            reason = f", {step.reason}" if step.reason and with_reason else ""
            return f"{head}: step {number} of {len(run.plan.steps)}, {what_of(planned)}, {_STEP[step.state][1]}{reason}"
    return f"{head}: all steps complete"


def plan_table(run: Run) -> Table:
    """The steps of the plan and what they act on."""
    rows = tuple(
        (str(number), what_of(planned), str(planned.target or ""), "yes" if planned.destructive else "no")
        for number, planned in enumerate(run.plan.steps, start=1)
    )
    return Table(("#", "step", "target", "destructive"), rows)


def would_evict(run: Run) -> list[Paragraph]:
    """Which pods the run's drains would evict, while none of them has begun."""
    lines = run.plan.would_evict
    begun = any(
        run.step(planned.id).effect is not None
        for planned in run.plan.steps
        if planned.action == "drain_node"
    )
    if not lines or begun:
        return []
    more = [f"{len(lines) - EVICTIONS_SHOWN} more lines"] if len(lines) > EVICTIONS_SHOWN else []
    return [Paragraph(f"Would evict, by the inventory: {'; '.join((*lines[:EVICTIONS_SHOWN], *more))}")]


def what_of(planned: PlannedStep) -> str:
    """What a step does, in the words of its runbook."""
    text = planned.describe or planned.action.replace("_", " ")
    # The text of a ticket step is what the ticket asks for, which is not done when the ticket is opened.
    return f"ticket: {text}" if planned.action.endswith("_ticket") and planned.describe else text
