"""Placement in time: which ranks of which job ran on which node at time t, which may be hours before it is asked.

A pod stands on its node from when it was scheduled until it ended, was deleted, or gave its name to another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.state.rows import ObservedRank, PodRow
from streams.correlate.state.store import State
from streams.model.entity import JobRef


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

    def overlaps(self, since: datetime, until: datetime) -> bool:
        """Whether the placement and the closed interval have a moment in common."""
        return self.start <= until and (self.end is None or self.end >= since)


def placements_of(name: str, row: PodRow) -> tuple[Placement, ...]:
    """The placements of every pod that bore the name."""
    placed = [t for t in row.tenancies if t.fact.node and t.fact.job]
    starts = [t.fact.scheduled_at or t.first_seen for t in placed]
    placements = []
    for tenancy, start in sorted(zip(placed, starts, strict=True), key=lambda p: (p[1], p[0].fact.uid)):
        fact = tenancy.fact
        ends = [fact.ended_at] if fact.ended_at else []
        ends += [at for at in row.gone if at >= fact.observed_at][:1]
        ends += [later for later in starts if later > start]
        count = fact.ranks or max(fact.gpus, 1)
        ranks = range(fact.rank, fact.rank + count) if fact.rank is not None else range(0)
        assert fact.node is not None
        assert fact.job is not None
        end = min(ends, default=None)
        placements.append(
            Placement(
                pod=name,
                uid=fact.uid,
                node=fact.node,
                job=fact.job,
                start=start,
                end=end,
                gpus=fact.gpus,
                ranks=ranks,
                expected=count,
                source=fact.rank_source,
                observed=tuple(t for t in row.ranks if start <= t.at and (end is None or t.at <= end)),
            )
        )
    return tuple(placements)


class Placements:
    """Placements by node and by job, kept up to date pod by pod."""

    def __init__(self, state: State, slack: timedelta) -> None:
        self._slack = slack
        self._by_pod: dict[str, tuple[Placement, ...]] = {}
        self._ended: set[str] = set()
        self._on: dict[str, set[str]] = defaultdict(set)
        self._of: dict[str, set[str]] = defaultdict(set)
        self._stays: dict[str, tuple[Placement, ...]] = {}
        """By job: a cache of `placements_of`, dropped when one of its pods changes."""
        for name, row in state.pods.items():
            self.update(name, row)

    def update(self, pod: str, row: PodRow | None) -> tuple[set[str], set[str]]:
        """Record a changed pod. Returns the nodes and the jobs (by key) that it was or is part of."""
        before = self._by_pod.get(pod, ())
        after = placements_of(pod, row) if row is not None else ()
        if before == after:
            return set(), set()
        for placement in before:
            self._on[placement.node].discard(pod)
            self._of[placement.job.key].discard(pod)
        for placement in after:
            self._on[placement.node].add(pod)
            self._of[placement.job.key].add(pod)
        self._by_pod[pod] = after
        if not after:
            del self._by_pod[pod]
        (self._ended.add if any(p.end for p in after) else self._ended.discard)(pod)
        both = (*before, *after)
        for placement in both:
            self._stays.pop(placement.job.key, None)
        return {s.node for s in both}, {s.job.key for s in both}

    def has_ended(self, pod: str) -> bool:
        """Whether any placement of pods of that name is over."""
        return pod in self._ended

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
