"""Guardrails on evidence: is it fresh and certain enough to act on without an approval?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from runbooks.engine.guardrails.context import GuardContext, Ruling, ask
from runbooks.engine.guardrails.notices import still_announced
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import to_the_second
from streams.model.incident import Certainty, Incident
from streams.model.run import Mode, Run

FRESHNESS = "freshness"
"""The rule that only a fresh approval clears."""
APPROVE_MODE = ask("approval", "mode approve", "clears by approving this plan")
"""What is asked about every destructive step of a run in mode approve."""

ZONE_STEP_S = 1800
"""Nearly all time zones differ by whole half-hours."""
ZONE_SLACK_S = 60
"""Shipping delay allowed on top of that."""


def freshness(context: GuardContext) -> Ruling | None:
    """An incident or run that nothing has happened to for long (a stopped process, a full limit) needs an approval."""
    latest = max(context.incident.updated_at, context.incident.opened_at, *_activity(context.run))
    if (context.now - latest).total_seconds() <= context.policy.freshness_s or still_announced(
        context.incident, context.view
    ):
        return None
    return ask(
        FRESHNESS,
        f"the last update was at {to_the_second(latest)}, at most {context.policy.freshness_s:.0f} s count as fresh",
        "clears by a newer approval or a new revision of the incident",
    )


def old_evidence(context: GuardContext) -> Ruling | None:
    """A fault that was old when it was first read needs an approval: the node may have been repaired since.

    A fault that persists is not old, whenever it was reported: a node may still be NotReady.
    """
    about, limit_s = context.incident, context.policy.freshness_s
    if about.evident_at is None or not is_old(about, context.view, limit_s):
        return None
    return ask(
        "old evidence",
        f"its newest evidence was {_age(about.opened_at - about.evident_at)} old when it was read; it is from "
        f"{to_the_second(about.evident_at)}, and at most {limit_s:.0f} s count as fresh; {_suspected(about)}",
        "clears by an approval or newer evidence of the fault",
    )


def is_old(about: Incident, view: ClusterView, limit_s: float) -> bool:
    """Whether a fault was older than `limit_s` seconds when it was first read, and the inventory does not show it now."""
    if about.evident_at is None or (about.opened_at - about.evident_at).total_seconds() <= limit_s:
        return False
    return not _persists(about, view)


def _age(span: timedelta) -> str:
    """As hours and minutes."""
    hours, minutes = divmod(round(span.total_seconds() / 60), 60)
    parts = ([f"{hours} h"] if hours else []) + ([f"{minutes} min"] if minutes else [])
    return " ".join(parts) or f"{span.total_seconds():.0f} s"


def _persists(about: Incident, view: ClusterView) -> bool:
    """Whether the inventory still shows the fault. A NotReady does not confirm an old panic."""
    node = view.nodes.get(about.root.node or "")
    not_ready = about.facts.get("node_not_ready") is True and about.facts.get("panic") is not True
    return not_ready and node is not None and not node.ready


def _suspected(about: Incident) -> str:
    """Why the evidence may be late. A delay of whole half-hours points to a wrong time zone."""
    place = about.root.node or about.root.switch or "its source"
    if about.evident_at is not None and about.evident_read_at is not None:
        late_s = (about.evident_read_at - about.evident_at).total_seconds()
        steps = round(late_s / ZONE_STEP_S)
        if steps and abs(late_s - steps * ZONE_STEP_S) <= ZONE_SLACK_S:
            return (
                f"that is off by {steps * ZONE_STEP_S / 3600:g} h almost to the second: the time zone in "
                f"the logs of {place} may be wrong, or its clock"
            )
    return f"the shipper may read an old log again or be far behind, or the clock of {place} may be slow"


def certainty(context: GuardContext) -> Ruling | None:
    """Only decisive evidence allows a destructive step without approval."""
    if context.incident.certainty is Certainty.DECISIVE:
        return None
    return ask(
        "certainty",
        f"the evidence is {context.incident.certainty}, not decisive",
        "clears by an approval or decisive evidence",
    )


def retry_budget(context: GuardContext) -> Ruling | None:
    """Moving a job must not take the last of its restarts unasked: the next fault, whatever it is, would end it."""
    target = context.step.target
    fact = context.view.jobs.get(target.key) if target and context.step.action == "suspend_job" else None
    if fact is None or not fact.costs_retries or fact.retries_left is None:
        return None
    left = fact.retries_left - fact.costs_retries
    if left > 0:
        return None
    has = (
        "the job has no retry left, and moving it takes one: that ends it"
        if left < 0
        else "the job has no retry left after this move: the next failure ends it"
    )
    return ask(
        "retry budget",
        f"{has} ({fact.retries_left} left, the move takes {fact.costs_retries})",
        "clears by approving this plan, or when its owner allows more restarts",
    )


def approval(context: GuardContext) -> Ruling | None:
    """The runbook, the installation or this one step requires an approval."""
    if context.run.plan.mode is Mode.APPROVE:
        return APPROVE_MODE
    if context.step.approval:
        return ask("approval", "the runbook requires it", "clears by approving this plan")
    return None


def _activity(run: Run) -> Iterator[datetime]:
    """When the run did something. `updated_at` does not tell: it also changes when a step is held again."""
    if run.admitted_at is None:
        return
    yield run.admitted_at
    for record in run.steps:
        times = [record.started_at, record.finished_at]
        if record.effect is not None:
            times += [record.effect.intended_at, record.effect.confirmed_at]
        yield from (at for at in times if at is not None)
