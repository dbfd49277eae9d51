"""Notices with a deadline: when the node goes, as facts of its incident.

The deadline is the cloud's own time, absolute and in UTC. How long that leaves is counted from when the notice was read, by
Kafka's clock and never by the node's: that one may be off by more than a spot notice is long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.node_notices import NODE_OBJECT
from streams.model.clock import parse_rfc3339, rfc3339
from streams.model.errors import BadInput
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.node_notice import (
    ASSUMED_ZONE,
    DEADLINE,
    DEADLINE_S,
    NODE_ENDS,
    NOT_BEFORE,
    NOTICE_S,
    OPENS,
    UNREAD,
    WITHIN_S,
    ZONE,
    deadline_in,
    opens_in,
)
from streams.model.signal import Attribute

_LONG_PAST = timedelta(days=1)
"""A deadline that was over for longer than this when it was read is an old notice read again."""
_KEPT_AFTER = timedelta(hours=1)
"""How long after its deadline a notice is waited for: clouds take a node minutes after the time that they name."""


def deadline_of(s: Sighting) -> datetime | None:
    """When what a notice announces is due; None where it does not say, and for an old notice that is read again."""
    written = s.text(NOT_BEFORE)
    if written:
        try:
            due = parse_rfc3339(written)
        except BadInput:
            return None
        return due if s.seen_at - due <= _LONG_PAST else None
    within_s = s.number(WITHIN_S)
    return s.seen_at + timedelta(seconds=within_s) if within_s is not None else None


def notice_facts(causes: Iterable[Sighting]) -> dict[str, Attribute]:
    """The deadline of an incident, as facts, or what stands in its place and cannot be read; empty where no notice names one.

    Of one kind of notice the one said last counts: clouds put maintenance off. Of several kinds the earliest does.
    """
    latest: dict[str, tuple[Sighting, datetime]] = {}
    unread = ""
    for s in sorted(causes, key=order):
        unread = s.text(UNREAD) or unread
        due = deadline_of(s) if s.firing and s.kind == SignalKind.NODE_MAINTENANCE else None
        known = latest.get(s.text("subtype"))
        # What is due some time after it was said is due that long after it was said first.
        if due is None or (known is not None and (known[1] == due or not s.text(NOT_BEFORE))):
            continue
        latest[s.text("subtype")] = (s, due)
    if not latest:
        return {UNREAD: unread} if unread else {}
    said, due = min(latest.values(), key=lambda one: (one[1], one[0].id))
    facts: dict[str, Attribute] = {
        DEADLINE: rfc3339(due),
        DEADLINE_S: int(due.timestamp()),
        NOTICE_S: max(0, int((due - said.seen_at).total_seconds())),
        NODE_ENDS: "gone" if said.text("subtype") == "termination" else "back",
    }
    if zone := said.text(ASSUMED_ZONE):
        facts[ZONE] = zone
    return facts


def put_ahead(h: Hypothesis, now: datetime, lead: timedelta) -> Hypothesis:
    """A notice with when it is told, where that is later than the notice; until then it is why of nothing that happens."""
    due = deadline_in(h.facts) if h.family == IncidentFamily.PREEMPTION else None
    if due is None or (opens := due - lead) <= h.fault_at:
        return h
    # One that was taken back before it was told stays one that was never told.
    is_ahead = min(now, h.cleared_at or now) < opens
    return replace(h, stops="never" if is_ahead else h.stops, facts={**h.facts, OPENS: rfc3339(opens)})


def opens_at(h: Hypothesis) -> datetime | None:
    """When somebody has to know of a notice that came days before; None for everything else."""
    return opens_in(h.facts) if h.family == IncidentFamily.PREEMPTION else None


def is_ahead(h: Hypothesis) -> bool:
    """Whether it is a notice that is not told yet."""
    return h.stops == "never" and opens_at(h) is not None


def is_said_by_object(causes: Iterable[Sighting]) -> bool:
    """Whether the Node object itself says so."""
    return any(
        s.firing and s.kind == SignalKind.NODE_MAINTENANCE and s.text("source") == NODE_OBJECT for s in causes
    )


def has_deadline(h: Hypothesis) -> bool:
    """Whether it is a node that goes at a known time."""
    return h.family == IncidentFamily.PREEMPTION and DEADLINE in h.facts


def is_unread(h: Hypothesis) -> bool:
    """Whether it is a node that goes at a time that cannot be read: somebody has to be told, for nothing is done about it."""
    return h.family == IncidentFamily.PREEMPTION and UNREAD in h.facts


def is_pending(h: Hypothesis, now: datetime) -> bool:
    """Whether it is a node that will go at a known time, and has not yet."""
    due = deadline_in(h.facts) if h.family == IncidentFamily.PREEMPTION else None
    return due is not None and h.cleared_at is None and now < due


def expires_at(h: Hypothesis) -> datetime | None:
    """Until when a notice is waited for whatever else is heard; None where it has no deadline."""
    due = deadline_in(h.facts) if h.family == IncidentFamily.PREEMPTION else None
    return due + _KEPT_AFTER if due is not None else None
