"""The policy: which rules are asked, and in what order."""

from __future__ import annotations

from collections.abc import Iterator

from runbooks.approvals import approved
from runbooks.guardrails.case import Case, Kind, Ruling, Stage
from runbooks.guardrails.evidence import approval, certainty, freshness
from runbooks.guardrails.limits import blast_radius, one_run_per_target, window
from runbooks.guardrails.persons import foreign_cordon, known_node, opted_out, reopened
from runbooks.guardrails.switches import kill_switch

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

    Fresh approvals of this very plan, as many as the step takes, lift what only asks. A step that is under way (`begun`) is not
    asked about any more, but it can still be held or refused.
    """
    lifted = begun or approved(case.step, case.run, case.policy, case.now)
    for ruling in _rulings(case):
        if not (ruling.kind is Kind.ASK and lifted):
            return ruling
    return None


def _rulings(case: Case) -> Iterator[Ruling]:
    if not case.step.destructive:
        return
    admitted = case.run.admitted_at is not None
    for stage in STAGES if not admitted else tuple(s for s in STAGES if s not in ON_ADMISSION):
        ruling = stage(case)
        if ruling is not None:
            yield ruling
