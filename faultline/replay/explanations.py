"""Why a replay differs from production although both are right: recorded answers, and other code, settings or runbooks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from faultline.replay.difference import Aspect, Difference, Pair
from runbooks.engine.approvals import about
from runbooks.language.schema import Runbook
from streams.model.clock import to_the_second
from streams.model.run import Approval, EffectState, Mode, PlannedStep, Run, RunOutcome, StepState

_OF_PLANS = frozenset(
    {Aspect.RUNBOOK, Aspect.MODE, Aspect.VERDICT, Aspect.ACTION, Aspect.STEP, Aspect.TICKET, Aspect.PAGE}
)


class Explanations:
    """Looks for an explanation in the runs of production.

    Args:
        runs: Production's, as they stand at the end.
        runbooks: Those of the replay.
        others: What else was not the same when production decided, for people: versions and settings.
        here: The replay's runs, as they stand at the end.
    """

    def __init__(
        self,
        runs: Iterable[Run],
        runbooks: Iterable[Runbook],
        others: Sequence[str] = (),
        here: Iterable[Run] = (),
    ) -> None:
        self._runs: defaultdict[str, list[Run]] = defaultdict(list)
        for run in sorted(runs, key=lambda run: (run.created_at, run.id)):
            self._runs[run.incident].append(run)
        self._revisions: Mapping[str, int] = {book.id: book.revision for book in runbooks}
        self._others = others
        self._skipped = {
            (run.incident, f"{planned.action} {planned.target}")
            for run in here
            for planned in run.plan.steps
            if run.step(planned.id).state is StepState.SKIPPED
        }
        """Steps that the replay planned and goes without, by incident and step."""

    def of(self, pair: Pair, difference: Difference) -> str:
        """The explanation of one difference of a pair; empty when there is none."""
        runs = self._runs.get(pair.before.incident, []) if pair.before is not None else []
        found = [*self._of_runs(runs, difference), *self._done_before(pair, runs, difference), *self._others]
        return found[0] if found else ""

    def _of_runs(self, runs: Sequence[Run], difference: Difference) -> Iterator[str]:
        if difference.aspect in _OF_PLANS:
            yield from self._revised(runs)
            yield from _answers(runs, difference)
        if difference.aspect is Aspect.MODE:
            yield f"its runs were in mode {difference.before}, as settings and rollout had it then"
        if difference.aspect is Aspect.GPU_HOURS or difference.what == "state":
            for run in _carried_out(runs):
                yield f"run {run.id} was carried out: {run.outcome or run.state.value}{_because(run.reason)}"

    def _done_before(self, pair: Pair, runs: Sequence[Run], difference: Difference) -> Iterator[str]:
        """A replay judges every step again when its incident is revised, and then finds done what production did meanwhile.

        Why the replay thinks that it was done is not told: it does not know of production's run, and names somebody else.
        """
        if pair.after is None or (pair.after.incident, difference.what) not in self._skipped:
            return
        for run in _carried_out(runs):
            for planned in run.plan.steps:
                effect = run.step(planned.id).effect
                if effect is None or difference.what != f"{planned.action} {planned.target}":
                    continue
                if effect.state in (EffectState.CONFIRMED, EffectState.UNDONE):
                    at = to_the_second(effect.confirmed_at or effect.intended_at)
                    yield f"production did it at {at} in run {run.id}, and the replay then found it done"

    def _revised(self, runs: Sequence[Run]) -> Iterator[str]:
        for run in runs:
            there, here = run.plan.runbook_revision, self._revisions.get(run.plan.runbook)
            if here is None:
                yield f"production used the runbook {run.plan.runbook}, which is not here"
            elif here != there:
                yield f"production used revision {there} of {run.plan.runbook}, here is {here}"


def _answers(runs: Sequence[Run], difference: Difference) -> Iterator[str]:
    """What a person or a connector said about a step that differs, or about the run that another one followed."""
    for run in _carried_out(runs):
        for planned in run.plan.steps:
            if difference.what != f"{planned.action} {planned.target}":
                continue
            yield from _approvals(run, planned, difference)
            record = run.step(planned.id)
            if record.state in (StepState.PENDING, StepState.CANCELLED) and not record.verdict:
                yield f"run {run.id} did not come to it: {run.outcome or run.state.value}{_because(run.reason)}"
            effect = record.effect
            if effect is not None and effect.state is EffectState.REFUSED:
                yield f"the connector refused {planned.action} {planned.target}{_because(effect.reason)}"
        if run.outcome in (RunOutcome.ESCALATED, RunOutcome.FAILED, RunOutcome.REJECTED, RunOutcome.EXPIRED):
            yield f"run {run.id} of {run.plan.runbook} ended {run.outcome}{_because(run.reason)}"
        if run.taken_over_by or run.overruled:
            who = run.taken_over_by or "a person"
            yield f"{who} took a decision about run {run.id}{_because(run.reason)}"


def _approvals(run: Run, planned: PlannedStep, difference: Difference) -> Iterator[str]:
    """What people said about the step, or about the plan that it is part of: an approval counts for all of it."""
    for approval in run.approvals:
        if approval.step == planned.id:
            yield _decided(approval)
    if planned.action == "ask" or difference.after != "needs_approval":
        return
    for approval in about(run, difference.why_after.partition(": ")[0]).approvals:
        if approval.approved and approval.digest == run.plan.digest:
            yield f"{_decided(approval)}, and with it the plan that {planned.id} is part of"


def _carried_out(runs: Sequence[Run]) -> Iterator[Run]:
    return (run for run in runs if run.plan.mode is not Mode.SHADOW)


def _decided(approval: Approval) -> str:
    word = "approved" if approval.approved else "rejected"
    return f"{approval.actor} {word} step {approval.step} at {to_the_second(approval.at)}{_because(approval.reason)}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
