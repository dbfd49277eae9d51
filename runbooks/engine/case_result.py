"""What becomes of a case that tests a runbook, compared with what it expects.

A case is decided as the responder would in shadow: selection, plan and guardrails are the real ones, on an inventory of the case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import ndiff
from typing import Any

from runbooks.engine.dry_run import ACTIONS
from runbooks.engine.partition_state import PartitionState
from runbooks.language.cases import (
    NOW,
    Case,
    Earlier,
    Expected,
    InventoryFixture,
    facts_of_inventory,
    incident_of,
)
from runbooks.language.schema import NODE_WORK, Runbook
from streams.model.codec import encode_plain
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.run import Mode, Run


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What became of a case: lines that tell expected and found apart; none when it passed."""

    name: str
    differences: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.differences


def run_case(case: Case, runbooks: Sequence[Runbook], shared: InventoryFixture | None = None) -> CaseResult:
    """Decide a case and compare. Pure: the same case and runbooks give the same result."""
    about = incident_of(case.incident)
    inventory = case.inventory or shared or InventoryFixture()
    policy = case.settings.model_copy(update={"mode": Mode.SHADOW})
    actions = ACTIONS | NODE_WORK if case.node_work else ACTIONS
    state = PartitionState(runbooks, policy, frozenset(actions))
    for fact in facts_of_inventory(inventory, about):
        state.take_fact(fact.key, fact)
    for past in _before(case.earlier):
        state.take_incident(past)
        state.advance(past.opened_at)
        state.take_incident(replace(past, state=IncidentState.RESOLVED, revision=2))
        state.advance(past.opened_at)
    state.collect()
    state.take_incident(about)
    state.advance(NOW)
    changes = state.collect()
    run = changes.runs[-1] if changes.runs else None
    texts = [entry.text for entry in changes.timeline]
    return CaseResult(case.name, tuple(_differences(case.expect, run, runbooks, texts)))


def _before(earlier: Sequence[Earlier]) -> Iterator[Incident]:
    """The incidents of before, the oldest first, none of them the same as the case's own."""
    for number, one in enumerate(sorted(earlier, key=lambda one: -one.hours_ago), 2):
        about, at = incident_of(one.incident), NOW - timedelta(hours=one.hours_ago)
        name = incident_id(about.cluster, about.root, about.family, number)
        yield replace(about, id=name, incarnation=number, fault_at=at, opened_at=at, updated_at=at)


def _differences(
    expect: Expected, run: Run | None, runbooks: Sequence[Runbook], texts: Sequence[str]
) -> Iterator[str]:
    taken = run.plan.runbook if run else None
    if taken != expect.runbook:
        yield f"runbook: expected {expect.runbook or 'none'}, is {taken or 'none'}"
        if run is None:
            yield from (f"  timeline: {line}" for line in texts)
        return
    if expect.said is not None and not any(expect.said in line for line in texts):
        yield f"said: no timeline entry contains {expect.said!r}"
        yield from (f"  timeline: {line}" for line in texts)
    if run is None:
        return
    mode = next(runbook.mode for runbook in runbooks if runbook.id == taken)
    if expect.mode not in (None, mode):
        yield f"mode: expected {expect.mode}, is {mode}"
    steps = [step.id for step in run.plan.steps]
    if expect.steps is not None and list(expect.steps) != steps:
        yield "steps (- expected, + is):"
        yield from (f"  {line}" for line in ndiff(list(expect.steps), steps) if not line.startswith("?"))
    for name, verdict in expect.verdicts.items():
        if name not in steps:
            yield f"verdicts.{name}: the plan has no such step; it has {', '.join(steps)}"
        elif (record := run.step(name)).verdict != verdict:
            yield f"verdicts.{name}: expected {verdict or 'none'}, is {record.verdict or 'none'}: {record.reason}"
    for name, values in expect.values.items():
        if name not in steps:
            yield f"values.{name}: the plan has no such step; it has {', '.join(steps)}"
        else:
            yield from _unlike(f"values.{name}", values, encode_plain(run.planned(name)))


def _unlike(path: str, expected: Any, found: Any) -> Iterator[str]:
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key, value in expected.items():
            yield from _unlike(f"{path}.{key}", value, found.get(key))
    elif isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        if list(found) != list(expected):
            yield f"{path}: expected {list(expected)}, is {list(found)}"
    elif (type(expected) is bool) is not (type(found) is bool) or expected != found:
        yield f"{path}: expected {expected!r}, is {found!r}"
