"""The detector process: raw topics in, `signals` and `dead-letters` out, at least once and in step with its commits.

Per poll: prefilter the records and read what is left. Per delivery: write everything found in parallel, wait for every
acknowledgement, then commit exactly the offsets of what was read; what is read meanwhile is gathered, and delivered after it
(`streams/detect/delivery.py`). A crash repeats at most what was not committed, and a repeated signal has the same id.

What rules remember between records (a gauge's last value, a counter's, the first of three lines, how often a line was repeated)
is saved to `detector-state` every few seconds, and found again through the offset commit (`streams/detect/partition_state.py`):
a fault that began before a crash is still known to be firing, and its end is still reported.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.batch import Batch, Counts, OutgoingSignals, read_safely
from streams.detect.delivery import Delivery
from streams.detect.detector import Detector
from streams.detect.figures import DetectorFigures
from streams.detect.partition_state import PROCESS, DetectorPartition, DetectorPartitions
from streams.kafka import clients, light_records
from streams.kafka.consumer_lag import ConsumerLag
from streams.kafka.prefetch import Ahead
from streams.kafka.topics import RAW
from streams.model import crash_points
from streams.model.clock import MonotonicClock, boot_seconds, from_millis, utc_now
from streams.model.errors import Unreachable
from streams.model.garbage import collect_seldom
from streams.model.pulse import PARTITIONS, STATE, Pulse
from streams.model.record import RawRecord
from streams.telemetry import semconv, tracing
from streams.telemetry.registry import Metrics
from streams.telemetry.trace_context import TraceContext

Polled = Mapping[TopicPartition, Sequence[Any]]

FETCHING: Mapping[str, Any] = {"fetch_max_wait_ms": 100, "fetch_max_bytes": 8 * 1024 * 1024}
"""Fetch options of the consumer. Fetched records wait in memory, so they are bounded."""

_REPORT_EVERY_S = 30.0
_LEAVE_S = 10.0
_PAUSES_S = (0.5, 1.0, 2.0, 5.0)


class DetectorProcess:
    """One detector. `counts` says, for each raw topic, what became of every record since the start.

    Args:
        kafka_settings: The broker.
        settings: Batch sizes and the header that names the cluster.
        cluster: The cluster of records without that header.
        clock: Seconds, for snapshots and the log.
        pulse: The heartbeat, sent on every poll.
        metrics: Where to count; nowhere that is shown when not given.
        at: Called with the name of each crash point.
    """

    def __init__(
        self,
        kafka_settings: KafkaSettings,
        settings: DetectorSettings,
        *,
        cluster: str,
        clock: MonotonicClock = boot_seconds,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
        at: crash_points.CrashHook = crash_points.ignore,
    ) -> None:
        self._kafka = kafka_settings
        self._settings = settings
        self._detector = Detector(cluster, cluster_header=settings.cluster_header)
        self._clock = clock
        self._pulse = pulse or Pulse()
        self._at = at
        self._log = structlog.get_logger(process=PROCESS)
        self._names = {clients.topic_name(kafka_settings, topic): topic.name for topic in RAW}
        self._partitions = DetectorPartitions(
            kafka_settings, self._names, snapshot_s=settings.snapshot_s, clock=clock, at=at
        )
        self._delivery = Delivery(self._deliver)
        self._partitions.delivered = self._delivery.wait
        self._current: asyncio.Task[None] | None = None
        metrics = metrics or Metrics(PROCESS)
        self._figures = DetectorFigures(metrics)
        self._lag = ConsumerLag(
            kafka_settings,
            metrics,
            self._pulse,
            unfinished=self._partitions.undelivered,
            written_ms=self._partitions.written_ms,
            waits=lambda place: self._partitions.restoring,
        )
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            Unreachable: when Kafka does not answer, or refuses a write for good.
        """
        consumer = clients.consumer(self._kafka, group=PROCESS, **FETCHING)
        producer = clients.producer(self._kafka, linger_ms=2)
        self._partitions.consumer, self._partitions.producer = consumer, producer
        clients.subscribe(consumer, self._names, self._partitions)
        self._pulse.lag = lambda: clients.lag(consumer)
        self._lag.consumer = consumer
        try:
            with self._pulse.waiting(PARTITIONS):
                await clients.started(producer, self._kafka)
                await clients.started(consumer, self._kafka)
            light_records.lighten(consumer)
            collect_seldom()
            await self._read(consumer)
        except KafkaError as error:
            raise Unreachable(f"Kafka at {self._kafka.bootstrap}: {error!r}") from error
        finally:
            try:
                await self._leave()
            finally:
                await clients.stopped(consumer)
                await producer.stop()
                self._report("detector stopped")

    async def _leave(self) -> None:
        """Finish the batch in hand and save all state, so that the next owner need not replay anything."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                if self._current is not None:
                    await self._current
                async with self._partitions.lock:
                    await self._delivery.done()
                    await self._partitions.save_all()
        except TimeoutError:
            self._log.warning("shutdown timed out before every partition was saved")
        except KafkaError as error:
            self._log.warning("shutdown within a batch, which will be read again", error=repr(error))

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        async def poll() -> tuple[int, Polled]:
            polled = await consumer.getmany(
                timeout_ms=self._settings.poll_ms, max_records=self._settings.batch_records
            )
            return self._partitions.term, polled

        reported = self._clock()
        async with Ahead(poll) as ahead:
            while True:
                if self._partitions.restoring:
                    await self._restore()
                term, polled = await ahead.next()
                self._pulse.ready()
                # A cancelled process finishes this batch first: `_leave` waits for the task.
                self._current = asyncio.create_task(self._process(polled, term))
                await asyncio.shield(self._current)
                self._current = None
                if self._clock() - reported >= _REPORT_EVERY_S:
                    reported = self._clock()
                    self._report("detector counts")

    async def _restore(self) -> None:
        """Restore the state of newly assigned partitions."""
        async with self._partitions.lock:
            with self._pulse.waiting(STATE):
                await self._partitions.restore_assigned(self._pulse.beat)
            self._detector.set_rule_states(
                {(held.topic, held.place.partition): held.rule_state for held in self._partitions}
            )
            self._detector.set_partitions(self._partitions.counts())

    async def _process(self, polled: Polled, term: int) -> None:
        """Handle one poll, unless it was fetched before the last change of ownership: its new owner reads it from the commit."""
        async with self._partitions.lock:
            if term == self._partitions.term and not self._partitions.restoring:
                await self._handle(polled)
                if self._partitions.save_is_due or not polled:
                    await self._delivery.done()
                    await self._partitions.save_due()

    async def _handle(self, polled: Polled) -> None:
        """Read one poll while the ones before are delivered."""
        for partition, records in polled.items():
            self._detect(self._partitions[partition], records)
            await asyncio.sleep(0)  # heartbeats go on while a big poll is read
        for held in self._partitions:
            self._add_due(held)
        await self._delivery.go_on()

    async def _deliver(self, batch: Batch) -> None:
        # Taken with the batch: by the time of the commit more may have been read.
        offsets = self._partitions.offsets_to_commit(batch.places)
        context: TraceContext | None = None
        if batch.signals or batch.letters:
            with _span(batch) as span:
                context = span.context
                await self._write(
                    self._partitions.producer,
                    batch.outgoing(self._kafka.cluster_partitions, span.headers),
                )
        self._at(crash_points.DETECTOR_AFTER_PRODUCE)
        await self._partitions.commit(offsets)
        self._figures.delivered(batch, context)
        for topic, counts in batch.counts.items():
            self.counts[topic].add(counts)
            self._pulse.count("records", counts.records)
            self._pulse.count("signals", counts.signals)
            self._pulse.count("dead_letters", counts.dead_letters)
        self._at(crash_points.DETECTOR_AFTER_COMMIT)

    def _detect(self, held: DetectorPartition, records: Sequence[Any]) -> None:
        """Read one partition's records. Replayed ones only update the state of rules."""
        batch = self._delivery.gathered
        batch.places.add(held.place)
        values = [record.value or b"" for record in records]
        live = len(records) if held.live else sum(record.offset >= held.live_from for record in records)
        batch.counts[held.topic].read_again += held.read(records, values, live, self._clock())
        batch.latest_ms[held.topic] = max(held.latest_ms, batch.latest_ms.get(held.topic, 0))
        now = utc_now()
        for index in self._detector.wanted(values, held.rule_state):
            held.changed = True
            raw = _raw(held.topic, held.place.partition, records[index], now)
            detected = read_safely(self._detector, raw, held.rollup)
            if raw.offset >= held.live_from:
                batch.add(raw, detected)
                live -= 1
        batch.add_unread(held.topic, live)
        self._partitions.log_takeover(held)
        for dropped in held.rule_state.take_dropped():
            self._log.warning(
                "discarded rule state of an incompatible release", source=held.source, **asdict(dropped)
            )

    def _add_due(self, held: DetectorPartition) -> None:
        """Add counts whose window is over, and the signals of lines whose rest is overdue."""
        if not held.live:
            return
        batch = self._delivery.gathered
        now_ms = held.now_ms(self._clock())
        at, place = from_millis(now_ms), (held.topic, held.place.partition)
        batch.add_counts(self._detector.flush_unfinished(*place, at, held.rollup))
        if held.rollup.waiting:
            batch.add_counts(held.rollup.due(now_ms, self._clock()))

    async def _write(self, producer: AIOKafkaProducer, messages: list[OutgoingSignals]) -> None:
        """Write all messages and wait for all. Retriable failures are written again: the rules have already seen the records."""
        self._at(crash_points.DETECTOR_BEFORE_PRODUCE)
        attempt = 0
        while messages:
            results = await asyncio.gather(
                *(self._send(producer, message) for message in messages), return_exceptions=True
            )
            failed: list[OutgoingSignals] = []
            for message, result in zip(messages, results, strict=True):
                if isinstance(result, KafkaError) and result.retriable:
                    failed.append(message)
                elif isinstance(result, BaseException):
                    raise result
            if failed:
                pause_s = _PAUSES_S[min(attempt, len(_PAUSES_S) - 1)]
                attempt += 1
                self._log.warning("write failed, retrying", messages=len(failed), pause_s=pause_s)
                await asyncio.sleep(pause_s)
            messages = failed

    async def _send(self, producer: AIOKafkaProducer, message: OutgoingSignals) -> None:
        await producer.send_and_wait(
            clients.topic_name(self._kafka, message.topic),
            message.value,
            key=message.key,
            partition=message.partition,
            headers=list(message.headers),
        )

    def _report(self, event: str) -> None:
        for topic, counts in sorted(self.counts.items()):
            self._log.info(event, topic=topic, **asdict(counts))


def _span(batch: Batch) -> AbstractContextManager[tracing.Span]:
    """The span of a delivery: one, however many records were read for it."""
    if not tracing.is_on():
        return tracing.span("")
    return tracing.span(
        "process raw",
        tracing.Kind.CONSUMER,
        links=batch.contexts,
        attributes={
            semconv.SYSTEM: semconv.KAFKA,
            semconv.OPERATION_TYPE: semconv.PROCESS,
            semconv.OPERATION_NAME: semconv.PROCESS,
            **({semconv.DESTINATION: next(iter(batch.counts))} if len(batch.counts) == 1 else {}),
            semconv.BATCH_MESSAGE_COUNT: sum(counts.records for counts in batch.counts.values()),
            semconv.SIGNALS: len(batch.signals),
            semconv.DEAD_LETTERS: len(batch.letters),
        },
    )


def _raw(topic: str, partition: int, record: Any, now: datetime) -> RawRecord:
    # A record has the clock of its shipper's node. With one that is ahead, its signals would open no incident before their time.
    return RawRecord(
        topic,
        partition,
        record.offset,
        min(from_millis(record.timestamp), now) if record.timestamp > 0 else now,
        record.key,
        record.value,
        tuple(record.headers),
    )
