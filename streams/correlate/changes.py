"""What one step of a cluster's correlation brought."""

from __future__ import annotations

from dataclasses import dataclass

from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident


@dataclass(frozen=True, slots=True)
class Changes:
    """Incidents at their new revisions, in order, and entries for their timelines. Stored by `write_ahead` as it is."""

    incidents: tuple[Incident, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()

    def __add__(self, other: Changes) -> Changes:
        return Changes(self.incidents + other.incidents, self.timeline + other.timeline)
