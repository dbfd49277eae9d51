"""An incident: one root-cause hypothesis with its evidence, impact and state.

The id is a hash of cluster, root entity, family and incarnation, never random: a replay or a rebalance lands on the same
incident. Every change is a new revision of the whole document, so the latest record of the compacted topic is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache

from pydantic import AwareDatetime

from streams.model.checkpoint import Checkpoint
from streams.model.digest import digest
from streams.model.entity import Entity, JobRef
from streams.model.message import plain
from streams.model.signal import Attribute, Evidence, Severity

NO_NODE = "no_node"
"""The fact of an incident on a host that no jobs run on, as far as metrics and schedulers tell: a storage server, a switch."""


class IncidentState(StrEnum):
    """Lifecycle state of an incident."""

    OPEN = "open"
    MITIGATING = "mitigating"
    VERIFYING = "verifying"
    RESOLVED = "resolved"
    SUPPRESSED = "suppressed"
    MERGED = "merged"
    AWAITING_HUMAN = "awaiting_human"

    @property
    def is_over(self) -> bool:
        """True when it needs no further action."""
        return self in (IncidentState.RESOLVED, IncidentState.MERGED)


class Certainty(StrEnum):
    """Strength of the evidence. Only `decisive` evidence may lead to an automatic destructive step."""

    DECISIVE = "decisive"
    LIKELY = "likely"
    WEAK = "weak"


class Audience(StrEnum):
    """Who has to know of an incident."""

    ON_CALL = "on_call"
    """Whoever keeps the cluster running."""
    OWNER = "owner"
    """The owner of its job alone: the program failed by itself, and nobody who keeps the cluster can mend it."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One signal's part in a decision: what it was, where, when, its role and its raw line."""

    signal_id: str
    kind: str
    entity: Entity
    occurred_at: AwareDatetime
    role: str
    """`cause`, `symptom` or `context`."""
    summary: str
    evidence: tuple[Evidence, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """An explanation that was considered: the chosen one or a rejected one, and why."""

    entity: Entity
    family: str
    chosen: bool
    rule: str
    reason: str
    needs: str | None = None
    """What would have convinced: the criterion that it failed, with its numbers. None for the chosen one and in old documents."""


@dataclass(frozen=True, slots=True)
class Impact:
    """The blast radius. `gpu_hours_per_hour` is what idles: the GPUs of all jobs the incident stopped."""

    jobs: int = 0
    nodes: int = 0
    gpus: int = 0
    gpu_hours_per_hour: float = 0.0
    ranks: int = 0
    """Ranks of the jobs that it stopped."""
    timeout_s: float = 0.0
    """Seconds between fault and detection in which only a waiting collective could be observed (its own timeout)."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The last sign that a job moved forward (an iteration line), as the correlator saw it."""

    job: JobRef
    at: AwareDatetime
    step: int | None = None


MAX_NAME = 120
"""Characters of a workload's name that are shown in a list of many."""


@dataclass(frozen=True, slots=True)
class OtherWorkloads:
    """Workloads that are no training jobs: how many, and the first of them by kind, namespace and name.

    The kind is `Pod` where nobody tells whose pod it is.
    """

    count: int
    first: tuple[JobRef, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The first of them as people read them, `KIND NAMESPACE/NAME`."""
        return tuple(f"{job.kind} {job}" for job in self.first)

    @property
    def more(self) -> int:
        """How many there are besides the first."""
        return self.count - len(self.first)

    def shortened(self, most: int) -> str:
        """The first `most` names and how many more there are: `Pod ci/a, Job ci/b, +3 more`."""
        shown = [plain(name, MAX_NAME) for name in self.names[:most]]
        left = self.count - len(shown)
        return ", ".join(shown) + (f", +{left} more" if left else "")


@dataclass(frozen=True, slots=True)
class Incident:
    """One root cause and what is known of it at one revision.

    `root` is the root cause. `jobs` and `nodes` are those affected (the root's node included), sorted. `facts` holds what
    else runbooks match on (`xid`, `action`, `direction` …).
    """

    id: str
    cluster: str
    family: str
    root: Entity
    incarnation: int
    revision: int
    state: IncidentState
    severity: Severity
    certainty: Certainty
    title: str
    reason: str
    fault_at: AwareDatetime
    """When the fault began, in event time, back-dated where a log line says so."""
    opened_at: AwareDatetime
    updated_at: AwareDatetime
    closed_at: AwareDatetime | None = None
    jobs: tuple[JobRef, ...] = ()
    nodes: tuple[str, ...] = ()
    impact: Impact = field(default_factory=Impact)
    facts: Mapping[str, Attribute] = field(default_factory=dict)
    proofs: tuple[Proof, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    progress: tuple[Progress, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    """Of each of its jobs that reported any the last one; a job without one here has an unknown one."""
    merged_into: str | None = None
    flaps: int = 0
    evident_at: AwareDatetime | None = None
    """When the newest evidence of the fault was written, by the line's own time; None where there is none."""
    evident_read_at: AwareDatetime | None = None
    """When Kafka received that evidence."""
    audience: Audience | None = None
    """None in documents from before it was written: those on call."""
    unknown_errors: tuple[Proof, ...] | None = None
    """Errors in words that no rule knows, near its root in place and time, for people: nothing was decided by them. None where
    there are none."""
    other_workloads: OtherWorkloads | None = None
    """Builds, batch, notebooks and inference that a shared fault keeps from starting by their own words, for people: nothing is
    decided by them, and no plan has them. None where there are none."""
    schema: int = 1

    @property
    def shown(self) -> tuple[Proof, ...]:
        """What its readers see: its proofs, then the errors in unknown words."""
        return (*self.proofs, *(self.unknown_errors or ()))

    @property
    def for_owner(self) -> bool:
        """Whether nobody but the owner of its job has to know of it."""
        return self.audience is Audience.OWNER

    @property
    def detection_delay(self) -> timedelta:
        """From the fault until the incident was opened; `impact.timeout_s` of it is the collective's own timeout."""
        return max(self.opened_at - self.fault_at, timedelta())


def incident_id(cluster: str, root: Entity, family: str, incarnation: int) -> str:
    """The deterministic id of an incident: `inc-` and 16 hex digits."""
    return _incident_id(cluster, root.key, family, incarnation)


@lru_cache(maxsize=16_384)
def _incident_id(cluster: str, root: str, family: str, incarnation: int) -> str:
    return "inc-" + digest(cluster, root, family, incarnation, size=8)
