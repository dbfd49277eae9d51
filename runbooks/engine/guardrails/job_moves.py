"""What a run counts in its teams' quotas of moves: a job once, however many steps it takes to move it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from runbooks.engine.guardrails.cordoned_nodes import MADE, admitted_at, is_shadow
from runbooks.engine.tenancy import disturbs
from streams.model.run import PlannedStep, Run, StepRecord


@dataclass(frozen=True, slots=True)
class Move:
    """Jobs of a team that a run has begun to move: how many, and since when."""

    jobs: int
    began: datetime


def moves_begun(run: Run) -> Mapping[tuple[str, str], Move]:
    """What the run has begun to move, by team and the key of the job, or of the node under the jobs that it does not stop itself.

    What an earlier run had begun that this one takes up is there without jobs: they count in that run.
    """
    found: dict[tuple[str, str], Move] = {}
    shadow = is_shadow(run)
    for planned, record in zip(run.plan.steps, run.steps, strict=True):
        if planned.target is None or not planned.teams or not disturbs(planned):
            continue
        began = _would_begin(run, record) if shadow else _began(record)
        if began is None:
            continue
        for team in planned.teams:
            jobs = 0 if record.carried_from else jobs_moved(planned, team)
            # The first step of several says when: what is needed stands before what needs it.
            found.setdefault((team, planned.target.key), Move(jobs, began))
    return found


def jobs_moved(planned: PlannedStep, team: str) -> int:
    """How many jobs of a team a step moves by itself: of those on its node, only the ones that no other step of the run stops."""
    if planned.target is None or planned.target.kind != "Node":
        return 1
    return (planned.jobs_beside or {}).get(team, 0)


def _began(record: StepRecord) -> datetime | None:
    if record.effect is None or record.effect.state not in MADE:
        return None
    return record.started_at or record.effect.intended_at


def _would_begin(run: Run, record: StepRecord) -> datetime | None:
    return admitted_at(run, record) if record.verdict == "would" else None
