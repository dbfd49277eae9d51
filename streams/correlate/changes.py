"""What one step of a cluster's correlation changed: incidents, and the timeline entry of each of their revisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident, IncidentState

ACTOR = "correlator"
MORE_EVIDENCE = "incident.evidence"
"""The event of a revision that says nothing new to a reader. It is in the timeline, and in no thread."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Incidents at their new revisions, in order, and entries for their timelines. Stored by `write_ahead` as it is."""

    incidents: tuple[Incident, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()

    def __add__(self, other: Changes) -> Changes:
        return Changes(self.incidents + other.incidents, self.timeline + other.timeline)


def timeline_entry(old: Incident | None, new: Incident, now: datetime) -> TimelineEntry:
    """The entry for a revision; `old` is the one before, None for an incident that opens."""
    if old is None:
        event, text = "incident.opened", f"{new.title}: {new.reason}"
    elif new.state is IncidentState.MERGED:
        event, text = "incident.merged", f"merged into {new.merged_into}"
    elif new.state is not old.state:
        event, text = f"incident.{new.state.value}", f"{old.state.value} → {new.state.value}"
    elif news := _news(old, new):
        event, text = "incident.amended", news
    else:
        event, text = MORE_EVIDENCE, "more evidence"
    return TimelineEntry(new.id, new.cluster, now, ACTOR, event, text, {"revision": new.revision})


def _news(old: Incident, new: Incident) -> str:
    """What a reader learns from a revision, empty when it is only more evidence for the same."""
    parts = []
    if len(new.jobs) != len(old.jobs):
        parts.append(_counted(len(new.jobs), "job"))
    if len(new.nodes) != len(old.nodes):
        parts.append(_counted(len(new.nodes), "node"))
    if new.certainty is not old.certainty:
        parts.append(f"certainty {old.certainty.value} → {new.certainty.value}")
    if new.reason != old.reason:
        parts.append(new.reason)
    return "; ".join(parts)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'} affected"
