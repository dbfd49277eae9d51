"""Where jobs of Slurm stand by the metrics of GPUs, which bear their numbers (`job.allocation`, `labelled`).

That counts as far as Slurm's controller has said nothing: its log may not be shipped, or begin after the job. What it says of a
job holds from its first line on, and where it has given a node to another job, a label that comes later is that job's under
another number (`scontrol` has one for each task of an array), or what an exporter has not taken back yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.allocations import MAX_NODES, Meaning, processes_on
from streams.correlate.state.rows import MAX_WORK, JobRow, Labelled, Tenancy, outermost
from streams.model.entity import SLURM, JobRef
from streams.model.facts import PodFact
from streams.model.hostnames import short
from streams.model.kinds import WorkloadClass

_JUST = timedelta(milliseconds=1)


class StayByLabel(NamedTuple):
    """A stretch in which metrics of a node bore a job; `until` is None while they do."""

    node: str
    since: datetime
    until: datetime | None
    gpus: int


def with_label(row: JobRow, node: str, seen: Sighting) -> JobRow:
    """The row with what the metrics of a node say; the same one where that is known, or Slurm's controller had said so before."""
    if seen.firing and any(node in nodes for nodes in _held_at(row, seen.at)):
        return row
    known = row.labelled or ()
    place = bisect_left(known, node, key=lambda one: one.node)
    here = known[place : place + 1] if place < len(known) and known[place].node == node else ()
    if not here and len(known) >= MAX_NODES:
        return row
    before = here[0] if here else Labelled(node, ())
    said = outermost({*before.said, (seen.at, seen.firing)})[-MAX_WORK:]
    after = Labelled(node, said, max(before.gpus, seen.number("gpus") or 0))
    return (
        row
        if after == before
        else replace(row, labelled=(*known[:place], after, *known[place + len(here) :]))
    )


def _held_at(row: JobRow, at: datetime) -> tuple[tuple[str, ...], ...]:
    """The nodes that the controller had given the job by then, if it said anything of it: none where the job was over."""
    return tuple(nodes for since, nodes in row.allocations or () if since <= at + policy().labels.late)[-1:]


def _borne(one: Labelled) -> Iterator[StayByLabel]:
    """The stretches in which the metrics of a node bore the job, in order of time.

    Partitions that have a part of the series report an end each: the last of them counts.
    """
    since: datetime | None = None
    until: datetime | None = None
    for at, there in one.said:
        if there and since is not None and until is not None and at - until > policy().labels.same_end:
            yield StayByLabel(one.node, since, until, one.gpus)
            since = None
        if there:
            since, until = since or at, None
        elif since is not None:
            until = at
    if since is not None:
        yield StayByLabel(one.node, since, until, one.gpus)


def stays_by_labels(row: JobRow, node: str | None = None) -> Iterator[StayByLabel]:
    """The stays that only labels show, each until Slurm's controller says anything of the job.

    Args:
        row: The job's.
        node: The short name of the only node that is asked for.
    """
    labelled = (one for one in row.labelled or () if node is None or short(one.node) == node)
    return (stay for one in labelled for stay in _stays_of(one, row))


def _stays_of(one: Labelled, row: JobRow) -> Iterator[StayByLabel]:
    told = row.allocations or ()
    for stay in _borne(one):
        if any(_held_at(row, stay.since)):
            continue
        ended = max((at for at, nodes in told if not nodes and at <= stay.since), default=None)
        if ended is not None and stay.since - ended < policy().labels.stale:
            continue
        until = min((at for at, _ in told if at > stay.since), default=None)
        ends = [end for end in (stay.until, until) if end is not None]
        yield stay._replace(until=min(ends, default=None))


def tenancies_by_labels(
    cluster: str, job: JobRef, stays: Iterable[StayByLabel], meant: Meaning
) -> dict[str, tuple[Tenancy, ...]]:
    """These stays as stays of the job's processes, by their pod's name."""
    found: dict[str, tuple[Tenancy, ...]] = {}
    for stay in stays:
        node = meant(stay.node, stay.since)
        name = processes_on(job.name, node)
        fact = PodFact(
            cluster,
            SLURM,
            name,
            f"{processes_on(job.name, stay.node)}@{stay.since.isoformat()}",
            stay.since,
            node=node,
            job=job,
            phase="Running" if stay.until is None else "Unknown",
            gpus=stay.gpus,
            scheduled_at=stay.since,
            started_at=stay.since,
            ended_at=stay.until,
            workload=WorkloadClass.TRAINING,
            workload_guessed=True,
        )
        key = f"{SLURM}/{name}"
        found[key] = (*found.get(key, ()), Tenancy(fact, stay.since))
    return found


def with_labelled(
    placed: dict[str, tuple[Tenancy, ...]],
    labelled: dict[str, tuple[Tenancy, ...]],
    is_told: Callable[[datetime], bool],
) -> dict[str, tuple[Tenancy, ...]]:
    """Stays of a job's processes with those that only labels show. `is_told`: the controller gave the nodes at that time.

    Of what its processes and the nodes' daemons say no end is known, nor when it began; a label tells when it was over.
    """
    found = dict(placed)
    for name, mine in labelled.items():
        told = [t for t in placed.get(name, ()) if is_told(t.first_seen)]
        early = [t for t in placed.get(name, ()) if not is_told(t.first_seen)]
        apart = [one for one in mine if not any(_meet(one.fact, t.fact) for t in told)]
        if early and apart and (end := apart[-1].fact.ended_at) is not None:
            last = early[-1]
            ends = min(end, last.fact.ended_at or end)
            early[-1] = replace(last, fact=replace(last.fact, ended_at=ends, phase=apart[-1].fact.phase))
        first = [] if early else apart
        found[name] = tuple(sorted([*early, *first, *told], key=lambda t: (t.first_seen, t.fact.uid)))
    return found


def _meet(one: PodFact, other: PodFact) -> bool:
    return (one.ended_at is None or one.ended_at > other.observed_at) and (
        other.ended_at is None or other.ended_at > one.observed_at
    )


def pruned_labels(row: JobRow, cut: datetime, now: datetime) -> JobRow:
    """The row without what was over before `cut`; a label not reported for `kept_s` was gone after its last report."""
    if not row.labelled:
        return row
    ended = (_ended(one, now) for one in row.labelled)
    left = tuple(one for one in ended if _is_needed(one, row, cut))
    return row if left == row.labelled else replace(row, labelled=left or None)


def _is_needed(one: Labelled, row: JobRow, cut: datetime) -> bool:
    """Whether a label shows a stay that was not over before `cut`: a node that died with its job bears it for ever."""
    ends = [stay.until for stay in _stays_of(one, row)]
    return any(end is None or end >= cut for end in ends) if ends else one.said[-1][0] >= cut


def _ended(one: Labelled, now: datetime) -> Labelled:
    at, there = one.said[-1]
    return (
        replace(one, said=(*one.said, (at + _JUST, False)))
        if there and now - at > policy().labels.kept
        else one
    )
