"""What `diagnose_nodes` has found becomes steps: a `cordon_node` for each slow node, in the place of `cordon_slow_nodes`.

Which nodes that are is not known when the plan is made. Each of these steps passes the guardrails by itself, like those that a
new revision of the incident adds. The digest of the plan stays: who approved the plan has approved that what is measured to be
slow is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runbooks.engine.run.transition import RunContext, RunTransition
from streams.inventory.cluster_view import ClusterView
from streams.model.run import PlannedStep, StepRecord, StepState, Target


def close_slow_nodes(transition: RunTransition, context: RunContext) -> None:
    """Replace every `cordon_slow_nodes` whose diagnosis is done: it is done itself, and what needs it waits for the new steps."""
    if transition.stopping:
        return
    for planned, record in list(transition.steps()):
        if planned.action != "cordon_slow_nodes" or record.state is not StepState.PENDING:
            continue
        needed = [transition.records[name] for name in planned.needs]
        if not all(one.state in (StepState.DONE, StepState.SKIPPED) for one in needed):
            continue
        _become(transition, planned, _slow(transition, planned), context.view)


def _slow(transition: RunTransition, planned: PlannedStep) -> Sequence[str]:
    """The nodes that the diagnoses this step needs have found slow."""
    found: set[str] = set()
    for name in planned.needs:
        row = transition.records[name].effect
        names = row.result.get("slow") if row is not None and row.action == "diagnose_nodes" else None
        if isinstance(names, list | tuple):
            found.update(str(node) for node in names)
    return sorted(found)


def _become(transition: RunTransition, planned: PlannedStep, slow: Sequence[str], view: ClusterView) -> None:
    run = transition.run
    there = {step.target.name for step in run.plan.steps if step.action == "cordon_node" and step.target}
    made = [_cordon(planned, node, view) for node in slow if node not in there]
    ids = {step.id for step in made}
    if made:
        # What needs this step stands after it, and so do the new ones.
        steps: list[PlannedStep] = []
        for step in run.plan.steps:
            waits = planned.id in step.needs
            steps.append(replace(step, needs=tuple(sorted({*step.needs, *ids}))) if waits else step)
            steps += made if step.id == planned.id else ()
        known = transition.records
        transition.records = {step.id: known.get(step.id) or StepRecord(step.id) for step in steps}
        transition.change(
            plan=replace(run.plan, steps=tuple(steps)), steps=tuple(transition.records.values())
        )
    told = f"closes {', '.join(slow)}" if slow else "no node is slow with every partner"
    transition.finish(planned.id, StepState.DONE, told)


def _cordon(planned: PlannedStep, node: str, view: ClusterView) -> PlannedStep:
    fact = view.nodes.get(node)
    return replace(
        planned,
        id=f"{planned.id.partition(':')[0]}:Node//{node}",
        action="cordon_node",
        target=Target("Node", node, uid=fact.uid if fact is not None else None),
        describe=planned.describe or "it was slow with every partner",
    )
