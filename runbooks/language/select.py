"""Selects the runbook for an incident: deterministic, with the reason why each other one was not chosen.

Of those that match, the highest priority is chosen; then the most specific one, with the most conditions on the incident; then
the first id. So a runbook for one code of a family is chosen before the one for the family, without any priority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runbooks.language.cel_syntax import conjuncts, source_of
from runbooks.language.conditions import condition, facts_of
from runbooks.language.job_history import UNKNOWN_HISTORY, JobHistory
from runbooks.language.schema import Runbook
from streams.model.incident import Incident


@dataclass(frozen=True, slots=True)
class Choice:
    """The runbook chosen (None when none matches) and why each other one was not."""

    runbook: Runbook | None
    why: str
    rejected: tuple[tuple[str, str], ...] = ()


def select(incident: Incident, runbooks: Sequence[Runbook], history: JobHistory = UNKNOWN_HISTORY) -> Choice:
    """The matching runbook with the highest priority; among equals the most specific, then the first id."""
    facts = facts_of(incident, history)
    matching: list[Runbook] = []
    rejected: list[tuple[str, str]] = []
    for runbook in runbooks:
        try:
            holds = condition(runbook.match).holds(facts)
        except ValueError as error:
            # One invalid runbook must not leave all incidents without one.
            rejected.append((runbook.id, f"its condition is invalid: {error}"))
            continue
        if not holds:
            rejected.append((runbook.id, f"does not match: {runbook.match.strip()}"))
        elif missing := _missing(runbook, incident):
            rejected.append((runbook.id, missing))
        else:
            matching.append(runbook)
    if not matching:
        return Choice(None, f"no runbook matches family {incident.family}", tuple(sorted(rejected)))
    best = min(matching, key=rank)
    rejected += [(runbook.id, _behind(runbook, best)) for runbook in matching if runbook is not best]
    why = f"{best.id} matches with priority {best.priority} and {_conditions(best)}"
    return Choice(best, why, tuple(sorted(rejected)))


def rank(runbook: Runbook) -> tuple[int, int, str]:
    """The sort key of runbooks that match: the smallest is chosen."""
    return -runbook.priority, -specificity(runbook.match), runbook.id


@lru_cache(maxsize=512)
def specificity(match: str) -> int:
    """How many different conditions on the incident there are between the outermost `&&` of a match."""
    return sum("incident" in conjunct.names for conjunct in conjuncts(condition(match).tree))


def unmet(match: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The conditions of a match that do not hold for `facts_of(incident)`, as source text."""
    parts = [source_of(conjunct.tree, match) for conjunct in conjuncts(condition(match).tree)]
    return tuple(part for part in parts if not condition(part).holds(facts))


def _behind(runbook: Runbook, best: Runbook) -> str:
    if runbook.priority != best.priority:
        return f"priority {runbook.priority} is below the {best.priority} of {best.id}"
    if specificity(runbook.match) != specificity(best.match):
        return f"less specific than {best.id}: {_conditions(runbook)}, not {specificity(best.match)}"
    return f"as specific as {best.id}, whose id comes first"


def _conditions(runbook: Runbook) -> str:
    count = specificity(runbook.match)
    return f"{count} condition{'' if count == 1 else 's'}"


def _missing(runbook: Runbook, incident: Incident) -> str:
    targets = {step.target for step in runbook.steps}
    if "root_node" in targets and incident.root.node is None:
        return "acts on the root's node, and the root names none"
    if "root_job" in targets and incident.root.job is None:
        return "acts on the root's job, and the root names none"
    return ""
