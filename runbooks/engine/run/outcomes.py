"""The outcome of a call applied to its run, and the recovery of calls in flight after a takeover. Part of `machine.py`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Outcome,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from runbooks.engine.run.checkpoint_request import out_of_time
from runbooks.engine.run.left_jobs import leave
from runbooks.engine.run.rollback import call_off, end_early, fail, holds_a_job
from runbooks.engine.run.transition import CallKind, RunTransition, TransitionResult
from runbooks.language.schema import ON_REQUEST, TICKETS
from streams.kafka.lease import MARGIN_S
from streams.model.run import (
    EffectRecord,
    EffectState,
    PlannedStep,
    Run,
    RunOutcome,
    StepRecord,
    StepState,
)

UNKNOWN_LIMIT_S = 900.0
"""A step of unknown outcome keeps a job suspended for this long after its deadline: it may stay unknown for ever."""

MAX_TEXT = 2000
"""Characters kept of a connector's texts."""

QUEUE_LIMIT_S = 604800.0
"""For how long a job may wait in a queue before its step fails: by then a person should look at the queue."""

LONGEST_PAUSE_S = 60.0
"""The pause where the outcome does not say how long it should be."""


def concluded(run: Run, step_id: str, kind: CallKind, outcome: Outcome, now: datetime) -> TransitionResult:
    """Apply the outcome of a call. One that the run no longer waits for changes nothing."""
    transition, outcome = RunTransition(run, now), _bounded(outcome)
    planned, record = run.planned(step_id), run.step(step_id)
    if kind in ("undo", "compensate"):
        if record.undo is not None and record.undo.state is EffectState.INTENDED:
            _undo(transition, planned, record.undo, outcome)
    elif kind in ("undo_lookup", "compensate_lookup"):
        if record.undo is not None and record.undo.state is EffectState.UNKNOWN:
            # An undo took place when the change is absent; a compensation is a change of its own.
            _undo_looked_up(transition, planned, record.undo, outcome, there=kind == "compensate_lookup")
    elif record.effect is not None and not record.state.is_over:
        state = EffectState.UNKNOWN if kind == "lookup" else EffectState.INTENDED
        if record.effect.state is state:
            _changed(transition, planned, record.effect, outcome, looked_up=kind == "lookup")
    return transition.result()


def _bounded(outcome: Outcome) -> Outcome:
    """The outcome with texts cut to `MAX_TEXT`: a server may return any amount."""
    texts = {name: getattr(outcome, name, "") for name in ("reason", "detail", "by")}
    long: dict[str, Any] = {
        name: f"{text[:MAX_TEXT]}…" for name, text in texts.items() if len(text) > MAX_TEXT
    }
    return replace(outcome, **long) if long else outcome


def recover(run: Run, now: datetime) -> TransitionResult:
    """Take over a run: the outcome of a predecessor's call is unknown until its lease has expired and it was looked up.

    A lookup in flight is sent again: its answer may have died with the predecessor. The wait is at most the lease
    itself, counted from now: a predecessor whose clock was ahead must not delay a run by the difference.
    """
    transition = RunTransition(run, now)
    for record in run.steps:
        for name in ("effect", "undo"):
            row: EffectRecord | None = getattr(record, name)
            if row is None or row.state not in (EffectState.INTENDED, EffectState.UNKNOWN):
                continue
            until = min(row.lease_until, now + max(row.lease_until - row.intended_at, timedelta()))
            due = max(now, until + timedelta(seconds=MARGIN_S))
            if row.state is EffectState.UNKNOWN:
                transition.set(record.id, due_at=min(due, record.due_at or due))
                continue
            transition.set(record.id, **{name: replace(row, state=EffectState.UNKNOWN)}, due_at=due)
            transition.note(
                "step.inherited",
                f"{row.action} {row.target} was in flight at takeover; status check at {due:%H:%M:%S}",
            )
    return transition.result()


def _changed(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Outcome, *, looked_up: bool
) -> None:  # fmt: skip
    """Apply the outcome of a step's own call, or what a lookup found of it."""
    match outcome:
        case Done() | AlreadyDone() if looked_up and transition.records[planned.id].carried_from:
            _found(transition, planned, effect, outcome)
        case Done() | AlreadyDone():
            _confirm(transition, planned, effect, outcome)
        case Waiting():
            made = replace(effect, landed=True)
            _reckon(transition, planned, queued=outcome.queued)
            _again(transition, planned, made, outcome.after_s, outcome.detail, result=outcome.result)
        case _ if looked_up and not _is_taken_up(transition, planned, outcome):
            _not_found(transition, planned, effect, outcome)
        case _ if looked_up:
            _not_there_any_more(transition, planned, effect, outcome)
        case _:
            _not_applied(transition, planned, effect, outcome)


def _not_applied(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Outcome
) -> None:
    match outcome:
        case Retry():
            _failed_once(transition, planned, effect, outcome.after_s, outcome.reason)
        case Unknown():
            withheld = replace(effect, withheld=outcome.withheld)
            _unknown(transition, planned, withheld, outcome.after_s, outcome.reason)
        case Absent():
            _unknown(transition, planned, effect, 1.0, "the connector did not report what it did")
        case Refused():
            _refuse(transition, planned, effect, outcome)
        case Blocked(by_person=True):
            _overruled(transition, planned, effect, outcome.reason)
        case Blocked():
            _again(
                transition, planned, effect, outcome.after_s, f"blocked by {outcome.by}: {outcome.reason}",
                result=outcome.result, blocked=True,
            )  # fmt: skip


def _not_found(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Outcome
) -> None:
    absent = "the change was not made"
    match outcome:
        case Absent() if transition.stopping:
            never = replace(effect, state=EffectState.REFUSED, landed=False, reason=absent)
            transition.set(planned.id, effect=never)
            transition.finish(planned.id, StepState.CANCELLED, f"{absent}: {transition.run.reason}")
        case Absent() if effect.withheld:
            never = replace(effect, landed=False, withheld=False)
            _again(transition, planned, never, 0.0, "it was stopped before it was sent")
        case Absent():
            never = replace(effect, landed=False)
            _failed_once(transition, planned, never, 0.0, absent, at_once=True)
        case Retry() | Unknown() | Blocked() | Refused() if _unknown_for_too_long(transition, planned):
            transition.set(planned.id, effect=replace(effect, reason=outcome.reason))
            fail(transition, planned, f"outcome unknown: {outcome.reason}")
        case Retry() | Unknown() | Blocked() | Refused():
            _unknown(transition, planned, effect, _pause_s(outcome), f"status unknown: {outcome.reason}")


def _is_taken_up(transition: RunTransition, planned: PlannedStep, outcome: Outcome) -> bool:
    """Whether it is an earlier run's change that a lookup found absent, or over without success."""
    carried = transition.records[planned.id].carried_from
    return bool(carried) and not transition.stopping and isinstance(outcome, Absent | Refused)


def _found(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Done | AlreadyDone
) -> None:
    """An earlier run's change is in place, unless a person has changed it since."""
    if planned.action == "cordon_node" and outcome.detail:
        _overruled(transition, planned, effect, outcome.detail)
        return
    confirmed_at = effect.confirmed_at or transition.now
    row = replace(
        effect,
        state=EffectState.CONFIRMED,
        confirmed_at=confirmed_at,
        result={**effect.result, **outcome.result},
    )
    reason = f"found in place, as {transition.records[planned.id].carried_from} made it"
    transition.set(
        planned.id,
        effect=row,
        state=StepState.DONE,
        finished_at=transition.now,
        due_at=None,
        reason=reason,
        verdict="",
    )
    transition.note("step.found", f"{planned.action} {planned.target}: {reason}", step=planned.id)


def _not_there_any_more(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Outcome
) -> None:
    """What an earlier run did is not there: somebody else took back a cordon or a suspension; anything else is done anew."""
    record = transition.records[planned.id]
    if planned.action in ("cordon_node", "suspend_job") and effect.confirmed_at is not None:
        taken_back = {"cordon_node": "uncordoned", "suspend_job": "resumed"}[planned.action]
        _overruled(transition, planned, effect, f"{planned.target} was {taken_back} since by somebody else")
        return
    why = outcome.reason if isinstance(outcome, Refused) else "it is not there"
    transition.records[planned.id] = StepRecord(planned.id)
    text = f"{planned.action} {planned.target} of {record.carried_from}: {why}; it is done again"
    transition.note("step.again", text, step=planned.id)


def _pause_s(outcome: Retry | Unknown | Blocked | Refused) -> float:
    """How long to wait for the next lookup after one that found nothing out."""
    return LONGEST_PAUSE_S if isinstance(outcome, Refused) else max(1.0, outcome.after_s)


def _unknown_for_too_long(transition: RunTransition, planned: PlannedStep) -> bool:
    """Whether a job has been suspended long enough for a step of unknown outcome."""
    deadline = transition.records[planned.id].deadline_at
    if deadline is None or transition.now < deadline + timedelta(seconds=UNKNOWN_LIMIT_S):
        return False
    return planned.action not in TICKETS and holds_a_job(transition)


def _confirm(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Done | AlreadyDone
) -> None:
    row = replace(
        effect,
        state=EffectState.CONFIRMED,
        confirmed_at=transition.now,
        result={**effect.result, **outcome.result},
        reason=outcome.detail,
    )
    transition.set(planned.id, effect=row)
    transition.finish(planned.id, StepState.DONE, outcome.detail)


def _failed_once(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, after_s: float, reason: str, *, at_once: bool = False
) -> None:  # fmt: skip
    """A call certainly failed: retry it by the step's own retry policy, or give up."""
    effect = replace(effect, failures=effect.failures + 1)
    if planned.retry.is_spent(effect.failures) and not transition.stopping:
        transition.set(planned.id, effect=_given_up(effect, reason))
        fail(transition, planned, f"failed after {effect.failures} attempts: {reason}")
        return
    pause = after_s if at_once else max(after_s, planned.retry.pause_s(effect.failures))
    _again(transition, planned, effect, pause, reason)


def _again(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, after_s: float, reason: str, *,
    result: object = None, blocked: bool = False,
) -> None:  # fmt: skip
    """Another call is certainly needed. When it would come after the deadline, the step fails now."""
    record = transition.records[planned.id]
    merged = {**effect.result, **(result if isinstance(result, dict) else {})}
    transition.set(
        planned.id, effect=replace(effect, state=EffectState.WAITING, reason=reason, result=merged)
    )
    due = transition.in_seconds(after_s)
    last = record.deadline_at
    # The answer to a request may come without another call: in a line of the job.
    listens = planned.action in ON_REQUEST and last is not None and transition.now < last
    if listens and last is not None:
        due = min(due, last)
    if transition.stopping:
        end_early(transition, planned, transition.run.reason)
    elif last is not None and due >= last and not listens:
        fail(transition, planned, out_of_time(planned, record, reason))
    else:
        if record.reason != reason:
            transition.note("step.waiting", f"{planned.action} {planned.target}: {reason}", step=planned.id)
        state = StepState.BLOCKED if blocked else StepState.RUNNING
        transition.set(planned.id, state=state, due_at=due, reason=reason)


def _reckon(transition: RunTransition, planned: PlannedStep, *, queued: bool) -> None:
    """Move the deadline of a step that waits in somebody's queue far away, and back once it is through."""
    record = transition.records[planned.id]
    if queued:
        since = record.started_at or transition.now
        longest = timedelta(seconds=max(planned.deadline_s, QUEUE_LIMIT_S))
        transition.set(planned.id, deadline_at=since + longest)
    elif record.deadline_at is not None and record.deadline_at > transition.in_seconds(planned.deadline_s):
        transition.set(planned.id, deadline_at=transition.in_seconds(planned.deadline_s))


def _unknown(
    transition: RunTransition, planned: PlannedStep, effect: EffectRecord, after_s: float, reason: str
) -> None:
    if transition.records[planned.id].reason != reason:
        transition.note(
            "step.unknown",
            f"{planned.action} {planned.target}: {reason}; checking its status",
            step=planned.id,
        )
    transition.set(
        planned.id,
        effect=replace(effect, state=EffectState.UNKNOWN, reason=reason),
        due_at=transition.in_seconds(after_s),
        reason=reason,
    )


def _refuse(transition: RunTransition, planned: PlannedStep, effect: EffectRecord, outcome: Refused) -> None:
    reason = outcome.reason
    moot = replace(effect, landed=False) if outcome.moot else effect
    transition.set(planned.id, effect=_given_up(moot, reason))
    if transition.stopping:
        end_early(transition, planned, reason)
    elif outcome.moot:
        # A job that completed before it was suspended needs no rescheduling, and that is no failure of the run.
        transition.finish(planned.id, StepState.SKIPPED, reason)
    elif planned.action == "suspend_job" and planned.on_failure == "stop" and not moot.landed:
        if not leave(transition, planned, StepState.FAILED, reason):
            fail(transition, planned, reason)
    else:
        fail(transition, planned, reason)


def _given_up(effect: EffectRecord, reason: str) -> EffectRecord:
    """No more calls are made for it. A change that has taken hold stays, and is rolled back like any other."""
    state = EffectState.WAITING if effect.landed else EffectState.REFUSED
    return replace(effect, state=state, reason=reason)


def _overruled(transition: RunTransition, planned: PlannedStep, effect: EffectRecord, reason: str) -> None:
    """A person has changed what we acted on: that ends the run as a whole, or for that job where there are others."""
    transition.set(planned.id, effect=replace(effect, state=EffectState.REFUSED, reason=reason))
    transition.change(overruled=True)
    if leave(transition, planned, StepState.CANCELLED, reason):
        return
    transition.finish(planned.id, StepState.CANCELLED, reason)
    call_off(transition, RunOutcome.CANCELLED, reason, release=True)


def _undo(transition: RunTransition, planned: PlannedStep, undo: EffectRecord, outcome: Outcome) -> None:
    what = f"rolling back {planned.action} {planned.target}"
    match outcome:
        case Absent():
            _undone(transition, planned, undo, f"{what}: already gone")
        case Done() | AlreadyDone():
            _undone(transition, planned, undo, f"{what}: {outcome.detail or 'done'}")
        case Waiting():
            undo = replace(undo, result={**undo.result, **outcome.result})
            _undo_later(transition, planned, undo, outcome.after_s, outcome.detail)
        case Retry():
            undo = replace(undo, failures=undo.failures + 1)
            pause = max(outcome.after_s, planned.retry.pause_s(undo.failures))
            _undo_later(transition, planned, undo, pause, outcome.reason)
        case Blocked(by_person=False):
            _undo_later(transition, planned, undo, outcome.after_s, outcome.reason)
        case Unknown():
            _undo_later(transition, planned, undo, outcome.after_s, outcome.reason, EffectState.UNKNOWN)
        case Refused() | Blocked():
            row = replace(undo, state=EffectState.REFUSED, reason=outcome.reason)
            transition.set(planned.id, undo=row, due_at=None)
            transition.note("step.not_undone", f"{what}: left in place: {outcome.reason}", step=planned.id)


def _undo_looked_up(
    transition: RunTransition, planned: PlannedStep, undo: EffectRecord, outcome: Outcome, *, there: bool
) -> None:
    """Apply the lookup of an undo of unknown outcome. `there` is whether finding the change means that the undo was made."""
    match outcome:
        case Done() | AlreadyDone() | Absent() if isinstance(outcome, Absent) is not there:
            _undone(transition, planned, undo, f"rolling back {planned.action} {planned.target}: done")
        case Done() | AlreadyDone() | Absent():
            _undo_later(transition, planned, undo, 0.0, "not rolled back yet")
        case Waiting():
            _undo_later(transition, planned, undo, outcome.after_s, outcome.detail)
        case Retry() | Unknown() | Blocked() | Refused():
            reason = f"status unknown: {outcome.reason}"
            _undo_later(transition, planned, undo, _pause_s(outcome), reason, EffectState.UNKNOWN)


def _undone(transition: RunTransition, planned: PlannedStep, undo: EffectRecord, text: str) -> None:
    row = replace(undo, state=EffectState.UNDONE, confirmed_at=transition.now)
    transition.set(planned.id, undo=row, due_at=None)
    transition.note("step.undone", text, step=planned.id)


def _undo_later(
    transition: RunTransition, planned: PlannedStep, undo: EffectRecord, after_s: float, reason: str,
    state: EffectState = EffectState.WAITING,
) -> None:  # fmt: skip
    """The undo is sent again after this time, or looked up first where its outcome is unknown."""
    row = replace(undo, state=state, reason=reason)
    transition.set(planned.id, undo=row, due_at=transition.in_seconds(after_s))
