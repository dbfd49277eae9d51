"""The result of evaluating one job: what explains its symptoms, which roots are its own, and whom its ranks suspect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from streams.correlate.hypothesis import Blame, Hypothesis
from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.job_evidence import Behind
from streams.correlate.job_rules.pod_failures import PlatformBlocker
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.job_rules.services import End
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import Cause
from streams.model.entity import JobRef
from streams.model.incident import Audience, Candidate


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A node that one job's ranks suspect."""

    node: str
    job: JobRef
    finding: HangFinding
    episode: Episode
    ready_at: datetime
    candidates: tuple[Candidate, ...]
    audience: Audience = Audience.ON_CALL
    """Who has to know, as far as this job goes."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """What a job complained of that makes no root, and what it would have taken."""

    sightings: tuple[Sighting, ...]
    reason: str
    needs: str


@dataclass(slots=True)
class JobVerdict:
    """The result for one job. `explained` lists periods of its symptoms with the cause of each."""

    claims: dict[Cause, list[Sighting]] = field(default_factory=dict)
    explained: list[tuple[datetime, datetime, Cause]] = field(default_factory=list)
    doubted: dict[Cause, datetime] = field(default_factory=dict)
    """Weak causes of hangs, each with when it may be told: ranks that have not reported may yet name somebody."""
    hypotheses: list[Hypothesis] = field(default_factory=list)
    suspicions: list[Suspicion] = field(default_factory=list)
    blames: list[Blame] = field(default_factory=list)
    behind: list[Behind] = field(default_factory=list)
    """For other runs of the same program. What these say of it changes nothing here, so that the two cannot chase each other."""
    mismatched: bool = False
    """Whether its ranks called different collectives, whatever that is taken for: what other jobs do may be the same."""
    left_alone: list[LeftAlone] = field(default_factory=list)
    """For whoever asks why there is no incident; nothing is decided by it."""

    def leave(self, sightings: Iterable[Sighting], reason: str, needs: str) -> None:
        """Record that a trouble makes no root."""
        self.left_alone.append(LeftAlone(tuple(sightings), reason, needs))

    def claim(
        self, cause: Cause, trouble: Burst | Episode | PlatformBlocker | End, symptoms: Sequence[Sighting]
    ) -> None:
        """Record that these symptoms of a trouble follow from a cause."""
        self.explained.append((trouble.start, trouble.end, cause))
        self.claims.setdefault(cause, []).extend(symptoms)
