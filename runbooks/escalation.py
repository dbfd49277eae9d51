"""Which rung of the ladder? Restart elsewhere, then quarantine, reset, reboot, replace: what did not help is not done for ever.

A runbook names the next rung and after how many runs within how long it is that one's turn. Runs are counted for what they
were about, the very GPU (by its UUID, else by its slot in its node), the node or the job, whatever code it reported: a GPU
that falls off the bus today and loses memory tomorrow is one bad GPU. All that is needed stands in the run documents. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from runbooks.model import Runbook
from streams.model.entity import Entity
from streams.model.run import Escalation, Mode, Run


@dataclass(frozen=True, slots=True)
class Rung:
    """The runbook whose turn it is, and why it is not the one that was chosen; empty when it is."""

    runbook: Runbook
    why: str = ""


def offenders(root: Entity) -> tuple[str, ...]:
    """Every name under which runs about this root are counted, the most precise first."""
    names: list[str] = []
    if root.gpu is not None and root.gpu.uuid:
        names.append(f"gpu:{root.gpu.uuid}")
    if root.gpu is not None and root.gpu.pci and root.node:
        names.append(f"gpu:{root.node}/{root.gpu.pci}")
    if root.node:
        names.append(f"node:{root.node}")
    if root.job is not None:
        names.append(f"job:{root.job.key}")
    return tuple(names)


def offender(root: Entity, rung: Escalation | None) -> str:
    """The name that this root's runs are counted under by `rung`, else its most precise one; empty when it has none."""
    names = offenders(root)
    return next((n for n in names if rung is None or n.startswith(f"{rung.per}:")), "")


def climb(
    runbook: Runbook,
    root: Entity,
    history: Iterable[Run],
    runbooks: Mapping[str, Runbook],
    now: datetime,
    *,
    shadow: bool = False,
) -> Rung:
    """The rung that the history asks for, beginning at `runbook`.

    Args:
        history: All runs of the cluster. Those in shadow count only for a run in shadow, and the other way round.
        runbooks: All there are, by id. A rung that is not there is not climbed to, and then it is said.
    """
    known = [run for run in history if run.admitted_at and (run.plan.mode is Mode.SHADOW) is shadow]
    said: list[str] = []
    seen = {runbook.id}
    while (rung := runbook.escalation) is not None:
        since = now - timedelta(seconds=rung.within_s)
        ran = [r for r in known if r.plan.runbook == runbook.id and _is_same(r, root, rung.per)]
        recent = [r for r in ran if r.admitted_at is not None and r.admitted_at >= since]
        if len(recent) < rung.after:
            break
        of = offender(root, Escalation(rung.to, per=rung.per))
        counted = f"{runbook.id} has run {len(recent)} times for {of} within {_span(rung.within_s)}"
        above = runbooks.get(rung.to)
        if above is None or above.id in seen:
            said.append(f"{counted}, and there is no runbook {rung.to} to go on with")
            break
        said.append(f"{counted}, so {above.id} is next")
        seen.add(above.id)
        runbook = above
    return Rung(runbook, "; ".join(said))


def is_above(rung: str, runbook: Runbook, runbooks: Mapping[str, Runbook]) -> bool:
    """Whether the ladder that begins at `runbook` leads to `rung`."""
    seen: set[str] = set()
    at: Runbook | None = runbook
    while at is not None and at.escalation is not None and at.id not in seen:
        seen.add(at.id)
        if at.escalation.to == rung:
            return True
        at = runbooks.get(at.escalation.to)
    return False


def _is_same(run: Run, root: Entity, per: str) -> bool:
    """Whether a run was about the same thing. A GPU that was replaced in its slot has another UUID, and no history."""
    mine = [name for name in offenders(root) if name.startswith(f"{per}:")]
    theirs = [name for name in run.offenders or (run.offender,) if name.startswith(f"{per}:")]
    if per == "gpu":
        known, other = ([n for n in names if "/" not in n] for names in (mine, theirs))
        if known and other:
            return known == other
    return bool(set(mine) & set(theirs))


def _span(seconds: float) -> str:
    """A window for people: `24 h`, `90 min`."""
    return f"{seconds / 3600:g} h" if seconds >= 7200 else f"{seconds / 60:g} min"
