"""`await_work`: a closed and emptied node belongs to whoever works on it, until they say that it is done or its time is over."""

from __future__ import annotations

from datetime import datetime, timedelta

from runbooks.engine.run.rollback import fail
from runbooks.engine.run.transition import RunContext, RunTransition
from streams.model.clock import span, to_the_second
from streams.model.planned_work import PlannedWork, work_of
from streams.model.run import PlannedStep, StepState

LONGEST_OVERDUE = timedelta(hours=24)
"""How long a node that is not Ready is waited for after the time that was asked for; it stays closed then."""
RECHECK_S = 30.0


def watch_work(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """Done when somebody said so, or its time is over, and the node is Ready; overdue while it is not."""
    work, target = work_of(context.incident.facts), planned.target
    if work is None or target is None:
        fail(transition, planned, f"until when the work on {target} lasts cannot be read")
        return
    node = context.view.nodes.get(target.name)
    if node is None or not node.ready:
        away = f"{target.name} is not Ready" if node is not None else f"{target.name} is not in the inventory"
    else:
        away = ""
    if work.over and not away:
        said = f"{work.over_by or work.by} said that the work is done"
        transition.finish(planned.id, StepState.DONE, said)
    elif not work.over and transition.now < work.until:
        _wait(transition, planned, f"{work.by} works on it until {to_the_second(work.until)}", work.until)
    elif not away:
        transition.finish(planned.id, StepState.DONE, f"its time ended at {to_the_second(work.until)}")
    else:
        _overdue(transition, planned, work, away)


def _overdue(transition: RunTransition, planned: PlannedStep, work: PlannedWork, away: str) -> None:
    since = min(work.until, transition.now)
    late_s = (transition.now - since).total_seconds()
    if transition.now - since > LONGEST_OVERDUE:
        fail(transition, planned, f"overdue for {span(late_s)}: {away}; it stays closed")
        return
    ended = "the work is said to be done" if work.over else f"overdue since {to_the_second(work.until)}"
    reason = f"{ended}, and {away}"
    if transition.records[planned.id].reason != reason:
        text = f"{reason}; `faultline maintenance start --until` extends it"
        transition.note(
            "work.overdue", text, step=planned.id, node=planned.target.name if planned.target else ""
        )
    _wait(transition, planned, reason, transition.in_seconds(RECHECK_S))


def _wait(transition: RunTransition, planned: PlannedStep, reason: str, until: datetime) -> None:
    record = transition.records[planned.id]
    due = min(until, transition.in_seconds(3600.0))
    if record.reason != reason or record.due_at is None or record.due_at <= transition.now:
        transition.set(planned.id, reason=reason, due_at=due)
