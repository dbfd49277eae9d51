"""The chat process: one thread per incident, kept up to date with incidents, runs and timeline. It changes nothing else.

It owns partitions as the responder does. On assignment, incidents, runs and the inventory's nodes and jobs are read from the
beginning (compacted topics hold the latest state), the timeline from the committed offset. Nothing is posted before that:
messages would flicker through old states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from aiokafka import ConsumerRecord

from connectors.base import Connector
from faultline.chat.job_owners import JobOwners
from faultline.chat.routes import Routes
from faultline.chat.thread_publisher import ThreadPublisher
from streams.config.connector_settings import SlackRoute
from streams.config.settings import KafkaSettings
from streams.config.tenant_settings import Tenant
from streams.kafka.fenced_store import DocumentType
from streams.kafka.partition_publishers import PartitionPublishers
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS, THREADS, TIMELINE
from streams.model.clock import Clock, utc_now
from streams.model.codec import decode
from streams.model.conversation import TimelineEntry
from streams.model.crash_points import CrashHook, ignore
from streams.model.facts import Fact, FactRecord, JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run
from streams.model.thread import Thread
from streams.telemetry.backlog import BacklogFigures
from streams.telemetry.call_figures import CallFigures
from streams.telemetry.registry import Metrics

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
        metrics = metrics or Metrics(PROCESS)
        calls = CallFigures(metrics)
        calls.expect(SINK)
        new_publisher = partial(
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
        self._publishers = PartitionPublishers(
            settings,
            DocumentType(process=PROCESS, topic=THREADS, kind=Thread, key=lambda thread: thread.incident),
            replayed=(INCIDENTS, RUNS, INVENTORY),
            new=lambda owned, timeline: new_publisher(owned.store, timeline=timeline),
            take=_take,
            pulse=pulse or Pulse(),
            metrics=metrics,
        )
        metrics.watch(self._look)

    async def run(self) -> NoReturn:
        """Own partitions and publish their threads.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a thread document cannot be read.
        """
        await self._publishers.run()

    async def _look(self) -> None:
        self._backlogs.look([(SINK, publisher.late()) for publisher in self._publishers])


def _take(publisher: ThreadPublisher, topic: str, record: ConsumerRecord[bytes, bytes]) -> None:
    if topic == INVENTORY.name:
        _take_fact(publisher, record)
    elif record.value is None:
        return
    elif topic == INCIDENTS.name:
        publisher.take_incident(decode(Incident, record.value))
    elif topic == RUNS.name:
        publisher.take_run(decode(Run, record.value))
    elif topic == TIMELINE.name:
        publisher.take_entry(decode(TimelineEntry, record.value), record.offset)


def _take_fact(publisher: ThreadPublisher, record: ConsumerRecord[bytes, bytes]) -> None:
    """Take a node of the inventory, which may stay cordoned for an incident, or a job, which has an owner to be told. Other
    records are skipped by key, undecoded."""
    cluster, kind, name = [*(record.key or b"").decode(errors="replace").split("/", 2), "", ""][:3]
    if kind not in ("node", "job"):
        return
    fact: Fact | None = None
    if record.value is not None:
        fact = decode(FactRecord, record.value).fact
    if kind == "node" and (fact is None or isinstance(fact, NodeFact)):
        publisher.take_node(cluster, name, fact)
    elif kind == "job" and (fact is None or isinstance(fact, JobFact)):
        publisher.take_job(cluster, name, fact)
