"""What the correlator counts: what it published, what stands now, and how far it is behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from aiokafka.errors import IllegalStateError, KafkaError

from streams.config.settings import KafkaSettings
from streams.correlate.changes import Changes
from streams.correlate.consumption import Consumption
from streams.kafka.consumer_lag import ends_of
from streams.kafka.topics import INVENTORY, SIGNALS, TICKS
from streams.model.clock import Clock
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.telemetry import metrics as shown
from streams.telemetry.lag import LagMeter, Processed
from streams.telemetry.registry import Metrics
from streams.telemetry.tracing import incident_trace

log = structlog.get_logger(__name__)


class CorrelatorFigures:
    """Adds to the metrics of one process."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._standing: dict[str, tuple[str, str]] = {}
        """State and family of every incident that is not over."""
        for topic in (TICKS, SIGNALS, INVENTORY):
            metrics.begin(shown.RECORDS, topic.name)
        metrics.watch(self._look)

    def handled(self, topic: str) -> None:
        """A record was processed."""
        self._metrics.add(shown.RECORDS, 1, topic, "handled")

    def buried(self, topic: str) -> None:
        """A record that cannot be read went to the dead letters."""
        self._metrics.add(shown.RECORDS, 1, topic, "dead_letter")
        self._metrics.add(shown.DEAD_LETTERS, 1, "correlator", "unreadable")

    def took_over(self, incidents: Iterable[Incident]) -> None:
        """The incidents of a cluster that was taken over."""
        for incident in incidents:
            self._note(incident)

    def lost(self) -> None:
        """Nothing is owned any more."""
        self._standing.clear()

    def published(self, changes: Changes) -> None:
        """Count incidents that the broker has acknowledged."""
        now = self._clock()
        for incident in changes.incidents:
            self._note(incident)
            if incident.revision > 1:
                continue
            self._metrics.add(shown.INCIDENTS_OPENED, 1, incident.family)
            trace_id = incident_trace(incident.id)
            detected_s = incident.detection_delay.total_seconds()
            self._metrics.observe(shown.DETECTION_DELAY, detected_s, trace_id=trace_id)
            if (read_at := incident.evident_read_at) is not None:
                waited_s = (now - read_at).total_seconds()
                self._metrics.observe(shown.INCIDENT_DELAY, waited_s, incident.family, trace_id=trace_id)
        merged = sum(entry.event == "incident.merged" for entry in changes.timeline)
        self._metrics.add(shown.CULPRIT_CHANGES, merged)

    def _note(self, incident: Incident) -> None:
        if incident.state.is_over:
            self._standing.pop(incident.id, None)
        else:
            self._standing[incident.id] = (incident.state.value, incident.family)

    async def _look(self) -> None:
        counts: Counter[tuple[str, ...]] = Counter(self._standing.values())
        self._metrics.replace(shown.INCIDENTS, counts)


class CorrelatorLag:
    """Looks every few seconds how far the correlator is behind."""

    def __init__(
        self,
        settings: KafkaSettings,
        consumption: Consumption,
        metrics: Metrics,
        pulse: Pulse,
        waits: Callable[[], bool],
    ) -> None:
        """`waits`: whether partitions are meant to stand still now."""
        self._waits = waits
        self._prefix = settings.topic_prefix
        self._consumption = consumption
        self._meter = LagMeter()
        self._meter.show(metrics)
        pulse.stuck = lambda: self._meter.stuck
        metrics.watch(self.look)

    async def look(self) -> None:
        """Look once; nothing is known around a rebalance."""
        consumer: Any = self._consumption.consumer
        if consumer is None:
            return
        try:
            processed = await self._consumption.processed()
        except (KafkaError, IllegalStateError, AssertionError) as error:
            log.debug("no positions around a rebalance", reason=repr(error))
            return
        ends, confirmed = await ends_of(
            processed, lambda: consumer.highwaters(*processed), consumer.highwater
        )  # fmt: skip
        self._meter.looked(
            {
                (tp.topic.removeprefix(self._prefix), tp.partition): Processed(
                    offset, written_ms, self._waits()
                )
                for tp, (offset, written_ms) in processed.items()
            },
            {(tp.topic.removeprefix(self._prefix), tp.partition): end for tp, end in ends.items()},
            confirmed=confirmed,
        )
