"""Jobs that refuse to be stopped, or that a person has taken out of our hands: what waits for one goes on without it, except
what would touch it. Its node is not empty, so it is neither drained nor reset. Pure.
"""

from __future__ import annotations

from streams.inventory.cluster_view import ClusterView
from streams.model.run import PlannedStep, Run, StepRecord, StepState

AFTER_STOP = ("resume_job", "verify_job", "await_progress")
"""Actions on a job that has been suspended."""

OF_A_JOB = ("suspend_job", *AFTER_STOP)
"""Steps that act on one job."""

REFUSED = "refused"
"""The verdict of a step that was refused."""


def is_left(planned: PlannedStep, record: StepRecord) -> bool:
    """Whether the step was refused, and its job is left to its owner with it."""
    return planned.action in OF_A_JOB and record.state.is_over and record.verdict == REFUSED


def goes_without(run: Run, planned: PlannedStep, need: str, view: ClusterView) -> bool:
    """Whether a step goes on without a needed one that is not made only because a job was left to its owner."""
    jobs = _because_of(run, need)
    if not jobs or planned.target is None:
        return False
    if planned.action in OF_A_JOB or planned.action == "release_spare":
        return planned.target.key not in jobs
    if planned.target.kind != "Node":
        return False
    # What runs on the node is not drained, and the node not reset under it.
    return jobs.isdisjoint(view.jobs_on(planned.target.name))


def _because_of(run: Run, need: str) -> set[str]:
    """The left jobs for which a step was not made; empty where there is any other reason."""
    planned, record = run.planned(need), run.step(need)
    if is_left(planned, record):
        return {planned.target.key} if planned.target is not None else set()
    if record.state is not StepState.CANCELLED and record.verdict != REFUSED:
        return set()
    causes = [_because_of(run, one) for one in planned.needs if _is_unmet(run, one)]
    return set().union(*causes) if all(causes) else set()


def _is_unmet(run: Run, need: str) -> bool:
    """Whether a needed step was not made, and is none that the runbook goes on without."""
    record = run.step(need)
    continues = record.state is StepState.FAILED and run.planned(need).on_failure == "continue"
    made = record.state in (StepState.DONE, StepState.SKIPPED) or record.verdict in (
        "would",
        "needs_approval",
    )
    return record.state.is_over and not made and not continues
