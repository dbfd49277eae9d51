"""What keeps a job from running that is neither its code nor hardware: images, volumes, scheduling, admission, eviction.

Kubernetes tries again by itself, so one event is a hiccup; what is told over and over for as long as its row wants (`lasts_s`) is
a fault. A job that cannot be placed again after a node was lost waits for that node's incident, and is no fault of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.placement import Placement
from streams.model.kinds import IncidentFamily

PLATFORM = IncidentFamily.PLATFORM_FAULT


@dataclass(frozen=True, slots=True)
class PlatformBlocker:
    """A stretch in which the platform was in a job's way."""

    start: datetime
    end: datetime
    seen_at: datetime
    sightings: tuple[Sighting, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it was told of, as far as the pods had a node."""
        return tuple(sorted({s.entity.node for s in self.sightings if s.entity.node}))

    @property
    def may_follow(self) -> bool:
        """Whether a node that was lost, or that is not well, may be all that is behind it."""
        return all((rule := families().rule(s)) is not None and rule.follows for s in self.sightings)

    @property
    def says(self) -> str:
        """What was in the way."""
        return ", ".join(dict.fromkeys(families().says(s) for s in self.sightings))

    def over_at(self, placements: Sequence[Placement]) -> datetime | None:
        """When a pod of the job was placed after it."""
        return min((p.start for p in placements if p.start > self.end), default=None)


def is_own(s: Sighting) -> bool:
    """Whether a failure is the job's own code, data or appetite for memory."""
    return families().family_of(s) == "application" and families().role(s) == "cause"


def platform_blockers(failed: Sequence[Sighting], config: Config) -> list[PlatformBlocker]:
    """What the platform did to a job, cut at silences; what did not last is left out."""
    lines = sorted((s for s in failed if s.firing and families().family_of(s) == PLATFORM), key=order)
    return [
        PlatformBlocker(group[0].at, group[-1].at, min(s.seen_at for s in group), tuple(group))
        for group in split_at_gaps(lines, lambda s: s.at, config.same_pods_gap)
        if _lasted(group)
    ]


def _lasted(group: Sequence[Sighting]) -> bool:
    """Whether any kind of obstacle was told for long enough."""
    by_kind: dict[str, list[Sighting]] = {}
    for s in group:
        by_kind.setdefault(s.text("subtype"), []).append(s)
    for lines in by_kind.values():
        rule = families().rule(lines[0])
        if lines[-1].at - lines[0].at >= timedelta(seconds=rule.lasts_s if rule else 0):
            return True
    return False
