"""Commands of operators to a run, and new revisions of its incident. Part of `machine.py`.

A command is applied once, however often it is repeated: its id is kept in the run. An approval counts only for the plan that was
shown (its digest) and only while one is pending; who may give it, and how many it takes, is in `approvals.py`. The first decision
wins: later ones are answered with who decided, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from runbooks.engine.approvals import (
    about,
    asked_by,
    counted_already,
    demands,
    known_groups,
    may_decide,
    shown,
    stale,
    wanted,
    who,
)
from runbooks.engine.escalation import (
    counted_name,
    entity_names,
    faulty_entity,
    is_nondestructive,
    only_tells,
)
from runbooks.engine.job_condition import POD
from runbooks.engine.run.plan import context_of, plan_digest
from runbooks.engine.run.rollback import NOTHING, call_off, is_worked_on, roll_back
from runbooks.engine.run.transition import RunReport, RunTransition, TimelineNote, TransitionResult
from runbooks.language.approval_rules import rules
from runbooks.language.schema import TICKETS
from streams.config.settings import ResponderSettings
from streams.model.clock import rfc3339, to_the_second
from streams.model.conversation import Command, Verb
from streams.model.incident import Incident, IncidentState
from streams.model.message import plain
from streams.model.run import (
    Approval,
    Demand,
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunOutcome,
    RunState,
    Snooze,
    StepRecord,
    StepState,
)
from streams.model.signal import Attribute

MAX_COMMANDS = 50
"""Ids of commands that a run remembers; no run gets that many."""

MAX_NOTE = 2000
"""Characters of a note on the timeline."""

MAX_SILENCE = timedelta(days=1)
"""A longer silence is cut: whoever forgets it hears of the incident again tomorrow."""

_NOT_BEGUN = (StepState.PENDING, StepState.BLOCKED, StepState.AWAITING_APPROVAL)


def decided(run: Run, command: Command, policy: ResponderSettings, now: datetime) -> TransitionResult:
    """Apply a command; where it is not accepted, the timeline says why."""
    transition = RunTransition(run, now)
    if command.id in run.commands:
        return transition.result()
    transition.change(commands=(*run.commands, command.id)[-MAX_COMMANDS:])
    match command.verb:
        case Verb.APPROVE:
            _approve(transition, command, policy)
        case Verb.REJECT:
            _reject(transition, command, policy)
        case Verb.STOP:
            _stop(transition, command, "stopped")
        case Verb.RESOLVE:
            _stop(transition, command, "resolved", release=True)
            transition.reports.append(RunReport("run.resolved", actor=command.actor, reason=command.reason))
        case Verb.HAND_OVER:
            _hand_over(transition, command)
        case Verb.SNOOZE:
            _snooze(transition, command, policy)
        case Verb.SILENCE | Verb.NOTE:
            transition.notes.append(remark(command, now))
        case Verb.ACK:
            _answer(transition, command, "person.ack", f"acknowledged by {command.actor}{because(command)}")
    return transition.result()


def because(command: Command) -> str:
    """The operator's reason, to follow a text; empty where none was given."""
    return f": {command.reason}" if command.reason else ""


def runs_for(command: Command, runs: Sequence[Run]) -> Sequence[Run]:
    """The runs of an incident, oldest first, that a command is for: a decision on a plan is for the run of that plan.

    Where no run has that plan (any more), the latest one answers. A snooze is for those that are not over; what only becomes a
    line of the timeline is kept by the latest one, once.
    """
    if command.verb in (Verb.SILENCE, Verb.NOTE):
        return runs[-1:]
    if command.verb is Verb.SNOOZE:
        return [run for run in runs if not run.state.is_over] or runs[-1:]
    if command.verb not in (Verb.APPROVE, Verb.REJECT) or command.digest is None:
        return runs
    return [run for run in runs if run.plan.digest == command.digest] or runs[-1:]


def remark(command: Command, now: datetime) -> TimelineNote:
    """The answer to a silence or a note: it changes the timeline only, so an incident needs no run for it."""
    attributes: dict[str, Attribute] = {"command": command.id, "via": command.via}
    actor = command.actor
    if command.verb is Verb.NOTE:
        if text := plain(command.reason, MAX_NOTE).strip():
            return TimelineNote("person.note", text, actor, attributes)
        return TimelineNote(
            "person.note_refused", f"note by {actor} not accepted: it is empty", actor, attributes
        )
    if command.until is None or command.until <= now:
        why = "it has no end" if command.until is None else f"it ended at {to_the_second(command.until)}"
        return TimelineNote(
            "person.silence_refused", f"silence by {actor} not accepted: {why}", actor, attributes
        )
    until = min(command.until, now + MAX_SILENCE)
    text = f"silenced by {actor} until {to_the_second(until)}{because(command)}"
    return TimelineNote("person.silence", text, actor, {**attributes, "until": rfc3339(until)})


def revised(
    run: Run, incident: Incident, plan: Plan | None, now: datetime, keep: Mapping[str, str] = NOTHING
) -> TransitionResult:
    """Apply a new revision. `plan` is the runbook bound to it; `keep` are nodes that another incident names as root cause, with
    that incident's id."""
    transition = RunTransition(run, now)
    if incident.revision <= run.incident_revision:
        return transition.result()
    transition.change(
        incident_revision=incident.revision,
        incident_facts=incident.facts,
        title=incident.title,
        context=context_of(incident, run.plan),
        flaps=run.flaps if run.state.is_over else incident.flaps,
    )
    if is_nondestructive(run):
        # Only runs without destructive steps: a crash that turns out to be on several GPUs counts for none of them.
        place = faulty_entity(incident)
        transition.change(offender=counted_name(place, run.plan.escalation), offenders=entity_names(place))
    if incident.state.is_over:
        transition.change(incident_over=True)
        _reason_gone(transition, incident, keep)
    elif run.plan.mode is not Mode.SHADOW or not run.incident_over:
        if plan is not None:
            _extend(transition, plan)
        if run.plan.mode is Mode.SHADOW:
            for record in list(transition.records.values()):
                transition.set(record.id, state=StepState.PENDING)
    return transition.result()


def replanned(
    run: Run, incident: Incident, plan: Plan, now: datetime, *, round_: int = 1, why: str = ""
) -> TransitionResult:
    """Give a run another plan: another runbook fits the incident better now, or the incident has come back.

    The run has opened a ticket at most (`is_untouched`). It keeps its ticket and what it has told; a question is asked anew, and
    an approval of the earlier plan is none of this one.
    """
    transition = RunTransition(run, now)
    kept = {} if plan.mode is Mode.SHADOW else {p.id: r for p, r in transition.steps() if _stays(p, r)}
    ids = {step.id for step in plan.steps}
    left = tuple(p for p in run.plan.steps if p.id in kept and p.id not in ids)
    steps = (*left, *plan.steps)
    digest = plan_digest(run.incident, plan.runbook, plan.runbook_revision, plan.mode, steps)
    transition.records = {step.id: kept.get(step.id) or StepRecord(step.id) for step in steps}
    place = faulty_entity(incident)
    transition.change(
        plan=replace(plan, steps=steps, digest=digest if left else plan.digest),
        steps=tuple(transition.records.values()),
        state=RunState.RUNNING, outcome=RunOutcome.NONE, undoing="", reason=incident.reason, finished_at=None,
        offender=counted_name(place, plan.escalation), offenders=entity_names(place),
        context=context_of(incident, plan), round=round_, flaps=incident.flaps, incident_over=False,
    )  # fmt: skip
    text = f"runbook {plan.runbook} with {len(plan.steps)} steps"
    text += f" fits better now than {run.plan.runbook}" if plan.runbook != run.plan.runbook else " again"
    transition.note("run.planned", text + (f"; {why}" if why else ""))
    if plan.mode is not Mode.SHADOW and not only_tells(transition.run):
        transition.reports.append(RunReport("run.started", reason=incident.reason))
    return transition.result()


def _stays(planned: PlannedStep, record: StepRecord) -> bool:
    """Whether a step is kept when its run gets another plan: a ticket, and what has been told."""
    if planned.action in TICKETS:
        return record.effect is not None
    return planned.action == "notify" and record.state is StepState.DONE


def is_untouched(run: Run) -> bool:
    """Whether a run has changed nothing but a ticket, has no decision of a person, and was not escalated to."""
    if run.approvals or run.escalated_from or run.overruled:
        return False
    touched = [run.planned(record.id) for record in run.steps if record.effect is not None]
    return all(planned.action in TICKETS for planned in touched)


def may_be_replanned(run: Run) -> bool:
    """Whether a run may still get another plan: it has only asked or told so far."""
    told = run.outcome is RunOutcome.SUCCEEDED and only_tells(run)
    return is_untouched(run) and (told or run.outcome in (RunOutcome.NONE, RunOutcome.SHADOWED))


def _approve(transition: RunTransition, command: Command, policy: ResponderSettings) -> None:
    run, who = transition.run, command.actor
    asked = _asked(transition)
    if refusal := _against(transition, command, asked, policy):
        _answer(transition, command, "person.approval_refused", f"approval by {who} not accepted: {refusal}")
        return
    decision = _decision(transition, command, asked, policy)
    transition.change(approvals=(*run.approvals, decision))
    missing: list[str] = []
    for planned in asked:
        left = _demands(transition, planned, policy)
        if more := wanted(left):
            missing.append(more)
            transition.set(planned.id, demands=shown(left))
        else:
            transition.set(
                planned.id,
                state=StepState.PENDING, due_at=None, deadline_at=None, verdict="", reason="", demands=(),
            )  # fmt: skip
    text = f"{who} approved the plan {run.plan.digest[:8]}{because(command)}"
    if missing:
        text += f"; still needs {missing[0]}"
    _answer(transition, command, "person.approved", text, missing=len(missing))


def _against(
    transition: RunTransition, command: Command, asked: Sequence[PlannedStep], policy: ResponderSettings
) -> str | None:
    """Why an approval does not count; None when it does."""
    run, actor = transition.run, command.actor
    decision = _last_decision(run)
    if decision is not None and (not decision.approved or not asked):
        return _who_decided(decision)
    if command.digest != run.plan.digest:
        return "it refers to an outdated plan (digest mismatch)"
    if not asked or transition.stopping:
        return "no step is pending approval"
    if why := stale(command, policy, transition.now):
        return why
    if not may_decide(command, asked, policy):
        everybody = " or ".join(dict.fromkeys(who(d) for p in asked for d in rules(p, policy)))
        return f"{actor} is not among {everybody}"
    before = [_demands(transition, planned, policy) for planned in asked]
    with_it = replace(run, approvals=(*run.approvals, _decision(transition, command, asked, policy)))
    same = before == [_demands(transition, planned, policy, with_it) for planned in asked]
    if same and (why := counted_already(command, run, policy)):
        left = next(filter(None, map(wanted, before)), "")
        return f"{actor} {why}; still needs {left}"
    return None


def _demands(
    transition: RunTransition, planned: PlannedStep, policy: ResponderSettings, run: Run | None = None
) -> tuple[Demand, ...]:
    """What an asked step still needs, by the approvals that count for what it was asked about."""
    run = about(run or transition.run, asked_by(planned, transition.records[planned.id]))
    return demands(planned, run, policy, transition.now)


def _reject(transition: RunTransition, command: Command, policy: ResponderSettings) -> None:
    """Anyone may reject: rejecting is the safe side."""
    run, who = transition.run, command.actor
    asked = _asked(transition)
    if not asked or transition.stopping or command.digest not in (None, run.plan.digest):
        text = f"no step is pending approval by {who}"
        if (decision := _last_decision(run)) is not None:
            text += f": {_who_decided(decision)}"
        _answer(transition, command, "person.rejection_refused", text)
        return
    decision = replace(_decision(transition, command, asked, policy), approved=False)
    transition.change(approvals=(*run.approvals, decision))
    why = f"rejected by {who}{because(command)}"
    _answer(transition, command, "person.rejected", why)
    call_off(transition, RunOutcome.REJECTED, why, release=True)


def _decision(
    transition: RunTransition, command: Command, asked: Sequence[PlannedStep], policy: ResponderSettings
) -> Approval:
    run, step = transition.run, command.step or asked[0].id
    rules_asked = (asked_by(planned, transition.records[planned.id]) for planned in asked)
    return Approval(
        step,
        True,
        command.actor,
        command.at,
        run.plan.digest,
        command.reason,
        command.via,
        next(filter(None, rules_asked), ""),
        known_groups(command, policy),
    )


def _last_decision(run: Run) -> Approval | None:
    """The latest decision about the present plan."""
    return next((one for one in reversed(run.approvals) if one.digest == run.plan.digest), None)


def _who_decided(decision: Approval) -> str:
    verb = "approved" if decision.approved else "rejected"
    return f"{decision.actor} {verb} it at {to_the_second(decision.at)}"


def _asked(transition: RunTransition) -> list[PlannedStep]:
    """The steps that are pending approval, in the order of the plan."""
    return [
        p for p in transition.run.plan.steps if transition.records[p.id].state is StepState.AWAITING_APPROVAL
    ]


def _answer(
    transition: RunTransition, command: Command, event: str, text: str, **attributes: Attribute
) -> None:
    """Answer a command on the timeline, under the command's id."""
    transition.note(event, text, actor=command.actor, command=command.id, via=command.via, **attributes)


def _stop(transition: RunTransition, command: Command, verb: str, *, release: bool = False) -> None:
    why = f"{verb} by {command.actor}{because(command)}"
    _answer(transition, command, f"person.{verb}", why)
    transition.change(overruled=True)
    if not transition.run.state.is_over:
        call_off(transition, RunOutcome.CANCELLED, why, release=release)


def _hand_over(transition: RunTransition, command: Command) -> None:
    """Anyone may take over: the run stops acting, and nothing that it did is undone."""
    run = transition.run
    why = f"taken over by {command.actor}{because(command)}"
    ended = f"; the run is already over: {run.outcome or run.state}" if run.state.is_over else ""
    _answer(transition, command, "person.hand_over", why + ended)
    transition.change(overruled=True, taken_over_by=command.actor)
    if not run.state.is_over:
        call_off(transition, RunOutcome.CANCELLED, why)
    elif run.outcome.is_early:
        # Whoever took it over last is who the incident waits for.
        transition.change(reason=why)


def _snooze(transition: RunTransition, command: Command, policy: ResponderSettings) -> None:
    """Delay what has not begun. Anyone may, so all snoozes of a run together are bounded."""
    run, now, longest = transition.run, transition.now, timedelta(seconds=policy.snooze_max_s)
    since = run.snooze.since if run.snooze is not None else now
    until = min(command.until or now, since + longest)
    left = any(p.destructive and r.state in _NOT_BEGUN and r.effect is None for p, r in transition.steps())
    if transition.stopping or run.state.is_over or not left:
        refusal = "no destructive step is left that has not begun"
    elif run.plan.mode is Mode.SHADOW:
        refusal = "the run is in shadow mode and changes nothing"
    elif command.until is None:
        refusal = "it has no end"
    elif since + longest <= now:
        refusal = (
            f"first snoozed at {to_the_second(since)}, a run waits {longest.total_seconds():.0f} s at most"
        )
    elif until <= now:
        refusal = f"it ended at {to_the_second(until)}"
    elif run.snooze is not None and until <= run.snooze.until:
        refusal = f"{run.snooze.actor} snoozed it until {to_the_second(run.snooze.until)}"
    else:
        transition.change(snooze=Snooze(command.actor, since, until))
        text = f"snoozed by {command.actor} until {to_the_second(until)}{because(command)}"
        _answer(transition, command, "person.snooze", text, until=rfc3339(until))
        return
    text = f"snooze by {command.actor} not accepted: {refusal}"
    _answer(transition, command, "person.snooze_refused", text)


def _reason_gone(transition: RunTransition, incident: Incident, keep: Mapping[str, str]) -> None:
    merged = incident.state is IncidentState.MERGED
    why = f"merged into {incident.merged_into}" if merged else f"the incident is over: {incident.reason}"
    if transition.run.plan.mode is Mode.SHADOW:
        transition.change(undoing=why)
    elif not transition.stopping and (nodes := _nodes_to_return(transition) - keep.keys()):
        # A node in the middle of a reset or reboot is not uncordoned: the run validates it first, and returns it itself.
        if not transition.before.incident_over:
            transition.note(
                "run.goes_on",
                f"{why}; work on {', '.join(sorted(nodes))} has already started and is completed first",
            )
    elif not transition.run.state.is_over and not transition.stopping:
        call_off(transition, RunOutcome.CANCELLED, why, undo=True, keep=keep)
    elif merged and not transition.run.taken_over_by:
        roll_back(transition, why, keep=keep)


def _nodes_to_return(transition: RunTransition) -> set[str]:
    """Nodes that the run has started to reset or reboot, and will itself uncordon at the end."""
    steps = [
        (planned, record, planned.target.name) for planned, record in transition.steps() if planned.target
    ]
    started = {node for planned, record, node in steps if is_worked_on(planned, record)}
    return {
        node
        for planned, record, node in steps
        if planned.action == "uncordon_node" and node in started and not record.state.is_over
    }


def _extend(transition: RunTransition, plan: Plan) -> None:
    """Add the steps that the new revision requires; steps that have started stay as they are."""
    run = transition.run
    told = may_be_replanned(run) and only_tells(run)
    grows = run.plan.mode is Mode.SHADOW or told or not (run.state.is_over or transition.stopping)
    same_book = (plan.runbook, plan.runbook_revision) == (run.plan.runbook, run.plan.runbook_revision)
    if not grows or not same_book:
        return
    fresh = {step.id: step for step in plan.steps}
    kept = tuple(_newer(transition.records[step.id], step, fresh) for step in run.plan.steps)
    added = tuple(
        step for step in plan.steps if step.id not in transition.records and not _is_told_of(run, step)
    )
    steps = (*kept, *added)
    evicts = run.plan.would_evict if run.state.is_over or _drains(transition) else plan.would_evict
    if steps == run.plan.steps:
        if evicts != run.plan.would_evict:
            transition.change(plan=replace(run.plan, would_evict=evicts))
        return
    digest = plan_digest(run.incident, run.plan.runbook, run.plan.runbook_revision, run.plan.mode, steps)
    transition.records |= {step.id: StepRecord(step.id) for step in added}
    transition.change(
        plan=replace(run.plan, steps=steps, digest=digest, would_evict=evicts),
        steps=(*run.steps, *(StepRecord(step.id) for step in added)),
    )
    if told and added and run.plan.mode is not Mode.SHADOW:
        # It had told what there was to tell; now there is something to decide.
        transition.change(state=RunState.RUNNING, outcome=RunOutcome.NONE, finished_at=None)
        transition.reports.append(RunReport("run.started", reason=run.reason))
    if run.state is not RunState.SHADOWED:
        void = ", ".join(dict.fromkeys(a.actor for a in run.approvals if a.approved)) or "a person"
        text = f"{len(added)} steps added; the approval by {void} covers the previous plan only"
        transition.note("run.extended", text)


def _drains(transition: RunTransition) -> bool:
    """Whether a drain has begun: from then on its own result tells what goes."""
    drains = (record for planned, record in transition.steps() if planned.action == "drain_node")
    return any(record.effect is not None for record in drains)


def _is_told_of(run: Run, step: PlannedStep) -> bool:
    """Whether a notice is about a job that the run deals with already: a job that dies or moves meanwhile, or a bare
    pod that comes or goes, voids no approval."""
    if step.action != "notify" or step.target is None or step.target.kind == "Incident":
        return False
    if step.target.kind == POD:
        return True
    return any(known.target is not None and known.target.key == step.target.key for known in run.plan.steps)


def _newer(record: StepRecord, step: PlannedStep, fresh: dict[str, PlannedStep]) -> PlannedStep:
    """A step not started may wait for more, never for less: a job that has left the incident is still being rescheduled."""
    newer = fresh.get(step.id)
    if newer is None or record.state not in _NOT_BEGUN:
        return step
    # What the inventory says of a job, e.g. what moving it costs, may change at any time: that voids no approval.
    return replace(newer, needs=tuple(sorted({*newer.needs, *step.needs})), describe=step.describe)
