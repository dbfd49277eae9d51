"""The interface of a source of root causes (`CauseSource`), and all sources queried as one (`Causes`).

A new kind of root cause is one more subclass of `CauseSource`, which overrides what it has an answer to, and one more row in the
engine's table of sources.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.verdict import JobVerdict
from streams.correlate.policy.config import Config
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.place import Cause, Place, PlaceKind, Suspect, Touched
from streams.correlate.state.rows import DocumentRow
from streams.correlate.state.store import State
from streams.correlate.state.topology import Topology

_STEPS = 4
"""No chain of merged roots is longer: a port storm into its host's, that into another root of the node, that into a root at the
far end of a link or of a group."""

ByJobs = Callable[[], Hypothesis | None]
"""What explains now what the jobs of an incident suffered when it began."""


@dataclass(slots=True)
class Round:
    """One round of evaluation."""

    now: datetime
    touched: Touched
    """What this round evaluates; one evaluation adds what depends on it."""
    later: Touched
    """What the next round evaluates in addition."""
    budget: int | None
    """How many sightings of jobs may be evaluated, `Config.judged_at_once` at least; None for no limit."""
    judged: list[tuple[str, JobVerdict, JobVerdict]] = field(default_factory=list)
    """Evaluated jobs, each with the verdict before and now."""


class CauseSource:
    """Finds root causes of one kind. What a subclass does not override, it has no answer to."""

    kind: PlaceKind
    """The kind of the places of its roots."""
    distance: int = 9
    """Distance from a job's own nodes. Jobs consider near causes first and list the first twelve that they reject."""

    def __init__(self, causes: Causes) -> None:
        self._causes = causes
        self._cluster, self._config, self._state = causes.cluster, causes.config, causes.state
        self._incarnations, self._topology = causes.incarnations, causes.topology
        self._placements = causes.topology.placements
        self.owners: dict[str, str] = {}
        """By incident of one of its roots: the incident that it was merged into."""

    def evaluate(self, round_: Round) -> None:
        """Evaluate what the round touched, and touch what depends on it."""

    def reconsider(self, round_: Round) -> None:
        """Evaluate again what the jobs of the round suspect."""

    def at(self, name: str) -> list[Hypothesis]:
        """Roots at a place that were not merged into another."""
        return []

    def all(self) -> Iterable[Hypothesis]:
        """Everything it found, merged into another root or not."""
        return ()

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """Roots that may explain the symptoms of a job on these nodes whose ranks reported last at `last`."""
        return ()

    def takes(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """Its root that explains a root which another source found at a place."""
        return None

    def taker_of(self, incident: str, owner: str | None) -> Hypothesis | None:
        """Its root that a node's incident was merged into; `owner` is the incident that the node knows of."""
        return None

    def suspected_at(self, name: str) -> str | None:
        """The incident of a place that jobs suspect."""
        return None

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """The root that explains now what an incident at one of its places was opened for."""
        return None

    def members(self, incident: str, place: Place) -> Iterable[Place]:
        """Places whose roots were merged into an incident at `place`."""
        return ()

    def parts_of(self, incident: str, places: Sequence[Place]) -> Iterable[Hypothesis]:
        """Its roots at these places that were merged into an incident."""
        return ()

    def built_from(self, incidents: Container[str]) -> Iterable[tuple[str, Place]]:
        """Of these incidents, those that are built from what was seen at other places, each with such a place."""
        return (
            (h.id, place) for h in self.all() if h.id in incidents for place in self.members(h.id, h.place)
        )


class Causes:
    """All sources queried as one, in order of evaluation, and what they share."""

    def __init__(self, state: State, incarnations: Incarnations, topology: Topology, config: Config) -> None:
        self.cluster, self.config = state.cluster, config
        self.state, self.incarnations, self.topology = state, incarnations, topology
        self.sources: Sequence[CauseSource] = ()
        self._of_kind: dict[PlaceKind, list[CauseSource]] = {}
        self.last_symptoms: dict[str, datetime] = {}
        """Jobs whose ranks report symptoms, and when they last did."""
        self._homes: dict[str, Place] = {}
        """Where each root is evaluated, by the id of its incident."""

    def enter(self, sources: Sequence[CauseSource]) -> None:
        """Set all sources, in order of evaluation."""
        self.sources = sources
        self._of_kind = {kind: [s for s in sources if s.kind is kind] for kind in PlaceKind}

    def note(self, found: Iterable[Hypothesis]) -> None:
        """Remember the places of these."""
        self._homes |= {h.id: h.place for h in found}

    def forget(self) -> None:
        """Forget the places of roots that are gone."""
        self._homes.clear()
        self.note(h for source in self.sources for h in source.all())

    def troubled(self, *changed: Hypothesis) -> set[str]:
        """Jobs with symptoms that these faults may explain: faults anywhere in the fabric, but not from after the symptoms."""
        if not changed:
            return set(self.last_symptoms)
        since = min(h.fault_at - h.lag for h in changed)
        return {job for job, at in self.last_symptoms.items() if at >= since}

    def of(self, kind: PlaceKind) -> list[CauseSource]:
        """Sources of roots at places of a kind."""
        return self._of_kind[kind]

    def at(self, place: Place) -> list[Hypothesis]:
        """Roots at a place."""
        return [h for source in self.of(place.kind) for h in source.at(place.name)]

    def found(self, incident: str) -> Hypothesis | None:
        """The root with this incident id."""
        places = sorted(self.places_of(incident))
        return next((h for place in places for h in self.at(place) if h.id == incident), None)

    def owner(self, cause: Cause) -> str | None:
        """The incident that a cause belongs to; None for a place that is no longer suspected."""
        if not isinstance(cause, Suspect):
            return self.owner_of(cause)
        kind, name = cause.place
        return next((id_ for s in self.of(kind) if (id_ := s.suspected_at(name)) is not None), None)

    def owner_of(self, incident: str) -> str:
        """The incident that this one was merged into in the end; itself if into none."""
        for _ in range(_STEPS):
            for source in self.sources:  # each cause of each job is looked up here with every batch
                if incident in source.owners:
                    incident = source.owners[incident]
                    break
            else:
                break
        return incident

    def places_of(self, cause: Cause) -> set[Place]:
        """The place of a cause, and that of its incident."""
        if isinstance(cause, Suspect):
            owner = self.owner(cause)
            return {cause.place} | (self.places_of(owner) if owner is not None else set())
        found = {self._homes[name] for name in (cause, self.owner_of(cause)) if name in self._homes}
        return found | ({row.place} if (row := self.state.documents.get(cause)) is not None else set())

    def taker(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """The root of another place that this one is merged into."""
        return next((root for s in self.sources if (root := s.takes(place, h)) is not None), None)

    def members(self, incident: str, place: Place) -> set[Place]:
        """Places whose roots were merged into an incident at `place`."""
        return {member for source in self.sources for member in source.members(incident, place)}

    def built_from(self, incidents: Container[str]) -> dict[str, set[Place]]:
        """The other places that these incidents are built from, by incident."""
        places: dict[str, set[Place]] = {}
        for source in self.sources:
            for incident, place in source.built_from(incidents):
                places.setdefault(incident, set()).add(place)
        return places

    def parts_of(self, incident: str, place: Place, others: Iterable[Place]) -> list[Hypothesis]:
        """Roots that were merged into an incident, of its own place and of those `others` that it is built from."""
        places = [place, *sorted({*others, *self.members(incident, place)} - {place})]
        return [h for source in self.sources for h in source.parts_of(incident, places)]


def began_by(far: Hypothesis, last: datetime | None) -> bool:
    """Whether a fault elsewhere began before a job's last symptom, and so may explain it."""
    return last is not None and far.fault_at <= last + far.lag
