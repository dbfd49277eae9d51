"""Brings one sink to the wanted state, for one partition: one call at a time, critical first, paused by its own failures only.

What should be there is computed from the latest documents at each try. So a sink that was away for hours gets what still holds,
and nothing of what came and went meanwhile; and a thousand incidents waiting cost a list of due times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NoReturn

import structlog

from connectors.base import Connector
from faultline.chat.channel_health import ChannelHealth
from faultline.chat.message_poster import MessagePoster
from faultline.chat.post_backoff import PostBackoff
from faultline.chat.thread_plan import Doing, Task, tasks_of
from faultline.notify.notice_documents import (
    DocumentIndex,
    NoticeSubject,
    incident_of,
    is_final,
    is_unconfirmed,
)
from faultline.notify.planner import Planner, earliest
from faultline.notify.sink_pause import ListeningConnector, SinkPause
from faultline.notify.sources import Changed, NoticeSources
from streams.config.notifier_settings import SinkSettings
from streams.kafka.fenced_store import FencedStore
from streams.model.clock import Clock, utc_now
from streams.model.crash_points import CrashHook, ignore
from streams.model.thread import Thread
from streams.telemetry.call_figures import CallFigures

log = structlog.get_logger(__name__)

AT_A_TIME = 50
"""Incidents looked at before other tasks of the event loop get to run."""
CLOSED_S = 60.0
"""How often a sink that may not be told anything new now looks whether it may."""
FORGOTTEN_AFTER = timedelta(days=30)
"""How long the document of what has come to its end is kept."""
MAX_FORGOTTEN = 1_000
"""Documents deleted at one takeover."""

_Weight = tuple[bool, bool, int]


@dataclass(frozen=True, slots=True)
class _Pending:
    """A task without its message, which is made when its turn comes."""

    doing: Doing
    urgency: str
    weight: _Weight
    due_at: datetime


class SinkWorker:
    """One sink of one partition. Let `work` run for as long as the partition is owned."""

    def __init__(
        self,
        settings: SinkSettings,
        planner: Planner,
        index: DocumentIndex,
        store: FencedStore[Thread],
        connector: Connector,
        sources: NoticeSources,
        *,
        pause: SinkPause | None = None,
        lease_s: float,
        debounce_s: float,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        calls: CallFigures | None = None,
    ) -> None:
        self._settings = settings
        self._planner = planner
        self._index = index
        self._store = store
        self._incidents = sources.incidents
        self._debounce_s = debounce_s
        self._clock = clock
        self._backoff = PostBackoff(clock)
        self._pause = pause or SinkPause()
        self._health = ChannelHealth()
        self._poster = MessagePoster(
            store,
            ListeningConnector(connector, self._pause, clock),
            channel_of=lambda key: store.documents[key].channel if key in store.documents else index.sink,
            lease_s=lease_s,
            backoff=self._backoff,
            health=self._health,
            on_commit=self._committed,
            generations=1,
            clock=clock,
            at=at,
            calls=calls,
            system=index.sink,
        )
        self._arrived = asyncio.Event()
        self._changed: Changed = sources.changed(self._arrived.set)
        self._again: dict[str, datetime] = {}
        """When to look at an incident again."""
        self._due: dict[str, datetime] = {}
        """Since when an incident is to be told anew."""
        self._stale: dict[str, None] = {}
        """Keys of documents to plan."""
        self._expires: dict[str, datetime] = {}
        """When a document has to be planned again."""
        self._pending: dict[str, tuple[_Pending, ...]] = {}

    @property
    def backlog(self) -> int:
        """How many documents are not as they should be."""
        return len(self._pending)

    def late(self) -> list[str]:
        """The documents that are not as they should be by now: what is due, and what a failing call holds up."""
        now, paused = self._clock(), self._backoff.paused
        return [
            name
            for name, tasks in list(self._pending.items())
            if any(task.due_at <= now or task.doing in paused for task in tasks)
        ]

    async def work(self) -> NoReturn:
        """Work until cancelled.

        Raises:
            Fenced: another owner has the partition.
            Unreachable: a commit's outcome is unknown; the partition has to be read again.
        """
        await self.begin()
        while True:
            until = await self.advance()
            if until is None or until > self._clock():
                await self._wait(until)

    async def begin(self) -> None:
        """Finish what was begun before this process had the partition, also for incidents that nobody knows any more."""
        now = self._clock()
        old = [one for one in self._index.all() if one.updated_at < now - FORGOTTEN_AFTER]
        gone = [one.incident for one in old if self._is_over(one, now)]
        await self._store.commit(gone=gone[:MAX_FORGOTTEN])
        self._stale.update(
            dict.fromkeys(
                one.incident for one in self._index.all() if not is_final(one) or is_unconfirmed(one)
            )
        )

    async def advance(self) -> datetime | None:
        """Plan what changed and do the most important task that is due; returns when the next one is, None if there is none."""
        now = self._clock()
        await self._look(now)
        await self._start(now)
        await self._plan(now)
        key, task = self._next(now)
        if task is not None and task.due_at <= now:
            if task.doing is Doing.CREATE:
                log.info("telling", sink=self._index.sink, notice=key, what=task.slot.message.summary)
            await self._poster.do(NoticeSubject(key, self._planner.cluster_of(key)), task)
            return now
        return earliest(
            task.due_at if task is not None else None,
            *self._again.values(),
            *self._due.values(),
            *self._expires.values(),
        )

    async def _look(self, now: datetime) -> None:
        """Look at every incident that changed or whose time has come, a few at a time."""
        for name in [name for name, at in self._again.items() if at <= now]:
            del self._again[name]
            self._changed[name] = None
        count = 0
        while self._changed:
            name = next(iter(self._changed))
            del self._changed[name]
            found = self._planner.look(name, now)
            self._stale.update(dict.fromkeys(found.keys))
            _put(self._again, name, found.again_at)
            _put(self._due, name, found.due_at)
            count += 1
            if count % AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def _start(self, now: datetime) -> None:
        """Make the documents of what is due, all of them in one transaction."""
        due = [name for name, at in self._due.items() if at <= now]
        if not due:
            return
        if not self._settings.is_open(now):
            for name in due:
                self._due[name] = now + timedelta(seconds=CLOSED_S)
            return
        made, again = self._planner.start(due, now)
        stored = [replace(one, revision=one.revision + 1, updated_at=now) for one in made]
        await self._store.commit(stored)
        for one in stored:
            self._index.add(one)
            self._stale[one.incident] = None
        told = {name for one in stored for name in one.members}
        for name in due:
            del self._due[name]
            if name not in told:
                _put(self._due, name, again)

    async def _plan(self, now: datetime) -> None:
        """Plan the tasks of every stale document, a few at a time."""
        for key in [key for key, at in self._expires.items() if at <= now]:
            del self._expires[key]
            self._stale[key] = None
        count = 0
        while self._stale:
            key = next(iter(self._stale))
            del self._stale[key]
            self._tasks(key, now)
            count += 1
            if count % AT_A_TIME == 0:
                await asyncio.sleep(0)

    def _tasks(self, key: str, now: datetime) -> Sequence[Task]:
        """The tasks of a document as it is now; what is pending follows."""
        document = self._poster.thread(key, self._planner.cluster_of(key))
        wanted = self._planner.wanted(document, now)
        tasks = list(tasks_of(document, wanted.slots, now, self._debounce_s))
        again = wanted.again_at
        if not self._settings.is_open(now) and any(_is_new(document, task) for task in tasks):
            tasks = [task for task in tasks if not _is_new(document, task)]
            again = earliest(again, now + timedelta(seconds=CLOSED_S))
        _put(self._expires, key, again)
        if tasks:
            self._pending[key] = tuple(
                _Pending(task.doing, task.slot.urgency, wanted.weight, task.due_at) for task in tasks
            )
        else:
            self._pending.pop(key, None)
        return tasks

    def _next(self, now: datetime) -> tuple[str, Task | None]:
        """The next task to do or to wait for, with the key of its document."""
        while True:
            key, due_at = self._first(now)
            if not key:
                return "", None
            task = self._task(key, now)
            if task is not None and (task.due_at <= now or due_at > now):
                return key, task
            # Planned some time ago: not needed any more, or not due yet. Another one may be due.

    def _first(self, now: datetime) -> tuple[str, datetime]:
        """The document with the most important task that is due, else the one whose task is due first, and when that is."""
        best: tuple[object, ...] | None = None
        chosen, at = "", now
        for key, tasks in self._pending.items():
            for task in tasks:
                due = self._not_before(task.doing, task.due_at)
                waits = due > now
                place = (waits, due, task.weight) if waits else (waits, task.weight, task.urgency, due)
                if best is None or place < best:
                    best, chosen, at = place, key, due
        return chosen, at

    def _task(self, key: str, now: datetime) -> Task | None:
        """The next task of a document, planned anew: it may have waited for long."""
        tasks = [
            replace(task, due_at=self._not_before(task.doing, task.due_at)) for task in self._tasks(key, now)
        ]
        due = [task for task in tasks if task.due_at <= now]
        if due:
            return min(due, key=lambda task: task.slot.urgency)
        return min(tasks, key=lambda task: task.due_at, default=None)

    def _not_before(self, doing: Doing, due_at: datetime) -> datetime:
        """When a task is due, what its kind of work and the sink as a whole wait for included."""
        broken = (one.next_at for one in self._health.broken.values())
        asked = self._pause.until or due_at
        return max(due_at, asked, self._backoff.paused.get(doing, due_at), *broken)

    async def _wait(self, until: datetime | None) -> None:
        """Wait until something changes or is due. Due times are derived from documents, so cancelling this loses nothing."""
        if self._changed or self._stale:
            return
        self._arrived.clear()
        seconds = None if until is None else max(0.0, (until - self._clock()).total_seconds())
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return

    def _is_over(self, document: Thread, now: datetime) -> bool:
        """Whether nothing of it is, or ever will be, left to do. As long as an incident lasts, its reports are kept."""
        told = (self._incidents.get(name) for name in (incident_of(document.incident), *document.members))
        if any(incident is not None and not incident.state.is_over for incident in told):
            return False
        slots = self._planner.wanted(document, now).slots
        return all(slot.moot for slot in slots) and not list(tasks_of(document, slots, now, 0.0))

    def _committed(self, key: str) -> None:
        document = self._store.documents[key]
        self._index.add(document)
        self._stale[key] = None
        if is_final(document):
            # Whoever needs somebody again meanwhile was not told anew for its sake.
            self._changed.update(dict.fromkeys((incident_of(key), *document.members)))


def _is_new(document: Thread, task: Task) -> bool:
    """Whether a task tells something that was never told: what was begun is finished at any time."""
    return task.doing is Doing.CREATE and document.post(task.slot.name) is None


def _put(times: dict[str, datetime], name: str, at: datetime | None) -> None:
    if at is None:
        times.pop(name, None)
    else:
        times[name] = at
