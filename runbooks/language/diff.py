"""The differences between two versions of a runbook, for review before the new one is used.

A change is a `danger` where the new version takes more out of service than before, sooner, with fewer approvals or without undo;
everything else is a `note`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from runbooks.language.parameters import Parameter
from runbooks.language.schema import DESTRUCTIVE, Runbook, Step
from runbooks.language.values import Asks, Computed
from streams.model.run import stricter

_RETURNS_TO_SERVICE = frozenset(
    {"resume_job", "uncordon_node", "verify_job", "await_progress", "validate_node"}
)
_MILDER = ("undo", "stop", "escalate", "continue")
"""Values of `on_failure`, the safest first."""


@dataclass(frozen=True, slots=True)
class RunbookChange:
    """One difference. `where` is its key, e.g. `steps.drain.deadline_s`."""

    weight: Literal["danger", "note"]
    where: str
    text: str


def compare(old: Runbook | None, new: Runbook | None) -> tuple[RunbookChange, ...]:
    """The differences, dangers first. None stands for a missing runbook."""
    if old is None or new is None:
        return tuple(_added_or_removed(old, new))
    changes = [*_head(old, new), *_parameters(old.parameters, new.parameters), *_steps(old, new)]
    if changes and old.revision == new.revision:
        text = f"still {old.revision}: runs and effects of both count as the same"
        changes.append(RunbookChange("danger", "revision", text))
    elif old.revision != new.revision:
        changes.append(RunbookChange("note", "revision", f"{old.revision} → {new.revision}"))
    return tuple(sorted(changes, key=lambda change: change.weight))


def _added_or_removed(old: Runbook | None, new: Runbook | None) -> Iterator[RunbookChange]:
    if new is not None:
        steps = ", ".join(f"{s.action} {s.target}" for s in new.steps if s.action in DESTRUCTIVE)
        what = f"new, in mode {new.mode}, for {_one_line(new.match)}"
        yield RunbookChange(
            "danger" if steps else "note", "runbook", f"{what}; destructive: {steps}" if steps else what
        )
    elif old is not None:
        yield RunbookChange("danger", "runbook", f"removed: no longer handled: {_one_line(old.match)}")


def _head(old: Runbook, new: Runbook) -> Iterator[RunbookChange]:
    if old.mode is not new.mode:
        safer = stricter(old.mode, new.mode) is new.mode
        yield RunbookChange("note" if safer else "danger", "mode", f"{old.mode} → {new.mode}")
    if _one_line(old.match) != _one_line(new.match):
        yield RunbookChange("danger", "match", f"{_one_line(old.match)} → {_one_line(new.match)}")
    if old.priority != new.priority:
        yield RunbookChange("note", "priority", f"{old.priority} → {new.priority}")
    if old.escalation != new.escalation:
        yield RunbookChange("danger", "escalation", f"{_shown(old.escalation)} → {_shown(new.escalation)}")
    for key in ("owner", "description"):
        if (before := getattr(old, key)) != (after := getattr(new, key)):
            yield RunbookChange("note", key, f"{_one_line(before)} → {_one_line(after)}")


def _parameters(old: Mapping[str, Parameter], new: Mapping[str, Parameter]) -> Iterator[RunbookChange]:
    for name in sorted({*old, *new}):
        where, before, after = f"parameters.{name}", old.get(name), new.get(name)
        if before is None or after is None:
            yield RunbookChange("note", where, "new" if before is None else "removed")
            continue
        for key in ("type", "default", "min", "max", "describe"):
            one, other = getattr(before, key), getattr(after, key)
            if one != other or type(one) is not type(other):
                yield RunbookChange("note", f"{where}.{key}", f"{_shown(one)} → {_shown(other)}")


def _steps(old: Runbook, new: Runbook) -> Iterator[RunbookChange]:
    before, after = {s.id: s for s in old.steps}, {s.id: s for s in new.steps}
    for name, step in after.items():
        if name not in before:
            weight: Literal["danger", "note"] = "danger" if step.action in DESTRUCTIVE else "note"
            label = "new, destructive" if weight == "danger" else "new"
            yield RunbookChange(weight, f"steps.{name}", f"{label}: {step.action} on {step.target}")
    for name, step in before.items():
        if name not in after:
            weight = "danger" if step.action in _RETURNS_TO_SERVICE else "note"
            yield RunbookChange(weight, f"steps.{name}", f"removed: {step.action} on {step.target}")
        else:
            yield from _step(step, after[name])
    kept = [[name for name in order if name in before and name in after] for order in (before, after)]
    if kept[0] != kept[1]:
        yield RunbookChange("note", "steps", f"in another order: {', '.join(kept[0])} → {', '.join(kept[1])}")


def _step(old: Step, new: Step) -> Iterator[RunbookChange]:
    for key in Step.model_fields:
        before, after = getattr(old, key), getattr(new, key)
        if before != after or type(before) is not type(after):
            weight: Literal["danger", "note"] = "danger" if _is_danger(key, old, new) else "note"
            yield RunbookChange(weight, f"steps.{new.id}.{key}", f"{_shown(before)} → {_shown(after)}")


def _is_danger(key: str, old: Step, new: Step) -> bool:
    destructive = {old.action, new.action} & DESTRUCTIVE
    match key:
        case "action" | "target" | "compensate":
            return True
        case "params" | "when" | "retry":
            return bool(destructive)
        case "needs":
            return bool(set(old.needs) - set(new.needs))
        case "approval":
            return _asked(new) < _asked(old) or _group(old) not in ("", _group(new))
        case "on_failure":
            return _MILDER.index(new.on_failure) > _MILDER.index(old.on_failure)
        case "undo":
            return old.undo
        case "waves":
            return new.waves is None or old.waves is None or _more(old.waves.size, new.waves.size)
        case _:
            return False


def _more(old: object, new: object) -> bool:
    """Whether a number may have grown: one that is computed may."""
    return not (isinstance(old, int) and isinstance(new, int) and new <= old)


def _asked(step: Step) -> int:
    """How many approvals it needs."""
    return step.approval.quorum if isinstance(step.approval, Asks) else int(step.approval)


def _group(step: Step) -> str:
    return step.approval.group if isinstance(step.approval, Asks) else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shown(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case Computed():
            return f"{{cel: {_one_line(value.cel)}}}"
        case Mapping():
            return "{" + ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(_shown, value)) + "]"
        case _ if hasattr(value, "model_fields_set"):
            return _shown({key: getattr(value, key) for key in type(value).model_fields})
        case _:
            return str(value)
