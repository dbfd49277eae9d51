"""A job that the run has stopped is started elsewhere without waiting for another job that its team lets nobody touch. Part of
`machine.py`.

What a team holds or is asked about may stay so for days. The stopped job needs nothing of it: its node is cordoned, so that it
does not come back there. What is done to the node itself still waits for every job on it.
"""

from __future__ import annotations

from runbooks.engine.approvals import TEAM, TEAM_QUOTA, asked_by
from runbooks.engine.guardrails.cordoned_nodes import is_in_place, same_target
from runbooks.engine.guardrails.left_jobs import OF_A_JOB
from runbooks.engine.run.transition import RunTransition
from runbooks.engine.tenancy import disturbs
from streams.model.run import Mode, PlannedStep


def goes_ahead(transition: RunTransition, planned: PlannedStep, need: str) -> bool:
    """Whether the resume of a stopped job, or the node it is given for it, does not wait for a needed step: a team's rule holds
    that, or all that it waits for, on account of others than this job."""
    return _is_for_stopped(transition, planned) and _is_up_to_a_team(transition, planned, need)


def stops_no_resume(planned: PlannedStep, rule: str) -> bool:
    """Whether a step that this guardrail holds or asks about keeps no stopped job waiting. A node that is still to be closed
    does: the job could come back to it."""
    return rule in (TEAM, TEAM_QUOTA) and disturbs(planned)


def _is_for_stopped(transition: RunTransition, planned: PlannedStep) -> bool:
    if planned.action not in ("resume_job", "release_spare"):
        return False
    return any(
        # In shadow mode nothing is made: there counts what would be.
        other.action == "suspend_job" and (is_in_place(record) or record.verdict == "would")
        for other, record in transition.steps()
        if planned.action == "release_spare" or same_target(other.target, planned.target)
    )


def _is_up_to_a_team(transition: RunTransition, planned: PlannedStep, need: str) -> bool:
    step, record = transition.run.planned(need), transition.records[need]
    if step.action in OF_A_JOB and same_target(step.target, planned.target):
        return False
    if step.action == "release_spare":
        return False  # goes ahead itself, and the job waits for the node
    if record.verdict and stops_no_resume(step, asked_by(step, record)):
        return True
    waits_for = [one for one in step.needs if _is_unmet(transition, one)]
    return bool(waits_for) and all(_is_up_to_a_team(transition, planned, one) for one in waits_for)


def _is_unmet(transition: RunTransition, need: str) -> bool:
    record = transition.records[need]
    if transition.run.plan.mode is Mode.SHADOW:
        return record.verdict == "refused"
    return not record.state.is_over
