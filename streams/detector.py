"""The detector process: raw topics in, `signals` and `dead-letters` out, at least once and in step with its commits.

Per poll: prefilter the batch, read what is left, write everything found in parallel, wait for every acknowledgement, then
commit exactly the offsets of that batch. A crash repeats at most one batch, and a repeated signal has the same id.

What rules remember between records (a gauge's last value, a counter's, the first of three lines) lives in memory only. When a
partition is newly taken over, the records before its committed offset are read again, up to `REWIND` of them, and nothing is
written for them: so a fault that began before a crash is still known to be on, and its end is still told.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from streams import kafka
from streams.detect.batch import Batch, Counts, Outgoing, read_safely
from streams.detect.detector import Detector
from streams.kafka import KafkaError
from streams.model.clock import MonotonicClock, boot_seconds, from_millis, utc_now
from streams.model.errors import Unreachable
from streams.model.pulse import Pulse
from streams.model.record import RawRecord
from streams.model.settings import DetectorSettings, KafkaSettings
from streams.topics import RAW, RAW_FABRIC, RAW_METRICS, RAW_NODE_LOGS

PROCESS = "detector"

REWIND: Mapping[str, int] = {
    RAW_METRICS.name: 100_000,
    RAW_FABRIC.name: 20_000,
    RAW_NODE_LOGS.name: 2_000,
}
"""Records before the committed offset that are read again on taking over a partition: several scrapes of a few thousand
series, and the seconds of kernel log that a three-line message may span. At prefilter speed that is well under a second."""

_REPORT_EVERY_S = 30.0
_FETCH_WAIT_MS = 100
_PAUSES_S = (0.5, 1.0, 2.0, 5.0)


def ignore(label: str) -> None:
    """The default for `at`: nobody watches."""


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
        at: Callable[[str], None] = ignore,
    ) -> None:
        self._kafka = kafka_settings
        self._settings = settings
        self._detector = Detector(cluster, cluster_header=settings.cluster_header)
        self._clock = clock
        self._pulse = pulse or Pulse()
        self._at = at
        self._log = structlog.get_logger(process=PROCESS)
        self._names = {kafka.topic_name(kafka_settings, topic): topic.name for topic in RAW}
        self._ownership = _Ownership(self._names)
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            Unreachable: when Kafka does not answer, or answers that it will never take what was written.
        """
        consumer = kafka.consumer(self._kafka, group=PROCESS, fetch_max_wait_ms=_FETCH_WAIT_MS)
        producer = kafka.producer(self._kafka, linger_ms=2)
        self._ownership.consumer = consumer
        kafka.subscribe(consumer, self._names, self._ownership)
        try:
            await kafka.started(producer, self._kafka)
            await kafka.started(consumer, self._kafka)
            await self._read(consumer, producer)
        except KafkaError as error:
            raise Unreachable(f"Kafka at {self._kafka.bootstrap}: {error!r}") from error
        finally:
            await consumer.stop()
            await producer.stop()
            self._report("detector stopped")

    async def _read(self, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
        reported = self._clock()
        while True:
            polled = await consumer.getmany(
                timeout_ms=self._settings.poll_ms, max_records=self._settings.batch_records
            )
            self._pulse.ready()
            term = self._ownership.term
            if polled:
                async with self._ownership.lock:
                    # A batch of an earlier assignment will be read again from its commit, by us or by somebody else.
                    if term == self._ownership.term:
                        await self._handle(polled, consumer, producer)
            if self._clock() - reported >= _REPORT_EVERY_S:
                reported = self._clock()
                self._report("detector counts")

    async def _handle(
        self,
        polled: Mapping[TopicPartition, Sequence[Any]],
        consumer: AIOKafkaConsumer,
        producer: AIOKafkaProducer,
    ) -> None:
        batch = Batch()
        for partition, records in polled.items():
            self._detect(partition, records, batch)
            await asyncio.sleep(0)  # heartbeats go on while a big batch is read
        await self._write(producer, batch.outgoing(self._kafka.cluster_partitions))
        self._at("detector:after_produce")
        await self._commit(consumer, {tp: records[-1].offset + 1 for tp, records in polled.items()})
        for topic, counts in batch.counts.items():
            self.counts[topic].add(counts)
        self._at("detector:after_commit")

    def _detect(self, partition: TopicPartition, records: Sequence[Any], batch: Batch) -> None:
        """Read one partition's records; those before its rewind point teach the rules and are not counted."""
        live_from = self._ownership.live_from(partition)
        topic = self._names[partition.topic]
        kept = self._detector.select([record.value or b"" for record in records])
        live = sum(record.offset >= live_from for record in records)
        for index in kept:
            raw = _raw(topic, records[index])
            detected = read_safely(self._detector, raw)
            if raw.offset >= live_from:
                batch.add(raw, detected)
                live -= 1
        batch.add_unread(topic, live)

    async def _write(self, producer: AIOKafkaProducer, messages: list[Outgoing]) -> None:
        """Write all and wait for all; what failed for now is written again, for the rules have already seen the records."""
        self._at("detector:before_produce")
        attempt = 0
        while messages:
            results = await asyncio.gather(
                *(self._send(producer, message) for message in messages), return_exceptions=True
            )
            failed: list[Outgoing] = []
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

    async def _send(self, producer: AIOKafkaProducer, message: Outgoing) -> None:
        await producer.send_and_wait(
            kafka.topic_name(self._kafka, message.topic),
            message.value,
            key=message.key,
            partition=message.partition,
            headers=list(message.headers),
        )

    async def _commit(self, consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]) -> None:
        offsets = {tp: end for tp, end in ends.items() if end > self._ownership.live_from(tp)}
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            # Somebody else owns the partitions now and will write the same signals, with the same ids.
            self._log.warning("partitions were lost before their commit", error=str(error))
        else:
            self._ownership.committed(offsets)

    def _report(self, event: str) -> None:
        for topic, counts in sorted(self.counts.items()):
            self._log.info(
                event,
                topic=topic,
                records=counts.records,
                signals=counts.signals,
                ignored=counts.ignored,
                dead_letters=counts.dead_letters,
            )


class _Ownership(ConsumerRebalanceListener):  # type: ignore[misc]
    """Which partitions are ours, since which assignment (`term`), and from which offset on their records count."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._live_from: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._log = structlog.get_logger(process=PROCESS)
        self.consumer: AIOKafkaConsumer | None = None
        self.lock = asyncio.Lock()
        self.term = 0

    def live_from(self, partition: TopicPartition) -> int:
        """The first offset of `partition` whose signals are to be written."""
        return self._live_from.get(partition, 0)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember how far we have come ourselves."""
        self._done.update(offsets)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Let the batch in hand be written and committed before anybody else gets its partitions."""
        async with self.lock:
            self.term += 1

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Go back a little on partitions that others have read since we last did."""
        assert self.consumer is not None
        for partition in sorted(assigned):
            depth = REWIND.get(self._names[partition.topic], 0)
            if not depth:
                continue
            committed = await self.consumer.committed(partition)
            if committed is None or committed == self._done.get(partition):
                continue
            first = (await self.consumer.beginning_offsets([partition]))[partition]
            start = max(first, committed - depth)
            if start < committed:
                self._live_from[partition] = committed
                self.consumer.seek(partition, start)
                self._log.info(
                    "reading again for what rules remember",
                    topic=partition.topic,
                    partition=partition.partition,
                    records=committed - start,
                )


def _raw(topic: str, record: Any) -> RawRecord:
    return RawRecord(
        topic,
        record.partition,
        record.offset,
        from_millis(record.timestamp) if record.timestamp > 0 else utc_now(),
        record.key,
        record.value,
        tuple(record.headers),
    )
