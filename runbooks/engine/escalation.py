"""Escalation: reschedule, then quarantine, reset, reboot, replace, by how often the same entity has failed. Pure.

A runbook names the next step, and after how many runs within what time it is due. Runs are counted for their faulty entity: the
GPU (by its UUID, else by its slot in its node), the node or the job, whatever code was reported. A GPU that falls off the bus
today and loses memory tomorrow is one bad GPU. The run documents have all that is needed.

A program crash proves no hardware fault, and its runbook cordons nothing. But crashes that follow one GPU, whatever program
runs there, are counted for it; a crash on several GPUs is the program's and counts for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from runbooks.language.schema import DESTRUCTIVE, TICKETS, Runbook
from streams.model.entity import Entity, Gpu
from streams.model.incident import Incident
from streams.model.run import Escalation, Mode, Run


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """The runbook that is due, and why it is not the one that was selected; empty when it is."""

    runbook: Runbook
    why: str = ""


def faulty_entity(incident: Incident) -> Entity:
    """What runs are counted for and later steps act on: the incident's root, or where that is a program, the one GPU that it
    crashed on."""
    node, pci, uuid = (str(incident.facts.get(name) or "") for name in ("gpu_node", "gpu_pci", "gpu_uuid"))
    if incident.root.node is not None or not node or not (pci or uuid):
        return incident.root
    return replace(incident.root, node=node, gpu=Gpu(pci or None, uuid or None))


def entity_names(root: Entity) -> tuple[str, ...]:
    """Every name under which runs about this entity are counted, the most precise first."""
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


def counted_name(root: Entity, step: Escalation | None) -> str:
    """The name that the entity's runs are counted under by `step`, else its most precise one; empty when it has none."""
    names = entity_names(root)
    return next((n for n in names if step is None or n.startswith(f"{step.per}:")), "")


def due_step(
    runbook: Runbook,
    root: Entity,
    history: Iterable[Run],
    runbooks: Mapping[str, Runbook],
    now: datetime,
    *,
    shadow: bool = False,
    incident: str = "",
    actions: frozenset[str] | None = None,
) -> EscalationStep:
    """The escalation step that is due by the history, starting at `runbook`.

    Args:
        root: The faulty entity of the incident.
        history: All runs of the cluster. Shadow-mode runs count only for a shadow-mode run, and the other way round. Runs without
            destructive steps count once per incident.
        runbooks: All of them by id. A step whose runbook is missing is not taken, and `why` says so.
        incident: The incident itself: its own runs without destructive steps do not count.
        actions: Those that are carried out here; None for all of them.
    """
    # A run that takes up another one is the same attempt.
    known = [run for run in history if (run.plan.mode is Mode.SHADOW) is shadow and not run.continues]
    known = [run for run in known if not is_nondestructive(run) or run.incident != incident]
    # A runbook that would act, and left that out for want of evidence, has not been tried.
    tried = {book.id for book in runbooks.values() if not any(s.action in DESTRUCTIVE for s in book.steps)}
    known = [run for run in known if not is_nondestructive(run) or run.plan.runbook in tried]
    reasons: list[str] = []
    seen = {runbook.id}
    while (step := runbook.escalation) is not None:
        since = now - timedelta(seconds=step.within_s)
        ran = [r for r in known if r.plan.runbook == runbook.id and _is_same(r, root, step.per)]
        recent = [r for r in ran if (began := _began(r)) is not None and began >= since]
        acted = [r for r in recent if not is_nondestructive(r)]
        times = len(acted) + len({r.incident for r in recent if is_nondestructive(r)})
        if times < step.after:
            break
        of = counted_name(root, Escalation(step.to, per=step.per))
        counted = f"{runbook.id} has run {times} times for {of} within {_span(step.within_s)}"
        if program := _one_program(root, [r for r in recent if is_nondestructive(r)]):
            counted += f" (each time {program} crashed: it may be that program)"
        above = offered(runbooks.get(step.to), runbooks, actions)
        if above is None or above.id in seen:
            reasons.append(f"{counted}, but the next step {step.to} is no known runbook")
            break
        reasons.append(f"{counted}, so {above.id} is next")
        seen.add(above.id)
        runbook = above
    return EscalationStep(runbook, "; ".join(reasons))


def offered(
    runbook: Runbook | None, runbooks: Mapping[str, Runbook], actions: frozenset[str] | None
) -> Runbook | None:
    """The runbook, or the next one above it that is not passed over for want of its action (`only_with`)."""
    seen: set[str] = set()
    while runbook is not None and actions is not None and runbook.only_with not in (None, *actions):
        seen.add(runbook.id)
        above = runbooks.get(runbook.escalation.to) if runbook.escalation is not None else None
        if above is None or above.id in seen:
            return runbook  # the end: its repair is left to an operator
        runbook = above
    return runbook


def _one_program(root: Entity, crashes: Iterable[Run]) -> str:
    """The job that crashed each time, this time included; empty where it is not always the same one."""
    jobs = {name.removeprefix("job:") for run in crashes for name in run.offenders if name.startswith("job:")}
    return root.job.key if root.job is not None and jobs == {root.job.key} else ""


def is_nondestructive(run: Run) -> bool:
    """Whether the run's plan has no destructive step: it only records that the fault occurred."""
    return not any(step.destructive for step in run.plan.steps)


def only_tells(run: Run) -> bool:
    """Whether the run's plan has nothing to do and nothing to ask: when it is through, the incident is as open as before."""
    return all(step.action in TICKETS or step.action == "notify" for step in run.plan.steps)


def is_for_owner(incident: Incident, runs: Iterable[Run]) -> bool:
    """Whether nobody but the job's owner has to know of it. Once a run does more than notify, those on call have to as well."""
    return incident.for_owner and all(map(only_tells, runs))


def is_above(later: str, runbook: Runbook, runbooks: Mapping[str, Runbook]) -> bool:
    """Whether the escalation chain that starts at `runbook` leads to the runbook `later`."""
    seen: set[str] = set()
    at: Runbook | None = runbook
    while at is not None and at.escalation is not None and at.id not in seen:
        seen.add(at.id)
        if at.escalation.to == later:
            return True
        at = runbooks.get(at.escalation.to)
    return False


def _began(run: Run) -> datetime | None:
    """From when a run counts: its admission, or its creation where it has no destructive step."""
    return run.admitted_at or (run.created_at if is_nondestructive(run) else None)


def _is_same(run: Run, root: Entity, per: str) -> bool:
    """Whether a run was about the same entity. A GPU replaced in its slot has another UUID, and no history."""
    mine = [name for name in entity_names(root) if name.startswith(f"{per}:")]
    theirs = [name for name in run.offenders or (run.offender,) if name.startswith(f"{per}:")]
    if per == "gpu":
        known, other = ([n for n in names if "/" not in n] for names in (mine, theirs))
        if known and other:
            return known == other
    return bool(set(mine) & set(theirs))


def _span(seconds: float) -> str:
    """A time span as text: `24 h`, `90 min`."""
    return f"{seconds / 3600:g} h" if seconds >= 7200 else f"{seconds / 60:g} min"
