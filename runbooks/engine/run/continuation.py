"""A run that ended early is taken up again: which of its steps stand, which are looked up first, and which are done again. Pure.

What ended stays as it ended. The work goes on in a run of its own (`continues`), which carries over the steps that stand, with
the keys of their effects: what is confirmed is never sent again. What is done again has a key of this run, to be found by.

Between the two runs anything may have happened: the rollback resumed the job, a person uncordoned the node, its machine was
replaced. So standing changes that later steps rely on are looked up by their key before anything is sent, as after a crash
(`outcomes.py`). A cordon or a suspension that is not there any more was taken back by somebody else, and ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from runbooks.engine.guardrails.cordoned_nodes import is_confirmed, same_target, uncordoned_since
from runbooks.engine.run.by_hand import is_at_work
from runbooks.engine.run.plan import plan_digest
from runbooks.language.schema import TICKETS
from streams.inventory.cluster_view import ClusterView
from streams.model.digest import digest
from streams.model.errors import BadInput
from streams.model.run import (
    EffectRecord,
    EffectState,
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunOutcome,
    StepRecord,
    StepState,
    stricter,
)

RELIED_ON = frozenset({"cordon_node", "suspend_job", "drain_node"})
"""Changes that must still be there when a later step is taken: they are looked up. Any other that was confirmed has happened."""

_FIRM = (StepState.DONE, StepState.SKIPPED)

STANDS, LOOKED_UP, AGAIN, LEFT = "stands", "is looked up first", "is done", "is left as it ended"
"""What becomes of a step, in words."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """The plan that goes on, the records that it begins with, and what becomes of each step, a line each."""

    plan: Plan
    records: tuple[StepRecord, ...]
    lines: tuple[str, ...]


def continuation(
    old: Run, view: ClusterView, ceiling: Mode, now: datetime, *, step: str = ""
) -> Continuation:
    """How the run goes on from its first unfinished step; with `step`, from that failed one alone and what waited for it.

    Args:
        ceiling: The strictest of the installation's mode and the stage of the node's pool.

    Raises:
        BadInput: it cannot; the message says why.
    """
    mode = stricter(old.plan.mode, ceiling)
    if old.plan.mode is Mode.SHADOW:
        raise BadInput(
            f"{old.id} was in shadow mode and did nothing; `faultline runbook run` starts its runbook"
        )
    if mode is Mode.SHADOW:
        raise BadInput(
            "nothing is acted on here: responder.mode or the stage of the pool allows no more than to watch"
        )
    if is_at_work(old):
        doing = "is still rolling back" if old.state.is_over else "is at work"
        raise BadInput(f"{old.id} {doing}: a run is taken up once it has ended")
    again = _redone(old, step) if step else _unfinished(old)
    relied_on = _relied_on(old, again)
    records = tuple(_record(old, planned, again, relied_on, now) for planned in old.plan.steps)
    _check_targets(old, records, view)
    lines = tuple(
        f"{planned.id}: {planned.action} {_fate(record, again)}"
        for planned, record in zip(old.plan.steps, records, strict=True)
    )
    book = (old.plan.runbook, old.plan.runbook_revision, mode)
    # Another digest than the old plan's: an approval of that is none of this.
    mark = digest(plan_digest(old.incident, *book, old.plan.steps), old.id, *lines, size=16)
    return Continuation(replace(old.plan, mode=mode, digest=mark), records, lines)


def _unfinished(old: Run) -> Mapping[str, None]:
    """The steps to take up: all but those that stand, and those that the run went on without."""
    if old.outcome in (RunOutcome.SUCCEEDED, RunOutcome.HANDED_OVER):
        failed = next((record.id for record in old.steps if record.state is StepState.FAILED), None)
        more = f"; `faultline runbook redo {old.id} {failed}` does its failed step again" if failed else ""
        raise BadInput(f"{old.id} ended as planned ({old.outcome}): nothing of it is unfinished{more}")
    found = {record.id: None for planned, record in _steps(old) if not _is_settled(planned, record)}
    if not found:
        raise BadInput(f"nothing of {old.id} is unfinished")
    return found


def _redone(old: Run, step: str) -> Mapping[str, None]:
    """A failed step and the unfinished ones that needed it."""
    try:
        planned, record = old.planned(step), old.step(step)
    except KeyError as error:
        known = ", ".join(one.id for one in old.steps)
        raise BadInput(f"{old.id} has no step {step[:200]}; it has {known}") from error
    if record.state is not StepState.FAILED:
        raise BadInput(f"{step} of {old.id} did not fail: it is {record.state}")
    found = {step: None}
    for other, record in _steps(old):  # what is needed stands before what needs it
        if any(need in found for need in other.needs) and not _is_settled(other, record):
            found[other.id] = None
    for need in planned.needs:
        if not _is_settled(old.planned(need), old.step(need)):
            raise BadInput(
                f"{step} needs {need}, which does not stand; `faultline runbook continue {old.id}` takes up both"
            )
    rest = [
        record.id
        for other, record in _steps(old)
        if record.id not in found and not _is_settled(other, record)
    ]
    if rest:
        raise BadInput(
            f"{', '.join(rest)} of {old.id} would stay unfinished; `faultline runbook continue {old.id}` takes up all of it"
        )
    return found


def _steps(run: Run) -> Iterator[tuple[PlannedStep, StepRecord]]:
    yield from zip(run.plan.steps, run.steps, strict=True)


def _is_settled(planned: PlannedStep, record: StepRecord) -> bool:
    """Whether a step needs nothing more: it is done and stands, was not needed, or the run went on without it."""
    if record.state is StepState.FAILED:
        return planned.on_failure == "continue"
    if not record.state.is_over:
        return planned.action in TICKETS  # the ended run still opens its ticket itself
    return record.state in _FIRM and not _was_undone(record)


def _was_undone(record: StepRecord) -> bool:
    return record.undo is not None and record.undo.state is not EffectState.REFUSED


def _relied_on(old: Run, again: Mapping[str, None]) -> set[str]:
    """The steps whose confirmed change must still be there for what is done again."""
    needed: set[str] = set()
    for planned, _ in reversed(list(_steps(old))):  # what is needed stands before what needs it
        if planned.id in again or planned.id in needed:
            needed.update(planned.needs)
    resumed = [p for p, record in _steps(old) if p.action == "resume_job" and is_confirmed(record)]
    return {
        planned.id
        for planned, record in _steps(old)
        if planned.id in needed and planned.action in RELIED_ON and is_confirmed(record)
        if planned.action != "suspend_job" or not any(same_target(p.target, planned.target) for p in resumed)
    }


def _record(
    old: Run, planned: PlannedStep, again: Mapping[str, None], relied_on: Collection[str], now: datetime
) -> StepRecord:
    record, came_from = old.step(planned.id), old.step(planned.id).carried_from or old.id
    effect = record.effect
    if planned.id in again:
        if effect is None or _was_undone(record) or not _may_be_there(effect):
            return StepRecord(planned.id)
        return _looked_up(record, effect, came_from, now)
    if not record.state.is_over:
        why = f"{old.id} still sees to it"
        return StepRecord(planned.id, StepState.SKIPPED, finished_at=now, reason=why, carried_from=came_from)
    stands = replace(
        record,
        undo=None,
        due_at=None,
        admitted_at=None,
        kept_for="",
        keeper_lost_since=None,
        carried_from=came_from,
    )
    if planned.id in relied_on and effect is not None:
        return _looked_up(stands, effect, came_from, now)
    return stands


def _may_be_there(effect: EffectRecord) -> bool:
    """Whether a change may have been made, although its step did not end well."""
    unknown = effect.state in (EffectState.UNKNOWN, EffectState.INTENDED, EffectState.CONFIRMED)
    return unknown or (effect.state is EffectState.WAITING and effect.landed)


def _looked_up(record: StepRecord, effect: EffectRecord, came_from: str, now: datetime) -> StepRecord:
    return StepRecord(
        record.id,
        StepState.RUNNING,
        effect=replace(effect, state=EffectState.UNKNOWN, withheld=False, failures=0),
        due_at=now,
        started_at=record.started_at,
        reason=f"{came_from} may have done it: its state is looked up",
        carried_from=came_from,
    )


def _check_targets(old: Run, records: tuple[StepRecord, ...], view: ClusterView) -> None:
    """Raises BadInput where a node is another machine by now, or where somebody gave it back."""
    for planned, record in zip(old.plan.steps, records, strict=True):
        target = planned.target
        if target is None or target.kind != "Node" or record.state.is_over:
            continue
        fact = view.nodes.get(target.name)
        if fact is None:
            raise BadInput(f"{target} is not in the inventory any more")
        if None not in (fact.uid, target.uid) and fact.uid != target.uid:
            raise BadInput(f"{target} was replaced since: the machine of that name is another one")
        made = record.effect.confirmed_at if record.effect is not None else None
        if planned.action == "cordon_node" and record.carried_from and uncordoned_since(made, fact):
            raise BadInput(
                f"{target} was uncordoned since by somebody else; `faultline runbook run {old.plan.runbook} "
                f"--incident {old.incident}` begins anew"
            )


def _fate(record: StepRecord, again: Mapping[str, None]) -> str:
    if record.state is StepState.RUNNING:
        return LOOKED_UP
    if record.id in again:
        return AGAIN
    return STANDS if record.state in _FIRM else LEFT
