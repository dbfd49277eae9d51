"""What the page of one incident shows, as values that the template only places."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from runbooks.engine.containment import PendingRepair
from streams.model.conversation import TimelineEntry, Verb
from streams.model.incident import Candidate, Incident
from streams.model.run import StepState


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it was logged, and where Kafka has it."""

    text: str
    coordinates: str


@dataclass(frozen=True, slots=True)
class ShownProof:
    """One observation, its part in the decision and its lines."""

    at: datetime
    role: str
    summary: str
    where: str
    count: int
    lines: tuple[RawLine, ...]


@dataclass(frozen=True, slots=True)
class ShownStep:
    """One step of a plan: what, on what, how far, and what the guardrails say."""

    number: int
    id: str
    what: str
    target: str
    state: StepState
    destructive: bool
    verdict: str
    reason: str
    started_at: datetime | None
    finished_at: datetime | None
    due_at: datetime | None
    undo: str
    ticket: str
    url: str


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run with its plan."""

    id: str
    runbook: str
    revision: int
    mode: str
    state: str
    why: str
    reason: str
    digest: str
    is_over: bool
    steps: tuple[ShownStep, ...]
    left_out: tuple[str, ...]
    would_evict: tuple[str, ...]
    approvals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked. The digest goes back with the answer: it names the plan that was shown."""

    step: str
    digest: str
    runbook: str
    what: str
    target: str
    takes_over: bool
    why: str
    may: tuple[str, ...]
    missing: str
    until: datetime | None
    covers: tuple[str, ...]
    """The destructive steps that are still to come: an approval is one of the whole plan."""
    changed_after: str
    """Who had approved an earlier plan."""


@dataclass(frozen=True, slots=True)
class ShownJob:
    """An affected job and whom to ask about it."""

    name: str
    kind: str
    owner: str
    state: str


@dataclass(frozen=True, slots=True)
class ShownNode:
    """An affected node; `root` is the one at fault."""

    name: str
    root: bool
    gpus: str
    rack: str
    leaf: str
    state: str


@dataclass(frozen=True, slots=True)
class Link:
    """Where else the incident is."""

    what: str
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """Everything on the page. `version` changes when what is asked or may be decided does."""

    incident: Incident
    state: str
    waits_for: str
    taken: str
    is_over: bool
    chosen: tuple[Candidate, ...]
    others: tuple[Candidate, ...]
    more_candidates: int
    proofs: tuple[ShownProof, ...]
    more_proofs: int
    runs: tuple[ShownRun, ...]
    questions: tuple[Question, ...]
    verbs: tuple[Verb, ...]
    jobs: tuple[ShownJob, ...]
    more_jobs: int
    other_workloads: tuple[str, ...]
    """What is no training job and is kept from starting."""
    more_workloads: int
    nodes: tuple[ShownNode, ...]
    more_nodes: int
    repairs: tuple[PendingRepair, ...]
    links: tuple[Link, ...]
    timeline: tuple[TimelineEntry, ...]
    version: str
