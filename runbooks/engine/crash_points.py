"""Names of a responder's calls and commits, as used in the labels of `streams.model.crash_points`. Pure.

A call is named by its action, with `undo_`, `lookup_` or `lookup_undo_` before it where it is no `apply`, and `undo_by_` or
`lookup_undo_by_` where it is a compensation. A change committed without a call is named `begin` or `finish` of a run, `approval`
requested, `command` of an operator, or by the action of the engine itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from runbooks.engine.run.transition import Call, CallKind
from runbooks.language.schema import INTERNAL
from streams.model.run import Run, StepState

_PREFIX: Mapping[CallKind, str] = {
    "apply": "",
    "undo": "undo_",
    "lookup": "lookup_",
    "undo_lookup": "lookup_undo_",
    "compensate": "undo_by_",
    "compensate_lookup": "lookup_undo_by_",
}


def name_of(call: Call) -> str:
    """The name of a call."""
    return _PREFIX[call.kind] + call.effect.action


def names_written(before: Mapping[str, Run], runs: Iterable[Run], *, commands: bool) -> list[str]:
    """The names of what a commit of `runs` changes besides calls; `before` are the runs as last committed."""
    names = ["command"] if commands else []
    for run in runs:
        names += _changes(before.get(run.id), run)
    return list(dict.fromkeys(names))


def _changes(old: Run | None, run: Run) -> Iterator[str]:
    if old is None:
        yield "begin"
    states = {record.id: record.state for record in old.steps} if old is not None else {}
    for planned in run.plan.steps:
        state = run.step(planned.id).state
        if state is states.get(planned.id, StepState.PENDING):
            continue
        if planned.action in INTERNAL:
            yield planned.action
        elif state is StepState.AWAITING_APPROVAL:
            yield "approval"
    if run.state.is_over and (old is None or not old.state.is_over):
        yield "finish"
