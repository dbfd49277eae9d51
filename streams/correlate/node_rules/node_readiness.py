"""A node that is not ready, or dead, as the API server, its own conditions and its last lines tell it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.sightings import KEPT_EACH_END, Sighting, firing, order
from streams.correlate.state.allocations import is_by_slurm
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session, firing_intervals
from streams.correlate.state.node_work import expected_away, is_back_in_time, is_worked_on
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import NodeRow, of_kind
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute

_MISSED = "slurm_silent"
_MISSED_BEFORE = timedelta(minutes=20)
"""Slurm's controller sets a node down that long after it first missed it, at most (SlurmdTimeout, 300 s by default)."""
_SLURM_LAG = timedelta(minutes=6)
"""By how much that may be later than what a job says, where the first miss is not told: by that timeout and a ping."""


def down_intervals(seen: Iterable[Sighting]) -> list[FiringInterval]:
    """Each time that the node was not ready or died, blips and all.

    What Slurm's controller sets down it has missed for minutes: it was away since then. A miss alone is nothing.
    """
    seen = list(seen)
    lines = [s for s in seen if s.kind == SignalKind.NODE_NOT_READY or is_death(s)]
    missed = [s for s in seen if is_miss(s) and s.firing]
    found = firing_intervals(lines)
    if not missed or not found:
        return found
    backs = [None, *(i.end for i in found[:-1])]
    went = [
        (max(i.start - _MISSED_BEFORE, back or i.start - _MISSED_BEFORE), i.start)
        for i, back in zip(found, backs, strict=True)
        if is_by_slurm(i.sightings[0])
    ]
    first = (
        min((s for s in missed if since < s.at < until), key=order, default=None) for since, until in went
    )
    return firing_intervals((*lines, *(s for s in first if s is not None)))


def is_miss(s: Sighting) -> bool:
    """Whether Slurm's controller missed the node once, which it may do without consequence."""
    return s.kind == SignalKind.NODE_CONDITION and s.text("subtype") == _MISSED


def is_death(s: Sighting) -> bool:
    """A sign that the whole node stopped: a kernel panic, a reset by its watchdog, an alert that it is down."""
    if s.kind == SignalKind.NODE_NOT_READY or not s.kind.startswith("node."):
        return False
    rule = families().rule(s)
    return rule is not None and rule.family == "node_down" and rule.role == "cause"


def node_down(
    root: Entity,
    row: NodeRow,
    seen: Iterable[Sighting],
    incarnations: Incarnations,
    usual: Callable[[datetime], timedelta],
    config: Config,
) -> list[Hypothesis]:
    """A hypothesis for each time the node was not ready for long enough, or died.

    `usual` is how long a node that went at a time may be away when somebody works on it.
    """
    found = []
    # A kubelet that restarts is NotReady for less.
    lasting = [i for i in down_intervals(seen) if i.end is None or i.end - i.start >= config.node_settle]
    # A node that is worked on minutes after it was away for another reason goes for the work, and the other way round.
    for session in incarnations.sessions(
        root,
        "node",
        _bridged(lasting, row),
        again=config.flap_quiet,
        meant=lambda at: is_worked_on(row, at),
    ):
        back = session.cleared_at
        may_take = usual(session.start)
        if back is not None and is_back_in_time(row, session.start, back, may_take):
            continue  # It was taken down and came back while somebody worked on it.
        expected = expected_away(row, session.start, may_take)
        gone = [s for s in session.sightings if s.kind == SignalKind.NODE_NOT_READY]
        deaths = [s for s in session.sightings if is_death(s)]
        reason = next((s.text("reason") for s in gone if s.text("reason")), "")
        by_slurm = bool(gone) and all(map(is_by_slurm, gone))
        shown = "Slurm's controller no longer reaches it" if by_slurm else "the API server shows it NotReady"
        state = "kubelet no longer answers" if "Unknown" in reason else shown
        why = f"{root.node}: {state}, and nothing else explains it"
        if deaths:
            signs = ", ".join(dict.fromkeys(families().says(s) for s in deaths))
            why = f"{root.node}: {signs}{f', and {state}' if gone else '; but the API server still shows it ready'}"
        if expected is not None:
            why = f"{why}; {expected.says}"
        flaps = session.flaps + 1 >= config.flaps
        if flaps:
            why = f"{why}. It has gone and come back again and again, {session.flaps + 1} times"
        facts: dict[str, Attribute] = {
            "node_not_ready": bool(gone) and session.cleared_at is None,
            "maintenance": expected is not None,
        }
        if any(s.text("subtype") == "kernel_panic" for s in deaths):
            facts["panic"] = True
        hypothesis = Hypothesis(
            place=Place(PlaceKind.NODE, root.node or ""),
            root=root,
            family=IncidentFamily.NODE_DOWN,
            **session.times(),
            certainty=_certainty(bool(gone), deaths),
            **(_Brevity() if flaps or deaths else _brevity(session, lasting, config)),
            ready_at=min(s.seen_at for s in session.sightings) + config.node_settle,
            rule="node gone",
            why=why,
            causes=session.sightings,
            facts=facts,
            expected=expected,
        )
        found.append(replace(hypothesis, lag=_SLURM_LAG) if by_slurm else hypothesis)
    return found


class _Brevity(TypedDict, total=False):
    """What a hypothesis takes from how short its absences are."""

    was_brief: bool
    brief_until: datetime


def _brevity(session: Session, lasting: Iterable[FiringInterval], config: Config) -> _Brevity:
    """Until when an absence may be a blip; one that was, and does not come again and again, is told only where a job suffers."""
    known = {s.id for s in session.sightings}
    mine = [i for i in lasting if i.sightings[0].id in known]
    if any(i.end is not None and i.end - i.start >= config.node_blip for i in mine):
        return {}
    away = [i for i in mine if i.end is None]
    if not away:
        return {"was_brief": True}
    return {"brief_until": min(s.seen_at for s in away[-1].sightings) + config.node_blip}


def _bridged(lasting: Sequence[FiringInterval], row: NodeRow) -> list[FiringInterval]:
    """The intervals without the gap where the middle of many reports was dropped: a node that flaps all day is one incident."""
    gone = firing(of_kind(row.seen, SignalKind.NODE_NOT_READY))
    if len(gone) < 2 * KEPT_EACH_END:
        return list(lasting)
    before, after = gone[KEPT_EACH_END - 1], gone[KEPT_EACH_END]
    return [
        replace(i, end=after.at)
        if i.end is not None and i.start <= before.at and i.end < after.at <= _next(i, lasting)
        else i
        for i in lasting
    ]


def _next(interval: FiringInterval, lasting: Iterable[FiringInterval]) -> datetime:
    """When the interval after this one began; its own end when there is none."""
    return min((i.start for i in lasting if i.start > interval.start), default=interval.end or interval.start)


def _certainty(gone: bool, deaths: Iterable[Sighting]) -> Certainty:
    """A kubelet may only be restarting, and an old panic may be read again; both at once are a dead node."""
    panicked = any(s.kind == SignalKind.NODE_KERNEL for s in deaths)
    if gone:
        return Certainty.DECISIVE if panicked else Certainty.LIKELY
    return Certainty.WEAK


def taken_away(found: Hypothesis, left_at: datetime) -> Hypothesis:
    """A node that was down, and was deleted with nobody on it: there is nothing left to bring back."""
    if found.family != IncidentFamily.NODE_DOWN or found.cleared_at is not None or left_at < found.last_at:
        return found
    return replace(found, cleared_at=left_at, why=f"{found.why}. It was taken out of the cluster")
