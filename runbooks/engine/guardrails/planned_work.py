"""Guardrail for planned work: what could not begin before its time was over does not begin at all."""

from __future__ import annotations

from runbooks.engine.guardrails.context import GuardContext, Ruling, refuse
from streams.model.clock import to_the_second
from streams.model.kinds import IncidentFamily
from streams.model.planned_work import work_of


def work_is_over(context: GuardContext) -> Ruling | None:
    """A node that waited for others, or for an approval, until the time that was asked for had passed stays in service."""
    if context.incident.family != IncidentFamily.PLANNED_WORK or context.admitted:
        return None
    work = work_of(context.incident.facts)
    if work is None:
        return refuse("planned work", "until when it lasts cannot be read")
    if work.over:
        return refuse("planned work", f"{work.over_by or work.by} said that it is done")
    if context.now >= work.until:
        return refuse("planned work", f"its time ended at {to_the_second(work.until)}, and it had not begun")
    return None
