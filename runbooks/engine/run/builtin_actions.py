"""Steps of the engine itself: notify, ask, and wait for a job's progress. They change nothing outside."""

from __future__ import annotations

from datetime import timedelta

from runbooks.engine import job_reports
from runbooks.engine.approvals import approved, demands, shown, wanted
from runbooks.engine.run.job_already_moved import completed, died, owner_text
from runbooks.engine.run.planned_work import watch_work
from runbooks.engine.run.rollback import fail, resume_of
from runbooks.engine.run.transition import RunContext, RunTransition
from streams.model.clock import to_the_second
from streams.model.run import PlannedStep, StepState


def start_internal(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """Start a step that needs no connector."""
    record = transition.records[planned.id]
    match planned.action:
        case "notify":
            transition.finish(planned.id, StepState.DONE, owner_text(transition, planned, context))
        case "ask" if approved(planned, transition.run, context.policy, transition.now):
            transition.finish(planned.id, StepState.DONE, "taken over by a person")
        case "ask" if record.state is not StepState.AWAITING_APPROVAL:
            until = transition.in_seconds(planned.deadline_s)
            asked = demands(planned, transition.run, context.policy, transition.now)
            transition.set(
                planned.id,
                state=StepState.AWAITING_APPROVAL,
                reason=planned.describe,
                verdict="needs_approval",
                deadline_at=until,
                due_at=until,
                demands=shown(asked),
            )
            text = f"{planned.describe or 'an operator is asked'}; needs {wanted(asked)} until {to_the_second(until)}"
            transition.note("step.awaiting_approval", text, step=planned.id)
        case "await_progress":
            transition.set(
                planned.id,
                state=StepState.RUNNING,
                started_at=transition.now,
                deadline_at=transition.in_seconds(planned.deadline_s),
            )
            watch(transition, planned, context)
        case "await_work":
            transition.set(planned.id, state=StepState.RUNNING, started_at=transition.now)
            watch(transition, planned, context)


def watch(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """Look at a step that waits for something to happen outside."""
    if planned.action == "await_work":
        watch_work(transition, planned, context)
    else:
        _watch_progress(transition, planned, context)


def _watch_progress(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """`await_progress`: done at the first progress after the resume, or after `settle_s` for a job that never reported any.

    Progress is a line of one of its pods, or what the job's own object reports (`job_reports`).
    """
    record, target = transition.records[planned.id], planned.target
    resume = resume_of(transition, planned)
    since = (resume and resume.confirmed_at) or record.started_at or transition.now
    seen = [p for p in context.incident.progress if target is not None and p.job.key == target.key]
    later = [p for p in seen if p.at > since]
    settle_s = float(str(planned.params.get("settle_s", 60)))
    settled = (record.started_at or transition.now) + timedelta(seconds=settle_s)
    fact = context.view.jobs.get(target.key) if target is not None else None
    reports = job_reports.with_latest(record.reports, fact)
    own = reports[-1].at is not None
    if later:
        step = f" (step {later[-1].step})" if later[-1].step is not None else ""
        transition.finish(planned.id, StepState.DONE, f"{target} makes progress again{step}")
    elif job_reports.prove_progress(reports):
        percent = f" ({reports[-1].percent} %)" if reports[-1].percent is not None else ""
        transition.finish(
            planned.id, StepState.DONE, f"{target} makes progress again, as it reports itself{percent}"
        )
    elif completed(planned, context):
        transition.finish(planned.id, StepState.DONE, f"{target} has completed")
    elif died(planned, context):
        fail(transition, planned, f"{target} has failed")
    elif not seen and not own and transition.now >= settled:
        transition.finish(
            planned.id,
            StepState.DONE,
            f"{target} has never reported progress; it has run for {settle_s:.0f} s",
        )
    elif record.deadline_at is not None and transition.now >= record.deadline_at:
        fail(
            transition, planned, f"{target} made no progress within {planned.deadline_s:.0f} s of its resume"
        )
    else:
        due_at = record.deadline_at if seen or own else settled
        recheck = transition.in_seconds(job_reports.RECHECK_S)
        if own and (due_at is None or recheck < due_at):
            due_at = recheck
        transition.set(planned.id, due_at=due_at, reports=reports)
