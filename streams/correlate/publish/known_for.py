"""How long an incident is known after its end, and what is no longer told as new."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import PlaceKind
from streams.correlate.state.rows import DocumentRow
from streams.model.incident import IncidentState
from streams.model.kinds import IncidentFamily


def known_for(row: DocumentRow, closed: bool, config: Config) -> timedelta:
    """How long an incident is known after its end. `closed`: a run or a person ended it.

    A job's own failure as long as one that nothing ends: a program that leaks memory fails again in an hour or two.
    """
    incident = row.incident
    by_itself = incident.state is IncidentState.RESOLVED and not row.withdrawn and not closed
    own = incident.family == IncidentFamily.APPLICATION and "signature" in incident.facts
    return config.stale if own and by_itself else config.retention


def is_old_news(h: Hypothesis, claimed: Iterable[Sighting], now: datetime, config: Config) -> bool:
    """Whether a job's own failure, or what is over, was known for so long without being an incident that only forgetting makes
    it one.

    The signs of progress that it went on after are thinned out, and what explained it is forgotten, as the order to reboot a node
    that is back since: that may lie before it by `before`, and what became of it by then. `claimed` are the symptoms that follow
    from it.
    """
    if not h.causes or not (h.cleared_at is not None or h.place.kind is PlaceKind.JOB):
        return False
    heard = (s.seen_at for s in (*h.causes, *claimed))
    known = max([h.ready_at, *heard, *([h.brief_until] if h.brief_until else [])])
    return now - known > max(config.retention - 2 * config.before, config.retention / 2)
