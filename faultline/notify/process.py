"""The notifier process: pages, silences, annotations and mails, each exactly once. It changes nothing in the cluster.

It owns partitions as the chat does. On assignment, incidents, runs, controls and the inventory's nodes are read from the
beginning, the timeline from the committed offset; nothing is sent before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NoReturn

import structlog
from aiokafka import ConsumerRecord

from faultline.notify.partition_notices import PartitionNotices, Sink
from runbooks.engine.cluster_controls import unreadable_control
from streams.config.notifier_settings import NotifierSettings
from streams.config.settings import KafkaSettings
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import DocumentType
from streams.kafka.partition_publishers import PartitionPublishers
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
        metrics = metrics or Metrics(PROCESS)
        calls = CallFigures(metrics)
        for name in sinks:
            calls.expect(name)
        new_notices = partial(
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
        self._notices = PartitionPublishers(
            kafka,
            DocumentType(process=PROCESS, topic=NOTICES, kind=Thread, key=lambda notice: notice.incident),
            replayed=(INCIDENTS, RUNS, CONTROLS, INVENTORY, *([THREADS] if settings.slack_url else [])),
            new=lambda owned, timeline: new_notices(owned.store, timeline=timeline),
            take=_take,
            pulse=pulse or Pulse(),
            metrics=metrics,
        )
        metrics.watch(self._look)

    async def run(self) -> NoReturn:
        """Own partitions and send what their incidents call for.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a document cannot be read.
        """
        await self._notices.run()

    async def _look(self) -> None:
        self._backlogs.look([one for notices in self._notices for one in notices.late()])


def _take(notices: PartitionNotices, topic: str, record: ConsumerRecord[bytes, bytes]) -> None:
    if topic == INVENTORY.name:
        _take_node(notices, record)
    elif record.value is None:
        return
    elif topic == INCIDENTS.name:
        notices.sources.take_incident(decode(Incident, record.value))
    elif topic == RUNS.name:
        notices.sources.take_run(decode(Run, record.value))
    elif topic == CONTROLS.name:
        notices.sources.take_control(_control(notices, record))
    elif topic == THREADS.name:
        notices.sources.take_thread(decode(Thread, record.value))
    elif topic == TIMELINE.name:
        notices.take_entry(decode(TimelineEntry, record.value), record.offset)


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
