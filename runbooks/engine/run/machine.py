"""The state machine of one run: run + event + now → run + what follows. Pure; nothing is remembered anywhere but in the run.

    begin        a plan becomes a run
    advance      whatever is due now: the next step, a retry, a lookup, an expiry     (tick)
    concluded    the outcome of a call                                               (outcome)   in outcomes.py
    recover      a successor takes over what its predecessor left                                in outcomes.py
    decided      an operator's command                                                           in human_decisions.py
    revised      a new revision of the incident                                                  in human_decisions.py

Every event but the tick is followed by `advance`, which draws the consequences.

`needs` and waves keep the order of steps. Independent steps run at the same time, but never two calls to the same target,
whichever runs they belong to. A call starts only after its run was committed with the call's effect as `intended`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from runbooks.engine.approvals import about, demands, shown, wanted
from runbooks.engine.escalation import counted_name, entity_names, faulty_entity, only_tells
from runbooks.engine.guardrails import RulingKind, judge
from runbooks.engine.guardrails.cordoned_nodes import is_confirmed, same_target
from runbooks.engine.guardrails.left_jobs import goes_without
from runbooks.engine.guardrails.notices import too_late
from runbooks.engine.guardrails.operator_overrides import OPT_OUT
from runbooks.engine.run.builtin_actions import start_internal, watch
from runbooks.engine.run.checkpoint_request import answered, not_asked, out_of_time, shorten
from runbooks.engine.run.job_already_moved import healing_until, moved_already
from runbooks.engine.run.left_jobs import end_for_left, leave
from runbooks.engine.run.other_teams import goes_ahead, stops_no_resume
from runbooks.engine.run.plan import context_of
from runbooks.engine.run.rollback import (
    advance_undo,
    call_off,
    end_early,
    fail,
    holds_a_job,
    is_busy,
    look_up,
    look_up_undo,
)
from runbooks.engine.run.shadow_mode import NO_TICKET_SYSTEM, guard_context, shadow
from runbooks.engine.run.slow_nodes import close_slow_nodes
from runbooks.engine.run.transition import (
    BLIND_S,
    RunContext,
    RunReport,
    RunTransition,
    TransitionResult,
    calls_in_flight,
)
from runbooks.engine.run.waves import held_by_wave
from runbooks.language.schema import INTERNAL, TICKETS
from streams.model.clock import to_the_second
from streams.model.incident import Incident
from streams.model.node_notice import deadline_in, remaining
from streams.model.run import (
    EffectRecord,
    EffectState,
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunOutcome,
    RunState,
    StepRecord,
    StepState,
    run_id,
)

HELD_RECHECK_S = 5.0
"""How often a step held by a guardrail is checked again."""

MAX_IN_FLIGHT = 8
"""Calls of one run at the same time: a plan with many jobs must not flood the API server."""

INHERITED = ("open_ticket", "cordon_node")
"""Actions that a later run of the same incident takes over instead of repeating."""

_FIRM = (StepState.DONE, StepState.SKIPPED, StepState.WOULD)


def begin(
    incident: Incident,
    plan: Plan,
    now: datetime,
    *,
    round_: int = 1,
    escalated_from: str = "",
    why: str = "",
) -> TransitionResult:
    """A plan becomes a run with a deterministic id. `advance` starts its steps.

    Args:
        round_: 1 for the first run of this runbook for this incident, 2 for the second, ...
        escalated_from: The failed run that escalated to this one.
        why: Why this runbook was chosen, e.g. which escalation step it is; shown on the timeline.
    """
    run = Run(
        id=run_id(incident.id, plan.runbook, plan.runbook_revision, round_),
        incident=incident.id,
        incarnation=incident.incarnation,
        cluster=incident.cluster,
        plan=plan,
        state=RunState.RUNNING,
        steps=tuple(StepRecord(step.id) for step in plan.steps),
        created_at=now,
        updated_at=now,
        title=incident.title,
        reason=incident.reason,
        incident_revision=incident.revision,
        incident_facts=incident.facts,
        context=context_of(incident, plan),
        offender=counted_name(faulty_entity(incident), plan.escalation),
        offenders=entity_names(faulty_entity(incident)),
        escalated_from=escalated_from,
        round=round_,
        flaps=incident.flaps,
    )
    transition = RunTransition(run, now)
    mode = "in shadow mode, no changes are made" if plan.mode is Mode.SHADOW else f"in mode {plan.mode}"
    text = f"runbook {plan.runbook} with {len(plan.steps)} steps, {mode}" + (f"; {why}" if why else "")
    if (due := deadline_in(incident.facts)) is not None:
        text += f"; {incident.root.node or 'the node'} goes {remaining(due, now)}"
    transition.note("run.planned", text)
    if plan.left_out:
        transition.note("run.left_out", f"left for manual handling: {'; '.join(plan.left_out)}")
    if plan.mode is not Mode.SHADOW:
        _report(transition, "run.started")
    return transition.result()


def advance(run: Run, context: RunContext, now: datetime) -> TransitionResult:
    """Do whatever is due. Called after every event and at every tick; it changes nothing when nothing is due."""
    transition = RunTransition(run, now)
    if run.blind_since is not None:
        transition.change(blind_since=None)
        transition.note("run.blind", f"{run.incident} can be read again")
    if run.plan.mode is Mode.SHADOW:
        shadow(transition, context)
    else:
        close_slow_nodes(transition, context)
        for planned in transition.run.plan.steps:
            _step(transition, planned, context)
            look_up_undo(transition, planned, context.free_slots)
        end_for_left(transition, idle=not _open_steps(transition))
        advance_undo(transition, context)
    settle(transition, context)
    return transition.result()


def due_at(run: Run) -> datetime | None:
    """The earliest time at which `advance` may have something to do; None when only a new event can change the run."""
    times = [record.due_at for record in run.steps if record.due_at is not None]
    idle = any(
        not r.state.is_over
        and (r.effect is None or r.effect.state not in (EffectState.INTENDED, EffectState.UNKNOWN))
        for r in run.steps
    )
    if run.blind_since is not None and (idle or not run.state.is_over):
        times.append(run.blind_since + timedelta(seconds=BLIND_S))
    return min(times) if times else None


def settle(transition: RunTransition, context: RunContext) -> None:
    """Derive the run's state from its steps, and report every change of it."""
    run, records = transition.run, transition.records
    if run.state.is_over:
        return
    open_steps = _open_steps(transition)
    undoing = any(record.is_being_undone and not record.kept_for for record in records.values())
    if not open_steps and not undoing:
        outcome = run.outcome or _ending(transition)
        if outcome is RunOutcome.ESCALATED and (lacking := _missing_escalation(run, context)):
            outcome = RunOutcome.FAILED
            transition.change(reason=f"{run.reason}; {lacking}")
        transition.change(state=outcome.state, outcome=outcome, finished_at=transition.now)
        transition.note(
            "run.finished",
            ("shadow run complete" if outcome is RunOutcome.SHADOWED else f"run {outcome}")
            + (f": {transition.run.reason}" if run.outcome else ""),
            outcome=str(outcome),
        )
        _report(transition, "run.finished", outcome=str(outcome))
        return
    state = _state(transition, open_steps)
    if state is run.state or transition.stopping:
        return
    transition.change(state=state)
    kind = {RunState.RUNNING: "started", RunState.AWAITING_APPROVAL: "awaiting_approval"}.get(
        state, "verifying"
    )
    _report(transition, f"run.{kind}")


def _open_steps(transition: RunTransition) -> list[PlannedStep]:
    """The steps that the run still waits for."""
    return [p for p, record in transition.steps() if not record.state.is_over and not _is_best_effort(p)]


def _ending(transition: RunTransition) -> RunOutcome:
    """How a run ends whose plan was carried out: not `succeeded` where a person took over and nothing but a ticket was made."""
    if transition.run.plan.mode is Mode.SHADOW:
        return RunOutcome.SHADOWED
    taken_over, done = False, False
    for planned, record in transition.steps():
        taken_over |= planned.action == "ask" and record.state is StepState.DONE
        done |= is_confirmed(record) and planned.action not in TICKETS
    return RunOutcome.HANDED_OVER if taken_over and not done else RunOutcome.SUCCEEDED


def _missing_escalation(run: Run, context: RunContext) -> str:
    """Why there is no next escalation step; empty when there is."""
    step = run.plan.escalation
    if step is None:
        return "its runbook names no next escalation step"
    return "" if step.to in context.runbooks else f"the next escalation step {step.to} is no known runbook"


def _state(transition: RunTransition, open_steps: list[PlannedStep]) -> RunState:
    states = {transition.records[p.id].state for p in open_steps}
    if StepState.AWAITING_APPROVAL in states and StepState.RUNNING not in states:
        return RunState.AWAITING_APPROVAL
    tail = open_steps and all(p.action in ("verify_job", "await_progress") for p in open_steps)
    return RunState.VERIFYING if tail else RunState.RUNNING


def _is_best_effort(planned: PlannedStep) -> bool:
    """A step whose outcome does not change the run's: the job resumes whether or not the ticket system is up."""
    return planned.action in TICKETS and planned.on_failure == "continue"


def _report(transition: RunTransition, kind: str, outcome: str = "") -> None:
    if only_tells(transition.run):
        # That a ticket was opened is no mitigation, and its end no recovery.
        return
    transition.reports.append(RunReport(kind, outcome, reason=transition.run.reason))


def _step(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    record = transition.records[planned.id]
    if record.state.is_over:
        return
    effect = record.effect
    if effect is not None and effect.state is EffectState.UNKNOWN:
        look_up(transition, planned, "lookup", context.free_slots)
    elif effect is not None and effect.state is EffectState.INTENDED:
        return
    elif transition.stopping:
        end_early(transition, planned, transition.run.reason)
    elif effect is not None and (answer := answered(planned, record, context.incident)):
        transition.set(
            planned.id, effect=replace(effect, state=EffectState.CONFIRMED, confirmed_at=transition.now)
        )
        transition.finish(planned.id, StepState.DONE, answer)
    elif effect is not None:
        _continue(transition, planned, context)
    elif record.state is StepState.RUNNING:
        watch(transition, planned, context)
    else:
        _start(transition, planned, context)


def _start(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """Start a step when what it needs is done, its target is free and no guardrail objects."""
    record = transition.records[planned.id]
    if record.deadline_at and transition.now >= record.deadline_at:
        if record.state is StepState.AWAITING_APPROVAL:
            call_off(transition, RunOutcome.EXPIRED, f"approval of {planned.id} expired", release=True)
            return
        if record.state is StepState.BLOCKED and holds_a_job(transition):
            fail(transition, planned, f"held for {planned.deadline_s:.0f} s: {record.reason}")
            return
    missing = _missing_need(transition, planned, context)
    if missing is None:
        return
    if missing:
        transition.finish(planned.id, StepState.CANCELLED, missing)
        return
    if (
        planned.action == "cordon_slow_nodes"
        or held_by_wave(transition, planned)
        or _is_occupied(transition, planned, context)
    ):
        return
    if (healing := healing_until(transition, planned, context)) is not None:
        _leave_to_heal(transition, planned, *healing)
    elif moved := moved_already(transition, planned, context):
        transition.finish(planned.id, StepState.SKIPPED, moved)
    elif late := too_late(planned, context.incident, context.policy.notices, transition.now):
        transition.finish(planned.id, StepState.SKIPPED, late)
    elif why_not := not_asked(planned, context, transition.now):
        transition.finish(planned.id, StepState.SKIPPED, why_not)
    elif planned.action in INTERNAL:
        start_internal(transition, planned, context)
    elif planned.action not in context.actions:
        _unconfigured(transition, planned)
    elif (earlier := _made_earlier(transition, planned, context)) is not None and planned.action in TICKETS:
        if earlier.state is EffectState.CONFIRMED:
            transition.set(planned.id, effect=earlier)
            transition.finish(planned.id, StepState.DONE, "already opened by an earlier run of this incident")
    elif not _allowed(transition, planned, context):
        return
    elif not transition.has_free_slot(planned, "apply", context.free_slots):
        if planned.action == "open_ticket" and (why := context.free_slots.no_tickets):
            transition.set(planned.id, reason=why)
    else:
        if planned.destructive and record.admitted_at is None:
            transition.admit()
        transition.intend(planned, context.policy.lease_s, inherited=earlier)
        shorten(transition, planned, context)


def _leave_to_heal(transition: RunTransition, planned: PlannedStep, until: datetime, why: str) -> None:
    """Watch a job that its own controller replaces, until it has, or until its time is over."""
    record = transition.records[planned.id]
    if record.reason == why:
        return
    transition.note("step.left", f"{planned.action} {planned.target} is not done yet: {why}", step=planned.id)
    transition.set(
        planned.id,
        state=StepState.BLOCKED,
        reason=why,
        started_at=record.started_at or transition.now,
        due_at=until,
    )


def _made_earlier(
    transition: RunTransition, planned: PlannedStep, context: RunContext
) -> EffectRecord | None:
    """The same ticket or cordon, as an earlier run of this incident made it or still tries to: there is only one of each."""
    if planned.action not in INHERITED:
        return None
    for other in reversed(context.siblings):
        for step in other.plan.steps:
            if step.action != planned.action or not same_target(step.target, planned.target):
                continue
            record = other.step(step.id)
            row = record.effect
            rolled_back = record.undo is not None and record.undo.state is not EffectState.REFUSED
            if row is None or rolled_back or row.state is EffectState.REFUSED:
                continue
            if row.state is EffectState.CONFIRMED or not record.state.is_over:
                return row
    return None


def _allowed(transition: RunTransition, planned: PlannedStep, context: RunContext) -> bool:
    """Ask the guardrails; when one objects, record why and what would clear it."""
    record = transition.records[planned.id]
    ruling = judge(guard_context(transition, planned, context), started=record.effect is not None)
    if ruling is None:
        return True
    if ruling.kind is RulingKind.REFUSE:
        transition.note(
            "step.refused",
            f"{planned.action} {planned.target} refused: {ruling}",
            step=planned.id,
            action=planned.action,
            rule=ruling.rule,
        )
        if ruling.rule == OPT_OUT and leave(transition, planned, StepState.CANCELLED, str(ruling)):
            return False
        call_off(transition, RunOutcome.CANCELLED, str(ruling), release=True)
        return False
    asks = ruling.kind is RulingKind.ASK
    state = StepState.AWAITING_APPROVAL if asks else StepState.BLOCKED
    wait_s = context.policy.approval_expiry_s if asks else None
    keeps_waiting = holds_a_job(transition) and not stops_no_resume(planned, ruling.rule)
    if keeps_waiting:
        # A job that we suspended is not kept waiting for an approval or a limit: it is resumed at the deadline.
        wait_s = planned.deadline_s if wait_s is None else min(wait_s, planned.deadline_s)
    # Keep the deadline of a call in progress, of a suspended job, or of a question already asked. A step that was held since
    # then is asked about again, with the full approval timeout.
    # One that is only held, with no job suspended, has none: it must not fail later by the time of a job that is long resumed.
    asked_already = asks and record.state is state
    keeps_deadline = record.effect is not None or asked_already or keeps_waiting
    known = record.deadline_at if keeps_deadline else None
    expiry = known or (transition.in_seconds(wait_s) if wait_s is not None else None)
    counted = about(transition.run, ruling.rule)
    asked = demands(planned, counted, context.policy, transition.now) if asks else ()
    # The numbers of a rule change with every other run; only another rule is worth a timeline entry.
    if record.state is not state or not record.reason.startswith(f"{ruling.rule}: "):
        text = f"{planned.action} {planned.target} {'needs approval' if asks else 'is held'}: {ruling}"
        if asks and expiry:
            text += f"; needs {wanted(asked)} until {to_the_second(expiry)}"
        transition.note(f"step.{state}", text, step=planned.id, action=planned.action, rule=ruling.rule)
    transition.set(
        planned.id,
        demands=shown(asked),
        state=state,
        reason=str(ruling),
        verdict="needs_approval" if asks else "refused",
        deadline_at=expiry,
        # A step in progress continues as soon as the hold clears, not only at its deadline.
        due_at=expiry if record.effect is None else record.due_at,
    )
    return False


def _continue(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """A change in progress or postponed: call again when due, give up at the deadline."""
    record = transition.records[planned.id]
    if record.deadline_at is not None and transition.now >= record.deadline_at:
        fail(transition, planned, out_of_time(planned, record, record.reason))
    elif record.due_at is not None and transition.now < record.due_at:
        return
    elif (
        not _is_occupied(transition, planned, context)
        and _allowed(transition, planned, context)
        and transition.has_free_slot(planned, "apply", context.free_slots)
    ):
        if planned.destructive and record.admitted_at is None:
            transition.admit()  # begun by an earlier run that this one takes up
        transition.intend(planned, context.policy.lease_s)


def _unconfigured(transition: RunTransition, planned: PlannedStep) -> None:
    if planned.action in TICKETS:
        transition.finish(planned.id, StepState.SKIPPED, NO_TICKET_SYSTEM)
    else:
        fail(transition, planned, f"no connector for {planned.action}")


def _missing_need(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str | None:
    """Empty when all needs are met, None while they may still be, else why they never will be."""
    waiting = False
    for need in planned.needs:
        state, other = transition.records[need].state, transition.run.planned(need)
        if state in _FIRM or (state is StepState.FAILED and other.on_failure == "continue"):
            continue
        if state.is_over and goes_without(transition.so_far(), planned, need, context.view):
            continue
        if state.is_over:
            return f"it needs {need}, which is {state}"
        waiting = waiting or not goes_ahead(transition, planned, need)
    return None if waiting else ""


def _is_occupied(transition: RunTransition, planned: PlannedStep, context: RunContext) -> bool:
    """Whether a call to the same target is in flight, or as many calls of the run as are allowed at once."""
    if planned.action in INTERNAL:
        return False
    in_flight = 0
    for other, record in transition.steps():
        if not calls_in_flight(record):
            continue
        if other.id != planned.id and same_target(other.target, planned.target):
            return True
        in_flight += other.action not in TICKETS
    if in_flight >= MAX_IN_FLIGHT or is_busy(transition, planned, context):
        return True
    # What an earlier run of the incident still has to roll back must be rolled back before it is done again.
    return any(
        record.is_being_undone and not record.kept_for and same_target(other.target, planned.target)
        for run in context.siblings
        if run.undoing
        for other, record in zip(run.plan.steps, run.steps, strict=True)
    )
