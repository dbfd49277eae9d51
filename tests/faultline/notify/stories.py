"""Incidents, runs and nodes as the other processes write them, and an engine of pure planners without a sink."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from faultline.chat.thread_plan import Slot
from faultline.notify.notice_documents import DocumentIndex
from faultline.notify.partition_notices import planner_of
from faultline.notify.planner import Links, Planner
from faultline.notify.sources import NoticeSources
from streams.config.notifier_settings import SinkSettings
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.facts import NodeFact
from streams.model.incident import Incident, incident_id
from streams.model.run import EffectRecord, EffectState, Mode, Run, RunOutcome, StepState, Target
from streams.model.signal import Attribute
from streams.model.thread import Post, Thread
from tests.connectors.chat import thread_documents

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
EXPIRY_S = 4 * 3600.0
LINKS = Links("https://faultline.example.test", "https://acme.slack.com")


def incident(
    node: str = "gpu-17", family: str = "gpu_off_bus", at: datetime = NOW, **changes: object
) -> Incident:
    """A critical incident that stopped a job."""
    root = Entity("c1", node=node)
    made = thread_documents.incident("c1", fault_at=at, opened_at=at, updated_at=at)
    changes = {
        "id": incident_id("c1", root, family, 1),
        "root": root,
        "family": family,
        "nodes": (node,),
    } | changes
    return replace(made, **changes)  # type: ignore[arg-type]


def asking(of: Incident, at: datetime = NOW, *, expiry_s: float = EXPIRY_S) -> Run:
    """A run that has waited for an approval since `at`."""
    run = thread_documents.run(of, Mode.APPROVE, cordon=StepState.AWAITING_APPROVAL)
    step = replace(run.steps[0], deadline_at=at + timedelta(seconds=expiry_s), started_at=None)
    return replace(run, steps=(step, *run.steps[1:]), created_at=at, updated_at=at)


def ended(of: Incident, outcome: RunOutcome, at: datetime = NOW) -> Run:
    """A run that ended so."""
    run = thread_documents.run(of, cordon=StepState.FAILED, ticket=StepState.DONE)
    return replace(
        run, state=outcome.state, outcome=outcome, created_at=at, updated_at=at, finished_at=at, reason="why"
    )


def node(name: str, owner: str | None = None, at: datetime = NOW) -> NodeFact:
    """A node, closed for an incident or open."""
    return NodeFact(
        "c1", name, f"uid-{name}", at, unschedulable=owner is not None, owner_incident=owner, gpus=8
    )


def act(of: Incident, event: str, at: datetime = NOW, **attributes: Attribute) -> TimelineEntry:
    """What a person did."""
    return TimelineEntry(of.id, of.cluster, at, "alice (U1)", event, "…", attributes)


class Story:
    """One sink's planner with its documents. `sent` are documents whose first slot is known to be out."""

    def __init__(self, kind: str = "pagerduty", **settings: object) -> None:
        needed = {"key": "k"} if kind in ("pagerduty", "jsm", "grafana") else {}
        url = {"url": "http://127.0.0.1:1"} if kind in ("alertmanager", "grafana") else {}
        self.settings = SinkSettings.model_validate({"kind": kind, **needed, **url, **settings})
        self.sources = NoticeSources(approval_expiry_s=EXPIRY_S)
        self.documents: dict[str, Thread] = {}
        self.index = DocumentIndex("sink", self.documents)
        self.planner: Planner = planner_of(self.settings, self.sources, self.index, LINKS)

    def take(self, *documents: Incident | Run | NodeFact | TimelineEntry) -> None:
        """What arrives."""
        for one in documents:
            match one:
                case Incident():
                    self.sources.take_incident(one)
                case Run():
                    self.sources.take_run(one)
                case NodeFact():
                    self.sources.take_node(one.cluster, one.name, one)
                case TimelineEntry():
                    self.sources.take_act(one)

    def start(self, now: datetime) -> list[Thread]:
        """Make the documents of all that is due."""
        due = [
            name
            for name in self.sources.incidents
            if (at := self.planner.look(name, now).due_at) is not None and at <= now
        ]
        made, _ = self.planner.start(due, now)
        for one in made:
            self.store(one)
        return made

    def store(self, document: Thread) -> Thread:
        """Keep a document."""
        self.documents[document.incident] = document
        self.index.add(document)
        return document

    def slots(self, document: Thread, now: datetime = NOW) -> tuple[Slot, ...]:
        """What a document should show."""
        return self.planner.wanted(self.documents.get(document.incident, document), now).slots

    def slot(self, document: Thread, now: datetime = NOW) -> Slot:
        """The one thing that a document should show."""
        (found,) = self.slots(document, now)
        return found

    def send(self, document: Thread, now: datetime = NOW, *, gone: bool = False) -> Thread:
        """Everything that the document should show is there, or a person has ended it."""
        for slot in self.slots(document, now):
            if slot.moot and self.documents[document.incident].post(slot.name) is None:
                continue
            effect = EffectRecord("k", "page", Target("Channel", "x"), EffectState.CONFIRMED, now, now)
            post = Post(slot.name, effect, shown=slot.digest, mark=slot.mark, changed_at=now, gone=gone)
            self.store(self.documents[document.incident].with_post(post))
        return self.documents[document.incident]
