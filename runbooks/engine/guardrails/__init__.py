"""Guardrails: may this step be started now? Their order is the policy and stands in `STAGES` of `policy.py`.

Each stage takes a `GuardContext` and returns None (no objection) or a `Ruling` with the rule, the numbers and what would clear
it. Only destructive steps are limited; steps that return something to service always pass. The limits on how much may be acted
on at once are checked for the whole run before its first destructive step, so that a started run can finish: a job must not stay
suspended because a window is full. Steps that a revision of the incident adds later are checked again.
"""

from __future__ import annotations

from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind
from runbooks.engine.guardrails.policy import STAGES, judge, switched_off

__all__ = ["STAGES", "GuardContext", "Ruling", "RulingKind", "judge", "switched_off"]
