"""The notifier process: pages, silences, annotations and mails, each exactly once. It changes nothing in the cluster.

It owns partitions as the chat does. On assignment, incidents, runs, controls and the inventory's nodes are read from the
beginning, the timeline from the committed offset; nothing is sent before that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NoReturn

import structlog
from aiokafka import ConsumerRecord

from faultline.notify.partition_notices import PartitionNotices, Sink
from runbooks.engine.cluster_controls import unreadable_control
from streams.config.notifier_settings import NotifierSettings
from streams.config.settings import KafkaSettings
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import DocumentType, Outgoing
from streams.kafka.partition_owner import PARTITION_LOST, OwnedPartition, OwnedRecord, PartitionOwner
from streams.kafka.topics import CONTROLS, INCIDENTS, INVENTORY, NOTICES, RUNS, THREADS, TIMELINE
from streams.model.clock import Clock, from_millis, utc_now
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.errors import BadInput
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run
from streams.model.thread import Thread
from streams.telemetry.backlog import BacklogFigures
from streams.telemetry.call_figures import CallFigures
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

PROCESS = "notifier"


class Notifier:
    """The notifier process. `run` until cancelled; partitions are released on the way out."""

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: NotifierSettings,
        sinks: Mapping[str, Sink],
        *,
        console_url: str | None = None,
        lease_s: float,
        approval_expiry_s: float,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._pulse = pulse or Pulse()
        metrics = metrics or Metrics(PROCESS)
        calls = CallFigures(metrics)
        for name in sinks:
            calls.expect(name)
        self._new_notices = partial(
            PartitionNotices,
            sinks=sinks,
            settings=settings,
            console_url=console_url,
            group=PROCESS,
            lease_s=lease_s,
            approval_expiry_s=approval_expiry_s,
            clock=clock,
            at=at,
            calls=calls,
        )
        self._backlogs = BacklogFigures(metrics)
        self._notices: dict[OwnedPartition[Thread], PartitionNotices] = {}
        self._working: dict[OwnedPartition[Thread], asyncio.Task[NoReturn]] = {}
        self._failure: Exception | None = None
        self._owner: PartitionOwner[Thread] = PartitionOwner(
            kafka,
            DocumentType(process=PROCESS, topic=NOTICES, kind=Thread, key=lambda notice: notice.incident),
            replayed=(INCIDENTS, RUNS, CONTROLS, INVENTORY, *([THREADS] if settings.slack_url else [])),
            followed=(TIMELINE,),
            on_revoked=self._revoke,
            unfinished=self._first_waiting,
            pulse=self._pulse,
            metrics=metrics,
        )
        metrics.watch(self._look)

    async def run(self) -> NoReturn:
        """Own partitions and tell of their incidents.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a document cannot be read.
        """
        self._pulse.lag = self._owner.lag
        try:
            while True:
                for arrival in await self._owner.poll():
                    self._pulse.count("records")
                    self._take(arrival)
                self._start_workers()
                self._check_workers()
                self._pulse.ready(all(owned.caught_up for owned in self._owner.owned.values()))
        finally:
            await self._owner.stop()
            self._raise_failure()  # also one of letting go just now

    def _take(self, arrival: OwnedRecord[Thread]) -> None:
        notices, record = self._notices_of(arrival.owned), arrival.record
        if record.value is None and arrival.topic != INVENTORY.name:
            return
        try:
            match arrival.topic:
                case INVENTORY.name:
                    _take_node(notices, record)
                case INCIDENTS.name:
                    notices.sources.take_incident(decode(Incident, record.value or b""))
                case RUNS.name:
                    notices.sources.take_run(decode(Run, record.value or b""))
                case CONTROLS.name:
                    notices.sources.take_control(_control(notices, record))
                case THREADS.name:
                    notices.sources.take_thread(decode(Thread, record.value or b""))
                case TIMELINE.name:
                    notices.take_entry(decode(TimelineEntry, record.value or b""), record.offset)
        except BadInput as error:
            log.error("unreadable record", at=coordinates(record), reason=str(error))
            # Only for the timeline: the others are compacted and read again at every start, so nothing is lost there.
            if arrival.topic == TIMELINE.name:
                self._owner.count_dead_letter(TIMELINE)
                notices.take_dead_letter(
                    Outgoing.dead_letter(record, topic=arrival.topic, stage=PROCESS, reason=str(error)),
                    record.offset,
                )

    def _first_waiting(self, partition: int) -> int | None:
        owned = self._owner.owned.get(partition)
        notices = self._notices.get(owned) if owned is not None else None
        return notices.first_waiting if notices is not None else None

    async def _look(self) -> None:
        self._backlogs.look([one for notices in self._notices.values() for one in notices.late()])

    def _notices_of(self, owned: OwnedPartition[Thread]) -> PartitionNotices:
        if owned not in self._notices:
            timeline = self._owner.place(TIMELINE, owned.partition)
            self._notices[owned] = self._new_notices(owned.store, timeline=timeline)
        return self._notices[owned]

    def _start_workers(self) -> None:
        for owned in self._owner.owned.values():
            if owned.caught_up and owned not in self._working:
                self._working[owned] = asyncio.create_task(
                    self._notices_of(owned).publish(), name=f"notices of partition {owned.partition}"
                )

    def _check_workers(self) -> None:
        """Drop partitions that were lost; any other failure of a worker ends the process."""
        self._raise_failure()
        for owned, worker in list(self._working.items()):
            if not worker.done():
                continue
            error = worker.exception()
            if isinstance(error, PARTITION_LOST) and self._owner.owned.get(owned.partition) is owned:
                self._owner.drop_partition(owned, error)
            elif error is not None and not isinstance(error, PARTITION_LOST):
                raise error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _revoke(self, partitions: Sequence[int]) -> None:
        """Stop the workers of revoked partitions and wait for calls in flight."""
        revoked = [owned for owned in self._notices if owned.partition in partitions]
        workers = [worker for owned in revoked if (worker := self._working.pop(owned, None))]
        for worker in workers:
            worker.cancel()
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, PARTITION_LOST):
                self._failure = outcome
        for owned in revoked:
            del self._notices[owned]


def _take_node(notices: PartitionNotices, record: ConsumerRecord[bytes, bytes]) -> None:
    """Take a node of the inventory. Other records are skipped by key, undecoded."""
    cluster, kind, name = [*(record.key or b"").decode(errors="replace").split("/", 2), "", ""][:3]
    if kind != "node":
        return
    if record.value is None:
        notices.sources.take_node(cluster, name, None)
        return
    fact = decode(FactRecord, record.value).fact
    if isinstance(fact, NodeFact):
        notices.sources.take_node(cluster, name, fact)


def _control(notices: PartitionNotices, record: ConsumerRecord[bytes, bytes]) -> Control:
    """The controls in a record; unreadable ones count as an engaged kill switch, as the responder takes them."""
    try:
        return decode(Control, record.value or b"")
    except BadInput as error:
        cluster = (record.key or b"").decode(errors="backslashreplace")
        why = f"{coordinates(record)}: {error}"
        return unreadable_control(
            notices.sources.control(cluster), why, from_millis(record.timestamp)
        ).control
