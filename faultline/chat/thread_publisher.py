"""Keeps the threads of one owned partition up to date with incidents, runs, nodes and timeline.

What should be shown is computed from the latest documents at each try, so nothing is lost while the chat system is away: that
kind of work is paused, longer each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NoReturn

import structlog
from aiokafka import TopicPartition

from connectors.base import Connector
from faultline.chat.channel_health import EVERY_CHANNEL, ChannelHealth
from faultline.chat.job_owners import JobOwners
from faultline.chat.message_poster import MessagePoster
from faultline.chat.post_backoff import PostBackoff
from faultline.chat.routes import Routes
from faultline.chat.thread_plan import (
    MAX_LOG,
    Doing,
    Subject,
    Task,
    Urgency,
    next_task,
    tasks_of,
)
from faultline.chat.thread_sources import ThreadSources
from faultline.chat.trouble_notice import PREFIX, Trouble, broken_again, broken_before, trouble_id
from faultline.chat.wanted_threads import WantedThreads, with_decision
from streams.correlate.changes import MORE_EVIDENCE
from streams.kafka.fenced_store import FencedStore, Outgoing
from streams.model.clock import Clock, utc_now
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.message import plain
from streams.model.run import Run
from streams.model.thread import Thread
from streams.telemetry.call_figures import CallFigures

log = structlog.get_logger(__name__)

LOG_TEXT = 300
"""Characters of a timeline entry that a thread document keeps."""
AT_A_TIME = 50
"""Threads planned before other tasks of the event loop get to run."""
MAX_LINES = 500
"""Timeline entries stored in one transaction."""


@dataclass(frozen=True, slots=True)
class _PendingTask:
    """A task without its message: thousands may wait, and the message is rendered when its turn comes."""

    doing: Doing
    name: str
    urgency: Urgency
    weight: tuple[bool, bool, int]
    due_at: datetime
    channel: str


class ThreadPublisher:
    """The threads of one partition. `take_…` documents as they arrive, and let `publish` run for as long as it is owned."""

    def __init__(
        self,
        store: FencedStore[Thread],
        connector: Connector,
        *,
        routes: Routes,
        timeline: TopicPartition,
        group: str,
        debounce_s: float,
        lease_s: float,
        buttons: bool = False,
        owners: JobOwners | None = None,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        calls: CallFigures | None = None,
    ) -> None:
        self._store = store
        self._timeline = timeline
        self._group = group
        self._debounce_s = debounce_s
        self._clock = clock
        self._sources = ThreadSources(buttons=buttons, owners=owners)
        self._routes = routes
        self._threads = WantedThreads(self._sources, self._thread)
        self._backoff = PostBackoff(clock)
        self._health = ChannelHealth()
        self._poster = MessagePoster(
            store,
            connector,
            channel_of=self._channel_of,
            lease_s=lease_s,
            backoff=self._backoff,
            health=self._health,
            on_commit=self._threads.committed,
            clock=clock,
            at=at,
            calls=calls,
            system="slack",
        )
        self._entries: list[tuple[int, TimelineEntry]] = []
        self._records: list[Outgoing] = []
        self._next_offset = 0
        self._pending: dict[str, tuple[_PendingTask, ...]] = {}
        """What is left to do, by incident; incidents whose thread is up to date have no entry."""
        self._arrived = asyncio.Event()

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident."""
        self._sources.take_incident(incident)
        self._arrived.set()

    def take_run(self, run: Run) -> None:
        """The latest revision of a run."""
        self._sources.take_run(run)
        self._arrived.set()

    def take_node(self, cluster: str, name: str, fact: NodeFact | None) -> None:
        """A node of the inventory, or None when it was deleted."""
        self._sources.take_node(cluster, name, fact)
        self._arrived.set()

    def take_job(self, cluster: str, name: str, fact: JobFact | None) -> None:
        """A job of the inventory by its key, or None when it was deleted."""
        self._sources.take_job(cluster, name, fact)
        self._arrived.set()

    def take_entry(self, entry: TimelineEntry, offset: int) -> None:
        """A timeline entry and its offset. Entries about the whole cluster belong to no thread."""
        self._passed(offset)
        if not entry.incident:
            return
        self._entries.append((offset, entry))
        self._arrived.set()

    @property
    def first_waiting(self) -> int | None:
        """The offset of the first timeline entry that is not stored yet; None while there is none."""
        return self._entries[0][0] if self._entries else None

    def late(self) -> list[str]:
        """The threads that are not as they should be by now: what is due, and what a failing call holds up."""
        now, paused = self._clock(), self._backoff.paused
        return [
            name
            for name, tasks in list(self._pending.items())
            if any(task.due_at <= now or task.doing in paused for task in tasks)
        ]

    def take_dead_letter(self, letter: Outgoing, offset: int) -> None:
        """An unreadable timeline record: the dead letter is committed with the offset that skips it."""
        self._records.append(letter)
        self._passed(offset)
        self._arrived.set()

    async def publish(self) -> NoReturn:
        """Work until cancelled.

        Raises:
            Fenced: another owner has the partition.
            Unreachable: a commit's outcome is unknown; the partition has to be read again.
        """
        for name in [name for name in self._store.documents if name.startswith(PREFIX)]:
            if (trouble := broken_before(self._poster.thread(name, ""))) is not None:
                self._threads.troubles[name] = trouble
                self._health.assume(trouble.channel, self._clock())
        while True:
            await self._write_log()
            due = await self._next()
            if due is not None and due[1].due_at <= self._clock():
                before = set(self._health.broken)
                await self._poster.do(*due)
                await self._channels_changed(due[0].cluster, before)
                continue
            ahead = [*self._threads.wake.values(), *([due[1].due_at] if due is not None else [])]
            until = min(ahead, default=None)
            await self._wait(None if until is None else max(0.0, (until - self._clock()).total_seconds()))

    def _passed(self, offset: int) -> None:
        self._next_offset = max(self._next_offset, offset + 1)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until something arrives or `seconds` have passed. Due times are stored, so cancelling this loses nothing."""
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return
        self._arrived.clear()

    async def _write_log(self) -> None:
        """Store timeline entries in their thread documents and commit the offset read to, in one transaction."""
        while self._entries or self._records:
            entries, self._entries = self._entries[:MAX_LINES], self._entries[MAX_LINES:]
            records: list[Outgoing] = []
            if not self._entries:
                records, self._records = self._records, []
            changed: dict[str, Thread] = {}
            for offset, entry in entries:
                thread = changed.get(entry.incident) or self._poster.thread(entry.incident, entry.cluster)
                if offset > thread.log_offset and entry.event != MORE_EVIDENCE:
                    bounded = replace(entry, text=plain(entry.text, LOG_TEXT), attributes={})
                    lines = (*thread.log, bounded)[-MAX_LOG:]
                    told = replace(thread, log=lines, log_offset=offset)
                    changed[entry.incident] = with_decision(told, entry)
            now = self._clock()
            read_to = self._entries[0][0] if self._entries else self._next_offset
            await self._store.commit(
                [replace(t, revision=t.revision + 1, updated_at=now) for t in changed.values()],
                records=records,
                offsets={self._timeline: read_to},
                group=self._group,
            )
            # Not when it arrives: planned before it is stored, its thread would look up to date for good.
            for name in changed:
                self._threads.committed(name)

    async def _channels_changed(self, cluster: str, before: set[str]) -> None:
        """A channel broke or works again: the default channel is told, once, unless it is the one."""
        for channel in sorted((before ^ set(self._health.broken)) - {EVERY_CHANNEL, self._routes.default}):
            trouble = Trouble(trouble_id(channel, self._timeline.partition), cluster, channel)
            self._threads.troubles[trouble.id] = trouble
            self._sources.changed[trouble.id] = None
            thread = self._poster.thread(trouble.id, cluster)
            anew = broken_again(thread)
            if channel in self._health.broken and anew is not thread:
                await self._store.commit([replace(anew, revision=anew.revision + 1)])

    def _thread(self, name: str, cluster: str) -> Thread:
        """The thread document of an incident or a summary."""
        return self._poster.thread(name, cluster)

    def _channel_of(self, name: str) -> str:
        """The channel in which a thread begins."""
        return self._threads.channel_of(name, self._routes, self._clock())

    async def _sum_up(self, names: Sequence[str], now: datetime) -> None:
        """Find which of the changed incidents hang together, and store it before anything of them is posted."""
        joined = self._threads.joining(names)
        for start in range(0, len(joined), MAX_LINES):
            batch = joined[start : start + MAX_LINES]
            await self._store.commit(
                [replace(one, revision=one.revision + 1, updated_at=now) for one in batch]
            )
            for one in batch:
                self._sources.changed.update({one.incident: None, one.parent: None})

    async def _next(self) -> tuple[Subject, Task] | None:
        """The next task to do or to wait for, over all incidents whose thread is not up to date."""
        now = self._clock()
        await self._plan_changed(now)
        while (name := self._first(now)) is not None:
            wanted = self._threads.wanted(name, now, self._health.broken)
            task = wanted and next_task(
                wanted.thread,
                wanted.slots,
                now,
                debounce_s=self._debounce_s,
                paused=self._paused(wanted.thread.channel),
                parent=wanted.parent,
            )
            if wanted and task and (task.due_at <= now or self._chosen_due_at(name, now) > now):
                return wanted.subject, task
            # Planned some time ago: the task is no longer needed, or not due yet.
            self._plan(name, now)
        return None

    async def _plan_changed(self, now: datetime) -> None:
        """Plan the tasks of every changed incident, a few at a time; what arrives meanwhile too, before anything is posted."""
        changed = self._sources.changed
        changed.update(dict.fromkeys(name for name, at in self._threads.wake.items() if at <= now))
        waiting: dict[str, None] = {}
        while changed or waiting:
            # Taken out before anything is awaited: what changes again meanwhile is in there anew, and summed up and planned once
            # more, with what it is by then.
            fresh = dict.fromkeys(changed)
            changed.clear()
            await self._sum_up(list(fresh), now)
            waiting |= fresh
            for name in list(waiting)[:AT_A_TIME]:
                del waiting[name]
                if name not in changed:
                    self._plan(name, now)
            await asyncio.sleep(0)

    def _plan(self, name: str, now: datetime) -> None:
        wanted = self._threads.wanted(name, now, self._health.broken)
        if wanted is None:
            self._pending.pop(name, None)
            return
        tasks = tasks_of(wanted.thread, wanted.slots, now, self._debounce_s, wanted.parent)
        found = tuple(
            _PendingTask(t.doing, t.slot.name, t.slot.urgency, wanted.weight, t.due_at, wanted.thread.channel)
            for t in tasks
        )
        if found:
            self._pending[name] = found
        else:
            self._pending.pop(name, None)
        self._threads.look_again(name, wanted.thread, now)

    def _first(self, now: datetime) -> str | None:
        """The incident with the most urgent task that is due, else the one whose task is due first."""
        best: tuple[object, ...] | None = None
        chosen = None
        for name, tasks in self._pending.items():
            for task in tasks:
                due = self._due_at(task)
                place = (
                    (False, task.urgency, task.weight, due, task.name)
                    if due <= now
                    else (True, due, task.urgency, task.weight, task.name)
                )
                if best is None or place < best:
                    best, chosen = place, name
        return chosen

    def _due_at(self, task: _PendingTask) -> datetime:
        return max(task.due_at, self._paused(task.channel).get(task.doing, task.due_at))

    def _paused(self, channel: str) -> Mapping[Doing, datetime]:
        """Until when each kind of work rests, in a channel that is broken all of it."""
        until = self._health.paused_until(channel)
        if until is None:
            return self._backoff.paused
        return {doing: max(until, self._backoff.paused.get(doing, until)) for doing in Doing}

    def _chosen_due_at(self, name: str, now: datetime) -> datetime:
        """When the first task of an incident is due."""
        return min((self._due_at(task) for task in self._pending.get(name, ())), default=now)
