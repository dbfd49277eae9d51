"""The threads that the chat would have posted during a replay: the same texts at the same moments, without a chat system.

Every post succeeds at once, so what is seen here is what an incident asks of its readers, not what a slow chat makes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from faultline.chat.summaries import PREFIX
from faultline.chat.thread_plan import MAX_LOG, Doing, Slot, next_task
from faultline.chat.thread_sources import ThreadSources
from faultline.chat.wanted_threads import WantedThreads
from runbooks.engine.commit_batch import CommitBatch
from streams.config.connector_settings import SlackSettings
from streams.correlate.changes import MORE_EVIDENCE, Changes
from streams.model.conversation import TimelineEntry
from streams.model.facts import Fact, JobFact, NodeFact
from streams.model.message import Message
from streams.model.run import EffectRecord, EffectState, Target
from streams.model.thread import MEMBER, Post, Thread

DEBOUNCE_S = float(SlackSettings().debounce_s)
CHANNEL = "replayed"
"""The one channel of a replay: all incidents have threads there, also those for a job's owner."""
_BEFORE = datetime.min.replace(tzinfo=UTC)


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
        self._wanted = WantedThreads(self._sources, self._known)
        self._now = _BEFORE
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
        self._now = now
        changed = self._sources.changed
        changed.update(dict.fromkeys(name for name, at in self._due.items() if at <= now))
        while changed:
            names = list(changed)
            for joined in self._wanted.joining(names):
                self._threads[joined.incident] = joined
                changed[joined.parent] = None
            # A summary begins before its members reply to it.
            for name in sorted(changed, key=lambda name: not name.startswith(PREFIX)):
                changed.pop(name)
                self._due.pop(name, None)
                self._post(name, now)

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
        known = self._threads.get(incident)
        return known or Thread(incident, cluster, CHANNEL, created_at=now, updated_at=now)

    def _known(self, incident: str, cluster: str) -> Thread:
        return self._thread(incident, cluster, self._now)

    def _post(self, name: str, now: datetime) -> None:
        while (wanted := self._wanted.wanted(name, now)) is not None:
            task = next_task(wanted.thread, wanted.slots, now, debounce_s=DEBOUNCE_S, parent=wanted.parent)
            if task is None or task.due_at > now:
                if task is not None:
                    self._due[name] = task.due_at
                self._wanted.look_again(name, wanted.thread, now)
                return
            thread = wanted.thread.parent if task.slot.name.startswith(MEMBER) else name
            slot = f"{task.slot.name}/{name}" if thread != name else task.slot.name
            self.posted.append(Posted(now, thread, slot, task.slot.message, task.doing is Doing.EDIT))
            self._threads[name] = wanted.thread.with_post(_standing(task.slot, now))
            self._wanted.committed(name)
            self._sources.changed.pop(name, None)


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
