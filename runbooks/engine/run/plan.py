"""A runbook bound to an incident: one planned step per target, and a digest over everything that is approved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from runbooks.engine.escalation import faulty_entity
from runbooks.engine.job_condition import MOVABLE, POD, UNMOVABLE, bare_pods, condition_of, immovable
from runbooks.engine.job_history import stays_stopped
from runbooks.engine.run.drain_preview import would_evict
from runbooks.engine.spares import SpareChoice, choice
from runbooks.engine.tenancy import with_teams
from runbooks.language.conditions import Plain, condition, facts_of
from runbooks.language.job_history import UNKNOWN_HISTORY, JobHistory
from runbooks.language.parameters import values_of
from runbooks.language.schema import (
    AFTER_CORDON,
    IF_OFFERED,
    NODE_WORK,
    ON_REQUEST,
    SEVERAL,
    SPARES,
    Runbook,
    Step,
    computed,
    given,
    is_destructive,
    unlike,
)
from runbooks.language.values import Asks, Computed, Params
from runbooks.language.yaml_source import BRANCHES, Path
from streams.config.tenant_settings import Tenant
from streams.inventory.cluster_view import ClusterView
from streams.job_kinds.checkpoint_way import LONGEST_S, WITHIN
from streams.model.codec import encode
from streams.model.digest import digest
from streams.model.drill import is_drill
from streams.model.entity import JobRef, is_of_slurm
from streams.model.incident import Incident
from streams.model.run import (
    Compensation,
    Escalation,
    Mode,
    Plan,
    PlannedRetry,
    PlannedStep,
    Target,
    stricter,
)

_SETTINGS = {"apply_template": "object_templates", "diagnose_nodes": "pairs", "power_cycle_node": "redfish"}
"""The setting of an action where it has another name."""

V = TypeVar("V", bound=Plain)

MAX_PODS = 16
"""Pods of the node that evidence may be collected in; the settings may say fewer."""

MAX_STEPS = 200
"""A run with this many steps, each with its connector's texts, still fits the store; more need manual handling."""


def plan(
    incident: Incident,
    runbook: Runbook,
    view: ClusterView,
    ceiling: Mode,
    actions: frozenset[str] = frozenset(),
    history: JobHistory = UNKNOWN_HISTORY,
    tenants: Sequence[Tenant] = (),
) -> Plan:
    """Bind `runbook` to `incident`; `tenants` are the teams whose jobs its steps may touch. The mode is the stricter one of the
    runbook's and the installation's (`ceiling`), and shadow for a drill.

    The same incident, inventory and runbook give the same plan and digest. A step without a target (no job to act on)
    or whose `when` is false is left out, and the steps that need it wait for what it would have waited for. Node work without a
    connector (`actions`) is left out with every step that needs it: a node that was not validated is not uncordoned.

    Raises:
        ValueError: a `when` is no yes or no, a value cannot be worked out or is out of range, a step would go before its node is
            closed, or there are more than `MAX_STEPS` steps.
    """
    facts, values = facts_of(incident, history), values_of(runbook.parameters)
    bound: dict[str, list[PlannedStep]] = {}
    by_id = {step.id: step for step in runbook.steps}
    left_out: dict[str, str] = {}
    closes = view.nodes.get(faulty_entity(incident).node or "")
    on_slurm = closes is not None and is_of_slurm(closes.uid)
    diagnoses = any(step.action == "diagnose_nodes" for step in runbook.steps)
    gives = any(step.action == "release_spare" for step in runbook.steps)
    spares = choice(faulty_entity(incident).node or "", incident.jobs, view) if gives else SpareChoice()
    for step in runbook.steps:
        if why := _not_here(step, actions, left_out, on_slurm=on_slurm):
            left_out[step.id] = why
            continue
        if step.when is not None and not condition(step.when).holds(facts, values):
            bound[step.id] = []
            continue
        settled = _evaluated(step, runbook, facts, values)
        if step.action in IF_OFFERED:
            pods = _pods_on_root(incident, view)
            if not pods or step.action not in actions:
                bound[step.id] = []
                continue
            settled = settled.model_copy(update={"params": {"pods": ",".join(pods)}})
        if step.action in SPARES:
            if not spares.spares:
                bound[step.id] = []
                continue
            settled = _with_spares(settled, spares)
        # That a program certainly crashed proves nothing about the GPU it ran on: acting on that always needs an approval.
        asks = runbook.mode is Mode.APPROVE or faulty_entity(incident) != incident.root
        if step.action == "resume_job" and (suspects := _open_suspects(incident)):
            settled = settled.model_copy(update={"params": {"avoid": ",".join(suspects), **settled.params}})
        bound[step.id] = [
            _planned(
                _with_deadline(_with_nodes(settled, target, view), target, view),
                number,
                target,
                _needs(step, target, bound, by_id),
                asks=asks,
                remarks=_remarks(settled, target, view, history if diagnoses else UNKNOWN_HISTORY),
            )
            for number, target in enumerate(_targets(step, incident, view))
            if step.action not in ON_REQUEST or _declares(target, view)
        ]
    steps = with_teams(tuple(planned for group in bound.values() for planned in group), view, tenants)
    if (first := _before_cordon(steps, view)) is not None:
        raise ValueError(f"{runbook.id} would {first.action} {first.target} before any node is cordoned")
    if len(steps) > MAX_STEPS:
        raise ValueError(f"{runbook.id} would have {len(steps)} steps, limit {MAX_STEPS} per incident")
    # A drill goes through every stage and must never have an effect, whatever the runbook and the settings allow.
    mode = Mode.SHADOW if is_drill(incident) else stricter(runbook.mode, ceiling)
    step_up = runbook.escalation
    return Plan(
        runbook=runbook.id,
        runbook_revision=runbook.revision,
        mode=mode,
        steps=steps,
        digest=plan_digest(incident.id, runbook.id, runbook.revision, mode, steps),
        why=runbook.description.strip(),
        left_out=tuple(
            f"{step}: {why}" for step, why in (left_out | _without_spares(runbook, spares)).items()
        ),
        would_evict=would_evict(steps, view),
        escalation=Escalation(step_up.to, step_up.after, step_up.within_s, step_up.per) if step_up else None,
        parameters=values,
    )


def context_of(incident: Incident, plan: Plan) -> dict[str, str | int | float | bool]:
    """What messages and connectors get to know about the incident, as plain values."""
    return {
        "title": incident.title,
        "reason": incident.reason,
        "family": incident.family,
        "severity": str(incident.severity),
        "certainty": str(incident.certainty),
        "root": str(incident.root),
        **({"node": incident.root.node} if incident.root.node is not None else {}),
        **_gpu_of(incident),
        "jobs": ", ".join(str(job) for job in incident.jobs[:10]),
        "runbook": f"{plan.runbook} revision {plan.runbook_revision}",
    }


def _not_here(
    step: Step, actions: frozenset[str], left_out: Mapping[str, str], *, on_slurm: bool = False
) -> str:
    if on_slurm and step.action in NODE_WORK:
        return f"{step.action} is made on nodes of Kubernetes only, and this one is Slurm's"
    if step.action in NODE_WORK - actions:
        return (
            f"no connector for {step.action} (node_work.{_SETTINGS.get(step.action, step.action)} is not set)"
        )
    return next((f"it needs {need}" for need in step.needs if need in left_out), "")


def plan_digest(
    incident: str, runbook: str, revision: int, mode: Mode, steps: tuple[PlannedStep, ...]
) -> str:
    """Covers everything that is approved: an approval of one plan is none of another."""
    return digest(incident, runbook, revision, mode, *(encode(step).decode() for step in steps), size=16)


def _evaluated(step: Step, runbook: Runbook, facts: dict[str, Any], values: Mapping[str, Plain]) -> Step:
    """The step with every expression replaced by its value, checked like plain values."""
    expressions = {path: source for path, source, _ in computed(step)}
    if not expressions:
        return step
    document: dict[Any, Any] = step.model_dump(exclude_unset=True)
    for path, source in expressions.items():
        place = document
        for part in path[:-1]:
            place = place[part]
        try:
            place[path[-1]] = condition(source).value(facts, values)
        except ValueError as error:
            raise ValueError(f"{runbook.id}: {_named(step, path)}: {error}") from error
    try:
        settled = Step.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = tuple(part for part in first["loc"] if part not in BRANCHES)
        raise ValueError(
            f"{runbook.id}: {_named(step, path)} is {first['input']!r} by {expressions.get(path)!r}: {first['msg']}"
        ) from error
    for path, value, wanted in given(settled):
        if wrong := unlike(value, wanted):
            raise ValueError(f"{runbook.id}: {_named(step, path)} is {value!r}: {wrong}")
    return settled


def _with_nodes(step: Step, target: Target, view: ClusterView) -> Step:
    """A step about all nodes of a job names them: after the job is suspended nobody knows them any more."""
    if step.target != "job_nodes":
        return step
    return step.model_copy(update={"params": {**step.params, "nodes": ",".join(_nodes_of(target.key, view))}})


def _pods_on_root(incident: Incident, view: ClusterView) -> list[str]:
    """The pods of the incident's jobs on its node, `namespace/name`."""
    node, jobs = faulty_entity(incident).node, {job.key for job in incident.jobs}
    pods = view.pods_on(node) if node is not None else ()
    return sorted(f"{p.namespace}/{p.name}" for p in pods if p.job is not None and p.job.key in jobs)[
        :MAX_PODS
    ]


def _declares(target: Target, view: ClusterView) -> bool:
    """Whether a job declares how it is asked for a checkpoint."""
    fact = view.jobs.get(target.key)
    return fact is not None and fact.checkpoint_by is not None


def _with_deadline(step: Step, target: Target, view: ClusterView) -> Step:
    """A job that is asked for a checkpoint has as long as it says that it takes, and no longer than the step has."""
    fact = view.jobs.get(target.key) if step.action in ON_REQUEST else None
    if fact is None or fact.checkpoint_within_s is None:
        return step
    return step.model_copy(update={"deadline_s": min(_settled(step.deadline_s), fact.checkpoint_within_s)})


def _named(step: Step, path: Path) -> str:
    return f"step {step.id}, {'.'.join(map(str, path))}"


def _with_spares(step: Step, spares: SpareChoice) -> Step:
    """The step with the nodes that it may give out; who reads the plan sees the nearest of them."""
    told = f"{step.describe}: {spares.told}" if step.action == "release_spare" else step.describe
    return step.model_copy(update={"params": {"spares": spares.listed}, "describe": told})


def _without_spares(runbook: Runbook, spares: SpareChoice) -> dict[str, str]:
    """Why the steps that would give out spares are left out, where there are spares at all."""
    if not spares.why_none:
        return {}
    giving = [step.id for step in runbook.steps if step.action == "release_spare"]
    return dict.fromkeys(giving, f"no spare is released: {spares.why_none}")


def _remarks(step: Step, target: Target, view: ClusterView, history: JobHistory) -> str:
    """What stopping a job costs it, or why it cannot be stopped, for whoever reads or approves the plan; and that it was moved
    before, where it is stopped to find out why."""
    fact = view.jobs.get(target.key)
    if step.action in ON_REQUEST and fact is not None:
        within_s = _settled(_with_deadline(step, target, view).deadline_s)
        said = fact.checkpoint_within_unreadable
        usual = f"; its {WITHIN} is no number from 1 to {LONGEST_S:g}: {said}" if said is not None else ""
        return f"by {fact.checkpoint_by}, for at most {within_s:g} s{usual}"
    if step.action == "suspend_job" and fact is not None:
        heals = (
            f"left to its own controller for {fact.heals_within_s:g} s first" if fact.heals_within_s else ""
        )
        stuck = immovable(target.key, view) if heals else ""
        fixed = f"cannot be suspended after that: {stuck}" if stuck else ""
        return "; ".join(filter(None, (history.told(target.key), heals, fixed, fact.cost)))
    return immovable(target.key, view) if step.target == "unmovable_jobs" else ""


def _planned(
    step: Step, number: int, target: Target, needs: set[str], *, asks: bool, remarks: str
) -> PlannedStep:
    several = step.target in SEVERAL
    who = step.approval if isinstance(step.approval, Asks) else None
    retry, back = step.retry, step.compensate
    return PlannedStep(
        id=f"{step.id}:{target.kind}/{target.namespace}/{target.name}" if several else step.id,
        action=step.action,
        target=target,
        params=_settled_params(step.params),
        destructive=is_destructive(step.action, step.params),
        needs=tuple(sorted(needs)),
        approval=bool(step.approval) or (asks and is_destructive(step.action, step.params)),
        deadline_s=_settled(step.deadline_s),
        on_failure=step.on_failure,
        describe="; ".join(filter(None, (step.describe, remarks))),
        undo=step.undo,
        retry=PlannedRetry(
            attempts=None if retry.attempts is None else _settled(retry.attempts),
            first_s=_settled(retry.first_s),
            factor=_settled(retry.factor),
            longest_s=_settled(retry.longest_s),
        ),
        wave=number // _settled(step.waves.size) if step.waves else 0,
        wave_pause_s=_settled(step.waves.pause_s) if step.waves else 0.0,
        compensation=Compensation(back.action, _settled_params(back.params)) if back else None,
        approval_group=who.group if who else "",
        quorum=who.quorum if who else 1,
    )


def _settled(value: V | Computed) -> V:
    """A value whose expression has been evaluated."""
    assert not isinstance(value, Computed)
    return value


def _settled_params(params: Params) -> dict[str, Plain]:
    return {name: _settled(value) for name, value in sorted(params.items())}


def _needs(
    step: Step, target: Target, bound: Mapping[str, Sequence[PlannedStep]], by_id: Mapping[str, Step]
) -> set[str]:
    """A step on one job waits for the needed step on the same job; any other waits for all of them.

    Where the needed step is left out, it waits for what that one needs: a job must not be rescheduled before its node is cordoned
    because a step in between has nothing to do.
    """
    needs: set[str] = set()
    for need in step.needs:
        group = bound[need]
        same = [p for p in group if p.target is not None and p.target.key == target.key]
        if step.target in SEVERAL and by_id[need].action in ON_REQUEST:
            group = same
        if not group:
            needs |= _needs(by_id[need], target, bound, by_id)
        needs |= {p.id for p in (same or group)}
    return needs


def _before_cordon(steps: Sequence[PlannedStep], view: ClusterView) -> PlannedStep | None:
    """The first step that requires a cordoned node and does not wait for a cordon. A job may be stopped before, where it starts
    again only once its slow nodes were found and closed."""
    after: set[str] = set()
    for planned in steps:  # what is needed stands before what needs it
        if planned.action == "cordon_node" or not after.isdisjoint(planned.needs):
            after.add(planned.id)
            continue
        closes = planned.action not in AFTER_CORDON or planned.params.get("as") == "close"
        if planned.destructive and not closes and not _is_diagnosed(planned, steps, view):
            return planned
    return None


def _is_diagnosed(stop: PlannedStep, steps: Sequence[PlannedStep], view: ClusterView) -> bool:
    """Whether a job that a step stops stays stopped until the slow ones of its nodes are closed."""
    if stop.action != "suspend_job" or stop.target is None or not stays_stopped(stop.target.key, view):
        return False
    needs = {step.id: {*step.needs} for step in steps}
    for step in steps:  # what is needed stands before what needs it
        needs[step.id] |= {further for need in step.needs for further in needs[need]}
    mine = [step for step in steps if step.target is not None and step.target.key == stop.target.key]
    measured = {s.id for s in mine if s.action == "diagnose_nodes" and stop.id in needs[s.id]}
    closed = {s.id for s in mine if s.action == "cordon_slow_nodes" and measured & needs[s.id]}
    return bool(closed) and all(closed & needs[s.id] for s in mine if s.action == "resume_job")


def _open_suspects(incident: Incident) -> list[str]:
    """Nodes under suspicion besides the root, which the plan closes: a job that is started again should not come back to them."""
    suspects = incident.facts.get("suspect_nodes")
    root = faulty_entity(incident).node
    return [str(node) for node in suspects if node != root] if isinstance(suspects, list | tuple) else []


def _targets(step: Step, incident: Incident, view: ClusterView) -> list[Target]:
    root = faulty_entity(incident)
    match step.target:
        case "incident":
            return [Target("Incident", incident.id)]
        case "root_node" if root.node is not None:
            fact = view.nodes.get(root.node)
            return [Target("Node", root.node, uid=fact.uid if fact else None)]
        case "root_job" if root.job is not None:
            return [_job(root.job, view)]
        case "job_nodes":
            jobs = {job.key: job for job in incident.jobs}
            return [_job(jobs[key], view) for key in sorted(jobs) if len(_nodes_of(key, view)) > 1]
        case "jobs" | "root_node_jobs" | "victim_jobs" | "unmovable_jobs":
            return [_job(job, view) for job in _jobs(step.target, incident.jobs, root.node, view)]
    return []


def _nodes_of(job: str, view: ClusterView) -> list[str]:
    """The nodes that a job's pods are or were on."""
    return sorted({pod.node for pod in view.pods_of(job) if pod.node})


def _jobs(selector: str, jobs: tuple[JobRef, ...], node: str | None, view: ClusterView) -> list[JobRef]:
    """The jobs of a selector, each once, in a fixed order, by how they stand.

    Bare pods on the node are told to their owners like jobs that cannot be moved. A service that holds GPUs is affected like a
    job, but cannot be suspended and resumed: the drain moves its pods.
    """
    wanted = UNMOVABLE if selector == "unmovable_jobs" else MOVABLE
    by_key = {job.key: job for job in jobs if condition_of(job.key, view, node=node) in wanted}
    if selector == "unmovable_jobs" and node is not None:
        pods = (JobRef(POD, pod.namespace, pod.name, pod.uid) for pod in bare_pods(node, view))
        by_key |= {pod.key: pod for pod in pods}
    if selector in ("root_node_jobs", "victim_jobs"):
        placed = view.jobs_on(node) if node is not None else set[str]()
        here = selector == "root_node_jobs"
        by_key = {key: job for key, job in by_key.items() if (key in placed) is here}
    return [by_key[key] for key in sorted(by_key)]


def _job(job: JobRef, view: ClusterView) -> Target:
    fact = view.jobs.get(job.key)
    return Target(job.kind, job.name, job.namespace, uid=job.uid or (fact.job.uid if fact else None))


def _gpu_of(incident: Incident) -> dict[str, str | int | float | bool]:
    """The known names of the root-cause GPU, or of the one that a program crashed on."""
    gpu = faulty_entity(incident).gpu
    names = {"gpu_pci": gpu.pci, "gpu_uuid": gpu.uuid, "gpu_index": gpu.index} if gpu else {}
    return {name: value for name, value in names.items() if value is not None}
