"""The detector process: raw topics in, `signals` and `dead-letters` out, at least once and in step with its commits.

Per poll: prefilter the batch, read what is left, write everything found in parallel, wait for every acknowledgement, then
commit exactly the offsets of that batch; meanwhile the next batch is read, and is delivered after it. A crash repeats at most
what was not committed, and a repeated signal has the same id.

What rules remember between records (a gauge's last value, a counter's, the first of three lines, how often a line was repeated)
is written to `detector-state` every few seconds, and found again through the offset commit (`streams/detect/partition_state.py`):
so a fault that began before a crash is still known to be on, and its end is still told.
"""

from __future__ import annotations

import asyncio
import gc
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.batch import Batch, Counts, OutgoingSignals, read_safely
from streams.detect.detector import Detector
from streams.detect.partition_state import PROCESS, CommitOffsets, DetectorPartition, DetectorPartitions
from streams.kafka import clients
from streams.kafka.clients import KafkaError
from streams.kafka.prefetch import Ahead
from streams.kafka.topics import RAW
from streams.model import crash_points
from streams.model.clock import MonotonicClock, boot_seconds, from_millis, utc_now
from streams.model.errors import Unreachable
from streams.model.pulse import Pulse
from streams.model.record import RawRecord

Polled = Mapping[TopicPartition, Sequence[Any]]

FETCHING: Mapping[str, Any] = {"fetch_max_wait_ms": 100, "fetch_max_bytes": 8 * 1024 * 1024}
"""How the consumer asks the broker for records. What was fetched waits in memory, so there is a bound to it."""

_COLLECT_AFTER = 100_000
"""Objects that may pile up before cycles among them are looked for: more than the records of all polls that are in hand."""

_REPORT_EVERY_S = 30.0
_LEAVE_S = 10.0
_PAUSES_S = (0.5, 1.0, 2.0, 5.0)


class DetectorProcess:
    """One detector. `counts` says, for each raw topic, where every record went since the start.

    Args:
        kafka_settings: The broker.
        settings: Batch sizes and the header that names the cluster.
        cluster: The cluster of records without that header.
        clock: Seconds, for the pace of the log.
        pulse: Beaten on every poll.
        at: Called with the name of each point that matters in a crash.
    """

    def __init__(
        self,
        kafka_settings: KafkaSettings,
        settings: DetectorSettings,
        *,
        cluster: str,
        clock: MonotonicClock = boot_seconds,
        pulse: Pulse | None = None,
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
        self._partitions.delivered = self._wait
        self._turn: asyncio.Task[None] | None = None
        self._delivery: asyncio.Task[None] | None = None
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            Unreachable: when Kafka does not answer, or answers that it will never take what was written.
        """
        consumer = clients.consumer(self._kafka, group=PROCESS, **FETCHING)
        producer = clients.producer(self._kafka, linger_ms=2)
        self._partitions.consumer, self._partitions.producer = consumer, producer
        clients.subscribe(consumer, self._names, self._partitions)
        self._pulse.lag = lambda: clients.lag(consumer)
        try:
            await clients.started(producer, self._kafka)
            await clients.started(consumer, self._kafka)
            _collect_seldom()
            await self._read(consumer, producer)
        except KafkaError as error:
            raise Unreachable(f"Kafka at {self._kafka.bootstrap}: {error!r}") from error
        finally:
            try:
                await self._leave()
            finally:
                await consumer.stop()
                await producer.stop()
                self._report("detector stopped")

    async def _leave(self) -> None:
        """Finish the batch in hand and write down what is remembered, so that whoever comes next need read nothing again."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                if self._turn is not None:
                    await self._turn
                async with self._partitions.lock:
                    await self._delivered()
                    await self._partitions.save_all()
        except TimeoutError:
            self._log.warning("left without a snapshot of every partition")
        except KafkaError as error:
            self._log.warning("left in the middle of a batch, which will be read again", error=repr(error))

    async def _read(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
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
                # Whoever asks us to end waits until this batch is written and committed.
                self._turn = asyncio.create_task(self._take(polled, term, producer))
                await asyncio.shield(self._turn)
                self._turn = None
                if self._clock() - reported >= _REPORT_EVERY_S:
                    reported = self._clock()
                    self._report("detector counts")

    async def _restore(self) -> None:
        """Take up what is remembered of the partitions that are new to us."""
        async with self._partitions.lock:
            await self._partitions.restore_assigned()
            self._detector.remember(
                {(held.topic, held.place.partition): held.rule_state for held in self._partitions}
            )

    async def _take(self, polled: Polled, term: int, producer: AIOKafkaProducer) -> None:
        """One batch, unless it was taken before the last change of ownership: that is read again from its commit, by somebody."""
        async with self._partitions.lock:
            if term == self._partitions.term and not self._partitions.restoring:
                await self._handle(polled, producer)
                if self._partitions.save_is_due or not polled:
                    await self._delivered()
                    await self._partitions.save_due()

    async def _handle(self, polled: Polled, producer: AIOKafkaProducer) -> None:
        """Read one batch while the one before is delivered, then deliver it: one at a time, in order."""
        batch = Batch()
        for partition, records in polled.items():
            self._detect(self._partitions[partition], records, batch)
            await asyncio.sleep(0)  # heartbeats go on while a big batch is read
        for held in self._partitions:
            self._add_due(held, batch)
        await self._delivered()
        if polled or batch.signals:
            # What is committed is what this batch has read, however far the next one is by then.
            ends = self._partitions.ends(polled)
            self._delivery = asyncio.create_task(self._deliver(batch, ends, producer))

    async def _deliver(self, batch: Batch, ends: CommitOffsets, producer: AIOKafkaProducer) -> None:
        await self._write(producer, batch.outgoing(self._kafka.cluster_partitions))
        self._at(crash_points.DETECTOR_AFTER_PRODUCE)
        await self._partitions.commit(ends)
        for topic, counts in batch.counts.items():
            self.counts[topic].add(counts)
            self._pulse.count("records", counts.records)
            self._pulse.count("signals", counts.signals)
            self._pulse.count("dead_letters", counts.dead_letters)
        self._at(crash_points.DETECTOR_AFTER_COMMIT)

    async def _wait(self) -> None:
        """Wait for the delivery under way, whatever comes of it."""
        if self._delivery is not None:
            await asyncio.wait({self._delivery})

    async def _delivered(self) -> None:
        """Wait for the delivery under way; what it raises is raised here, once."""
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            await delivery

    def _detect(self, held: DetectorPartition, records: Sequence[Any], batch: Batch) -> None:
        """Read one partition's records; those that somebody has read before teach the rules and are not counted."""
        values = [record.value or b"" for record in records]
        live = len(records) if held.live else sum(record.offset >= held.live_from for record in records)
        batch.counts[held.topic].read_again += held.read(records, values, live, self._clock())
        for index in self._detector.wanted(values, held.rule_state):
            held.changed = True
            raw = _raw(held.topic, records[index])
            detected = read_safely(self._detector, raw, held.rollup)
            if raw.offset >= held.live_from:
                batch.add(raw, detected)
                live -= 1
        batch.add_unread(held.topic, live)
        self._partitions.log_takeover(held)
        for dropped in held.rule_state.take_dropped():
            self._log.warning(
                "a table of another release is forgotten", source=held.source, **asdict(dropped)
            )

    def _add_due(self, held: DetectorPartition, batch: Batch) -> None:
        """Counts whose window is over, and what lines say whose rest has not come in time."""
        if not held.live:
            return
        now_ms = held.now_ms(self._clock())
        at, place = from_millis(now_ms), (held.topic, held.place.partition)
        batch.add_counts(self._detector.flush_unfinished(*place, at, held.rollup))
        if held.rollup.waiting:
            batch.add_counts(held.rollup.due(now_ms, self._clock()))

    async def _write(self, producer: AIOKafkaProducer, messages: list[OutgoingSignals]) -> None:
        """Write all and wait for all; what failed for now is written again, for the rules have already seen the records."""
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
                self._log.warning("writing failed, will try again", messages=len(failed), pause_s=pause_s)
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
            self._log.info(
                event,
                topic=topic,
                records=counts.records,
                signalling=counts.signalling,
                signals=counts.signals,
                ignored=counts.ignored,
                dead_letters=counts.dead_letters,
                repeats=counts.repeats,
                read_again=counts.read_again,
            )


def _collect_seldom() -> None:
    """Look for garbage less often: a poll makes thousands of objects, none of them in a cycle, and all go when it is done.

    Catalogs and code, which stay for ever, are not looked at again. It saves a quarter of the time that reading takes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


def _raw(topic: str, record: Any) -> RawRecord:
    # A shipper puts the clock of its node on a record. If that is ahead, what it says would open nothing before its time comes.
    now = utc_now()
    return RawRecord(
        topic,
        record.partition,
        record.offset,
        min(from_millis(record.timestamp), now) if record.timestamp > 0 else now,
        record.key,
        record.value,
        tuple(record.headers),
    )
