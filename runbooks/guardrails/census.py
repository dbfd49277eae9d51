"""All runs of one cluster, counted once and kept up to date, so that a rule need not go through a thousand runs for each step.

A run is put in anew whenever it has changed. Runs in shadow are counted among themselves: they close nothing, and what they
would close must not hold up what is real.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from runbooks.guardrails.closed import (
    admitted_at,
    cordons,
    is_held,
    is_shadow,
    node_targets,
    opened_since,
)
from runbooks.view import ClusterView
from streams.model.run import Run, StepRecord, StepState

T = TypeVar("T")
_Row = tuple[datetime, str]
"""A time and the run it belongs to; lists of them are kept sorted."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one run adds to the numbers."""

    shadow: bool
    created_at: datetime
    targets: frozenset[str]
    """Keys of what it acts on, while it is let in and not over."""
    busy: frozenset[str]
    """Names of the nodes among them."""
    cordons: tuple[tuple[str, StepRecord], ...]
    begun: tuple[datetime, ...]
    """When each destructive step began."""
    reserved: int
    """Destructive steps that were let in and may still begin."""
    failed_at: datetime | None
    wants: frozenset[str]
    """Names of the nodes it acts on or would, let in or not."""
    jobs: frozenset[str]


class Census:
    """The numbers of one cluster's runs."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._parts: dict[str, _Part] = {}
        self._by_target: dict[bool, defaultdict[str, dict[str, None]]] = _both(lambda: defaultdict(dict))
        self._closing: dict[bool, dict[str, None]] = _both(dict)
        self._begun: dict[bool, list[_Row]] = _both(list)
        self._reserved: dict[bool, int] = _both(int)
        self._failed: list[_Row] = []
        self._wanting: dict[bool, list[_Row]] = _both(list)
        self._changes = 0
        self._held: tuple[object, frozenset[str]] | None = None
        self._closed: dict[bool, tuple[object, datetime, frozenset[str]]] = {}
        self._schedulable: dict[bool, tuple[frozenset[str], object, Mapping[str | None, frozenset[str]]]] = {}
        for run in runs:
            self.put(run)

    def put(self, run: Run) -> None:
        """Count a run as it is now."""
        part = _part(run)
        if self._parts.get(run.id) == part:
            return
        self.drop(run.id)
        self._parts[run.id] = part
        self._changes += 1
        for key in part.targets:
            self._by_target[part.shadow][key][run.id] = None
        if part.cordons or part.busy:
            self._closing[part.shadow][run.id] = None
        for at in part.begun:
            insort(self._begun[part.shadow], (at, run.id))
        self._reserved[part.shadow] += part.reserved
        if part.failed_at is not None:
            insort(self._failed, (part.failed_at, run.id))
        if part.wants:
            insort(self._wanting[part.shadow], (part.created_at, run.id))

    def drop(self, run_id: str) -> None:
        """Count a run no more."""
        part = self._parts.pop(run_id, None)
        if part is None:
            return
        self._changes += 1
        for key in part.targets:
            del self._by_target[part.shadow][key][run_id]
        self._closing[part.shadow].pop(run_id, None)
        for at in part.begun:
            _remove(self._begun[part.shadow], (at, run_id))
        self._reserved[part.shadow] -= part.reserved
        if part.failed_at is not None:
            _remove(self._failed, (part.failed_at, run_id))
        if part.wants:
            _remove(self._wanting[part.shadow], (part.created_at, run_id))

    def rival(self, run: Run, keys: Iterable[str]) -> tuple[str, str] | None:
        """Another run that was let in, is not over and acts on one of the targets: its id and the target's key."""
        by_target = self._by_target[is_shadow(run)]
        found = [(other, key) for key in keys for other in by_target.get(key, ()) if other != run.id]
        return min(found, default=None)

    def closed(self, view: ClusterView, *, shadow: bool, now: datetime, window_s: float) -> frozenset[str]:
        """Names of the nodes that Faultline holds closed or is about to close.

        By the runs' own record and by the marks that inventory sees. A closed node that has left the cluster counts for
        `window_s` more: it may only be not seen yet.
        """
        seen = (id(view), view.version, self._changes, window_s)
        known = self._closed.get(shadow)
        if known is None or known[0] != seen or now >= known[1]:
            until, names = self._count_closed(view, shadow, now, timedelta(seconds=window_s))
            known = (seen, until, names)
            self._closed[shadow] = known
        return known[2]

    def schedulable(
        self, view: ClusterView, *, shadow: bool, now: datetime, window_s: float
    ) -> Mapping[str | None, frozenset[str]]:
        """Names of the GPU nodes that take work, by pool: ready, not cordoned by anybody, and not about to be."""
        closed = self.closed(view, shadow=shadow, now=now, window_s=window_s)
        known = self._schedulable.get(shadow)
        if known is None or known[0] is not closed or known[1] != (id(view), view.version):
            by_pool = {
                pool: frozenset(
                    f.name
                    for f in facts
                    if f.gpus > 0 and f.ready and not f.unschedulable and f.name not in closed
                )
                for pool, facts in view.nodes_by("pool").items()
            }
            known = (closed, (id(view), view.version), by_pool)
            self._schedulable[shadow] = known
        return known[2]

    def closed_for(self, job: str, closed: Iterable[str], *, shadow: bool) -> set[str]:
        """Those of the closed nodes that a run closed which moves this job."""
        names = set(closed)
        parts = [self._parts[run_id] for run_id in self._closing[shadow]]
        return {
            name
            for part in parts
            if job in part.jobs
            for name in (*part.busy, *(name for name, _ in part.cordons))
            if name in names
        }

    def spent(self, *, shadow: bool, since: datetime) -> tuple[int, int, datetime | None]:
        """Destructive steps that began after `since`, those let in that may still begin, and when the first began."""
        begun = self._begun[shadow]
        first = _after(begun, since)
        return len(begun) - first, self._reserved[shadow], begun[first][0] if first < len(begun) else None

    def failures(self, since: datetime) -> list[str]:
        """Runs that acted and failed after `since`, in that order."""
        return [run_id for _, run_id in self._failed[_after(self._failed, since) :]]

    def wanting(self, *, shadow: bool, since: datetime) -> Iterator[tuple[str, frozenset[str]]]:
        """Runs planned after `since`, with the nodes they act on or would."""
        wanting = self._wanting[shadow]
        for _, run_id in wanting[_after(wanting, since) :]:
            yield run_id, self._parts[run_id].wants

    def _marked(self, view: ClusterView) -> frozenset[str]:
        """Nodes that bear our marks: looked for once for each state of the inventory, not for each run that changes."""
        seen = (id(view), view.version)
        if self._held is None or self._held[0] != seen:
            self._held = (seen, frozenset(name for name, fact in view.nodes.items() if is_held(fact)))
        return self._held[1]

    def _count_closed(
        self, view: ClusterView, shadow: bool, now: datetime, window: timedelta
    ) -> tuple[datetime, frozenset[str]]:
        """The closed nodes, and until when that holds as long as nothing changes."""
        closed = set(self._marked(view))
        until = datetime.max.replace(tzinfo=now.tzinfo)
        for run_id in self._closing[shadow]:
            part = self._parts[run_id]
            closed |= part.busy
            for name, record in part.cordons:
                fact = view.nodes.get(name)
                effect = record.effect
                if fact is not None:
                    stands = not opened_since(record, fact)
                elif effect is None or effect.confirmed_at is None:
                    stands = True
                else:
                    stands = effect.confirmed_at + window >= now
                    until = min(until, effect.confirmed_at + window) if stands else until
                if stands:
                    closed.add(name)
        return until, frozenset(closed)


def _part(run: Run) -> _Part:
    shadow = is_shadow(run)
    let_in = run.admitted_at is not None
    live = let_in and not run.state.is_over
    begun: list[datetime] = []
    reserved = 0
    records = {record.id: record for record in run.steps}
    for planned in run.plan.steps if let_in else ():
        record = records[planned.id]
        at = admitted_at(run, record) if planned.destructive else None
        if at is None:
            continue
        if shadow:
            begun.append(at)
        elif record.effect is not None:
            begun.append(record.started_at or record.effect.intended_at)
        elif live and not record.state.is_over:
            reserved += 1
    steps = [step for step in run.plan.steps if step.destructive and step.target is not None]
    return _Part(
        shadow=shadow,
        created_at=run.created_at,
        targets=frozenset(s.target.key for s in steps if s.target) if live else frozenset(),
        busy=frozenset(node_targets(run)) if live else frozenset(),
        cordons=tuple((p.target.name, r) for r, p in cordons(run) if p.target) if let_in else (),
        begun=tuple(begun),
        reserved=reserved,
        failed_at=None if shadow else _failed_at(run),
        wants=frozenset(node_targets(run)),
        jobs=frozenset(s.target.key for s in steps if s.target and s.target.kind != "Node"),
    )


def _failed_at(run: Run) -> datetime | None:
    """When a run that had begun to act failed, or one of its destructive steps did."""
    if run.admitted_at is None:
        return None
    failed = [r for r in run.steps if r.state is StepState.FAILED]
    if run.outcome != "failed" and not any(run.planned(r.id).destructive for r in failed):
        return None
    return max((r.finished_at for r in failed if r.finished_at), default=run.finished_at or run.updated_at)


def _both(make: Callable[[], T]) -> dict[bool, T]:
    """One for the runs in shadow, one for the others."""
    return {True: make(), False: make()}


def _after(rows: list[_Row], since: datetime) -> int:
    return bisect_right(rows, since, key=lambda row: row[0])


def _remove(rows: list[_Row], row: tuple[datetime, str]) -> None:
    del rows[bisect_right(rows, row) - 1]
