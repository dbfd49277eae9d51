"""Whether the evidence is fresh and good enough to act on without a person."""

from __future__ import annotations

from runbooks.guardrails.case import Case, Kind, Ruling
from streams.model.incident import Certainty
from streams.model.run import Mode


def freshness(case: Case) -> Ruling | None:
    """What has lain about for long (a stopped process, a tripped limit) is asked about, not acted on."""
    latest = max(case.incident.updated_at, case.incident.opened_at)
    if case.run.admitted_at is not None:
        latest = max(latest, case.run.updated_at)
    age_s = (case.now - latest).total_seconds()
    if age_s <= case.policy.freshness_s:
        return None
    return Ruling(
        Kind.ASK,
        "freshness",
        f"last news {age_s:.0f} s ago, at most {case.policy.freshness_s:.0f} s count as fresh",
        "an approval or a new revision of the incident lifts it",
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
        mode = "mode approve" if case.run.plan.mode is Mode.APPROVE else "the runbook asks first"
        return Ruling(Kind.ASK, "approval", mode, "an approval of this plan lifts it")
    return None
