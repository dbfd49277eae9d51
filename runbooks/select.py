"""Which runbook for an incident: deterministic, and the losers are explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runbooks.conditions import condition, facts_of
from runbooks.model import Runbook
from streams.model.incident import Incident


@dataclass(frozen=True, slots=True)
class Choice:
    """The runbook taken (None when none matches) and why each other one was not."""

    runbook: Runbook | None
    why: str
    rejected: tuple[tuple[str, str], ...] = ()


def select(incident: Incident, runbooks: Sequence[Runbook]) -> Choice:
    """The matching runbook with the highest priority; among equals the first id."""
    facts = facts_of(incident)
    matching: list[Runbook] = []
    rejected: list[tuple[str, str]] = []
    for runbook in runbooks:
        try:
            holds = condition(runbook.match).holds(facts)
        except ValueError as error:
            # One faulty runbook must not leave all incidents without any.
            rejected.append((runbook.id, f"its condition is at fault: {error}"))
            continue
        if not holds:
            rejected.append((runbook.id, f"does not match: {runbook.match.strip()}"))
        elif missing := _missing(runbook, incident):
            rejected.append((runbook.id, missing))
        else:
            matching.append(runbook)
    if not matching:
        return Choice(None, f"no runbook matches family {incident.family}", tuple(sorted(rejected)))
    best = min(matching, key=lambda r: (-r.priority, r.id))
    rejected += [
        (r.id, f"priority {r.priority} is not above {best.priority}") for r in matching if r is not best
    ]
    return Choice(best, f"{best.id} matches with priority {best.priority}", tuple(sorted(rejected)))


def _missing(runbook: Runbook, incident: Incident) -> str:
    targets = {step.target for step in runbook.steps}
    if "root_node" in targets and incident.root.node is None:
        return "acts on the root's node, and the root names none"
    if "root_job" in targets and incident.root.job is None:
        return "acts on the root's job, and the root names none"
    return ""
