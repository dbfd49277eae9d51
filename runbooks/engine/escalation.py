"""Which rung of the ladder? Restart elsewhere, then quarantine, reset, reboot, replace: what did not help is not done for ever.

A runbook names the next rung and after how many runs within how long it is that one's turn. Runs are counted for what they
were about, the very GPU (by its UUID, else by its slot in its node), the node or the job, whatever code it reported: a GPU
that falls off the bus today and loses memory tomorrow is one bad GPU. All that is needed stands in the run documents. Pure.

A program that crashes accuses no hardware, and its runbook closes nothing. But crashes that follow one GPU, whichever program
runs there, are counted for it; a crash on several GPUs is the program's and counts for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from runbooks.language.schema import Runbook
from streams.model.entity import Entity, Gpu
from streams.model.incident import Incident
from streams.model.run import Escalation, Mode, Run


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """The runbook whose turn it is, and why it is not the one that was chosen; empty when it is."""

    runbook: Runbook
    why: str = ""


def accused(incident: Incident) -> Entity:
    """What the incident's runs are counted for, and what a rung above acts on: its root, or where that is a program, the one GPU
    that the program crashed on."""
    node, pci, uuid = (str(incident.facts.get(name) or "") for name in ("gpu_node", "gpu_pci", "gpu_uuid"))
    if incident.root.node is not None or not node or not (pci or uuid):
        return incident.root
    return replace(incident.root, node=node, gpu=Gpu(pci or None, uuid or None))


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
    incident: str = "",
) -> EscalationStep:
    """The rung that the history asks for, beginning at `runbook`.

    Args:
        root: What the incident accuses.
        history: All runs of the cluster. Those in shadow count only for a run in shadow, and the other way round. One that
            takes nothing away counts once for its incident.
        runbooks: All there are, by id. A rung that is not there is not climbed to, and then it is said.
        incident: The incident itself, of which no earlier word counts against what it accuses.
    """
    known = [run for run in history if (run.plan.mode is Mode.SHADOW) is shadow]
    known = [run for run in known if not takes_nothing(run) or run.incident != incident]
    said: list[str] = []
    seen = {runbook.id}
    while (rung := runbook.escalation) is not None:
        since = now - timedelta(seconds=rung.within_s)
        ran = [r for r in known if r.plan.runbook == runbook.id and _is_same(r, root, rung.per)]
        recent = [r for r in ran if (began := _began(r)) is not None and began >= since]
        acted = [r for r in recent if not takes_nothing(r)]
        times = len(acted) + len({r.incident for r in recent if takes_nothing(r)})
        if times < rung.after:
            break
        of = offender(root, Escalation(rung.to, per=rung.per))
        counted = f"{runbook.id} has run {times} times for {of} within {_span(rung.within_s)}"
        if program := _one_program(root, [r for r in recent if takes_nothing(r)]):
            counted += f" (each time {program} crashed: it may be that program)"
        above = runbooks.get(rung.to)
        if above is None or above.id in seen:
            said.append(f"{counted}, and there is no runbook {rung.to} to go on with")
            break
        said.append(f"{counted}, so {above.id} is next")
        seen.add(above.id)
        runbook = above
    return EscalationStep(runbook, "; ".join(said))


def _one_program(root: Entity, crashes: Iterable[Run]) -> str:
    """The job whose crashes these are, with the one in hand, when it is the same each time; empty when there were none."""
    jobs = {name.removeprefix("job:") for run in crashes for name in run.offenders if name.startswith("job:")}
    return root.job.key if root.job is not None and jobs == {root.job.key} else ""


def takes_nothing(run: Run) -> bool:
    """Whether nothing of the run's plan is destructive: it bears witness, and that is all."""
    return not any(step.destructive for step in run.plan.steps)


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


def _began(run: Run) -> datetime | None:
    """From when a run counts: once the limits have let it act, or at once where nothing of it needs letting in."""
    return run.admitted_at or (run.created_at if takes_nothing(run) else None)


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
