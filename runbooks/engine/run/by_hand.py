"""A runbook that a person starts: its parameters, the incident it needs on a node without one, and the plan as it is shown. Pure.

The command line and the responder both plan by this. The person is shown a plan and its digest, and the command carries both: the
responder plans anew, and where anything differs by then it says in what and starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import orjson

from runbooks.engine.guardrails.run_counts import acted_on
from runbooks.engine.run.plan import plan_digest
from runbooks.engine.run.transition import TimelineNote
from runbooks.language.conditions import Plain
from runbooks.language.schema import Runbook
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import rfc3339
from streams.model.codec import encode
from streams.model.conversation import Command
from streams.model.digest import digest
from streams.model.entity import Entity, JobRef
from streams.model.errors import BadInput
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.kinds import IncidentFamily
from streams.model.planned_work import APPROVED, BY, PARAMETERS, REQUEST, RUNBOOK, UNTIL, WHY
from streams.model.run import Approval, Mode, Plan, PlannedStep, Run
from streams.model.signal import Attribute, Severity

NAMED = 6
"""Differences that an answer lists."""


def with_parameters(runbook: Runbook, values: Mapping[str, Plain]) -> Runbook:
    """The runbook with these values in place of the defaults of its parameters.

    Raises:
        BadInput: it has no parameter of that name, or the value does not fit its type or bounds.
    """
    changed = dict(runbook.parameters)
    for name, value in values.items():
        known = changed.get(name)
        if known is None:
            has = ", ".join(sorted(runbook.parameters)) or "none"
            raise BadInput(f"{runbook.id} has no parameter {name}; it has {has}")
        if known.type == "number" and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if wrong := known.wrong(value):
            raise BadInput(f"parameter {name} of {runbook.id}: {wrong}")
        changed[name] = known.model_copy(update={"default": value})
    return runbook.model_copy(update={"parameters": changed})


def lacking(runbook: Runbook, incident: Incident, plan: Plan) -> str:
    """Why a plan is not worth starting: what the runbook acts on is not there; empty where it is."""
    targets = {step.target for step in runbook.steps}
    if "root_node" in targets and incident.root.node is None:
        return f"{runbook.id} acts on the root's node, and {incident.id} names none"
    if "root_job" in targets and incident.root.job is None:
        return f"{runbook.id} acts on the root's job, and {incident.id} names none"
    return "" if plan.steps else f"{runbook.id} has nothing to do here: its plan has no steps"


def incident_for_node(
    cluster: str, node: str, facts: Mapping[str, Attribute], view: ClusterView, now: datetime
) -> Incident:
    """What the correlator will open for a runbook that is started on a node: planned work, with the jobs that are on it now.

    Its id is not known before it is opened, so it has none.
    """
    jobs: dict[str, JobRef] = {}
    for pod in view.pods_on(node):
        if pod.job is not None:
            jobs[pod.job.key] = pod.job
    return Incident(
        id="",
        cluster=cluster,
        family=IncidentFamily.PLANNED_WORK,
        root=Entity(cluster, node=node),
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.INFO,
        certainty=Certainty.DECISIVE,
        title=f"planned work on node {node}",
        reason="",
        fault_at=now,
        opened_at=now,
        updated_at=now,
        jobs=tuple(jobs[key] for key in sorted(jobs)),
        nodes=(node,),
        facts=facts,
    )


def facts_for_node(command: Command) -> dict[str, Attribute]:
    """What the incident of a runbook started on a node says of it; without what is known only once it was accepted."""
    assert command.until is not None
    return {
        REQUEST: command.id,
        BY: command.actor,
        WHY: command.reason,
        UNTIL: rfc3339(command.until),
        APPROVED: True,
        RUNBOOK: command.runbook,
        PARAMETERS: orjson.dumps(dict(command.parameters), option=orjson.OPT_SORT_KEYS).decode(),
    }


def parameters_in(text: str) -> dict[str, Plain]:
    """The values that such an incident's facts have for the parameters. Raises BadInput when they cannot be read."""
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the parameters cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise BadInput("the parameters cannot be read: they are no mapping")
    return found


def shown_digest(plan: Plan, incident: str) -> str:
    """The digest that a person is shown and sends back: for a node the same before and after its incident has an id."""
    steps = tuple(_without_id(step, incident) for step in plan.steps)
    return plan_digest("", plan.runbook, plan.runbook_revision, plan.mode, steps)


def shown_steps(plan: Plan, incident: str) -> tuple[str, ...]:
    """The plan as a line for its mode and one for each step: what a command carries to be compared."""
    head = f"{plan.runbook} revision {plan.runbook_revision} in mode {plan.mode}"
    return (head, *(_line(_without_id(step, incident)) for step in plan.steps))


def what_changed(seen: Sequence[str], now: Sequence[str]) -> str:
    """How two lists of `shown_steps` differ, as text."""
    gone = [line for line in seen if line not in set(now)]
    new = [line for line in now if line not in set(seen)]
    parts = [f"no longer: {_named(gone)}"] if gone else []
    parts += [f"now: {_named(new)}"] if new else []
    return "; ".join(parts) or "the order of its steps"


def holder(plan: Plan, incident: str, runs: Iterable[Run]) -> str:
    """Which run holds what this plan acts on, or is at work for the same incident, as text; empty when none does.

    Runs in shadow mode hold nothing, and a plan in shadow mode takes nothing from anybody.
    """
    wanted = {step.target.key: step.target for step in plan.steps if step.destructive and step.target}
    for run in runs:
        if run.plan.mode is Mode.SHADOW or not is_at_work(run):
            continue
        if run.incident == incident:
            doing = "is still rolling back" if run.state.is_over else "is at work"
            return f"{run.id} ({run.plan.runbook}) {doing} for {incident}; `faultline incidents stop {incident}` ends it"
        if plan.mode is Mode.SHADOW or run.admitted_at is None:
            continue
        if held := sorted(acted_on(run) & wanted.keys()):
            return f"{run.id} ({run.plan.runbook}) of {run.incident} holds {wanted[held[0]]}"
    return ""


def superseded(old: Run, runs: Sequence[Run]) -> str:
    """Why a run is not the one to take up: another of its incident came after it. `runs` are the incident's, oldest first."""
    later = [run for run in runs[runs.index(old) + 1 :] if run.plan.mode is not Mode.SHADOW]
    if not later:
        return ""
    last = later[-1]
    by = f", started by {last.started_by}" if last.started_by else ""
    return f"{last.id} ({last.plan.runbook}) came after {old.id}{by}: that one is the one to take up"


def is_at_work(run: Run) -> bool:
    """Whether a run still acts or rolls back. A ticket that is still to be opened holds nothing."""
    return not run.state.is_over or any(record.is_being_undone for record in run.steps)


def targets_of(plan: Plan) -> list[str]:
    """Keys of what the destructive steps of a plan act on."""
    return sorted({step.target.key for step in plan.steps if step.destructive and step.target})


def as_started(run: Run, command: Command, groups: tuple[str, ...]) -> Run:
    """The run of a plan that a person was shown and has started: that is an approval of this plan, by the rules of any other."""
    given = Approval(
        "", True, command.actor, command.at, run.plan.digest, command.reason, command.via, "", groups
    )
    return replace(run, started_by=command.actor, commands=(command.id,), approvals=(given,))


def note_of_start(run: Run, command: Command, what: str) -> TimelineNote:
    """The answer to the command, on the timeline."""
    why = f": {command.reason}" if command.reason else ""
    mode = "; in shadow mode, no changes are made" if run.plan.mode is Mode.SHADOW else ""
    return TimelineNote(
        f"person.{command.verb}",
        f"{command.actor} {what}{why}{mode}",
        command.actor,
        {"command": command.id, "via": command.via, "run": run.id},
    )


def _without_id(step: PlannedStep, incident: str) -> PlannedStep:
    target = step.target
    if target is None or target.kind != "Incident" or target.name != incident:
        return step
    return replace(step, target=replace(target, name=""))


def _line(step: PlannedStep) -> str:
    """One step in words, with a mark over all that the words leave out: its parameters, deadline, uid, approval."""
    target = "" if step.target is None or step.target.kind == "Incident" else f" {step.target}"
    return f"{step.id}: {step.action}{target} [{digest(encode(step).decode(), size=4)}]"[:1000]


def _named(lines: Sequence[str]) -> str:
    more = f" and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
    return ", ".join(lines[:NAMED]) + more
