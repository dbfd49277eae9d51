"""The chat process: one thread per incident, kept up to date with incidents, runs and timeline. It changes nothing else.

It owns partitions as the responder does. On assignment, incidents, runs and the inventory's nodes and jobs are read from the
beginning (compacted topics hold the latest state), the timeline from the committed offset. Nothing is posted before that:
messages would flicker through old states.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import structlog
from aiokafka import ConsumerRecord

from connectors.base import Connector
from faultline.chat.job_owners import JobOwners
from faultline.chat.routes import Routes
from faultline.chat.thread_publisher import ThreadPublisher
from streams.config.connector_settings import SlackRoute
from streams.config.settings import KafkaSettings
from streams.config.tenant_settings import Tenant
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import DocumentType, Outgoing
from streams.kafka.partition_owner import PARTITION_LOST, OwnedPartition, OwnedRecord, PartitionOwner
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS, THREADS, TIMELINE
from streams.model.clock import Clock, utc_now
from streams.model.codec import decode
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.errors import BadInput
from streams.model.facts import Fact, FactRecord, JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run
from streams.model.thread import Thread
from streams.telemetry.backlog import BacklogFigures
from streams.telemetry.call_figures import CallFigures
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

PROCESS = "chat"
SINK = "slack"
"""What metrics call it."""


class Chat:
    """The chat process. `run` until cancelled; partitions are released on the way out."""

    def __init__(
        self,
        settings: KafkaSettings,
        connector: Connector,
        *,
        channel: str,
        lease_s: float,
        debounce_s: float = 1.0,
        buttons: bool = False,
        owners: JobOwners | None = None,
        routes: Sequence[SlackRoute] = (),
        tenants: Sequence[Tenant] = (),
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._pulse = pulse or Pulse()
        metrics = metrics or Metrics(PROCESS)
        calls = CallFigures(metrics)
        calls.expect(SINK)
        self._new_publisher = partial(
            ThreadPublisher,
            connector=connector,
            routes=Routes(channel, routes, tenants),
            group=PROCESS,
            debounce_s=debounce_s,
            lease_s=lease_s,
            buttons=buttons,
            owners=owners,
            clock=clock,
            at=at,
            calls=calls,
        )
        self._backlogs = BacklogFigures(metrics)
        self._publishers: dict[OwnedPartition[Thread], ThreadPublisher] = {}
        self._working: dict[OwnedPartition[Thread], asyncio.Task[NoReturn]] = {}
        self._failure: Exception | None = None
        self._owner: PartitionOwner[Thread] = PartitionOwner(
            settings,
            DocumentType(process=PROCESS, topic=THREADS, kind=Thread, key=lambda thread: thread.incident),
            replayed=(INCIDENTS, RUNS, INVENTORY),
            followed=(TIMELINE,),
            on_revoked=self._revoke,
            unfinished=self._first_waiting,
            pulse=self._pulse,
            metrics=metrics,
        )
        metrics.watch(self._look)

    async def run(self) -> NoReturn:
        """Own partitions and publish their threads.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a thread document cannot be read.
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
        publisher, record = self._publisher(arrival.owned), arrival.record
        if arrival.topic == INVENTORY.name:
            _take_fact(publisher, record)
            return
        if record.value is None:
            return
        try:
            match arrival.topic:
                case INCIDENTS.name:
                    publisher.take_incident(decode(Incident, record.value))
                case RUNS.name:
                    publisher.take_run(decode(Run, record.value))
                case TIMELINE.name:
                    publisher.take_entry(decode(TimelineEntry, record.value), record.offset)
        except BadInput as error:
            log.error("unreadable record", at=coordinates(record), reason=str(error))
            # Only for the timeline: incidents and runs are compacted and read again at every start, so nothing is lost there.
            if arrival.topic == TIMELINE.name:
                self._owner.count_dead_letter(TIMELINE)
                publisher.take_dead_letter(
                    Outgoing.dead_letter(record, topic=arrival.topic, stage=PROCESS, reason=str(error)),
                    record.offset,
                )

    def _first_waiting(self, partition: int) -> int | None:
        owned = self._owner.owned.get(partition)
        publisher = self._publishers.get(owned) if owned is not None else None
        return publisher.first_waiting if publisher is not None else None

    async def _look(self) -> None:
        self._backlogs.look([(SINK, publisher.late()) for publisher in self._publishers.values()])

    def _publisher(self, owned: OwnedPartition[Thread]) -> ThreadPublisher:
        if owned not in self._publishers:
            timeline = self._owner.place(TIMELINE, owned.partition)
            self._publishers[owned] = self._new_publisher(owned.store, timeline=timeline)
        return self._publishers[owned]

    def _start_workers(self) -> None:
        for owned in self._owner.owned.values():
            if owned.caught_up and owned not in self._working:
                self._working[owned] = asyncio.create_task(
                    self._publisher(owned).publish(), name=f"threads of partition {owned.partition}"
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
        revoked = [owned for owned in self._publishers if owned.partition in partitions]
        workers = [worker for owned in revoked if (worker := self._working.pop(owned, None))]
        for worker in workers:
            worker.cancel()
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, PARTITION_LOST):
                self._failure = outcome
        for owned in revoked:
            del self._publishers[owned]


def _take_fact(publisher: ThreadPublisher, record: ConsumerRecord[bytes, bytes]) -> None:
    """Take a node of the inventory, which may stay cordoned for an incident, or a job, which has an owner to be told. Other
    records are skipped by key, undecoded."""
    cluster, kind, name = [*(record.key or b"").decode(errors="replace").split("/", 2), "", ""][:3]
    if kind not in ("node", "job"):
        return
    fact: Fact | None = None
    if record.value is not None:
        try:
            fact = decode(FactRecord, record.value).fact
        except BadInput as error:
            # Other readers of the inventory stop or dead-letter it; a thread may keep showing the last known state.
            log.error("unreadable record", at=coordinates(record), reason=str(error))
            return
    if kind == "node" and (fact is None or isinstance(fact, NodeFact)):
        publisher.take_node(cluster, name, fact)
    elif kind == "job" and (fact is None or isinstance(fact, JobFact)):
        publisher.take_job(cluster, name, fact)
