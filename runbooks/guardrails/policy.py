"""The policy: which rules are asked, and in what order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from runbooks.guardrails.case import Case, Kind, Ruling, Stage
from runbooks.guardrails.evidence import approval, certainty, freshness
from runbooks.guardrails.limits import blast_radius, one_run_per_target, window
from runbooks.guardrails.persons import foreign_cordon, known_node, opted_out, reopened
from runbooks.guardrails.switches import kill_switch
from streams.model.run import Approval, Run
from streams.model.settings import ResponderSettings

ON_ADMISSION: tuple[Stage, ...] = (known_node, foreign_cordon, one_run_per_target, blast_radius, window)
"""Asked once, before the first destructive step of a run, for the whole run."""

STAGES: tuple[Stage, ...] = (
    kill_switch,
    opted_out,
    reopened,
    known_node,
    foreign_cordon,
    one_run_per_target,
    blast_radius,
    window,
    freshness,
    certainty,
    approval,
)
"""The policy. What forbids comes before what asks, so that nobody approves what would be refused anyway."""


def judge(case: Case, *, begun: bool = False) -> Ruling | None:
    """The first thing that stands against the step, or None.

    A fresh approval of this very plan lifts what only asks. A step that is under way (`begun`) is not asked about any more, but
    it can still be held or refused.
    """
    approved = begun or any(
        a.approved and counts(a, case.run, case.policy, case.now) for a in case.run.approvals
    )
    for ruling in _rulings(case):
        if not (ruling.kind is Kind.ASK and approved):
            return ruling
    return None


def counts(word: Approval, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether a person's word is about this plan and fresh: what was held for long is asked about again before it begins."""
    fresh = run.admitted_at is not None or (now - word.at).total_seconds() <= policy.freshness_s
    return word.digest == run.plan.digest and fresh


def _rulings(case: Case) -> Iterator[Ruling]:
    if not case.step.destructive:
        return
    admitted = case.run.admitted_at is not None
    for stage in STAGES if not admitted else tuple(s for s in STAGES if s not in ON_ADMISSION):
        ruling = stage(case)
        if ruling is not None:
            yield ruling
