"""A job that refuses to be stopped, or that a person has taken out of our hands, is left to its owner: its own steps end,
and those of the other jobs go on. Part of `machine.py`.
"""

from __future__ import annotations

from runbooks.engine.guardrails.cordoned_nodes import same_target
from runbooks.engine.guardrails.left_jobs import OF_A_JOB, REFUSED, is_left
from runbooks.engine.run.rollback import call_off, holds_a_job
from runbooks.engine.run.transition import RunTransition
from streams.model.run import PlannedStep, RunOutcome, StepState


def leave(transition: RunTransition, planned: PlannedStep, state: StepState, reason: str) -> bool:
    """End the step alone, while the run goes on for other jobs; False, and nothing is changed, where there are none."""
    if planned.action not in OF_A_JOB or planned.target is None or transition.stopping:
        return False
    ours = {*left_jobs(transition), planned.target.key}
    if not any(
        other.action in OF_A_JOB
        and other.target
        and other.target.key not in ours
        and not record.state.is_over
        for other, record in transition.steps()
    ):
        return False
    transition.finish(planned.id, state, reason)
    transition.set(planned.id, verdict=REFUSED)
    text = f"{planned.target} is left to its owner: {reason}; the other jobs of the incident go on"
    transition.note("step.left", text, step=planned.id)
    return True


def left_jobs(transition: RunTransition) -> set[str]:
    """The keys of the jobs that are left to their owners."""
    return {p.target.key for p, record in transition.steps() if p.target is not None and is_left(p, record)}


def end_for_left(transition: RunTransition, *, idle: bool) -> None:
    """Once the other jobs are seen to, the run ends as what was refused says: not as if its plan had been carried out."""
    left = [(p, record) for p, record in transition.steps() if is_left(p, record)]
    if not idle or not left or transition.stopping or transition.run.state.is_over:
        return
    failed = any(record.state is StepState.FAILED for _, record in left)
    reason = "; ".join(f"{planned.target} is left to its owner: {record.reason}" for planned, record in left)
    outcome = RunOutcome.FAILED if failed else RunOutcome.CANCELLED
    call_off(transition, outcome, reason, release=holds_a_job(transition))


def halts_no_wave(transition: RunTransition, planned: PlannedStep) -> bool:
    """Whether the step belongs to a job that is left to its owner, and has not itself failed."""
    return transition.records[planned.id].state is StepState.CANCELLED and any(
        is_left(other, record) and same_target(other.target, planned.target)
        for other, record in transition.steps()
    )
