"""The threads that the chat would have posted during a replay: the same texts at the same moments, without a chat system.

Every post succeeds at once, so what is seen here is what an incident asks of its readers, not what a slow chat makes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from faultline.chat.thread_plan import MAX_LOG, Doing, Slot, next_task
from faultline.chat.thread_sources import ThreadSources
from runbooks.engine.commit_batch import CommitBatch
from streams.config.connector_settings import SlackSettings
from streams.correlate.changes import MORE_EVIDENCE, Changes
from streams.model.conversation import TimelineEntry
from streams.model.facts import Fact, JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.message import Message
from streams.model.run import EffectRecord, EffectState, Target
from streams.model.thread import Post, Thread

DEBOUNCE_S = float(SlackSettings().debounce_s)


@dataclass(frozen=True, slots=True)
class Posted:
    """One message as it was posted, or as an edit left it."""

    at: datetime
    incident: str
    slot: str
    message: Message
    is_edit: bool


class RecordedThreads:
    """Takes what the chat process reads, in the order of the replay; `posted` is what it would have sent."""

    def __init__(self) -> None:
        self.posted: list[Posted] = []
        self._sources = ThreadSources()
        self._threads: dict[str, Thread] = {}
        self._due: dict[str, datetime] = {}

    def take_changes(self, changes: Changes) -> None:
        """What the correlator publishes."""
        for incident in changes.incidents:
            self._sources.take_incident(incident)
        self._take_entries(changes.timeline)

    def take_commit(self, batch: CommitBatch) -> None:
        """What the responder commits."""
        for run in batch.runs:
            self._sources.take_run(run)
        self._take_entries(batch.timeline)

    def take_fact(self, key: str, fact: Fact | None) -> None:
        """A record of the inventory. Threads show nodes and jobs."""
        cluster, kind, name = key.split("/", 2)
        if kind == "job" and (fact is None or isinstance(fact, JobFact)):
            self._sources.take_job(cluster, name, fact)
        if kind == "node" and (fact is None or isinstance(fact, NodeFact)):
            self._sources.take_node(cluster, name, fact)

    def advance(self, now: datetime) -> None:
        """Post and edit everything that is due."""
        due = [name for name, at in self._due.items() if at <= now]
        for name in dict.fromkeys((*self._sources.changed, *due)):
            self._sources.changed.pop(name, None)
            self._due.pop(name, None)
            if (incident := self._sources.incidents.get(name)) is not None:
                self._post(incident, now)

    def by_incident(self) -> dict[str, list[Posted]]:
        """What was posted, by thread, in the order of their first messages."""
        threads: defaultdict[str, list[Posted]] = defaultdict(list)
        for posted in self.posted:
            threads[posted.incident].append(posted)
        return dict(threads)

    def _take_entries(self, entries: Iterable[TimelineEntry]) -> None:
        """Lines of the timeline. Those about the whole cluster belong to no thread."""
        for entry in entries:
            if entry.incident and entry.event != MORE_EVIDENCE:
                thread = self._thread(entry.incident, entry.cluster, entry.at)
                self._threads[entry.incident] = replace(thread, log=(*thread.log, entry)[-MAX_LOG:])
                self._sources.changed[entry.incident] = None

    def _thread(self, incident: str, cluster: str, now: datetime) -> Thread:
        return self._threads.get(incident) or Thread(incident, cluster, "", created_at=now, updated_at=now)

    def _post(self, incident: Incident, now: datetime) -> None:
        thread = self._thread(incident.id, incident.cluster, now)
        while True:
            slots = self._sources.slots_of(incident, thread, now)
            task = next_task(thread, slots, now, debounce_s=DEBOUNCE_S)
            if task is None or task.due_at > now:
                break
            self.posted.append(
                Posted(now, incident.id, task.slot.name, task.slot.message, task.doing is Doing.EDIT)
            )
            thread = self._threads[incident.id] = thread.with_post(_standing(task.slot, now))
        if task is not None:
            self._due[incident.id] = task.due_at


def final(posted: Sequence[Posted]) -> list[Posted]:
    """The messages of one thread as they stand in the end, in the order in which they were first posted."""
    messages: dict[str, Posted] = {}
    for one in posted:
        messages[one.slot] = one
    return list(messages.values())


def _standing(slot: Slot, now: datetime) -> Post:
    """The record of a message that is in the channel and shows what it should."""
    created = EffectRecord(
        key=slot.name, action="reply", target=Target("message", slot.name),
        state=EffectState.CONFIRMED, intended_at=now, lease_until=now, attempts=1,
    )  # fmt: skip
    return Post(slot.name, created, shown=slot.message.digest, mark=slot.mark, changed_at=now)
