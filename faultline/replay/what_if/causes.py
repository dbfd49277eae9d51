"""Which edits can have led to a difference.

Both sides decide by the same records and the same code, so every difference comes from an edit. With one edit it is that one. Of
several, those that the difference names (a guardrail's section of the settings, a runbook) are told, or all where it names none.
"""

from __future__ import annotations

from collections.abc import Sequence

from faultline.replay.difference import Aspect, Difference, Pair
from faultline.replay.what_if.edits import Edit, EditKind

MAX_CAUSES = 5
_GUARDRAIL_SETTINGS = {
    "blast radius": "blast_radius",
    "window": "blast_radius",
    "kill switch": "kill_switch",
    "breaker": "breaker",
    "protected": "protect",
    "freeze": "closed_times",
    "maintenance window": "closed_times",
    "rollout": "rollout",
    "freshness": "freshness_s",
    "old evidence": "freshness_s",
    "mode": "mode",
    "approval": "mode",
}
"""The key of the section `responder` that a guardrail decides by."""
_ON_PLANS = (
    Aspect.RUNBOOK,
    Aspect.MODE,
    Aspect.VERDICT,
    Aspect.ACTION,
    Aspect.STEP,
    Aspect.TICKET,
    Aspect.PAGE,
)


def causes_of(pair: Pair, difference: Difference, edits: Sequence[Edit]) -> tuple[str, ...]:
    """The edits that can have led to a difference, the first few of them."""
    able = [edit for edit in edits if edit.has_effect]
    named = [edit for edit in able if _is_named(edit, pair, difference)] or able
    shown = [str(edit) for edit in named[:MAX_CAUSES]]
    if len(named) > MAX_CAUSES:
        shown.append(f"and {len(named) - MAX_CAUSES} more edits")
    return tuple(shown)


def _is_named(edit: Edit, pair: Pair, difference: Difference) -> bool:
    if edit.kind is EditKind.RUNBOOK:
        mine = {name for one in (pair.before, pair.after) if one for name in one.runbooks}
        return difference.aspect in _ON_PLANS and edit.where.split(" ")[0] in mine
    if edit.kind is not EditKind.SETTING:
        return difference.aspect not in _ON_PLANS
    section, _, key = edit.where.partition(".")
    if section == "correlator":
        return difference.aspect not in _ON_PLANS
    if section == "notifier":
        return difference.aspect is Aspect.PAGE
    if difference.aspect is Aspect.MODE:
        return key == "mode"
    reasons = (difference.why_before, difference.why_after)
    guardrails = {reason.partition(": ")[0] for reason in reasons}
    return any(key.startswith(_GUARDRAIL_SETTINGS.get(name, "\0")) for name in guardrails)
