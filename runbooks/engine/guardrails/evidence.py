"""Whether what is known is fresh and good enough to act on without a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import to_the_second
from streams.model.incident import Certainty, Incident
from streams.model.run import Mode, Run

FRESHNESS = "freshness"
"""The rule that an approval lifts only while it is fresh itself."""


OLD_EVIDENCE = "old evidence"
"""The rule against faults that were old when they were first read."""

ZONE_STEP_S = 1800
"""Time zones differ by whole half-hours, but for a few."""
ZONE_SLACK_S = 60
"""How long a line may be on its way besides."""


def freshness(context: GuardContext) -> Ruling | None:
    """What has lain about for long (a stopped process, a tripped limit) is asked about, not acted on."""
    latest = max(context.incident.updated_at, context.incident.opened_at, *_doings(context.run))
    if (context.now - latest).total_seconds() <= context.policy.freshness_s:
        return None
    return Ruling(
        RulingKind.ASK,
        FRESHNESS,
        f"the last news is of {to_the_second(latest)}, at most {context.policy.freshness_s:.0f} s count as fresh",
        "an approval younger than that or a new revision of the incident lifts it",
    )


def old_evidence(context: GuardContext) -> Ruling | None:
    """A fault that was old when it was first read is asked about: the node may have been repaired since.

    What goes on to this moment is not old, whoever told of it when: a node that is NotReady still is.
    """
    about, limit_s = context.incident, context.policy.freshness_s
    if about.evident_at is None or not is_old(about, context.view, limit_s):
        return None
    return Ruling(
        RulingKind.ASK,
        OLD_EVIDENCE,
        f"its newest evidence was {_age(about.opened_at - about.evident_at)} old when it was read; it is of "
        f"{to_the_second(about.evident_at)}, and at most {limit_s:.0f} s count as fresh; {_suspected(about)}",
        "an approval or newer evidence of the fault lifts it",
    )


def is_old(about: Incident, view: ClusterView, limit_s: float) -> bool:
    """Whether a fault was older than `limit_s` seconds when it was first read, and nothing newer shows it."""
    if about.evident_at is None or (about.opened_at - about.evident_at).total_seconds() <= limit_s:
        return False
    return not _goes_on(about, view)


def _age(span: timedelta) -> str:
    """In hours and minutes, as a person says it."""
    hours, minutes = divmod(round(span.total_seconds() / 60), 60)
    told = ([f"{hours} h"] if hours else []) + ([f"{minutes} min"] if minutes else [])
    return " ".join(told) or f"{span.total_seconds():.0f} s"


def _goes_on(about: Incident, view: ClusterView) -> bool:
    """Whether the inventory shows the fault to this moment. An old panic is none that a NotReady confirms."""
    node = view.nodes.get(about.root.node or "")
    told = about.facts.get("node_not_ready") is True and about.facts.get("panic") is not True
    return told and node is not None and not node.ready


def _suspected(about: Incident) -> str:
    """Why the evidence may be late. Off by whole half-hours is the mark of a time zone."""
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
    """Only decisive evidence leads to an automatic destructive step."""
    if context.incident.certainty is Certainty.DECISIVE:
        return None
    return Ruling(
        RulingKind.ASK,
        "certainty",
        f"the evidence is {context.incident.certainty}, not decisive",
        "an approval or decisive evidence lifts it",
    )


def approval(context: GuardContext) -> Ruling | None:
    """The runbook, the installation or this one step wants a person's word."""
    if context.step.approval or context.run.plan.mode is Mode.APPROVE:
        reason = "mode approve" if context.run.plan.mode is Mode.APPROVE else "the runbook asks first"
        return Ruling(RulingKind.ASK, "approval", reason, "an approval of this plan lifts it")
    return None


def _doings(run: Run) -> Iterator[datetime]:
    """When the run itself last did something. Being looked at and held again is not news, so `updated_at` does not tell."""
    if run.admitted_at is None:
        return
    yield run.admitted_at
    for record in run.steps:
        times = [record.started_at, record.finished_at]
        if record.effect is not None:
            times += [record.effect.intended_at, record.effect.confirmed_at]
        yield from (at for at in times if at is not None)
