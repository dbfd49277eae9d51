"""Which incidents are over for so long that nothing is kept any more of what they were built from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streams.correlate.cause_sources.source import Causes
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_evidence_cache import JobEvidenceCache
from streams.correlate.policy.config import Config
from streams.correlate.state.ingest import Ingest
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import DocumentRow


@dataclass(frozen=True, slots=True)
class Expiry:
    """What the published incidents are built from, at one moment.

    An incident must not be forgotten before its evidence is: what is left of that would open another incident, hours after all
    was over.
    """

    causes: Causes
    ingest: Ingest
    evidence_cache: JobEvidenceCache
    config: Config
    places: dict[str, set[Place]]
    """By incident: the places besides its own that it is built from, or whose sightings are kept with its own."""

    @classmethod
    def now(cls, causes: Causes, ingest: Ingest, evidence_cache: JobEvidenceCache, config: Config) -> Expiry:
        """That of the incidents as they are published now."""
        places = causes.built_from(causes.state.documents)
        for name, row in causes.state.documents.items():
            if beside := ingest.kept_with(row.place):
                places.setdefault(name, set()).update(beside)
        return cls(causes, ingest, evidence_cache, config, places)

    def is_expired(self, row: DocumentRow, cut: datetime) -> bool:
        """Whether everything that an incident is built from is forgotten, if all is that is older than `cut`."""
        incident = row.incident
        # What was merged into it may be younger than all that was seen of the incident itself.
        last = max([row.last_at, *(part.last_at for part in self.parts_of(row))])
        # So may be what its jobs left when they were aborted: alone, that would be a fault of their own.
        gap = self.config.same_pods_gap
        ends = (self.evidence_cache.end_of_stretch(job.key, row.last_at, gap) for job in incident.jobs)
        last = max([last, *ends])
        places = {row.place, *self.places.get(incident.id, ())}
        return all(last < self.ingest.kept_since(place, cut, self.config) for place in places)

    def parts_of(self, row: DocumentRow) -> list[Hypothesis]:
        """The roots that were merged into an incident."""
        return self.causes.parts_of(row.incident.id, row.place, self.places.get(row.incident.id, ()))

    def held(self) -> set[str]:
        """The places, as they are stored, whose sightings the incidents that are left hold."""
        return {str(place) for place in self._left()}

    def held_jobs(self) -> set[str]:
        """Keys of jobs whose sightings the incidents that are left hold, though they are no victims of them."""
        return {place.name for place in self._left() if place.kind is PlaceKind.JOB}

    def _left(self) -> set[Place]:
        left = (found for name, found in self.places.items() if name in self.causes.state.documents)
        return {place for found in left for place in found}
