"""Guardrails of teams: how far runbooks go with a team's jobs, and how often in an hour.

They only ever add: every guardrail of the fleet judges the same step as well.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from fnmatch import fnmatchcase

from runbooks.engine.approvals import TEAM, TEAM_QUOTA
from runbooks.engine.guardrails.context import GuardContext, Ruling, ask, hold
from runbooks.engine.guardrails.cordoned_nodes import admitted_at
from runbooks.engine.guardrails.job_moves import jobs_moved, moves_begun
from runbooks.engine.tenancy import disturbs, is_gone, rows_of, touched
from streams.config.rollout_settings import Stage
from streams.model.message import some

HOUR = timedelta(hours=1)


def team_ceiling(context: GuardContext) -> Ruling | None:
    """The strictest stage of the teams whose jobs the step would disturb now: a job that is gone holds nothing any more."""
    if not context.policy.tenants or not disturbs(context.step) or is_gone(context.step, context.view):
        return None
    found = list(touched(context.step, context.view, context.policy.tenants))
    what = f"it would {context.step.action.replace('_', ' ')} ({context.step.target})"
    watched = {row.team: job for row, job in found if row.stage is Stage.OBSERVE}
    if watched:
        team = min(watched)
        return hold(
            TEAM,
            f"{what}, and team {team} is in stage observe ({watched[team]})",
            f"clears once {some(sorted(watched.values()), 3)} is gone, or with another stage of team {team} in responder.tenants",
        )
    others = [
        (row, job)
        for row, job in found
        if row.stage is Stage.CANARY and not any(fnmatchcase(job, pattern) for pattern in row.canary_jobs)
    ]
    if not others:
        return None
    row, job = min(others, key=lambda one: (one[0].team, one[1]))
    return ask(
        TEAM,
        f"{what}, and {job} is none of the canary_jobs of team {row.team}, which is in stage canary",
        "clears when approved",
    )


def team_quota(context: GuardContext) -> Ruling | None:
    """How many nodes are closed under a team's jobs in an hour, judged before the first step of a run, and how many of its jobs
    are moved, judged where a step would move one. More is asked about: what waits in silence costs the team its GPUs as well."""
    if not context.policy.tenants:
        return None
    return _moves(context) if disturbs(context.step) else _closed_nodes(context)


def _moves(context: GuardContext) -> Ruling | None:
    step, begun = context.step, moves_begun(context.run)
    if step.target is None:
        return None
    since = context.now - HOUR
    for row in rows_of(step.teams or (), context.policy.tenants):
        most, more = row.moves_per_h, jobs_moved(step, row.team)
        # The rest of a move that has begun: its job is counted already.
        if most is None or not more or (row.team, step.target.key) in begun:
            continue
        # Of this run counts what it has begun by now: the counts of all runs have it only once it is committed.
        own = sum(move.jobs for (team, _), move in begun.items() if team == row.team and move.began > since)
        others = context.counts.spent_by(
            row.team, True, shadow=context.shadow, since=since, besides=context.run.id
        )
        if own + others + more > most:
            return ask(
                TEAM_QUOTA,
                f"team {row.team}: {own + others} jobs moved in an hour, this step moves {more}, "
                f"limit {most} (moves_per_h)",
                "clears when approved, or with time",
            )
    return None


def _closed_nodes(context: GuardContext) -> Ruling | None:
    if context.admitted:
        return None  # an admitted run may finish
    wanted = Counter(
        team
        for step in context.run.plan.steps
        if step.destructive
        and not disturbs(step)
        and not context.run.step(step.id).carried_from
        and admitted_at(context.run, context.run.step(step.id)) is None
        for team in step.teams or ()
    )
    since = context.now - HOUR
    for row in rows_of(wanted, context.policy.tenants):
        most, more = row.cordons_per_h, wanted[row.team]
        if most is None:
            continue
        spent = context.counts.spent_by(row.team, False, shadow=context.shadow, since=since)
        if spent + more > most:
            return ask(
                TEAM_QUOTA,
                f"team {row.team}: {spent} nodes closed under jobs in an hour, this run adds {more}, "
                f"limit {most} (cordons_per_h)",
                "clears when approved, or with time",
            )
    return None
