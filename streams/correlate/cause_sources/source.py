"""What a source of root causes is asked, and all sources asked as one.

A new kind of root cause is one more subclass of `CauseSource`, which overrides what it has an answer to, and one more row in the
engine's table of sources.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_verdict import JobVerdict
from streams.correlate.policy.config import Config
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import Cause, Place, PlaceKind, Suspect
from streams.correlate.state.rows import DocumentRow
from streams.correlate.state.store import State
from streams.correlate.state.topology import Topology
from streams.correlate.state.touched import Touched

_STEPS = 4
"""A root may be part of another of its node, that of one at the far end of a link or of what many hosts share, and so a storm
of its host's: no chain is longer."""

ByJobs = Callable[[], Hypothesis | None]
"""What explains now what the jobs of an incident suffered when it began."""


@dataclass(slots=True)
class Round:
    """One round of judging."""

    now: datetime
    touched: Touched
    """What this round judges; it grows, as one judgement makes others doubtful."""
    later: Touched
    """What the next round judges besides."""
    budget: int | None
    """How many sightings of jobs may be judged at least; None for as many as there are."""
    judged: list[tuple[str, JobVerdict, JobVerdict]] = field(default_factory=list)
    """Jobs that were judged, each with what was found before and now."""


class CauseSource:
    """Finds root causes of one kind. Whatever a subclass does not override it has no answer to."""

    kind: PlaceKind
    """Of the places where its roots stand."""
    distance: int = 9
    """From a job's own nodes. Jobs weigh near causes first, and name the first twelve that they reject."""

    def __init__(self, causes: Causes) -> None:
        self._causes = causes
        self._cluster, self._config, self._state = causes.cluster, causes.config, causes.state
        self._incarnations, self._topology = causes.incarnations, causes.topology
        self._placements = causes.topology.placements

    def evaluate(self, round_: Round) -> None:
        """Judge what the round touched, and touch what that makes doubtful."""

    def reconsider(self, round_: Round) -> None:
        """The same once the jobs of the round are judged, by what they accuse."""

    def at(self, name: str) -> list[Hypothesis]:
        """Roots that stand at a place: those that are part of no other."""
        return []

    def all(self) -> Iterable[Hypothesis]:
        """Everything it found, part of another root or not."""
        return ()

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """What a job on these nodes may suffer from, whose ranks complained last at `last`."""
        return ()

    def takes(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """Its root that explains what another source found at a place."""
        return None

    def taker_of(self, incident: str, owner: str | None) -> Hypothesis | None:
        """Its root that took in a node's incident, of which the node knows that it is part of `owner`."""
        return None

    def owner_of(self, incident: str) -> str | None:
        """The incident that this one became part of."""
        return None

    def suspected_at(self, name: str) -> str | None:
        """The incident that jobs mean when they accuse a place."""
        return None

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """What explains now what an incident at one of its places was opened for."""
        return None

    def members(self, incident: str, place: Place) -> Iterable[Place]:
        """Places whose roots are part of an incident that stands at `place`."""
        return ()

    def parts_of(self, incident: str, places: Sequence[Place]) -> Iterable[Hypothesis]:
        """What it found at these places that is part of an incident."""
        return ()

    def held_for(self, incidents: Container[str]) -> Iterable[Place]:
        """Places whose sightings are kept because these incidents of other places are built from them."""
        return (place for h in self.all() if h.id in incidents for place in self.members(h.id, h.place))


class Causes:
    """All sources asked as one, in the order in which they are evaluated; and what they have in common."""

    def __init__(self, state: State, incarnations: Incarnations, topology: Topology, config: Config) -> None:
        self.cluster, self.config = state.cluster, config
        self.state, self.incarnations, self.topology = state, incarnations, topology
        self.sources: Sequence[CauseSource] = ()
        self.complaining: dict[str, datetime] = {}
        """Jobs whose ranks complain, and when they last did."""
        self._homes: dict[str, Place] = {}
        """Where each root is judged, by the id of its incident."""

    def note(self, found: Iterable[Hypothesis]) -> None:
        """Remember where these are judged."""
        self._homes |= {h.id: h.place for h in found}

    def forget(self) -> None:
        """Forget where roots were judged that are no more."""
        self._homes.clear()
        self.note(h for source in self.sources for h in source.all())

    def troubled(self, *changed: Hypothesis) -> set[str]:
        """Jobs whose ranks complain: a fault anywhere in the fabric may be what they wait for, unless it began after that."""
        if not changed:
            return set(self.complaining)
        since = min(h.fault_at - h.lag for h in changed)
        return {job for job, at in self.complaining.items() if at >= since}

    def of(self, kind: PlaceKind) -> list[CauseSource]:
        """Sources whose roots stand at places of a kind."""
        return [source for source in self.sources if source.kind is kind]

    def at(self, place: Place) -> list[Hypothesis]:
        """Roots that stand at a place."""
        return [h for source in self.of(place.kind) for h in source.at(place.name)]

    def found(self, incident: str) -> Hypothesis | None:
        """The root that stands under this id."""
        places = sorted(self.places_of(incident))
        return next((h for place in places for h in self.at(place) if h.id == incident), None)

    def owner(self, cause: Cause) -> str | None:
        """The incident that a cause belongs to; None for a place that nobody accuses any more."""
        if not isinstance(cause, Suspect):
            return self.owner_of(cause)
        kind, name = cause.place
        return next((id_ for s in self.of(kind) if (id_ := s.suspected_at(name)) is not None), None)

    def owner_of(self, incident: str) -> str:
        """The incident that this one belongs to, itself where it is part of no other."""
        for _ in range(_STEPS):
            further = next((id_ for s in self.sources if (id_ := s.owner_of(incident)) is not None), incident)
            if further == incident:
                break
            incident = further
        return incident

    def places_of(self, cause: Cause) -> set[Place]:
        """Where a cause is judged, and where its incident stands."""
        if isinstance(cause, Suspect):
            return {cause.place}
        found = {self._homes[name] for name in (cause, self.owner_of(cause)) if name in self._homes}
        return found | ({row.place} if (row := self.state.documents.get(cause)) is not None else set())

    def taker(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """The root of another place that this one is part of."""
        return next((root for s in self.sources if (root := s.takes(place, h)) is not None), None)

    def members(self, incident: str, place: Place) -> set[Place]:
        """Places whose roots are part of an incident that stands at `place`."""
        return {member for source in self.sources for member in source.members(incident, place)}

    def parts_of(self, incident: str, place: Place) -> list[Hypothesis]:
        """What became part of an incident: roots of its own place, and of others."""
        places = [place, *sorted(self.members(incident, place))]
        return [h for source in self.sources for h in source.parts_of(incident, places)]


def began_by(far: Hypothesis, last: datetime | None) -> bool:
    """Whether a fault elsewhere began before a job's last complaint: no later one is explained by it."""
    return last is not None and far.fault_at <= last + far.lag
