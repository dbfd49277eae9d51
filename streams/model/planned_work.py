"""Planned work of our own on nodes: what a request says, as it travels in a signal and in the facts of an incident."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import AwareDatetime

from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput
from streams.model.signal import Attribute

REQUEST = "request"
"""The id of the command that began the work: nodes of one request have it in common."""
BY, WHY, UNTIL = "by", "work_reason", "until"
APPROVED = "approved"
"""Whether whoever asked may approve such work: nobody else is asked then."""
OVER, OVER_BY = "work_over", "work_over_by"
RUNBOOK, PARAMETERS, SHOWN = "runbook", "runbook_parameters", "plan_shown"
"""The runbook that a person starts on the node, values for its parameters as JSON, and the digest of the plan that was shown."""


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """Work on a node: who asked for it, why and until when. `over` once somebody said that it is done."""

    request: str
    by: str
    reason: str
    until: AwareDatetime
    approved: bool = False
    over: bool = False
    over_by: str = ""
    runbook: str = ""
    """The runbook that a person started by hand; empty where the library chooses it."""
    parameters: str = ""
    shown: str = ""


def work_of(values: Mapping[str, Attribute]) -> PlannedWork | None:
    """The work that attributes or facts tell of; None where they tell of none."""
    try:
        until: datetime = parse_rfc3339(str(values.get(UNTIL, "")))
    except BadInput:
        return None
    return PlannedWork(
        str(values.get(REQUEST, "")),
        str(values.get(BY, "")),
        str(values.get(WHY, "")),
        until,
        values.get(APPROVED) is True,
        values.get(OVER) is True,
        str(values.get(OVER_BY, "")),
        str(values.get(RUNBOOK, "")),
        str(values.get(PARAMETERS, "")),
        str(values.get(SHOWN, "")),
    )
