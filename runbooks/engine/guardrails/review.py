"""What every guardrail says about a step: its objection, or with what numbers it passed. For whoever asks; nothing acts on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from runbooks.engine.guardrails.context import GuardContext, Ruling, Stage
from runbooks.engine.guardrails.limits import allowed, caps, share_of
from runbooks.engine.guardrails.policy import ON_ADMISSION, STAGES
from runbooks.engine.guardrails.rollout import stage_of
from streams.model.clock import span


@dataclass(frozen=True, slots=True)
class Review:
    """One guardrail's answer. `ruling` is None where it passed; `numbers` says then by what, empty where it counts nothing."""

    guardrail: str
    ruling: Ruling | None
    numbers: str = ""


class ReviewLog:
    """The guardrails' answers to each destructive step of each run when it was decided last, and when that was.

    What is checked once for a whole run, before its first destructive step, is kept as it was answered then.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[datetime, tuple[Review, ...]]] = {}
        self._on_admission: dict[tuple[str, Stage], Review] = {}

    def note(self, context: GuardContext) -> None:
        """Keep what the guardrails say about a step now, in the order of the policy."""
        if context.step.destructive:
            answers = tuple(self._answer(stage, context) for stage in STAGES)
            self._kept[context.run.id, context.step.id] = context.now, answers

    def of(self, run: str, step: str) -> tuple[datetime, tuple[Review, ...]] | None:
        """When a step was decided last, and the answers; None where it was not, or is not destructive."""
        return self._kept.get((run, step))

    def _answer(self, stage: Stage, context: GuardContext) -> Review:
        if stage not in ON_ADMISSION:
            return _reviewed(stage, context)
        known = self._on_admission.get((context.run.id, stage))
        if context.admitted and known is not None:
            return known
        answer = self._on_admission[context.run.id, stage] = _reviewed(stage, context)
        return answer


def _reviewed(stage: Stage, context: GuardContext) -> Review:
    ruling = stage(context)
    name = ruling.rule if ruling is not None else stage.__name__.replace("_", " ")
    numbers = _NUMBERS[stage.__name__](context) if ruling is None and stage.__name__ in _NUMBERS else ""
    return Review(name, ruling, numbers)


def _blast_radius(context: GuardContext) -> str:
    limit, known = context.policy.blast_radius, len(context.view.nodes)
    most = min(limit.max_nodes, share_of(limit.max_share, known))
    held = len(context.cordoned - context.nodes)
    return (
        f"{held} of {known} nodes are cordoned by Faultline, this run adds {len(context.nodes)}, limit {most}"
    )


def _places(context: GuardContext) -> str:
    parts = []
    for place, cap in caps(context.policy.blast_radius).items():
        for name in sorted(context.nodes & context.view.nodes.keys()):
            value = getattr(context.view.nodes[name], place)
            members = {fact.name for fact in context.view.nodes_by(place)[value]}
            if value is not None and (most := allowed(cap, len(members))) is not None:
                parts.append(
                    f"{place} {value}: {len(context.cordoned & members)} of {len(members)}, limit {most}"
                )
    return "; ".join(dict.fromkeys(parts)) or "no limit is set for pools, racks and leaves"


def _window(context: GuardContext) -> str:
    limit = context.policy.blast_radius
    since = context.now - timedelta(seconds=limit.window_s)
    started, reserved, _ = context.counts.spent(shadow=context.shadow, since=since)
    wanted = sum(planned.destructive for planned in context.run.plan.steps)
    return (
        f"{started + reserved} destructive steps in {span(limit.window_s)}, this run adds {wanted}, "
        f"limit {limit.max_per_window}"
    )


def _pool_floor(context: GuardContext) -> str:
    parts = []
    for pool in sorted(
        {fact.pool for name in context.nodes if (fact := context.view.nodes.get(name))}, key=str
    ):
        size, left = context.view.gpu_nodes()[pool].count, len(context.schedulable(pool) - context.nodes)
        parts.append(f"{left} of {size} GPU nodes of pool {pool or 'none'} stay schedulable")
    return "; ".join(parts)


def _freshness(context: GuardContext) -> str:
    age = context.now - max(context.incident.updated_at, context.incident.opened_at)
    return (
        f"the last revision is {span(max(age, timedelta()))} old, at most {span(context.policy.freshness_s)}"
    )


def _old_evidence(context: GuardContext) -> str:
    about = context.incident
    if about.evident_at is None:
        return "it rests on silence, not on a line"
    age = max(about.opened_at - about.evident_at, timedelta())
    return f"its newest evidence was {span(age)} old when it was read, at most {span(context.policy.freshness_s)}"


def _teams(context: GuardContext) -> str:
    if not context.policy.tenants:
        return "no tenants are set"
    return ", ".join(context.step.teams or ()) or "it touches no team's jobs"


def _frozen(context: GuardContext) -> str:
    count = len(context.control.freezes) if context.control else 0
    return f"{count} freezes, none covers it"


_NUMBERS: Mapping[str, Callable[[GuardContext], str]] = {
    "kill_switch": lambda context: "off",
    "breaker": lambda context: "not tripped",
    "closed_time": lambda context: f"{len(context.policy.closed_times)} windows, none covers it now",
    "frozen": _frozen,
    "rollout": lambda context: stage_of(context),
    "team_ceiling": lambda context: _teams(context),
    "team_quota": lambda context: _teams(context),
    "mode": lambda context: f"responder.mode {context.policy.mode}, planned in {context.run.plan.mode}",
    "freshness": _freshness,
    "old_evidence": _old_evidence,
    "known_node": lambda context: f"{len(context.view.nodes)} nodes are known",
    "opted_out": lambda context: "faultline.dev/managed is not false",
    "pool_floor": _pool_floor,
    "blast_radius": _blast_radius,
    "blast_radius_of_places": _places,
    "window": _window,
    "certainty": lambda context: f"the evidence is {context.incident.certainty}",
}
"""By the name of a stage: what it counted where it passed."""
