"""The notices of one owned partition: a worker for each sink, and the memory of what people did.

A worker that waits for its sink holds up no other one. What people did about an incident is kept in a document of its own, for
the timeline is read only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NoReturn

from aiokafka import TopicPartition

from connectors.base import Connector
from faultline.notify.notice_documents import DocumentIndex, incident_of, key_of, sink_of
from faultline.notify.page_planner import PagePlanner
from faultline.notify.planner import Links, Planner
from faultline.notify.post_planner import PostPlanner
from faultline.notify.sink_pause import SinkPause
from faultline.notify.sink_worker import FORGOTTEN_AFTER, MAX_FORGOTTEN, SinkWorker
from faultline.notify.sources import PEOPLE, NoticeSources, is_an_act
from faultline.notify.state_planners import AnnotationPlanner, SilencePlanner
from streams.config.notifier_settings import PAGES, POSTS, NotifierSettings, SinkSettings
from streams.kafka.fenced_store import FencedStore, Outgoing
from streams.model.clock import Clock, utc_now
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.message import plain
from streams.model.thread import Thread
from streams.telemetry.call_figures import CallFigures

COMMIT_EVERY_S = 5.0
"""How often the place in the timeline is committed while nothing in it matters."""
MAX_ACTS = 20
"""Acts of people kept of one incident."""
MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Sink:
    """One sink: its settings, and what all partitions share: the connector, and the pause that the other side asked for."""

    settings: SinkSettings
    connector: Connector
    pause: SinkPause = field(default_factory=SinkPause)


class PartitionNotices:
    """What is reported of one partition. `sources` takes documents as they arrive; let `publish` run while it is owned."""

    def __init__(
        self,
        store: FencedStore[Thread],
        sinks: Mapping[str, Sink],
        settings: NotifierSettings,
        console_url: str | None,
        *,
        timeline: TopicPartition,
        group: str,
        lease_s: float,
        approval_expiry_s: float,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        calls: CallFigures | None = None,
    ) -> None:
        self._calls = calls
        self._workers: dict[str, SinkWorker] = {}
        self.sources = NoticeSources(approval_expiry_s=approval_expiry_s)
        self._store = store
        self._sinks = sinks
        self._settings = settings
        self._links = Links(console_url, settings.slack_url)
        self._timeline = timeline
        self._group = group
        self._lease_s = lease_s
        self._clock = clock
        self._at = at
        self._acts: list[tuple[int, TimelineEntry]] = []
        self._records: list[Outgoing] = []
        self._next_offset = 0
        self._kept_offset = 0
        self._arrived = asyncio.Event()
        for key, document in store.documents.items():
            if sink_of(key) == PEOPLE:
                for entry in document.log:
                    self.sources.take_act(entry)

    def take_entry(self, entry: TimelineEntry, offset: int) -> None:
        """A timeline entry and its offset. Only what people did is kept."""
        self._next_offset = max(self._next_offset, offset + 1)
        if is_an_act(entry):
            self._acts.append((offset, entry))
            self._arrived.set()

    @property
    def first_waiting(self) -> int | None:
        """The offset of the first act of a person that is not stored yet; None while there is none."""
        return self._acts[0][0] if self._acts else None

    def late(self) -> list[tuple[str, list[str]]]:
        """For each sink its documents that are not as they should be by now."""
        return [(name, worker.late()) for name, worker in self._workers.items()]

    def take_dead_letter(self, letter: Outgoing, offset: int) -> None:
        """An unreadable timeline record: the dead letter is committed with the offset that skips it."""
        self._records.append(letter)
        self._next_offset = max(self._next_offset, offset + 1)
        self._arrived.set()

    async def publish(self) -> NoReturn:
        """Work until cancelled.

        Raises:
            Fenced: another owner has the partition.
            Unreachable: a commit's outcome is unknown; the partition has to be read again.
        """
        await self._forget(self._clock())
        await self._keep_acts()
        work = [
            self._follow_people(),
            *(self._worker(name, sink).work() for name, sink in self._sinks.items()),
        ]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # None of them ends but with an error, and one is as good a reason as another.
            await done.pop()
            raise AssertionError("a worker ended without an error")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _worker(self, name: str, sink: Sink) -> SinkWorker:
        index = DocumentIndex(name, self._store.documents)
        planner = planner_of(sink.settings, self.sources, index, self._links)
        worker = self._workers[name] = SinkWorker(
            sink.settings,
            planner,
            index,
            self._store,
            sink.connector,
            self.sources,
            pause=sink.pause,
            lease_s=self._lease_s,
            debounce_s=self._settings.debounce_s,
            clock=self._clock,
            at=self._at,
            calls=self._calls,
        )
        return worker

    async def _follow_people(self) -> NoReturn:
        while True:
            try:
                async with asyncio.timeout(COMMIT_EVERY_S):
                    await self._arrived.wait()
            except TimeoutError:
                pass  # time to commit how far the timeline is read
            self._arrived.clear()
            await self._keep_acts()

    async def _keep_acts(self) -> None:
        """Store what people did with the offset read to, in one transaction; then the sinks hear of it."""
        acts, self._acts = self._acts, []
        records, self._records = self._records, []
        if not acts and not records and self._next_offset == self._kept_offset:
            return
        now = self._clock()
        changed: dict[str, Thread] = {}
        for offset, entry in acts:
            key = key_of(PEOPLE, entry.incident)
            new = Thread(key, entry.cluster, PEOPLE, now, now, revision=0)
            document = changed.get(key) or self._store.documents.get(key) or new
            if offset > document.log_offset:
                bounded = replace(entry, text=plain(entry.text, MAX_TEXT), attributes=_kept(entry))
                changed[key] = replace(document, log=(*document.log, bounded)[-MAX_ACTS:], log_offset=offset)
        offsets = {self._timeline: self._next_offset}
        self._kept_offset = self._next_offset
        await self._store.commit(
            [replace(one, revision=one.revision + 1, updated_at=now) for one in changed.values()],
            records=records,
            offsets=offsets,
            group=self._group,
        )
        for _, entry in acts:
            self.sources.take_act(entry)

    async def _forget(self, now: datetime) -> None:
        """Delete what people did about incidents that ended long ago."""
        old = [
            key
            for key, document in self._store.documents.items()
            if sink_of(key) == PEOPLE
            and document.updated_at < now - FORGOTTEN_AFTER
            and ((known := self.sources.incidents.get(incident_of(key))) is None or known.state.is_over)
        ]
        await self._store.commit(gone=old[:MAX_FORGOTTEN])


def planner_of(settings: SinkSettings, sources: NoticeSources, index: DocumentIndex, links: Links) -> Planner:
    """The planner of a kind of sink."""
    make: Callable[..., Planner]
    if settings.kind in PAGES:
        make = PagePlanner
    elif settings.kind in POSTS:
        make = PostPlanner
    else:
        make = SilencePlanner if settings.kind == "alertmanager" else AnnotationPlanner
    return make(settings, sources, index, links)


def _kept(entry: TimelineEntry) -> Mapping[str, str]:
    until = entry.attributes.get("until")
    return {"until": until[:40]} if isinstance(until, str) else {}
