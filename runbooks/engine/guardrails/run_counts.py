"""Counts over all runs of a cluster, kept up to date, so that no guardrail iterates over a thousand runs for each step.

A run is counted again whenever it has changed. Shadow-mode runs are counted separately: they cordon nothing, and what they
would cordon must not hold real runs.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TypeVar

from runbooks.engine.guardrails.cordoned_nodes import (
    Cordon,
    admitted_at,
    confirmed_at,
    cordons,
    is_confirmed,
    is_held,
    is_shadow,
    job_targets,
    node_targets,
    uncordoned_since,
)
from runbooks.engine.guardrails.job_moves import moves_begun
from runbooks.engine.tenancy import disturbs
from streams.inventory.cluster_view import ClusterView
from streams.model.run import PlannedStep, Run, RunOutcome, StepRecord, StepState

_FOREVER = datetime.max.replace(tzinfo=UTC)

MOVES_KEPT, MOVES_SHARE = 64, 0.9
"""How many of the latest moves tell how long one takes, and which share of them has to be done by then."""
_FIRST_OF_MOVE = frozenset({"suspend_job", "drain_node"})
"""Actions that are over before a job is started elsewhere, unless another job's team holds them up."""
_LAST_OF_MOVE = frozenset({"drain_node", "resume_job", "verify_job"})
"""Actions after which a job is off its node, and runs elsewhere."""

T = TypeVar("T")
_Row = tuple[datetime, str]
"""A time and a run's id; lists of these are kept sorted."""
_ByTeam = tuple[bool, str, bool]
"""Whether in shadow mode, a team, and whether its jobs are moved."""


@dataclass(frozen=True, slots=True)
class _Contribution:
    """What one run adds to the counts."""

    shadow: bool
    created_at: datetime
    targets: frozenset[str]
    """Keys of what it acts on, while it is admitted and not over: see `acted_on`."""
    busy: frozenset[str]
    """Names of the nodes among them."""
    cordons: tuple[Cordon, ...]
    started: tuple[datetime, ...]
    """When each destructive step started."""
    reserved: int
    """Admitted destructive steps that have not started yet."""
    failed_at: datetime | None
    incident: str
    wants: frozenset[str]
    """Names of the nodes it acts on, admitted or not."""
    jobs: frozenset[str]
    by_team: tuple[tuple[str, bool, datetime | None], ...] = ()
    """A team for each node closed under its jobs (False) and each of its jobs moved (True), and when that began; None for an
    admitted cordon that is still to come. A move counts only once it has begun: its team may not allow it for days."""
    moved: tuple[datetime, float] | None = None
    """When it had moved the jobs of its node, and how long that took (s)."""


class _Cordoned:
    """The cordoned nodes for one state of the inventory; only runs that have changed since are counted again."""

    def __init__(self, seen: object, marked: frozenset[str], changed: dict[str, None]) -> None:
        self.seen = seen
        self.until = _FOREVER
        """When the count expires although nothing changes."""
        self.changed = changed
        self._marked = marked
        """Nodes with our annotations, whatever the runs say."""
        self._by_run: dict[str, frozenset[str]] = {}
        self._times: Counter[str] = Counter()
        self._names: frozenset[str] | None = None

    def put(self, run_id: str, names: frozenset[str], until: datetime) -> None:
        """Set the nodes that one run holds cordoned."""
        known = self._by_run.pop(run_id, frozenset())
        if names:
            self._by_run[run_id] = names
            self.until = min(self.until, until)
        if known == names:
            return
        self._names = None
        self._times.update(names)
        _take_away(self._times, known)

    @property
    def names(self) -> frozenset[str]:
        """Names of all cordoned nodes."""
        if self._names is None:
            self._names = self._marked.union(self._times)
        return self._names


class RunCounts:
    """The counts of one cluster's runs."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._parts: dict[str, _Contribution] = {}
        self._by_target: dict[bool, defaultdict[str, dict[str, None]]] = _both(lambda: defaultdict(dict))
        self._cordoning: dict[bool, dict[str, None]] = _both(dict)
        self._started: dict[bool, list[_Row]] = _both(list)
        self._reserved: dict[bool, int] = _both(int)
        self._failed: list[_Row] = []
        self._wanting: dict[bool, list[_Row]] = _both(list)
        self._wanted: dict[bool, Counter[str]] = _both(Counter)
        self._cordoned: dict[bool, _Cordoned] = {}
        self._moved: dict[str, tuple[datetime, float]] = {}
        self._started_by: defaultdict[_ByTeam, list[_Row]] = defaultdict(list)
        self._reserved_by: Counter[_ByTeam] = Counter()
        for run in runs:
            self.put(run)

    def put(self, run: Run) -> None:
        """Add a run, or update it."""
        self._put(run.id, _contribution(run))

    def put_ended(
        self,
        run_id: str,
        created_at: datetime,
        cordons: tuple[Cordon, ...],
        jobs: frozenset[str],
        *,
        shadow: bool,
    ) -> None:
        """Add a run that ended before the window of any count: of it count only the nodes that it may still hold cordoned."""
        part = _Contribution(
            shadow=shadow, created_at=created_at, targets=frozenset(), busy=frozenset(), cordons=cordons, started=(),
            reserved=0, failed_at=None, incident="", wants=frozenset(), jobs=jobs,
        )  # fmt: skip
        self._put(run_id, part)

    def _put(self, run_id: str, part: _Contribution) -> None:
        if self._parts.get(run_id) == part:
            return
        self.drop(run_id)
        self._parts[run_id] = part
        for key in part.targets:
            self._by_target[part.shadow][key][run_id] = None
        if part.cordons or part.busy:
            self._cordoning[part.shadow][run_id] = None
            self._recount(run_id, part.shadow)
        for at in part.started:
            insort(self._started[part.shadow], (at, run_id))
        self._reserved[part.shadow] += part.reserved
        if part.failed_at is not None:
            insort(self._failed, (part.failed_at, run_id))
        for team, moves, at_time in part.by_team:
            if at_time is None:
                self._reserved_by[part.shadow, team, moves] += 1
            else:
                insort(self._started_by[part.shadow, team, moves], (at_time, run_id))
        if part.moved is not None:
            self._moved[run_id] = part.moved
        if part.wants:
            insort(self._wanting[part.shadow], (part.created_at, run_id))
            self._wanted[part.shadow].update(part.wants)

    def drop(self, run_id: str) -> None:
        """Remove a run."""
        part = self._parts.pop(run_id, None)
        if part is None:
            return
        self._moved.pop(run_id, None)
        for key in part.targets:
            del self._by_target[part.shadow][key][run_id]
        if run_id in self._cordoning[part.shadow]:
            del self._cordoning[part.shadow][run_id]
            self._recount(run_id, part.shadow)
        for at in part.started:
            _remove(self._started[part.shadow], (at, run_id))
        self._reserved[part.shadow] -= part.reserved
        for team, moves, at_time in part.by_team:
            if at_time is None:
                self._reserved_by[part.shadow, team, moves] -= 1
            else:
                _remove(self._started_by[part.shadow, team, moves], (at_time, run_id))
        if part.failed_at is not None:
            _remove(self._failed, (part.failed_at, run_id))
        if part.wants:
            _remove(self._wanting[part.shadow], (part.created_at, run_id))
            _take_away(self._wanted[part.shadow], part.wants)

    def rival(self, run: Run, keys: Iterable[str]) -> tuple[str, str] | None:
        """Another admitted run that is not over and acts on one of the targets: its id and the target's key."""
        by_target = self._by_target[is_shadow(run)]
        found = [(other, key) for key in keys for other in by_target.get(key, ()) if other != run.id]
        return min(found, default=None)

    def cordoned(self, view: ClusterView, *, shadow: bool, now: datetime, window_s: float) -> frozenset[str]:
        """Names of the nodes that Faultline holds cordoned or is about to cordon, by the runs' records and by the inventory.

        A cordoned node that the inventory does not show counts for `window_s`: it may just not be listed yet.
        """
        seen = (id(view), view.version, window_s)
        known = self._cordoned.get(shadow)
        if known is None or known.seen != seen or now >= known.until:
            marked = frozenset(name for name, fact in view.nodes.items() if is_held(fact))
            known = self._cordoned[shadow] = _Cordoned(seen, marked, dict.fromkeys(self._cordoning[shadow]))
        for run_id in known.changed:
            part = self._parts.get(run_id)
            if part is not None and run_id in self._cordoning[shadow]:
                names, until = _cordoned_by(part, view, now, timedelta(seconds=window_s))
                known.put(run_id, names, until)
            else:
                known.put(run_id, frozenset(), now)
        known.changed.clear()
        return known.names

    def cordoned_for(self, job: str, cordoned: Iterable[str], *, shadow: bool) -> set[str]:
        """Those of the `cordoned` nodes that belong to a run that moves this job."""
        names = set(cordoned)
        parts = [self._parts[run_id] for run_id in self._cordoning[shadow]]
        return {
            name
            for part in parts
            if job in part.jobs
            for name in (*part.busy, *(name for name, _ in part.cordons))
            if name in names
        }

    def spent(self, *, shadow: bool, since: datetime) -> tuple[int, int, datetime | None]:
        """Destructive steps started after `since`, admitted ones still to start, and when the first one started."""
        started = self._started[shadow]
        first = _after(started, since)
        return (
            len(started) - first,
            self._reserved[shadow],
            started[first][0] if first < len(started) else None,
        )

    def spent_by(self, team: str, moves: bool, *, shadow: bool, since: datetime, besides: str = "") -> int:
        """Jobs of a team whose move began after `since`, or nodes closed under its jobs since then or about to be; without those
        of the run `besides`."""
        rows = self._started_by.get((shadow, team, moves), [])
        part = self._parts.get(besides)
        own = part.by_team if part is not None and part.shadow is shadow else ()
        mine = sum((one, kind) == (team, moves) and (at is None or at > since) for one, kind, at in own)
        return len(rows) - _after(rows, since) + self._reserved_by[shadow, team, moves] - mine

    def usual_move(self) -> tuple[float | None, int]:
        """How long nearly all of the latest moves of a node's jobs took, in seconds, and how many those are; None for none."""
        took = sorted(seconds for _, seconds in sorted(self._moved.values())[-MOVES_KEPT:])
        return (took[ceil(MOVES_SHARE * len(took)) - 1] if took else None), len(took)

    def failures(self, since: datetime) -> list[str]:
        """Ids of runs that acted and failed after `since`, oldest first; of the runs of one incident only the latest."""
        failed = [run_id for _, run_id in self._failed[_after(self._failed, since) :]]
        # A node that no rung of its ladder helps is one failure, not a reason to stop the cluster: its latest run counts.
        latest = {self._parts[run_id].incident: run_id for run_id in failed}
        return [run_id for run_id in failed if latest[self._parts[run_id].incident] == run_id]

    def wanting(self, *, shadow: bool, since: datetime) -> Iterator[tuple[str, frozenset[str]]]:
        """Runs planned after `since`, with the names of the nodes they act on."""
        wanting = self._wanting[shadow]
        for _, run_id in wanting[_after(wanting, since) :]:
            yield run_id, self._parts[run_id].wants

    def most_wanted(self, *, shadow: bool) -> int:
        """How many nodes the runs act on, whenever they were planned: at least as many as `wanting` tells of."""
        return len(self._wanted[shadow])

    def _recount(self, run_id: str, shadow: bool) -> None:
        if (known := self._cordoned.get(shadow)) is not None:
            known.changed[run_id] = None


def _cordoned_by(
    part: _Contribution, view: ClusterView, now: datetime, window: timedelta
) -> tuple[frozenset[str], datetime]:
    """The nodes that one run holds cordoned or is about to cordon, and when that expires although nothing changes."""
    cordoned = set(part.busy)
    until = _FOREVER
    for name, made_at in part.cordons:
        fact = view.nodes.get(name)
        if fact is not None:
            holds = not uncordoned_since(made_at, fact)
        elif made_at is None:
            holds = True
        else:
            holds = made_at + window >= now
            until = min(until, made_at + window) if holds else until
        if holds:
            cordoned.add(name)
    return frozenset(cordoned), until


def _contribution(run: Run) -> _Contribution:
    """What a run adds. Its times are all in the one UTC: each decoded time has a time zone object of its own, and comparing
    two of those takes ten times as long."""
    shadow = is_shadow(run)
    admitted = run.admitted_at is not None
    live = admitted and not run.state.is_over
    started: list[datetime] = []
    by_team: list[tuple[str, bool, datetime | None]] = []
    reserved = 0
    records = {record.id: record for record in run.steps}
    for planned in run.plan.steps if admitted else ():
        record = records[planned.id]
        at = admitted_at(run, record) if planned.destructive else None
        if at is None or record.carried_from:  # the earlier run's step, which counts there
            continue
        began: datetime | None = None
        if shadow:
            began = at.astimezone(UTC)
        elif record.effect is not None:
            began = (record.started_at or record.effect.intended_at).astimezone(UTC)
        elif live and not record.state.is_over:
            reserved += 1
        else:
            continue
        if began is not None:
            started.append(began)
        if not disturbs(planned):
            by_team += [(team, False, began) for team in planned.teams or ()]
    for (team, _), move in moves_begun(run).items() if admitted else ():
        by_team += [(team, True, move.began.astimezone(UTC))] * move.jobs
    failed_at = None if shadow else _failed_at(run)
    return _Contribution(
        shadow=shadow,
        created_at=run.created_at.astimezone(UTC),
        targets=acted_on(run) if live else frozenset(),
        busy=frozenset(node_targets(run)) if live else frozenset(),
        cordons=tuple((p.target.name, confirmed_at(r)) for r, p in cordons(run) if p.target)
        if admitted
        else (),
        started=tuple(started),
        reserved=reserved,
        failed_at=failed_at.astimezone(UTC) if failed_at is not None else None,
        incident=run.incident,
        wants=frozenset(node_targets(run)),
        jobs=frozenset(job_targets(run)),
        by_team=tuple(by_team),
        moved=None if shadow else _moved(run),
    )


def _moved(run: Run) -> tuple[datetime, float] | None:
    """When a run had moved the jobs of its node, and how long that took from its cordon on; None where it has not, or where one
    of them was held up after another had been moved: that tells of its team, not of a move."""
    records = [(planned, run.step(planned.id)) for planned in run.plan.steps]
    resumed = [
        r.finished_at for p, r in records if p.action == "resume_job" and is_confirmed(r) and r.finished_at
    ]
    begun = [
        r.started_at for p, r in records if p.action in _FIRST_OF_MOVE and is_confirmed(r) and r.started_at
    ]
    if resumed and begun and max(begun) > min(resumed):
        return None
    began = [r.effect.intended_at for p, r in records if p.action == "cordon_node" and r.effect is not None]
    ended = [
        r.finished_at
        for p, r in records
        if p.action in _LAST_OF_MOVE and r.state is StepState.DONE and r.finished_at is not None
    ]
    failed = any(p.action in _LAST_OF_MOVE and r.state is StepState.FAILED for p, r in records)
    if not began or not ended or failed or not _suspended_one(records):
        return None
    took_s = (max(ended) - min(began)).total_seconds()
    return (max(ended).astimezone(UTC), took_s) if took_s > 0 else None


def _suspended_one(records: Iterable[tuple[PlannedStep, StepRecord]]) -> bool:
    """Whether a job was suspended for it: a node without one is emptied in no time, which says nothing of jobs."""
    return any(p.action == "suspend_job" and is_confirmed(r) for p, r in records)


def acted_on(run: Run) -> frozenset[str]:
    """Keys of the targets that an admitted run holds against other runs.

    Its nodes until it is over, a job until it has been moved and makes progress: the repair of a node may wait for days.
    """
    records = {record.id: record for record in run.steps}
    wanted = {step.target.key: step.target for step in run.plan.steps if step.destructive and step.target}
    at_work = {
        step.target.key
        for step in run.plan.steps
        if step.target and (not records[step.id].state.is_over or records[step.id].is_being_undone)
    }
    return frozenset(key for key, target in wanted.items() if target.kind == "Node" or key in at_work)


def _failed_at(run: Run) -> datetime | None:
    """When a run that had started to act failed, or one of its destructive steps did."""
    if run.admitted_at is None:
        return None
    failed = [r for r in run.steps if r.state is StepState.FAILED]
    if run.outcome is not RunOutcome.FAILED and not any(run.planned(r.id).destructive for r in failed):
        return None
    return max((r.finished_at for r in failed if r.finished_at), default=run.finished_at or run.updated_at)


def _both(make: Callable[[], T]) -> dict[bool, T]:
    """One for shadow-mode runs, one for the others."""
    return {True: make(), False: make()}


def _take_away(times: Counter[str], names: Iterable[str]) -> None:
    """Count each name once less, and forget those that are gone."""
    for name in names:
        times[name] -= 1
        if not times[name]:
            del times[name]


def _after(rows: list[_Row], since: datetime) -> int:
    return bisect_right(rows, since, key=lambda row: row[0])


def _remove(rows: list[_Row], row: tuple[datetime, str]) -> None:
    del rows[bisect_right(rows, row) - 1]
