"""What an object of `apply_template` says about its work. Pure: rules of the template over the object, and the node as proof."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from connectors.base import Effect
from connectors.kubernetes.annotations import annotations_of, labels_of
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import replaced
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.work_object_templates import ObjectTemplate, Rule
from connectors.kubernetes.work_results import boot_of
from streams.model.clock import parse_rfc3339
from streams.model.message import plain

MAX_WORDS = 200

Verdict = tuple[Literal["running", "done", "failed"], str]


def verdict(
    template: ObjectTemplate,
    thing: Object | None,
    node: Object | None,
    effect: Effect,
    boot_before: str,
    since: datetime,
    now: datetime,
) -> Verdict:
    """Where the work stands, and what says so. `since` is when it was asked for."""
    name = effect.target.name
    if thing is not None and (why := next((w for rule in template.failed if (w := holds(rule, thing))), "")):
        return "failed", why
    said = next((w for rule in template.done if (w := holds(rule, thing))), "")
    if said:
        match template.proof:
            case "new_boot":
                if (
                    node is not None
                    and not replaced(node, effect)
                    and boot_of(node) not in ("", boot_before)
                    and is_ready(node)
                ):
                    return "done", f"{said}; {name} has another boot and is ready"
                said += f", but {name} has not come back with another boot"
            case "node_gone":
                if node is None or replaced(node, effect):
                    return "done", f"{said}; the old {name} is gone"
                said += f", but {name} is still there"
            case _:
                return "done", said
    if now >= since + timedelta(seconds=template.timeout_s):
        return "failed", f"no end within {template.timeout_s:.0f} s" + (f" ({said})" if said else "")
    return "running", said or _shown(thing)


def holds(rule: Rule, thing: Object | None) -> str:
    """What the rule found, as text; empty when it does not hold."""
    if rule.gone:
        return "it is gone" if thing is None else ""
    if thing is None:
        return ""
    if rule.condition is not None:
        return _condition(rule, thing)
    place = rule.path or rule.label or rule.annotation or ""
    value: Any
    if rule.path is not None:
        value = _at(thing, rule.path)
    else:
        value = (labels_of(thing) if rule.label else annotations_of(thing)).get(place)
    if isinstance(value, bool):
        value = str(value).lower()
    fits = isinstance(value, str | int | float) and re.fullmatch(
        rule.values or "", plain(str(value), MAX_WORDS)
    )
    return f"{place} is {plain(str(value), MAX_WORDS)}" if fits else ""


def asked_at(thing: Object, fallback: datetime) -> datetime:
    """When an object was created, by the server."""
    made = thing["metadata"].get("creationTimestamp")
    return parse_rfc3339(str(made)) if made else fallback


def _condition(rule: Rule, thing: Object) -> str:
    for one in _conditions(thing):
        if one.get("type") != rule.condition or one.get("status") != rule.status:
            continue
        # A condition about an earlier spec says nothing about this one.
        seen, now = one.get("observedGeneration"), thing["metadata"].get("generation")
        if isinstance(seen, int) and isinstance(now, int) and seen < now:
            continue
        reason = str(one.get("reason") or "")
        if rule.reason is None or re.fullmatch(rule.reason, reason):
            words = " ".join(plain(f"{reason} {one.get('message') or ''}", MAX_WORDS).split())
            return f"{rule.condition} is {rule.status}" + (f" ({words})" if words else "")
    return ""


def _shown(thing: Object | None) -> str:
    if thing is None:
        return "not there"
    phase = _at(thing, "status.phase")
    told = [f"{one.get('type')}={one.get('status')}" for one in _conditions(thing)][:5]
    return plain(str(phase) if isinstance(phase, str) else ", ".join(told) or "no status yet", MAX_WORDS)


def _conditions(thing: Object) -> list[Mapping[str, Any]]:
    listed = (thing.get("status") or {}).get("conditions") if isinstance(thing.get("status"), dict) else None
    return [one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict)]


def _at(thing: Any, path: str) -> Any:
    for key in path.split("."):
        thing = thing.get(key) if isinstance(thing, Mapping) else None
    return thing
