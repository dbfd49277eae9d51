"""What a person decides about a run, and what a new revision of its incident means. Part of the machine in `run.py`.

A command is taken in once, whoever repeats it: its id is kept in the run. An approval counts only for the very plan that was
shown (its digest), only while it is asked for, and the first word wins.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from datetime import datetime

from runbooks.desk import Desk, Report, Turn
from runbooks.guardrails import counts
from runbooks.plan import plan_digest
from runbooks.run import context_of
from runbooks.undoing import call_off, take_back
from streams.model.conversation import Command, Verb
from streams.model.incident import Incident, IncidentState
from streams.model.run import Approval, Mode, Plan, PlannedStep, Run, RunState, StepRecord, StepState
from streams.model.settings import ResponderSettings

MAX_COMMANDS = 50
"""Ids of commands a run remembers; a run is over long before."""

_NOT_BEGUN = (StepState.PENDING, StepState.BLOCKED, StepState.AWAITING_APPROVAL)


def decided(run: Run, command: Command, policy: ResponderSettings, now: datetime) -> Turn:
    """Take in a person's decision; what it may not do is said on the timeline."""
    desk = Desk(run, now)
    if command.id in run.commands:
        return desk.turn()
    desk.change(commands=(*run.commands, command.id)[-MAX_COMMANDS:])
    match command.verb:
        case Verb.APPROVE:
            _approve(desk, command, policy)
        case Verb.REJECT:
            _reject(desk, command)
        case Verb.STOP:
            _stop(desk, command, "stopped")
        case Verb.RESOLVE:
            _stop(desk, command, "resolved", release=True)
            desk.reports.append(Report("run.resolved", actor=command.actor, reason=command.reason))
        case Verb.ACK:
            desk.note("person.ack", f"{command.actor} has seen it", actor=command.actor)
    return desk.turn()


def revised(
    run: Run, incident: Incident, plan: Plan | None, now: datetime, keep: Container[str] = ()
) -> Turn:
    """Take in a new revision. `plan` is the runbook bound to it anew; `keep` are nodes another incident holds guilty."""
    desk = Desk(run, now)
    if incident.revision <= run.incident_revision:
        return desk.turn()
    desk.change(
        incident_revision=incident.revision,
        incident_facts=incident.facts,
        title=incident.title,
        context=context_of(incident, run.plan),
    )
    if incident.state.is_over:
        _reason_gone(desk, incident, keep)
    else:
        if plan is not None:
            _extend(desk, plan)
        if run.plan.mode is Mode.SHADOW:
            for record in list(desk.records.values()):
                desk.set(record.id, state=StepState.PENDING)
    return desk.turn()


def superseded(run: Run, by: str, now: datetime) -> Turn:
    """Another runbook fits the incident better now, and this run has not made a single call."""
    desk = Desk(run, now)
    why = f"runbook {by} fits better now"
    if run.plan.mode is Mode.SHADOW:
        desk.change(outcome="cancelled", state=RunState.CANCELLED, undoing=why, reason=why, finished_at=now)
    else:
        call_off(desk, "cancelled", why)
    return desk.turn()


def may_be_superseded(run: Run) -> bool:
    """Whether a run has neither made a call nor been decided on by a person."""
    undecided = run.outcome in ("", "shadowed") and not run.approvals
    return undecided and all(record.effect is None for record in run.steps)


def _approve(desk: Desk, command: Command, policy: ResponderSettings) -> None:
    run, who = desk.run, command.actor
    asked = [r.id for r in desk.records.values() if r.state is StepState.AWAITING_APPROVAL]
    decided_by = next((a for a in run.approvals if counts(a, run, policy, desk.now)), None)
    age_s = (desk.now - command.at).total_seconds()
    if policy.approvers and who not in policy.approvers:
        refusal = f"{who} is not among responder.approvers"
    elif decided_by is not None:
        refusal = f"{decided_by.actor} has decided already"
    elif command.digest != run.plan.digest:
        refusal = "it is bound to another plan than the present one"
    elif not asked or desk.stopping:
        refusal = "nothing waits for an approval"
    elif age_s > policy.freshness_s:
        refusal = f"it was given {age_s:.0f} s ago, at most {policy.freshness_s:.0f} s count as fresh"
    else:
        step = command.step or asked[0]
        desk.change(
            approvals=(*run.approvals, Approval(step, True, who, command.at, run.plan.digest, command.reason))
        )
        for step_id in asked:
            desk.set(step_id, state=StepState.PENDING, due_at=None, deadline_at=None, verdict="", reason="")
        desk.note("person.approved", f"{who} approved the plan {run.plan.digest[:8]}", actor=who)
        return
    desk.note("person.approval_refused", f"the approval of {who} does not count: {refusal}", actor=who)


def _reject(desk: Desk, command: Command) -> None:
    run, who = desk.run, command.actor
    asked = [r.id for r in desk.records.values() if r.state is StepState.AWAITING_APPROVAL]
    if not asked or desk.stopping or command.digest not in (None, run.plan.digest):
        desk.note("person.rejection_refused", f"nothing here waits for the word of {who}", actor=who)
        return
    approval = Approval(command.step or asked[0], False, who, command.at, run.plan.digest, command.reason)
    desk.change(approvals=(*run.approvals, approval))
    why = f"rejected by {who}" + (f": {command.reason}" if command.reason else "")
    desk.note("person.rejected", why, actor=who)
    call_off(desk, "rejected", why, release=True)


def _stop(desk: Desk, command: Command, word: str, *, release: bool = False) -> None:
    why = f"{word} by {command.actor}" + (f": {command.reason}" if command.reason else "")
    desk.note(f"person.{word}", why, actor=command.actor)
    if not desk.run.state.is_over:
        call_off(desk, "cancelled", why, release=release)


def _reason_gone(desk: Desk, incident: Incident, keep: Container[str]) -> None:
    merged = incident.state is IncidentState.MERGED
    why = f"merged into {incident.merged_into}" if merged else f"the incident is over: {incident.reason}"
    if desk.run.plan.mode is Mode.SHADOW:
        desk.change(undoing=why)
    elif not desk.run.state.is_over and not desk.stopping:
        call_off(desk, "cancelled", why, undo=True, keep=keep)
    elif merged:
        take_back(desk, why, keep=keep)


def _extend(desk: Desk, plan: Plan) -> None:
    """Add what the new revision asks for and nothing it asked for before; what has begun stays as it began."""
    run = desk.run
    grows = run.plan.mode is Mode.SHADOW or not (run.state.is_over or desk.stopping)
    same_book = (plan.runbook, plan.runbook_revision) == (run.plan.runbook, run.plan.runbook_revision)
    if not grows or not same_book:
        return
    fresh = {step.id: step for step in plan.steps}
    kept = tuple(_newer(desk.records[step.id], step, fresh) for step in run.plan.steps)
    added = tuple(step for step in plan.steps if step.id not in desk.records)
    steps = (*kept, *added)
    if steps == run.plan.steps:
        return
    digest = plan_digest(run.incident, run.plan.runbook, run.plan.runbook_revision, run.plan.mode, steps)
    desk.records |= {step.id: StepRecord(step.id) for step in added}
    desk.change(
        plan=replace(run.plan, steps=steps, digest=digest),
        steps=(*run.steps, *(StepRecord(step.id) for step in added)),
    )
    if run.state is not RunState.SHADOWED:
        desk.note(
            "run.extended", f"{len(added)} more steps; an approval of the former plan does not count for them"
        )


def _newer(record: StepRecord, step: PlannedStep, fresh: dict[str, PlannedStep]) -> PlannedStep:
    """What has not begun may wait for more, never for less: a job that has left the incident is still being moved."""
    newer = fresh.get(step.id)
    if newer is None or record.state not in _NOT_BEGUN:
        return step
    return replace(newer, needs=tuple(sorted({*newer.needs, *step.needs})))
