"""The answer in one sentence: what was done or not done about a node or job, and the one reason that comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from faultline.why.counted import RUNS
from faultline.why.observed import Observed
from faultline.why.subject import Subject
from runbooks.engine.guardrails.cordoned_nodes import is_held
from streams.config.settings import ResponderSettings
from streams.correlate.publish.fate import Fate
from streams.correlate.weighed import Weighed
from streams.model.clock import moment
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, PlannedStep, Run, StepRecord, StepState
from streams.model.signal import Signal

_STEPS = {"node": ("cordon_node",), "job": ("resume_job", "suspend_job")}
_DONE = {"cordon_node": "cordoned", "resume_job": "resumed", "suspend_job": "suspended"}


def answer_of(
    subject: Subject,
    seen: Observed,
    incidents: Sequence[Incident],
    roles: Mapping[str, str],
    runs: Sequence[Run],
    weighed: Sequence[Weighed],
    signals: Sequence[Signal],
    later: Sequence[Incident],
    settings: ResponderSettings,
) -> str:
    """The sentence."""
    if (done := _done_already(subject)) is not None:
        return done
    found = [
        (run, step, run.step(step.id)) for run in runs for step in run.plan.steps if _acts_on(step, subject)
    ]
    if found:
        return _of_step(*found[-1], settings)
    what = "not cordoned" if subject.kind == "node" else "not stopped or resumed"
    roots = [one for one in incidents if roles[one.id] == "it is the root cause"]
    if roots:
        return f"{what}: {_of_root(roots[-1], runs)}"
    if incidents:
        one = incidents[-1]
        return f"{what}: it is a victim of {one.id}, whose root cause is {one.root}"
    soon = f"; {later[0].id} opened at {moment(later[0].opened_at)}" if later else ""
    kept = [one for one in weighed if one.fate is not Fate.TOLD]
    if kept:
        nearest = max(kept, key=lambda w: w.hypothesis.strength)
        return f"no incident: {nearest.hypothesis.family} was weighed, but {nearest.reason}{soon}"
    if isinstance(subject.fact, JobFact) and subject.fact.finished and not subject.fact.failed:
        return "no incident: the job ended normally"
    if signals and all(signal.kind in RUNS for signal in signals):
        return f"no incident: only signs that its jobs run were read of it{soon}"
    if signals:
        return f"no incident: what was read of it makes none by itself{soon}"
    if not seen.signals and not seen.replayed.records:
        return "nothing at all had been recorded by then"
    return f"no incident: no signal was read of it{soon}"


def _done_already(subject: Subject) -> str | None:
    fact = subject.fact
    if isinstance(fact, NodeFact) and is_held(fact):
        return f"it was cordoned, by {' and '.join(fact.owners)}"
    if isinstance(fact, NodeFact) and fact.unschedulable:
        by = fact.worked_on.by if fact.worked_on is not None else "somebody"
        return f"it was cordoned already, by {by} and not by Faultline"
    return None


def _acts_on(step: PlannedStep, subject: Subject) -> bool:
    if step.target is None or step.action not in _STEPS[subject.kind]:
        return False
    if subject.kind == "node":
        return step.target.name == subject.name
    return subject.job is not None and step.target.key == subject.job.key


def _of_step(run: Run, step: PlannedStep, record: StepRecord, settings: ResponderSettings) -> str:
    """What became of the step that would have done it."""
    done = _DONE[step.action]
    where = f"runbook {run.plan.runbook} for {run.incident}"
    if record.state is StepState.WOULD and record.verdict == "would":
        if settings.mode is Mode.SHADOW or (run.plan.mode is Mode.SHADOW and "stage" in run.plan.why):
            return f"it would have been {done} by {where}, but nothing is done in mode shadow"
        return f"it would be {done} by {where}: no guardrail objects"
    if record.state is StepState.WOULD and record.verdict == "needs_approval":
        return f"not {done} by {where} without an approval: {record.reason}"
    if record.state is StepState.WOULD:
        return f"not {done} by {where}: {record.reason}"
    if record.state is StepState.DONE:
        return f"it was {done} by {where}"
    if record.state is StepState.AWAITING_APPROVAL:
        return f"not {done} by {where}: it waits for approval" + (
            f", {record.reason}" if record.reason else ""
        )
    return f"not {done} by {where}: the step is {record.state.value}" + (
        f", {record.reason}" if record.reason else ""
    )


def _of_root(incident: Incident, runs: Sequence[Run]) -> str:
    mine = [run for run in runs if run.incident == incident.id]
    if incident.state is IncidentState.SUPPRESSED:
        return f"{incident.id} is suppressed: {incident.reason}"
    if incident.state is IncidentState.MERGED:
        return f"{incident.id} became part of {incident.merged_into}"
    if not mine:
        return f"it is the root cause of {incident.id}, and no runbook ran for it"
    return f"it is the root cause of {incident.id}, and {mine[-1].plan.runbook} has no step that does it"
