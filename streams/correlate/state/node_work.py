"""Nodes that are expected to go away: somebody cordoned them, works on them, or they announced that they shut down.

What such work does to a node is no fault until the node does not come back in the time that work takes at this site, as the past
of the cluster teaches. Policy is in `node_work.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from math import ceil
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.incarnations import FiringInterval, firing_intervals
from streams.correlate.state.rows import (
    Absence,
    NodeRow,
    WorkHabitRow,
    WorkStatement,
    of_kind,
    work_statements,
)
from streams.model.facts import WorkEnds
from streams.model.kinds import SignalKind

HABIT = "nodes"
"""The name of the one row that holds how long absences take."""


class _Back(Strict):
    floor_s: int
    by_hand_s: int
    factor: float
    share: float
    kept: int
    longest_s: int


class WorkPolicy(Strict):
    """The whole file."""

    back: _Back
    late_s: int
    ended_s: int
    notice_s: int
    notices: dict[str, WorkEnds]


work_policy = cache(partial(load_table, Path(__file__).with_name("node_work.yaml"), WorkPolicy))
"""The policy that ships."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work on a node at some time. `until` is when its mark was taken off; None while it is there."""

    by: str
    ends: str
    since: datetime
    until: datetime | None

    @property
    def says(self) -> str:
        """It in words."""
        return (
            f"{self.by} works on it since {self.since:%H:%M} UTC"
            if self.by != _SOMEBODY
            else "it is cordoned"
        )


_SOMEBODY = "somebody"
_NOTICES = (SignalKind.NODE_MAINTENANCE, SignalKind.NODE_CONDITION)


@dataclass(frozen=True, slots=True)
class Expectation:
    """Why a node may be away or ill, and until when; None for as long as somebody says so on it."""

    says: str
    until: datetime | None

    def holds(self, now: datetime) -> bool:
        """Whether it does at that time."""
        return self.until is None or now < self.until


def work_at(row: NodeRow, at: datetime) -> Work | None:
    """The work on a node at that time, by the marks on it and what announced it; None when there was none."""
    policy = work_policy()
    late, ended = timedelta(seconds=policy.late_s), timedelta(seconds=policy.ended_s)
    stretches = list(_stretches(work_statements(row)))
    marked = (w for w in stretches if w.since <= at + late and (w.until is None or at <= w.until + ended))
    return max(marked, key=lambda w: w.since, default=None) or _announced(row, at)


def is_worked_on(row: NodeRow, at: datetime) -> bool:
    """Whether somebody said of a node that goes at that time what it goes for. A cordon alone may be for what it suffers from."""
    work = work_at(row, at)
    return work is not None and work.by != _SOMEBODY


def workers_at(row: NodeRow, at: datetime) -> frozenset[str]:
    """Everybody who said during the work on a node at that time that it is theirs, one after the other."""
    work = work_at(row, at)
    if work is None:
        return frozenset()
    late = timedelta(seconds=work_policy().late_s)
    theirs = (said for at_, said in work_statements(row) if said and work.since <= at_ <= at + late)
    return frozenset({work.by, *(said[0] for said in theirs)})


def _stretches(statements: Iterable[WorkStatement]) -> Iterable[Work]:
    """The times of work. One mark after the other is one work, and the latest says how it ends."""
    since: datetime | None = None
    by, ends = "", "back"
    for at, said in statements:
        if said:
            since = since or at
            by, ends = said[0], said[1]
        elif since is not None:
            yield Work(by, ends, since, at)
            since = None
    if since is not None:
        yield Work(by, ends, since, None)


def _announced(row: NodeRow, at: datetime) -> Work | None:
    policy = work_policy()
    if not any(key.startswith(_NOTICES) for key in row.seen):
        return None
    earliest, latest = at - timedelta(seconds=policy.notice_s), at + timedelta(seconds=policy.late_s)
    notices = (
        s
        for group in row.seen.values()
        if group[0].kind in _NOTICES
        for s in group
        if s.firing and earliest <= s.at <= latest and _name(s) in policy.notices
    )
    notice = max(notices, key=order, default=None)
    if notice is None:
        return None
    ends = policy.notices[_name(notice)]
    until = min([notice.at + timedelta(seconds=policy.notice_s), *_back_after(row, notice.at)])
    if at > until + timedelta(seconds=policy.ended_s):
        return None
    return Work("its own notice", ends, notice.at, until)


def work_over_at(row: NodeRow, noticed_at: datetime) -> datetime | None:
    """When the work that a notice announced was done: the node came back, or its mark was taken off; None while it lasts."""
    unmarked = (
        w.until for w in _stretches(work_statements(row)) if w.until is not None and w.until > noticed_at
    )
    return min([*_back_after(row, noticed_at), *unmarked], default=None)


def _back_after(row: NodeRow, at: datetime) -> Iterable[datetime]:
    """When a node that went after that time was Ready again."""
    away = firing_intervals(of_kind(row.seen, SignalKind.NODE_NOT_READY))
    return (i.end for i in away if i.end is not None and i.end > at)


def _name(s: Sighting) -> str:
    return f"{s.kind}.{s.text('subtype')}"


def expected_away(row: NodeRow, gone_at: datetime, usual: timedelta) -> Expectation | None:
    """Until when a node that went at that time is expected to be away; None when nobody announced it."""
    work = work_at(row, gone_at)
    if work is None:
        return None
    if work.ends == "held" or (work.by == _SOMEBODY and gone_at > work.since + usual):
        # A person takes it off. A node that was closed long before it went is not being rebooted: it is parked.
        return Expectation(work.says, None) if work.until is None else None
    until = max(gone_at, work.since) + _given(work, usual)
    return Expectation(f"{work.says} and it is expected back by {until:%H:%M} UTC", until)


def is_back_in_time(row: NodeRow, gone_at: datetime, back_at: datetime, usual: timedelta) -> bool:
    """Whether an absence from then to then was all that work on the node explains."""
    work = work_at(row, gone_at)
    if work is None:
        return False
    if work.ends != "held" and back_at <= max(gone_at, work.since) + _given(work, usual):
        return True
    return work.since <= gone_at and (work.until is None or back_at <= work.until)


def _given(work: Work, usual: timedelta) -> timedelta:
    """How long a node may be away for that work, where such work takes `usual`."""
    return max(usual, timedelta(seconds=work_policy().back.by_hand_s)) if work.by == _SOMEBODY else usual


def usual_time(habit: WorkHabitRow | None, before: datetime) -> timedelta:
    """How long a node that is worked on may be away, by the absences that were over before then."""
    back = work_policy().back
    took = sorted(a.seconds for a in habit.absences if a.ended <= before) if habit is not None else []
    learned = took[ceil(back.share * len(took)) - 1] * back.factor if took else 0.0
    return timedelta(seconds=max(float(back.floor_s), learned))


def with_absences(
    habit: WorkHabitRow, node: str, row: NodeRow, down: Iterable[FiringInterval]
) -> WorkHabitRow:
    """The habit with what this node's kept reports tell of its absences for work, in place of what they told before."""
    back = work_policy().back
    intervals = list(down)
    if not intervals:
        return habit
    first = min(i.start for i in intervals)
    mine = {
        Absence(i.start, node, (i.end - i.start).total_seconds())
        for i in intervals
        if i.end is not None
        and (i.end - i.start).total_seconds() <= back.longest_s
        and (work := work_at(row, i.start)) is not None
        and work.ends == "back"
        and i.start <= work.since + timedelta(seconds=back.longest_s)
    }
    others = {a for a in habit.absences if a.node != node or a.start < first}
    return WorkHabitRow(tuple(sorted(mine | others)[-back.kept :]))
