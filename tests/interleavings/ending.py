"""What may stand of Faultline's once all runs are over. Pure: the ledger and the runs go in, violations come out.

    whole        on a node either all of a hold stands (cordon, taint, three annotations) or nothing does
    known        each hold of a node and each suspended job belongs to an effect that its run knows to be standing
    released     nothing is held for a run that succeeded with a release, or that took its steps back

None of them is asked of an object whose marks somebody else has changed: there Faultline keeps its hands off, its own marks
included (docs/decisions/004), and tells how to take the rest off. Opening a held node is such a change also where the cordon
had been there before Faultline's: it is a person's word that the node serves. Nor of an object that is opted out by now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streams.model.run import EffectState, Run, RunOutcome
from tests.interleavings.ledger import DOMAIN, INCIDENTS, MANAGED, SUSPEND, UNSCHEDULABLE, Entry, Ledger

KEYS = ("annotation", f"{DOMAIN}effect")
PRIOR = ("annotation", f"{DOMAIN}prior")
TAINT = ("taint", f"{DOMAIN}incident:NoSchedule")
HOLD = (INCIDENTS, KEYS, PRIOR, TAINT)
SUSPENDED = ("annotation", f"{DOMAIN}effect-suspend_job")
RESUMED = ("annotation", f"{DOMAIN}effect-resume_job")


def left_behind(ledger: Ledger, runs: Iterable[Run]) -> list[str]:
    """Everything of ours that stands and should not, as `rule: sentence`."""
    runs = list(runs)
    return [
        f"{rule}: {entry.name}: {text}"
        for entry in ledger.entries.values()
        if not entry.changed_by_others and entry.values.get(MANAGED) != "false"
        for rule, text in (*_node(entry, runs), *_job(entry, runs))
    ]


def _node(entry: Entry, runs: list[Run]) -> Iterator[tuple[str, str]]:
    if entry.kind != "Node":
        return
    there = [name for name in HOLD if name in entry.ours]
    if there and (len(there) < len(HOLD) or not entry.values.get(UNSCHEDULABLE)):
        yield "whole", f"only {there} of a hold stands, unschedulable is {entry.values.get(UNSCHEDULABLE)}"
    if not there and entry.by.get(UNSCHEDULABLE) == "faultline":
        yield "whole", "it is cordoned, and not marked"
    keys = str(entry.values.get(KEYS) or "").split(",") if KEYS in entry.ours else []
    for key in keys:
        yield from _standing(key, runs, "cordon_node", "uncordon_node")


def _job(entry: Entry, runs: list[Run]) -> Iterator[tuple[str, str]]:
    if entry.kind not in ("Job", "PyTorchJob"):
        return
    if entry.by.get(SUSPEND) == "faultline":
        if SUSPENDED not in entry.ours or RESUMED in entry.values:
            yield "whole", "it is suspended, and not marked as held"
        yield from _standing(str(entry.values.get(SUSPENDED)), runs, "suspend_job", "resume_job")


def _standing(key: str, runs: list[Run], does: str, ends: str) -> Iterator[tuple[str, str]]:
    """Whether the run of an effect knows that it stands, and was not to end it."""
    for run in runs:
        for record in run.steps:
            if record.effect is None or record.effect.key != key or record.effect.action != does:
                continue
            if record.effect.state is not EffectState.CONFIRMED:
                yield "known", f"{does} stands, and its run says {record.effect.state}"
            if record.undo is not None and record.undo.state is EffectState.UNDONE:
                yield "known", f"{does} stands, and its run says that it was undone"
            ended = [r for r in run.steps if r.effect is not None and r.effect.action == ends]
            if run.outcome is RunOutcome.SUCCEEDED and any(
                r.effect is not None and r.effect.state is EffectState.CONFIRMED for r in ended
            ):
                yield "released", f"{does} stands after {ends}"
            return
    yield "known", f"{does} stands for an effect {key} that no run has"
