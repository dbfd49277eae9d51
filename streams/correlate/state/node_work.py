"""Nodes that are expected to go away: somebody cordoned them, works on them, or they announced that they shut down.

What such work does to a node is no fault until the node does not come back in the time that work takes at this site, as the past
of the cluster teaches. Policy is in `node_work.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import NamedTuple

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
from streams.model.signal import Severity

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
    orders: frozenset[str]
    boot_s: int


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
_DRAIN = "slurm_drain"
_CHECK = "health_check"
_NOTICES = (SignalKind.NODE_MAINTENANCE, SignalKind.NODE_CONDITION)


@dataclass(frozen=True, slots=True)
class Expectation:
    """Why a node may be away or ill, and until when; None for as long as somebody says so on it."""

    says: str
    until: datetime | None

    def holds(self, now: datetime) -> bool:
        """Whether it does at that time."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The end of work on a node, by which what its hardware reported until `seen_until` is for whoever worked there.

    `booted`: it was booted anew meanwhile, so that this is over. Else it stands, and is asked about: whoever gave the node back
    may know better.
    """

    by: str
    at: datetime
    seen_until: datetime
    booted: bool

    @property
    def says(self) -> str:
        """It in words."""
        who = "Whoever worked on it" if self.by == _SOMEBODY else self.by
        how = "after it was booted anew" if self.booted else "and nothing shows that this is over"
        return f"{who} gave the node back at {self.at:%H:%M} UTC, {how}"


def given_back(row: NodeRow, asked: Sequence[Work], handled: Sequence[Work]) -> list[GivenBack]:
    """When a node was given back by whoever worked on it.

    `asked` is work by a request of our own. What Faultline closed the node for (`handled`) its runs see to: a node that is booted
    meanwhile is not given back by that.
    """
    late = timedelta(seconds=work_policy().late_s)
    stretches = [*_stretches(work_statements(row)), *asked]
    if not stretches and not any(key.startswith(SignalKind.NODE_MAINTENANCE) for key in row.seen):
        return []
    found, with_boot = [], set()
    for boot in _boots(row):
        during = [
            w
            for w in stretches
            if w.since <= boot.at + late and (w.until is None or boot.at <= w.until + late)
        ]
        with_boot.update(during)
        if ends := [w.until for w in during if w.until is not None]:
            if len(ends) == len(during):
                by = max(during, key=lambda w: (w.until, w.since)).by
                found.append(GivenBack(by, max(*ends, boot.at), boot.seen_until, booted=True))
        elif not during and boot.ordered:
            found.append(GivenBack(_SOMEBODY, boot.at, boot.seen_until, booted=True))
    found += [
        GivenBack(w.by, w.until, w.until, booted=False)
        for w in stretches
        if w.until is not None and w not in with_boot
    ]
    return [
        g
        for g in found
        if not any(h.since <= g.at and (h.until is None or h.until >= g.seen_until) for h in handled)
    ]


@dataclass(frozen=True, slots=True)
class _Boot:
    """A new boot that was noticed `at`. What is dated until `seen_until` is of the boot before.

    `ordered`: somebody asked for it.
    """

    at: datetime
    seen_until: datetime
    ordered: bool


def _boots(row: NodeRow) -> Iterable[_Boot]:
    """Each new boot of a node, by what noticed it: its kubelet's event, its facts, or its return after an order."""
    policy = work_policy()
    before, late = timedelta(seconds=policy.notice_s), timedelta(seconds=policy.late_s)
    takes = timedelta(seconds=policy.boot_s)
    maintenance, conditions = (of_kind(row.seen, kind) for kind in _NOTICES)
    orders = sorted(s.at for s in maintenance if s.firing and _name(s) in policy.orders)
    events = {s.at for s in conditions if s.firing and s.text("subtype") == "rebooted"}
    away = firing_intervals(of_kind(row.seen, SignalKind.NODE_NOT_READY))
    returns = {
        i.end for i in away if i.end is not None and any(i.start - before <= at <= i.end for at in orders)
    }
    # A fact may be late by any time, where the inventory was away: the event knows better.
    facts = {
        at
        for (known, _), (at, _) in pairwise(row.boots or ())
        if not any(known < event <= at + late for event in events)
    }
    for at in sorted(events | returns | facts):
        gone = max((i.start for i in away if i.start <= at), default=at - takes)
        order = max((o for o in orders if gone - before <= o <= at), default=None)
        # Lines of the new kernel are dated before its kubelet starts, and a node is missed only after it went.
        went = gone if order is None or order < gone - takes else order
        yield _Boot(at, max(min(went, at), at - takes), order is not None)


def boots_of(row: NodeRow) -> list[datetime]:
    """When each new boot of a node was noticed."""
    return [boot.at for boot in _boots(row)]


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


class Drain(NamedTuple):
    """A time for which somebody had drained a node in Slurm. `until` is when it was given back; None while it was not."""

    since: datetime
    until: datetime | None


def drain_at(row: NodeRow, at: datetime) -> Drain | None:
    """The drain of a node in Slurm at that time by a person; None where there was none.

    What Slurm itself drains (a failing prolog, fewer GPUs than configured) is graver than info, and what a health check drains
    has its reason beside it: neither is anybody's plan.
    """
    policy = work_policy()
    late, ended = timedelta(seconds=policy.late_s), timedelta(seconds=policy.ended_s)
    said = of_kind(row.seen, SignalKind.NODE_CONDITION)
    checks = [s.at for s in said if s.text("subtype") == _CHECK]
    drains = [s for s in said if s.text("subtype") == _DRAIN]
    ends = sorted(s.at for s in drains if not s.firing)
    over = max((end for end in ends if end + ended < at), default=None)
    ordered = (
        s.at
        for s in drains
        if s.firing
        and s.at <= at + late
        and s.severity is Severity.INFO
        and not any(abs(s.at - check) <= late for check in checks)
    )
    since = min((begin for begin in ordered if over is None or begin > over), default=None)
    if since is None:
        return None
    return Drain(since, next((end for end in ends if end > since), None))


def expected_of_drain(
    row: NodeRow, fault_at: datetime, last_at: datetime, cleared_at: datetime | None
) -> Expectation | None:
    """Why a node's fault is left to whoever drained it in Slurm before: until they give it back, for good if it was over then."""
    policy = work_policy()
    drain = drain_at(row, last_at)
    if drain is None or drain.since > fault_at + timedelta(seconds=policy.late_s):
        return None
    ended = timedelta(seconds=policy.ended_s)
    over = drain.until is None or (cleared_at is not None and cleared_at <= drain.until + ended)
    until = None if over or drain.until is None else drain.until + ended
    return Expectation(f"it is drained in Slurm since {drain.since:%H:%M} UTC", until)


def is_of_drain(s: Sighting) -> bool:
    """Whether it tells that a node is drained in Slurm, is given back, or why a health check drains it."""
    return s.kind == SignalKind.NODE_CONDITION and s.text("subtype") in (_DRAIN, _CHECK)


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
    """The habit with what this node's kept reports show about its absences for work, in place of what they showed before."""
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
