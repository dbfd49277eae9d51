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
from runbooks.engine.tenancy import disturbs, rows_of, touched
from streams.config.rollout_settings import Stage
from streams.model.message import some

HOUR = timedelta(hours=1)


def team_ceiling(context: GuardContext) -> Ruling | None:
    """The strictest stage of the teams whose jobs the step would disturb now: a job that is gone holds nothing any more."""
    if not context.policy.tenants or not disturbs(context.step):
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
    """How many of its jobs' nodes are closed, and how often its jobs are disturbed, in an hour. More is asked about: what waits
    in silence costs the team its GPUs as well."""
    if not context.policy.tenants:
        return None
    wanted: Counter[tuple[str, bool]] = Counter(
        (team, disturbs(step))
        for step in context.run.plan.steps
        if step.destructive
        and not context.run.step(step.id).carried_from
        and admitted_at(context.run, context.run.step(step.id)) is None
        for team in step.teams or ()
    )
    for row in rows_of({team for team, _ in wanted}, context.policy.tenants):
        for moves, most, setting in (
            (False, row.cordons_per_h, "cordons_per_h"),
            (True, row.moves_per_h, "moves_per_h"),
        ):
            more = wanted[row.team, moves]
            if most is None or not more:
                continue
            spent = context.counts.spent_by(row.team, moves, shadow=context.shadow, since=context.now - HOUR)
            if spent + more > most:
                done = "steps that disturb jobs" if moves else "nodes closed under jobs"
                return ask(
                    TEAM_QUOTA,
                    f"team {row.team}: {spent} {done} in an hour, this run adds {more}, limit {most} ({setting})",
                    "clears when approved, or with time",
                )
    return None
