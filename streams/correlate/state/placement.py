"""Placement in time: which ranks of which job ran on which node at time t, which may be hours before it is asked.

A pod stands on its node from when it was scheduled until it ended, was deleted, or gave its name to another. Only pods of
training jobs have placements. Of others no more is known than that they stood there, so what a node reports may be theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from streams.correlate.state.rows import ObservedRank, PodRow
from streams.correlate.state.store import State
from streams.model.entity import JobRef, is_output_of_slurm
from streams.model.facts import PodFact

_OUTCOMES = {"Succeeded": True, "Failed": False}


@dataclass(frozen=True, slots=True)
class Placement:
    """One pod on one node. `end` is None while it lasts. `ranks` are global, empty when unknown."""

    pod: str
    uid: str
    node: str
    job: JobRef
    start: datetime
    end: datetime | None
    gpus: int
    ranks: range
    expected: int
    """How many ranks the pod holds; one for each GPU where nobody says."""
    source: str | None = None
    """Where the ranks were learned, as the inventory says."""
    observed: tuple[ObservedRank, ...] = ()
    """What its processes said of their ranks."""
    busy: tuple[datetime, ...] = ()
    """When its processes logged how far they were with something else than training."""
    removed_at: datetime | None = None
    """When somebody asked for its deletion."""
    succeeded: bool | None = None
    """Whether all that it ran ended well; None while it has not ended, and where nobody saw how."""
    position: int | None = None
    """Its place in the list of its job's nodes, in whose order ranks are handed out."""

    def overlaps(self, since: datetime, until: datetime) -> bool:
        """Whether the placement and the closed interval have a moment in common."""
        return self.start <= until and (self.end is None or self.end >= since)


class Stay(NamedTuple):
    """A pod on a node, whatever it is for."""

    fact: PodFact
    node: str
    start: datetime
    end: datetime | None


def stays_of(row: PodRow) -> list[Stay]:
    """Every stay of a pod of this name on a node, earliest first."""
    placed = [(t.fact.scheduled_at or t.first_seen, t.fact) for t in row.tenancies if t.fact.node]
    stays = []
    for start, fact in sorted(placed, key=lambda p: (p[0], p[1].uid)):
        ends = [later for later, _ in placed if later > start]
        ends += [end] if (end := ended_at(row, fact)) is not None else []
        stays.append(Stay(fact, fact.node or "", start, min(ends, default=None)))
    return stays


def ended_at(row: PodRow, fact: PodFact) -> datetime | None:
    """When a pod of this name ended or was deleted, placed or not."""
    ends = [fact.ended_at] if fact.ended_at else []
    ends += [at for at in row.gone if at >= fact.observed_at][:1]
    return min(ends, default=None)


def placements_of(name: str, row: PodRow) -> tuple[Placement, ...]:
    """The placements of every pod of a training job that bore the name."""
    placements = []
    for fact, node, start, end in stays_of(row):
        if fact.job is None or not fact.trains:
            continue
        count = fact.ranks or max(fact.gpus, 1)
        ranks = range(fact.rank, fact.rank + count) if fact.rank is not None else range(0)
        placements.append(
            Placement(
                pod=name,
                uid=fact.uid,
                node=node,
                job=fact.job,
                start=start,
                end=end,
                gpus=fact.gpus,
                ranks=ranks,
                expected=count,
                source=fact.rank_source,
                observed=tuple(t for t in row.ranks if start <= t.at and (end is None or t.at <= end)),
                busy=tuple(at for at in row.busy or () if start <= at and (end is None or at <= end)),
                removed_at=fact.removed_at,
                succeeded=_OUTCOMES.get(fact.phase) if fact.ended_at is not None else None,
                position=fact.position,
            )
        )
    return tuple(placements)


class Placements:
    """Placements by node and by job, kept up to date pod by pod."""

    def __init__(self, state: State, slack: timedelta) -> None:
        self._slack = slack
        self._by_pod: dict[str, tuple[Placement, ...]] = {}
        self.ended: dict[str, datetime] = {}
        """By name of pods of which one is over: when the first of them ended."""
        self._others: dict[str, tuple[Stay, ...]] = {}
        """By pod: stays of what is no training."""
        self._others_on: dict[str, set[str]] = defaultdict(set)
        self._on: dict[str, set[str]] = defaultdict(set)
        self._of: dict[str, set[str]] = defaultdict(set)
        self._slurm: Counter[str] = Counter()
        """Nodes with processes of jobs that no object describes, and how many."""
        self._stays: dict[str, tuple[Placement, ...]] = {}
        """By job: a cache of `placements_of`, dropped when one of its pods changes."""
        for name, row in state.pods.items():
            self.update(name, row)

    def update(self, pod: str, row: PodRow | None) -> tuple[set[str], set[str]]:
        """Record a changed pod. Returns the nodes and the jobs (by key) that it was or is part of."""
        others = self._update_others(pod, row)
        ends = [end for t in row.tenancies if (end := ended_at(row, t.fact))] if row is not None else []
        before = self._by_pod.get(pod, ())
        after = placements_of(pod, row) if row is not None else ()
        if ends := [*ends, *(p.end for p in after if p.end)]:
            self.ended[pod] = min(ends)
        else:
            self.ended.pop(pod, None)
        if before == after:
            return others, set()
        for placement in before:
            self._on[placement.node].discard(pod)
            self._of[placement.job.key].discard(pod)
        for placement in after:
            self._on[placement.node].add(pod)
            self._of[placement.job.key].add(pod)
        self._by_pod[pod] = after
        if not after:
            del self._by_pod[pod]
        if is_output_of_slurm(pod):
            self._slurm.update(p.node for p in after)
            for placement in before:
                self._slurm[placement.node] -= 1
                if not self._slurm[placement.node]:
                    del self._slurm[placement.node]
        both = (*before, *after)
        for placement in both:
            self._stays.pop(placement.job.key, None)
        return {s.node for s in both} | others, {s.job.key for s in both}

    def _update_others(self, pod: str, row: PodRow | None) -> set[str]:
        """Record where a pod stood that is of no training job. Returns the nodes on which that changed."""
        after = tuple(s for s in stays_of(row) if not s.fact.trains or s.fact.job is None) if row else ()
        before = self._others.pop(pod, ())
        if after:
            self._others[pod] = after
        old, new = ({(s.node, s.start, s.end) for s in stays} for stays in (before, after))
        for stay in before:
            self._others_on[stay.node].discard(pod)
        for stay in after:
            self._others_on[stay.node].add(pod)
        return {node for node, _, _ in old ^ new}

    def of_slurm(self) -> list[str]:
        """The nodes that Slurm is known to have given to jobs."""
        return sorted(self._slurm)

    def is_of_slurm(self, node: str) -> bool:
        """Whether Slurm is known to have given the node to a job."""
        return node in self._slurm

    @property
    def nodes_of_slurm(self) -> int:
        """How many nodes Slurm is known to have given to jobs."""
        return len(self._slurm)

    def is_shared(self, node: str) -> bool:
        """Whether the node is known to have held anything besides one training job."""
        return bool(self._others_on.get(node)) or len(self.jobs_near(node)) > 1

    def stood_beside(self, node: str, since: datetime, until: datetime) -> bool:
        """Whether something that is no training job held GPUs on the node in that time."""
        since -= self._slack
        stays = (s for pod in self._others_on.get(node, ()) for s in self._others[pod])
        return any(s.node == node and s.start <= until and (s.end is None or s.end >= since) for s in stays)

    def pods_on(self, node: str) -> Set[str]:
        """Names of all pods that stand or stood on the node, in no order."""
        return self._on.get(node, set()) | self._others_on.get(node, set())

    def of_pod(self, pod: str) -> tuple[Placement, ...]:
        """Every placement of pods of that name, earliest first."""
        return self._by_pod.get(pod, ())

    def names_of(self, job: str) -> Set[str]:
        """Names of the pods the job has or had, in no order."""
        return self._of.get(job, frozenset())

    def placements_of(self, job: str) -> Sequence[Placement]:
        """Every placement of the job's pods, by the pod's name and then in order of time."""
        if job not in self._stays:
            pods = sorted(self.names_of(job))
            self._stays[job] = tuple(s for pod in pods for s in self._by_pod[pod] if s.job.key == job)
        return self._stays[job]

    def on_node(self, node: str, since: datetime, until: datetime) -> list[Placement]:
        """Placements on the node in that time; one that ended up to the slack before still counts."""
        since -= self._slack
        return [p for p in self._in_pods(self._on, node) if p.node == node and p.overlaps(since, until)]

    def of_job(self, job: str, since: datetime, until: datetime) -> list[Placement]:
        """Placements of the job in that time."""
        return [p for p in self._in_pods(self._of, job) if p.job.key == job and p.overlaps(since, until)]

    def _in_pods(self, index: Mapping[str, set[str]], key: str) -> Iterator[Placement]:
        return (p for pod in sorted(index.get(key, ())) for p in self._by_pod[pod])

    def jobs_near(self, node: str) -> set[str]:
        """Keys of every job that is known to have run on the node."""
        return {p.job.key for pod in self._on.get(node, ()) for p in self._by_pod[pod] if p.node == node}


def placement_at(placements: Sequence[Placement], at: datetime) -> Placement | None:
    """The placement that a line of that time belongs to: the one it lies in, else the nearest before, else the first."""
    begun = [p for p in placements if p.start <= at]
    return begun[-1] if begun else placements[0] if placements else None
