"""How much an edit may change before a check fails: `cordons=0,pages=2,gpu_hours=10`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from faultline.replay.what_if.summary import Hours, Moved, Summary
from streams.model.errors import BadInput
from streams.model.similar import suggestion

KEYS: Mapping[str, str] = {
    "incidents": "incidents that come or go",
    "culprits": "incidents with another culprit",
    "certainties": "incidents with another certainty or severity",
    "impacts": "incidents with other jobs or nodes",
    "runbooks": "incidents with another runbook",
    "modes": "incidents whose runbook may go further, or less far",
    "steps": "incidents with a step that is done otherwise",
    "verdicts": "incidents with another verdict of the guardrails",
    "actions": "steps more that are done without asking",
    "approvals": "steps more that people are asked about",
    "cordons": "nodes more that are closed without asking",
    "tickets": "tickets more",
    "pages": "pages more",
    "gpu_hours": "GPU-hours more",
}


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A budget that is exceeded, and by what."""

    key: str
    budget: float
    found: float

    def __str__(self) -> str:
        return f"{KEYS[self.key]}: {self.found:g}, budget {self.budget:g}"


def read_budget(texts: tuple[str, ...]) -> dict[str, float]:
    """The budgets in `KEY=NUMBER,…`. Raises BadInput with a line for every fault."""
    found: dict[str, float] = {}
    faults: list[str] = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        key, _, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if key not in KEYS:
            faults.append(
                f"  {part}: there is no budget {key}{suggestion(key, KEYS) or '; known are ' + ', '.join(KEYS)}"
            )
        elif not value >= 0:
            faults.append(f"  {part}: expected {key}=NUMBER, 0 or more")
        else:
            found[key] = value
    if faults:
        raise BadInput("\n".join(["the budget is not usable:", *faults]))
    return found


def exceeded(summary: Summary, budget: Mapping[str, float]) -> tuple[Exceeded, ...]:
    """The budgets that a difference exceeds, in the order of `KEYS`."""
    found = ((key, budget[key], spent(summary, key)) for key in KEYS if key in budget)
    return tuple(Exceeded(key, most, value) for key, most, value in found if value > most)


def spent(summary: Summary, key: str) -> float:
    """What a difference takes of a budget: what comes or goes of incidents, what is added of everything else."""
    value = getattr(summary, key)
    if isinstance(value, Hours):
        return max(0.0, value.after - value.before)
    if isinstance(value, Moved):
        return value.added + value.removed if key == "incidents" else value.added
    return float(value)
