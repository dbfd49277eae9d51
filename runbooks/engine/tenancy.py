"""Whose jobs a step touches.

Closing a node is the platform's: it disturbs no job, and a broken node is as broken for every team. What disturbs jobs — stopping
one, emptying, resetting, rebooting or replacing the node under them — is for the teams whose jobs these are: the strictest of
them decides. See docs/decisions/011-a-node-is-the-platforms-a-job-is-its-teams.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from runbooks.language.approval_rules import class_of
from streams.config.tenant_settings import Tenant, tenant_of
from streams.inventory.cluster_view import ClusterView
from streams.model.run import PlannedStep, Target

CLOSE = "close"


def with_teams(
    steps: tuple[PlannedStep, ...], view: ClusterView, rows: Sequence[Tenant]
) -> tuple[PlannedStep, ...]:
    """The steps, each destructive one with the teams whose jobs it touches."""
    if not rows:
        return steps
    stopped = {
        _full_name(step.target)
        for step in steps
        if disturbs(step) and step.target is not None and step.target.kind != "Node"
    }
    return tuple(_with_teams(step, stopped, view, rows) if step.destructive else step for step in steps)


def disturbs(step: PlannedStep) -> bool:
    """Whether a step does anything to running jobs."""
    return step.destructive and class_of(step) != CLOSE


def touched(step: PlannedStep, view: ClusterView, rows: Sequence[Tenant]) -> Iterator[tuple[Tenant, str]]:
    """The teams whose jobs a step touches, with `namespace/name` of the job or of a pod without one, as far as it is there."""
    target = step.target
    if target is None:
        return
    whose = partial(_whose, view=view, rows=rows)
    if target.kind == "Node":
        pods = {
            (pod.job.key if pod.job else "", pod.namespace, pod.name): pod
            for pod in view.pods_on(target.name)
        }
        for key, namespace, name in sorted(pods):
            job = pods[key, namespace, name].job
            if (row := whose(job.key if job else "", job.namespace if job else namespace)) is not None:
                yield row, str(job) if job else f"{namespace}/{name}"
    elif target.namespace is not None and (row := whose(target.key, target.namespace)) is not None:
        yield row, _full_name(target)


def _with_teams(
    step: PlannedStep, stopped: Collection[str], view: ClusterView, rows: Sequence[Tenant]
) -> PlannedStep:
    jobs = {(row.team, job) for row, job in touched(step, view, rows)}
    if not jobs:
        return step
    on_node = disturbs(step) and step.target is not None and step.target.kind == "Node"
    beside = Counter(team for team, job in sorted(jobs) if on_node and job not in stopped)
    return replace(
        step,
        teams=tuple(sorted({team for team, _ in jobs})),
        jobs_beside=dict(beside) if beside else None,
        job_known=step.target is not None and _has_job(view, step.target),
    )


def is_gone(step: PlannedStep, view: ClusterView) -> bool:
    """Whether the job that a step acts on is no more: the inventory had it when the step was planned. One that it has never had
    may only not have been read yet."""
    return step.job_known and step.target is not None and not _has_job(view, step.target)


def _has_job(view: ClusterView, target: Target) -> bool:
    return target.kind != "Node" and (target.key in view.jobs or any(True for _ in view.pods_of(target.key)))


def rows_of(teams: Iterable[str], rows: Sequence[Tenant]) -> list[Tenant]:
    """The rows of teams by name; those of teams that are not in the settings any more are left out."""
    wanted = set(teams)
    return [row for row in rows if row.team in wanted]


def _full_name(target: Target) -> str:
    return f"{target.namespace}/{target.name}"


def _whose(key: str, namespace: str, *, view: ClusterView, rows: Sequence[Tenant]) -> Tenant | None:
    fact = view.jobs.get(key)
    return tenant_of(rows, namespace, fact.queue if fact else None, fact.team if fact else None)
