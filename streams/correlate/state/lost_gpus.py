"""GPUs that a node had before somebody worked on it, or it was booted, and has not since it serves again.

A plugin that starts anew, or gives up a GPU, changes the number as well: that is theirs to say. A node that is new has lost none,
and one whose GPUs its operators hand out in another way has as many as they want.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.sightings import Sighting
from streams.correlate.state.rows import MAX_WORK, GpuStatement, NodeRow, outermost, work_statements
from streams.model.digest import digest
from streams.model.entity import Entity, is_of_slurm
from streams.model.facts import NodeFact
from streams.model.kinds import SignalKind
from streams.model.signal import Attribute, Severity

GPUS_GONE = "gpus_gone"
"""Subtype of a `gpu.driver` by which the API server's own numbers say that a node came back with fewer GPUs."""

SOFTWARE = "software"
"""Attribute of it: what the node came back with that it did not have before."""

USUAL = timedelta(minutes=20)
"""How long drivers take to be installed or built after a boot. Who works on the node again by then has not given it back."""

_SETTLES = timedelta(minutes=10)
"""A kubelet that starts shows the numbers of before, until its plugins are late."""

_GROUP = f"{SignalKind.GPU_DRIVER}|{GPUS_GONE}|"


def came_back(s: Sighting) -> bool:
    """Whether it is about GPUs that a node came back without."""
    return s.kind == SignalKind.GPU_DRIVER and s.text("subtype") == GPUS_GONE


def with_gpus(row: NodeRow, fact: NodeFact) -> NodeRow:
    """The row with the number of GPUs that a fact shows, if the node serves. Of equal ones in a row the outermost are kept."""
    if not fact.ready or fact.worked_on is not None or is_of_slurm(fact.uid):
        return row
    has = min(fact.gpus, fact.gpus_allocatable)
    if not has and not row.gpus:
        return row
    said = (str(has), fact.uid, fact.gpu_layout or "", fact.kernel or "")
    others = {one for one in row.gpus or () if one[0] != fact.observed_at}
    return replace(row, gpus=outermost({*others, (fact.observed_at, said)})[-MAX_WORK:])


def lost_gpus(cluster: str, node: str, row: NodeRow) -> Iterator[tuple[str, Sighting]]:
    """What a node's numbers say of GPUs that it came back without, and of their return; each with the group it is kept in."""
    before: GpuStatement | None = None
    missed: GpuStatement | None = None
    """The statement whose number it had, while it has not again."""
    began: datetime | None = None
    for now in row.gpus or ():
        if before is not None and _is_other(before, now):
            if missed is not None:
                yield _sighting(cluster, node, now[0], firing=False)
            missed = began = None
        elif missed is not None and began is not None:
            worked = _worked_between(row, before[0] if before is not None else began, now[0])
            if _gpus(now) >= _gpus(missed):
                yield _sighting(cluster, node, now[0], firing=False)
                missed = began = None
            elif worked is not None and worked - began < USUAL:
                yield _sighting(cluster, node, worked, firing=False)
                began = now[0]
                yield _sighting(cluster, node, began, missed, now)
        elif before is not None and _gpus(now) < _gpus(before) and _came_back(row, before[0], now[0]):
            missed, began = before, now[0]
            yield _sighting(cluster, node, began, missed, now)
        before = now
    if before is not None and missed is not None and began is not None:
        worked = _worked_between(row, before[0], None)
        if worked is not None and worked - began < USUAL:
            yield _sighting(cluster, node, worked, firing=False)


def _gpus(statement: GpuStatement) -> int:
    return int(statement[1][0])


def _is_other(before: GpuStatement, now: GpuStatement) -> bool:
    """Whether it is another node of the name, or one whose GPUs are handed out in another way."""
    return before[1][1:3] != now[1][1:3]


def _worked_between(row: NodeRow, since: datetime, until: datetime | None) -> datetime | None:
    """When somebody began to work on the node in that time."""
    marked = (at for at, said in work_statements(row) if said and since < at)
    return next((at for at in marked if until is None or at <= until), None)


def _came_back(row: NodeRow, since: datetime, until: datetime) -> bool:
    """Whether the node was booted, or somebody worked on it, between the two."""
    since = min(since, until - _SETTLES)
    booted = any(since < at <= until for at, _ in (row.boots or ())[1:])
    return booted or _worked_between(row, since, until) is not None


def _sighting(
    cluster: str,
    node: str,
    at: datetime,
    had: GpuStatement | None = None,
    has: GpuStatement | None = None,
    *,
    firing: bool = True,
) -> tuple[str, Sighting]:
    attributes: dict[str, Attribute] = {"subtype": GPUS_GONE, "source": "node"}
    if had is not None and has is not None:
        attributes |= {"had": _gpus(had), "has": _gpus(has)}
        kernel, former = has[1][3], had[1][3]
        if kernel and former and kernel != former:
            attributes[SOFTWARE] = f"kernel {kernel}"
    name = digest(GPUS_GONE, node, at.isoformat(), str(firing), size=12)
    kind, entity = SignalKind.GPU_DRIVER, Entity(cluster, node=node)
    seen = Sighting(name, kind, entity, at, at, at, Severity.ERROR, firing, attributes)
    return f"{_GROUP}{firing}", seen
