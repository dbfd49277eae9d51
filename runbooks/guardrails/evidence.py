"""Whether what is known is fresh and good enough to act on without a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from runbooks.guardrails.case import Case, Kind, Ruling
from streams.model.clock import rfc3339
from streams.model.incident import Certainty
from streams.model.run import Mode, Run

FRESHNESS = "freshness"
"""The rule that an approval lifts only while it is fresh itself."""


def freshness(case: Case) -> Ruling | None:
    """What has lain about for long (a stopped process, a tripped limit) is asked about, not acted on."""
    latest = max(case.incident.updated_at, case.incident.opened_at, *_doings(case.run))
    if (case.now - latest).total_seconds() <= case.policy.freshness_s:
        return None
    return Ruling(
        Kind.ASK,
        FRESHNESS,
        f"the last news is of {rfc3339(latest)}, at most {case.policy.freshness_s:.0f} s count as fresh",
        "an approval younger than that or a new revision of the incident lifts it",
    )


def certainty(case: Case) -> Ruling | None:
    """Only decisive evidence leads to an automatic destructive step."""
    if case.incident.certainty is Certainty.DECISIVE:
        return None
    return Ruling(
        Kind.ASK,
        "certainty",
        f"the evidence is {case.incident.certainty}, not decisive",
        "an approval or decisive evidence lifts it",
    )


def approval(case: Case) -> Ruling | None:
    """The runbook, the installation or this one step wants a person's word."""
    if case.step.approval or case.run.plan.mode is Mode.APPROVE:
        reason = "mode approve" if case.run.plan.mode is Mode.APPROVE else "the runbook asks first"
        return Ruling(Kind.ASK, "approval", reason, "an approval of this plan lifts it")
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
