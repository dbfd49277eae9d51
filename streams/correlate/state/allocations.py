"""Jobs that no Kubernetes object describes, from what Slurm's controller logs: which nodes a job holds, and until when.

A job's row keeps what was said of its nodes and when; where the job stood follows from that alone, so the order in which lines
arrive does not matter. Its processes on one node stand for a pod: everything that is known of pods' placements holds for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from streams.correlate.sightings import Sighting, split_at_gaps
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import MAX_WORK, JobRow, Tenancy, outermost
from streams.model.entity import SLURM, SLURM_JOB, JobRef, PodRef, is_output_of_slurm
from streams.model.errors import BadInput
from streams.model.facts import PodFact
from streams.model.hostlists import hosts
from streams.model.kinds import SignalKind, WorkloadClass
from streams.model.signal import RELAYED

MAX_JOBS = 4_000
"""Jobs with an allocation that are known at one time; a log can name any number."""
MAX_NODES = 2_048
"""Nodes of one job; a job on more of them is not followed."""
MAX_COMPONENTS = 512
"""Statements about the components of one heterogeneous job."""
KEPT = timedelta(days=15)
"""An allocation of which nothing was said for so long is over: its end was lost."""

_PHASES = {True: "Succeeded", False: "Failed", None: "Unknown"}
_AT_ONCE = timedelta(seconds=10)
"""Components of a heterogeneous job begin together, and end so; each is logged by itself."""
_ALL = -1
_ASKED_BEFORE = timedelta(minutes=5)
"""What ends a job is asked for at most so long before: Slurm kills what does not leave by itself."""


Meaning = Callable[[str, datetime], str]
"""Which node what Slurm calls a host means at a time; the name itself where the inventory knows none."""


def _as_said(name: str, _at: datetime) -> str:
    return name


class Allocation(NamedTuple):
    """One stretch of time in which a job held the same nodes; `end` is None while it lasts."""

    start: datetime
    end: datetime | None
    nodes: tuple[str, ...]
    per_node: int | None
    removed_at: datetime | None
    well: bool | None
    """Whether it ended well, as far as that is told."""
    told_at: datetime | None = None
    """When its nodes were first reported, where that is long after it began."""


def is_slurm(pod: PodRef | None) -> bool:
    """Whether a "pod" is a job's output as shippers name it, which is the same on all of the job's nodes."""
    return pod is not None and pod.namespace == SLURM and is_output_of_slurm(pod.key)


def is_partial(placement: Placement) -> bool:
    """Whether it is one of a job whose nodes are known as far as its processes spoke: the silent ones may stand elsewhere."""
    return placement.position is None and is_output_of_slurm(placement.pod)


def is_by_slurm(seen: Sighting) -> bool:
    """Whether it is what Slurm's controller says of a node's readiness, which counts where no Kubernetes object describes it."""
    return seen.kind == SignalKind.NODE_NOT_READY and seen.attributes.get("source") == SLURM


def job_lost(seen: Sighting) -> JobRef | None:
    """The job that ended with a node, where Slurm's controller says so of one."""
    if seen.kind != SignalKind.NODE_CONDITION or seen.text("subtype") != "slurm_job_lost":
        return None
    number = seen.text("array_task") or seen.text("job_id")
    return JobRef(SLURM_JOB, "", number) if number else None


def on_its_node(seen: Sighting) -> Sighting:
    """The sighting with its job's processes on its node in place of the job as a whole."""
    pod, node = seen.entity.pod, seen.entity.node
    if pod is None or not node or "." in pod.name:
        return seen
    return replace(seen, entity=replace(seen.entity, pod=PodRef(SLURM, processes_on(pod.name, node))))


def processes_on(job: str, node: str) -> str:
    """The name of a job's processes on a node, whichever of the node's names is used."""
    return f"{job}.{node.partition('.')[0].lower()}"


def with_its_node(new: Sighting, before: Sighting) -> Sighting:
    """The sighting, whose node is known by another name now, with its job's processes there, where it had those before."""
    pod, old, node = before.entity.pod, before.entity.node, new.entity.node
    if pod is None or not is_slurm(pod) or not old or not node:
        return new
    job = job_of(pod.key).name
    if pod.name != processes_on(job, old):
        return new
    return replace(new, entity=replace(new.entity, pod=PodRef(SLURM, processes_on(job, node))))


def job_of(pod: str) -> JobRef:
    """The job whose output or processes go by a pod's name, `slurm/JOB.HOST`."""
    return JobRef(SLURM_JOB, "", pod.partition("/")[2].partition(".")[0])


def with_statement(row: JobRow, seen: Sighting) -> JobRow:
    """The row with what a line says of the job's nodes. A job that holds one node and no known GPU is not followed."""
    said = seen.text("subtype")
    if said == "step":
        return _with_step(row, seen)
    if said == "asked":
        return replace(row, asked=tuple(sorted({*(row.asked or ()), seen.at})[-MAX_WORK:]))
    named: tuple[str, ...] = ()
    component = seen.number("component")
    if said == "running":
        named = _hosts_in(seen.text("hosts"))
        if not named or (len(named) == 1 and not seen.number("gpus") and component is None):
            return row
    elif (well := _ended_well(seen)) is not None:
        row = replace(row, outcomes=tuple(sorted({*(row.outcomes or ()), (seen.at, well)})[-MAX_WORK:]))
    per_node = max(filter(None, (row.gpus_per_node, seen.number("gpus"))), default=None)
    row = replace(row, gpus_per_node=per_node)
    if component is not None or row.components:
        return _with_component(row, seen.at, _ALL if component is None else component, named)
    statements = outermost({*(row.allocations or ()), (seen.at, named)})[-MAX_WORK:]
    return replace(row, allocations=statements)


def _with_component(row: JobRow, at: datetime, component: int, named: tuple[str, ...]) -> JobRow:
    """The row with what a line says of one component of a heterogeneous job; the job holds the nodes of all of them."""
    ends = ((ended, _ALL, nodes) for ended, nodes in row.allocations or () if not nodes)
    before = row.components if row.components is not None else ends
    told = _told_of_components({*before, (at, component, named)})[-MAX_COMPONENTS:]
    standing: dict[int, tuple[str, ...]] = {}
    held = [(since, nodes) for since, nodes in row.allocations or () if since < told[0][0]]
    for together in split_at_gaps(told, lambda one: one[0], _AT_ONCE):
        for _, number, nodes in together:
            if number == _ALL:
                standing.clear()
            standing[number] = nodes
        nodes_now = dict.fromkeys(node for number in sorted(standing) for node in standing[number])
        held.append((together[0][0], tuple(nodes_now)))
    several = row.gpus_per_node or any(len(nodes) > 1 for _, nodes in held)
    return replace(row, components=told, allocations=outermost(set(held))[-MAX_WORK:] if several else None)


def _told_of_components(
    told: set[tuple[datetime, int, tuple[str, ...]]],
) -> tuple[tuple[datetime, int, tuple[str, ...]], ...]:
    """Statements in order, without those that repeat what was said of a component before and after: `squeue` is polled."""
    ends = {one for one in told if one[1] == _ALL}
    kept = set(ends)
    for number in {number for _, number, _ in told - ends}:
        mine = {(at, nodes) for at, of, nodes in told if of == number}
        stated = outermost(mine | {(at, nodes) for at, _, nodes in ends})
        kept |= {(at, number, nodes) for at, nodes in stated if (at, nodes) in mine}
    return tuple(sorted(kept))


def _with_step(row: JobRow, seen: Sighting) -> JobRow:
    row = replace(row, user=seen.text("user") or row.user)
    known = dict(row.steps or ())
    for node in _hosts_in(seen.text("hosts"))[:1]:
        if node in known or len(known) < MAX_NODES:
            known[node] = min(known.get(node, seen.at), seen.at)
    return replace(row, steps=tuple((node, known[node]) for node in sorted(known, key=_natural)))


def speaker(seen: Sighting) -> tuple[JobRef, str, int | None] | None:
    """The job and the node of one of its processes, where NCCL's own header says on which host it ran, or the kernel that it
    killed one in the job's cgroup; else who shipped its line, and its rank.

    A job may have begun long before the controller's log.
    """
    if seen.kind == SignalKind.NODE_MEMORY:
        number, where = seen.text("slurm_job"), seen.entity.node
        if RELAYED in seen.attributes or not number or not where:
            # A program that prints a kernel's line could place any job, and excuse its hang by it.
            return None
        return JobRef(SLURM_JOB, "", number), where, None
    pod, rank = seen.entity.pod, seen.entity.rank
    if pod is None or not is_slurm(pod):
        return None
    if node := seen.text("node"):
        return job_of(pod.key), node, None
    return (job_of(pod.key), seen.entity.node, rank) if seen.entity.node and rank is not None else None


def with_speaker(row: JobRow, node: str, rank: int | None, at: datetime) -> JobRow:
    """The row with a node on which one of the job's processes speaks; the same where that says nothing new."""
    if any(node in nodes and since <= at for since, nodes in row.allocations or ()):
        return row
    if any(
        name == node and (own is None) is (rank is None) and (since, own or 0) <= (at, rank or 0)
        for name, since, own in row.speakers or ()
    ):
        return row
    known = {(name, own is None): (since, own) for name, since, own in row.speakers or ()}
    key, new = (node, rank is None), (at, rank)
    if key not in known and len(known) >= MAX_NODES:
        return row
    known[key] = min(known.get(key, new), new, key=lambda one: (one[0], one[1] or 0))
    told = tuple(
        (name, *known[name, own]) for name, own in sorted(known, key=lambda k: (_natural(k[0]), k[1]))
    )
    return row if told == row.speakers else replace(row, speakers=told)


def _natural(name: str) -> list[tuple[int, str]]:
    """In the order in which Slurm hands out ranks: `cn9` before `cn10`."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in _NUMBERS.split(name)]


_NUMBERS = re.compile(r"(\d+)")
_BADLY = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "OOM", "BOOT_FAIL"})


def _ended_well(seen: Sighting) -> bool | None:
    """How a job ended; None where the line does not tell, or somebody asked for its end."""
    if job_lost(seen) is not None:
        return False
    status, state = seen.number("status"), seen.text("state") or seen.text("state2")
    if status == 0 or state == "COMPLETED":
        return True
    return False if status or seen.number("signal") or state in _BADLY else None


def _hosts_in(text: str) -> tuple[str, ...]:
    try:
        found = tuple(hosts(text))
    except BadInput:
        return ()
    return found if len(found) <= MAX_NODES else ()


def allocations_of(row: JobRow, meant: Meaning = _as_said) -> Iterator[Allocation]:
    """Where the job stood, earliest first; its nodes as Slurm calls them."""
    runs: list[tuple[datetime, tuple[str, ...]]] = []
    statements, told_at = _statements(row, meant)
    for at, nodes in statements:
        if not runs or runs[-1][1] != nodes:
            runs.append((at, nodes))
    for (start, nodes), after in pairwise([*runs, None]):  # type: ignore[misc]
        if nodes:
            end = after[0] if after is not None else None
            asked = (
                at
                for at in row.asked or ()
                if start <= at and (end is None or end - _ASKED_BEFORE <= at <= end)
            )
            later = next((at for at, there in runs if there and at > start), None)
            outcomes = [
                well for at, well in row.outcomes or () if start <= at and (later is None or at < later)
            ]
            well = all(outcomes) if outcomes and end is not None else None
            early = told_at if (start, nodes) not in (row.allocations or ()) else None
            removed_at = min(asked, default=None)
            yield Allocation(start, end, nodes, row.gpus_per_node, removed_at, well, early)


def _statements(
    row: JobRow, meant: Meaning
) -> tuple[tuple[tuple[datetime, tuple[str, ...]], ...], datetime | None]:
    """Which nodes were said to be the job's, and when. Of one that began before the controller's log its nodes' daemons tell.

    Its own processes do, too, which may call a node otherwise. When it began is not known then; it ran for longer than anything
    that is kept. Also returns when that was told first.
    """
    told = row.allocations or ()
    early = _before_the_log(row, row.steps)
    stood = {meant(node, at) for node, at in early.items()}
    for node, at in _before_the_log(row, row.spoken_on).items():
        if node in early or meant(node, at) not in stood:
            early[node] = at
            stood.add(meant(node, at))
    if len(early) < 2:
        return told, None
    first = min(early.values())
    return tuple(sorted({*told, (first - KEPT, tuple(sorted(early, key=_natural)))})), first


def _before_the_log(row: JobRow, said: tuple[tuple[str, datetime], ...] | None) -> dict[str, datetime]:
    first = min((at for at, nodes in row.allocations or () if nodes), default=None)
    return {node: at for node, at in said or () if first is None or at < first}


def nodes_of(row: JobRow) -> set[str]:
    """Every node that the job is known to hold or to have held."""
    told = dict(row.steps or ()) | dict(row.spoken_on)
    labelled = {one.node for one in row.labelled or ()}
    return {node for _, nodes in row.allocations or () for node in nodes} | told.keys() | labelled


def tenancies_of(
    cluster: str, job: JobRef, row: JobRow, meant: Meaning = _as_said
) -> dict[str, tuple[Tenancy, ...]]:
    """The stays of the job's processes, one for each allocation on the node that was meant then, by their pod's name."""
    found: dict[str, tuple[Tenancy, ...]] = {}
    for one in allocations_of(row, meant):
        # Of the nodes of which some have not spoken yet nobody knows which is the third. Components differ in how many ranks they
        # have on a node, so no place in their list tells a rank.
        guessed = row.components is not None or not (
            set(one.nodes) <= dict(row.steps or ()).keys()
            or (one.start, one.nodes) in (row.allocations or ())
        )
        for position, called in enumerate(one.nodes):
            node = meant(called, one.told_at or one.start)
            name = processes_on(job.name, node)
            fact = PodFact(
                cluster,
                SLURM,
                name,
                f"{processes_on(job.name, called)}@{one.start.isoformat()}",
                one.start,
                node=node,
                job=job,
                phase="Running" if one.end is None else _PHASES[one.well],
                gpus=one.per_node or 0,
                ranks=one.per_node,
                position=None if guessed else position,
                scheduled_at=one.start,
                started_at=one.start,
                ended_at=one.end,
                removed_at=one.removed_at,
                workload=WorkloadClass.TRAINING,
                workload_guessed=True,
            )
            found[f"{SLURM}/{name}"] = (*found.get(f"{SLURM}/{name}", ()), Tenancy(fact, one.start))
    return found


def called_so(uid: str) -> str:
    """The pod, by a stay's uid, that its processes are as long as the inventory knows no node of what Slurm calls theirs."""
    return f"{SLURM}/{uid.rpartition('@')[0]}"


def _is_over(row: JobRow, cut: datetime) -> bool:
    """Whether what nodes' daemons or its processes said of a job is of no use any more: they said it towards its end."""
    said = (*(row.steps or ()), *((node, at) for node, at, _ in row.speakers or ()))
    return max(at for _, at in said) < cut


def pruned(row: JobRow, cut: datetime, now: datetime) -> JobRow:
    """The row without what ended before `cut`, and without an allocation of which nothing is heard any more."""
    if (row.steps or row.speakers) and _is_over(row, cut):
        row = replace(row, steps=None, speakers=None)
    if row.allocations and row.allocations[-1][0] < now - KEPT:
        return replace(row, allocations=None, components=None, asked=None, outcomes=None)
    if not row.allocations:
        asked = tuple(at for at in row.asked or () if at >= cut)
        outcomes = tuple(o for o in row.outcomes or () if o[0] >= cut)
        return replace(row, asked=asked or None, outcomes=outcomes or None)
    last_end = max((at for at, nodes in row.allocations if not nodes and at < cut), default=None)
    if last_end is None:
        return row
    left = tuple((at, nodes) for at, nodes in row.allocations if at > last_end)
    return replace(
        row,
        allocations=left or None,
        components=tuple(one for one in row.components or () if one[0] > last_end + _AT_ONCE) or None,
        asked=tuple(at for at in row.asked or () if at > last_end) or None,
        outcomes=tuple(o for o in row.outcomes or () if o[0] > last_end) or None,
    )
