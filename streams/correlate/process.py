"""The correlator process: a Faust agent around the pure engine.

One agent reads signals, inventory and ticks; its state is in a changelog that we write and read ourselves. Faust would do four
things otherwise:

- Faust acknowledges an event when the agent asks for the next one, is cancelled, or fails. Here an event is acknowledged by
  hand when everything that follows from it is written. A record that cannot be read goes to `dead-letters`; anything else
  that goes wrong ends the process, and the event is read again.
- State and incidents go out through a producer of our own: first the rows, whole or not at all
  (`streams.correlate.write_ahead`), and only when the broker has them the incidents. A successor publishes what was recorded
  last once more, with the same ids and revisions. The other way round a crash in between would leave an incident without state:
  what is read again is evaluated with what came since, and may come out otherwise.
- State is read before the group is joined, and followed from then on (`streams.correlate.changelog`): a
  partition is taken over by reading what was written in the last moment, not by reading everything.
- Time comes in as a record: one tick per owned partition and second, on `ticks` (`streams.correlate.consumption`). A record of
  signals has a time as well, so what is decisive opens its incident without waiting for a tick.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from aiokafka.errors import KafkaError
from structlog.contextvars import bound_contextvars

from streams.config.settings import CorrelatorSettings, KafkaSettings
from streams.correlate.changelog import Changelog
from streams.correlate.consumption import Consumption
from streams.correlate.faust_app import AsTheyAre, build_app
from streams.correlate.figures import CorrelatorFigures, CorrelatorLag
from streams.correlate.incident_spans import IncidentSpans
from streams.correlate.output import Output, written_at
from streams.correlate.ownership import Ownership
from streams.correlate.record_batch import RecordBatch, Step, read_fact, read_signals
from streams.correlate.state.store import Rows
from streams.correlate.write_ahead import ClusterEngine, Records, StepEngine, TableRows
from streams.kafka import clients
from streams.kafka.topics import INVENTORY, SIGNALS, TICKS, partition_of
from streams.model import crash_points
from streams.model.clock import parse_rfc3339, utc_now
from streams.model.errors import BadInput, Unreachable
from streams.model.garbage import collect_seldom, include_again
from streams.model.pulse import PARTITIONS, STATE, WAITS_FOR, Pulse
from streams.telemetry.registry import Metrics
from streams.telemetry.trace_context import TraceContext

log = structlog.get_logger(__name__)

CATCHING_UP_S = 0.2
"""Seconds between ticks until everything is read after a takeover: nothing is opened before that."""

MAX_TOGETHER = {SIGNALS.name: 8, INVENTORY.name: 2_000}
"""Records that are handled as one. At 500 signals each, an incident waits for no more than 4,000."""

STOPPING_S = 20.0
"""How long Faust may take to end; well within the time that Kubernetes gives a pod."""


class Correlator:
    """One worker of the correlator group.

    `make_engine(cluster, rows)` builds the engine of a cluster from its rows; it is called again after every rebalance, so
    that no engine outlives its ownership.
    """

    def __init__(
        self,
        kafka_settings: KafkaSettings,
        settings: CorrelatorSettings,
        make_engine: Callable[[str, Rows], StepEngine],
        *,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
        at: crash_points.CrashHook = crash_points.ignore,
    ) -> None:
        session_ms = min(kafka_settings.session_timeout_ms, settings.session_timeout_ms)
        self._kafka = kafka_settings = kafka_settings.model_copy(update={"session_timeout_ms": session_ms})
        self._settings = settings
        self._make_engine = make_engine
        self._pulse = pulse or Pulse()
        self._at = at
        self._engines: dict[str, ClusterEngine] = {}
        self._clusters: dict[int, set[str]] = {}
        """Clusters of a partition: those with rows, and those with records since."""
        self._batches: dict[int, RecordBatch] = {}
        self._failure: asyncio.Future[None] | None = None
        self._app = build_app(kafka_settings)
        self._ownership = Ownership(self._app, kafka_settings)
        self._consumption = Consumption(self._app, kafka_settings, settings)
        metrics = metrics or Metrics("correlator")
        self._figures = CorrelatorFigures(metrics, utc_now)
        CorrelatorLag(
            kafka_settings, self._consumption, metrics, self._pulse, lambda: not self._ownership.settled
        )
        self._output = Output(kafka_settings, self._pulse, self._figures.buried)
        self._spans = IncidentSpans()
        self._changelog = Changelog(kafka_settings, beat=self._pulse.beat)
        self._app.agent(self._source(), name="correlate", concurrency=1)(self._correlate)
        self._app.on_partitions_revoked.connect(self._lose_ownership)
        self._app.on_partitions_assigned.connect(self._lose_ownership)
        self._app.on_rebalance_complete.connect(self._take_ownership)

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            FaultlineError: when it cannot go on; the event in hand is not acknowledged and will be read again.
        """
        self._failure = asyncio.get_running_loop().create_future()
        try:
            with self._pulse.waiting(STATE):
                await self._output.start()
                await self._changelog.start()
            collect_seldom()
            self._app.finalize()
            self._ownership.lose()  # again: reading all state back is no part of joining, which has a time limit
            with self._pulse.waiting(PARTITIONS):
                await self._app.start()
            log.info("correlator started", partitions=self._kafka.cluster_partitions)
            self._pulse.lag = self._consumption.lag
            await self._tick_until_failure(self._failure)
        except KafkaError as error:
            raise Unreachable(f"Kafka at {self._kafka.bootstrap}: {error!r}") from error
        finally:
            self._pulse.ready(False)
            await self._stop()

    async def _stop(self) -> None:
        """Leave the group. After a crash Faust may wait for itself for ever, and its threads would keep the process alive."""
        try:
            async with asyncio.timeout(STOPPING_S):
                await self._app.stop()
        except TimeoutError:
            log.error("the stream worker did not stop; the process is ended", after_s=STOPPING_S)
            last_resort = threading.Timer(STOPPING_S, os._exit, (3,))
            last_resort.daemon = True
            last_resort.start()
        await self._changelog.stop()
        await self._output.stop()

    async def _tick_until_failure(self, failure: asyncio.Future[None]) -> None:
        while True:
            settled = self._ownership.settled
            tick_s = self._settings.tick_s
            pause_s = tick_s if settled and self._consumption.is_current() else min(CATCHING_UP_S, tick_s)
            await asyncio.wait({failure}, timeout=pause_s)
            self._ownership.notice_pause()
            if failure.done():
                return failure.result()
            if self._app.crashed or self._app.should_stop:
                raise Unreachable(f"the stream worker ended by itself: {self._app.crash_reason!r}")
            if self._ownership.settled and not self._app.rebalancing:
                self._consumption.check_silence()
                self._pulse.ready()
                self._pulse.state(WAITS_FOR, None)
                await self._send_ticks()
                self._consumption.log_backlog()
            else:
                self._consumption.skip_silence()
                self._ownership.check_join()
                self._pulse.state(WAITS_FOR, PARTITIONS)

    async def _send_ticks(self) -> None:
        """One tick for each owned partition."""
        for number in sorted(self._consumption.owned()):
            if (at := await self._consumption.tick_time(number)) is not None:
                await self._output.tick(number, at)

    async def _correlate(self, stream: Any) -> None:
        stream.enable_acks = False
        async for event in stream.events():
            self._consumption.took(event.message)
            try:
                done = await self._handle(event)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - nothing may escape an agent: Faust would go on behind it
                self._fail(error)
                await asyncio.Event().wait()  # never return, so that the event is not acknowledged
            else:
                for one in done:
                    await stream.ack(one)
                    self._consumption.handled(one.message)
                    self._figures.handled(one.message.topic.removeprefix(self._kafka.topic_prefix))
            finally:
                self._consumption.finished(event.message.partition)

    async def _handle(self, event: Any) -> Sequence[Any]:
        """Everything that follows from one event and from those of its partition that wait in a batch before it.

        Returns the events that are done with: none when it waits in the batch, or when its partition was lost meanwhile.
        """
        if not self._ownership.settled:
            return ()  # left over from before a rebalance; it is read again by whoever owns it then
        message, term = event.message, self._ownership.term
        number, at = message.partition, written_at(message)
        topic = message.topic.removeprefix(self._kafka.topic_prefix)
        batch = self._batches.pop(number, None) or RecordBatch(topic)
        if batch.topic != topic:
            if not await self._carry_out(batch, number, term):
                return ()
            batch = RecordBatch(topic, batch.events)
        batch.events.append(event)
        try:
            if topic == SIGNALS.name:
                signals = read_signals(event.value)
                self._note_cluster(signals.cluster, number)
                self._spans.read(message.headers, signals.signals)
                batch.add_signals(signals, self._consumption.time_of(number, at))
            elif topic == INVENTORY.name:
                key, fact = read_fact(message.key, event.value)
                self._note_cluster(key.partition("/")[0], number)
                batch.add_fact(key, fact, at)
            else:
                batch.ticks = self._tick(number, event.value)
        except BadInput as error:
            await self._output.dead_letter(event, str(error))
        if term != self._ownership.term:
            return ()
        if topic == SIGNALS.name:
            self._consumption.read_signals(number, at)
        if len(batch.events) < MAX_TOGETHER.get(topic, 1) and self._consumption.has_more(event):
            self._batches[number] = batch
            return ()
        return batch.events if await self._carry_out(batch, number, term) else ()

    async def _carry_out(self, batch: RecordBatch, number: int, term: int) -> bool:
        """Take a batch's steps, store each and publish what follows. False when the partition was lost meanwhile."""
        with bound_contextvars(partition=number), self._spans.step(batch.signals) as span:
            return await self._take_steps(batch.steps(), number, term, span.context)

    async def _take_steps(
        self, steps: Sequence[Step], number: int, term: int, traced: TraceContext | None
    ) -> bool:
        for cluster, step in steps:
            engine = await self._engine(cluster, number, term)
            if engine is None:
                return False
            changes = step(engine.engine)
            self._at(crash_points.CORRELATOR_BEFORE_STORE)
            if not await self._ownership.holds(number, term):
                return False
            # The record must be in the changelog before its rows.
            await self._store(engine.store(changes), number, term)
            self._at(crash_points.CORRELATOR_AFTER_STORE)
            if not await self._ownership.holds(number, term):
                return False
            await self._output.publish(changes, number)
            self._figures.published(changes)
            self._at(crash_points.CORRELATOR_AFTER_PUBLISH)
            engine.clear()
            self._spans.published(changes, traced, utc_now())
        return term == self._ownership.term

    async def _engine(self, cluster: str, number: int, term: int) -> ClusterEngine | None:
        """The cluster's engine; what a predecessor left undone is done first. None when the partition was lost."""
        if cluster in self._engines:
            return self._engines[cluster]
        rows = TableRows(self._changelog.rows(number), cluster)
        engine = ClusterEngine(rows, partial(self._make_engine, cluster))
        if not await self._ownership.holds(number, term):
            return None
        restored, again = engine.recover()
        await self._store([restored], number, term)
        if not await self._ownership.holds(number, term):
            return None
        await self._output.publish(again, number)
        self._spans.published(again, None, utc_now())
        if term != self._ownership.term:
            return None
        self._engines[cluster] = engine
        self._figures.took_over(engine.engine.standing())
        collect_seldom()
        return engine

    async def _store(self, parts: Sequence[Records], number: int, term: int) -> None:
        """Write rows, each part confirmed before the next is sent."""
        offsets = [offset for rows in parts for offset in await self._output.store(rows, number)]
        if term == self._ownership.term:
            self._changelog.wrote(number, offsets)

    def _note_cluster(self, cluster: str, number: int) -> None:
        """Note that a partition has records of a cluster.

        Raises:
            BadInput: when it is not the cluster's partition.
        """
        if partition_of(cluster, self._kafka.cluster_partitions) != number:
            raise BadInput(f"cluster {cluster} does not belong in partition {number}")
        self._clusters_of(number).add(cluster)

    def _tick(self, number: int, value: bytes | None) -> list[Step]:
        now = parse_rfc3339((value or b"").decode(errors="replace"))
        clusters = sorted(self._clusters_of(number)) if self._consumption.is_new_tick(number, now) else ()
        return [(cluster, lambda engine: engine.on_tick(now)) for cluster in clusters]

    def _clusters_of(self, number: int) -> set[str]:
        if number not in self._clusters:
            rows = self._changelog.rows(number)
            self._clusters[number] = {key.partition(b"\0")[0].decode() for key in rows}
        return self._clusters[number]

    def _lose_ownership(self, *_: Any, **__: Any) -> None:
        self._ownership.lose()
        self._changelog.leave()
        self._consumption.reset()
        self._batches.clear()
        self._engines.clear()
        self._figures.lost()
        self._clusters.clear()
        include_again()

    async def _take_ownership(self, *_: Any, **__: Any) -> None:
        """Read the state on to its end. Only then does Faust go on, and hand records out."""
        term, owned = self._ownership.term, self._consumption.owned()
        try:
            read = await self._changelog.take(owned)
        except Exception as error:  # noqa: BLE001 - Faust would only log it, and go on with half of the state
            self._fail(error)
        else:
            self._ownership.settle(term)
            log.info("partitions taken over", partitions=sorted(owned), rows_read=read)

    def _fail(self, error: Exception) -> None:
        """End the process."""
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error)

    def _source(self) -> Any:
        names = [clients.topic_name(self._kafka, topic) for topic in (SIGNALS, INVENTORY, TICKS)]
        return self._app.topic(*names, schema=AsTheyAre())
