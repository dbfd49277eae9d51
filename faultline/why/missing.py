"""What is not known about an incident, and what telling it would take. A decision is only as good as what it could see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from faultline.why.tree import Branch, branch
from streams.model.counted import many
from streams.model.incident import NO_NODE, Incident

if TYPE_CHECKING:
    from faultline.why.explanation import Known

_MAX_NAMED = 4


def missing(incident: Incident, known: Known) -> Iterator[Branch]:
    """One branch for each thing that is not known."""
    for text in _inventory(incident, known):
        yield branch("inventory", text)
    jobs = [job for job in incident.jobs if job.key not in known.jobs]
    if jobs and known.has_inventory:
        named = ", ".join(map(str, jobs[:_MAX_NAMED])) + (" …" if len(jobs) > _MAX_NAMED else "")
        yield branch(
            "job", f"no inventory of {named}: whether it can be moved, and who owns it, is not known"
        )
    saved = {one.job.key for one in incident.checkpoints}
    if unsaved := [job for job in incident.jobs if job.key not in saved]:
        yield branch(
            "checkpoint",
            f"no checkpoint of {len(unsaved)} of {many(len(incident.jobs), 'job')} was ever reported",
        )
    moved = {one.job.key for one in incident.progress}
    if still := [job for job in incident.jobs if job.key not in moved]:
        count = f"{len(still)} of {many(len(incident.jobs), 'job')}"
        yield branch(
            "progress", f"no progress of {count} was ever read: only their pods tell whether they run"
        )
    if incident.root.gpu is not None and incident.root.gpu.pci is None:
        yield branch("gpu", f"no PCI address of {incident.root}: its other names cannot be joined to it")
    if incident.evident_at is None:
        yield branch("line", "no line tells of the fault itself: it is inferred from silence")
    for source in known.silent:
        yield branch("source", str(source), node=source.node, source=source.source)


def _inventory(incident: Incident, known: Known) -> Iterator[str]:
    root = incident.root
    if not known.has_inventory or not known.nodes:
        yield "no inventory: where jobs run, what hangs on what, and who opted out is not known"
        return
    if root.node is not None and root.node not in known.nodes:
        outside = incident.facts.get(NO_NODE) is True
        what = "it is none of the hosts that jobs run on" if outside else "it knows no node by that name"
        yield f"no inventory of {root.node}: {what}"
    fact = known.nodes.get(root.node or "")
    if fact is not None and fact.leaf is None and not fact.rails:
        yield f"no topology of {root.node}: on which leaf its NICs hang is not known (inventory.topology_file, or LLDP)"
    if fact is not None and fact.rack is None:
        yield f"no rack of {root.node}: what it shares with its neighbours is not known"
    if fact is not None and fact.gpus == 0 and root.gpu is not None:
        yield f"no GPU count of {root.node} in the inventory"
