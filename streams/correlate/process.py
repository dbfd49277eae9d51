"""The correlator process: a Faust agent around the pure engine.

One agent reads signals, inventory and ticks; its state lies in a changelog that we write and read ourselves. Five things
Faust would do differently are taken out of its hands:

- Faust acknowledges an event when the agent asks for the next one, is cancelled, or fails. Here an event is acknowledged by
  hand when everything that follows from it is written. A record that cannot be read goes to `dead-letters`; anything else
  that goes wrong ends the process, and the event is read again.
- State and incidents go out through a producer of our own: first the rows, whole or not at all
  (`streams.correlate.write_ahead`), and only when the broker has them the incidents. A successor publishes what was recorded
  last once more, with the same ids and revisions. The other way round a crash in between would leave an incident that nobody
  knows: what is read again is judged with what came since, and may come out otherwise.
- State is read before the group is joined, and followed from then on (`streams.correlate.changelog`): a
  partition is taken over by reading what was written in the last moment, not by reading everything.
- Time comes in as a record: one tick per owned partition and second, on `ticks`. While a partition has signals that are not
  read, its time is that of the last one read: a backlog must not look like silence. Each partition is judged by itself. A record
  of signals tells its own time as well, so what is decisive opens its incident without waiting for a tick. What was there when a
  partition was taken over is read first, facts included, and no time passes meanwhile: nothing is opened on half of what is
  known. Only of a backlog that is longer than what is kept, the beginning is judged as it is read.
- Whoever lost a partition in the middle of an event neither writes nor acknowledges: the new owner reads it again. Whoever
  stood still for long asks the broker first whether it still owns it.

Records of one kind that wait one behind the other are taken together: what a job's thousand ranks say in several records is
judged once, published once and written once. They are acknowledged together as well.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from faust.types import TP

from streams.config.settings import CorrelatorSettings, KafkaSettings
from streams.correlate.changelog import Changelog
from streams.correlate.changes import Changes
from streams.correlate.cluster_rows import Records, TableRows
from streams.correlate.faust_app import build_app
from streams.correlate.state.store import Rows
from streams.correlate.write_ahead import Held, StepEngine
from streams.kafka import clients
from streams.kafka.clients import KafkaError
from streams.kafka.dead_letters import dead_letter
from streams.kafka.read_progress import ReadProgress
from streams.kafka.topics import (
    CHANGELOG,
    DEAD_LETTERS,
    INCIDENTS,
    INVENTORY,
    SIGNALS,
    TICKS,
    TIMELINE,
    Topic,
    partition_of,
)
from streams.model import crash_points
from streams.model.clock import Clock, boot_seconds, from_millis, parse_rfc3339, rfc3339, utc_now
from streams.model.codec import decode, encode
from streams.model.errors import BadInput, Unreachable
from streams.model.facts import Fact, FactRecord
from streams.model.pulse import Pulse
from streams.model.record import RawRecord
from streams.model.signal import Signal, SignalBatch

log = structlog.get_logger(__name__)

_NEVER = datetime.min.replace(tzinfo=UTC)

SILENCE_S = 45.0
"""An owned partition brings at least our own tick every second. When none has come for so long, the stream has stalled.
What stands in line behind another partition's records has come, and time in which one record is worked on does not count."""

CATCHING_UP_S = 0.2
"""How often to look whether everything is read, once partitions were taken over: nothing is opened before that."""

MAX_TOGETHER = {SIGNALS.name: 8, INVENTORY.name: 500}
"""Records that are taken as one. At 500 signals each, what is said of one incident waits for no more than 4,000."""

JOINING_S = 90.0
"""How long joining the group and reading on to the end of the state may take, besides two session timeouts."""

STOPPING_S = 20.0
"""How long Faust may take to end; well within the time that Kubernetes gives a pod."""


Step = tuple[str, Callable[[StepEngine], Changes]]
"""What a record asks for: a cluster, and what its engine has to do."""


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
        clock: Clock = utc_now,
        pulse: Pulse | None = None,
        at: crash_points.CrashHook = crash_points.ignore,
    ) -> None:
        session_ms = min(kafka_settings.session_timeout_ms, settings.session_timeout_ms)
        self._kafka = kafka_settings = kafka_settings.model_copy(update={"session_timeout_ms": session_ms})
        self._settings = settings
        self._make_engine = make_engine
        self._clock = clock
        self._pulse = pulse or Pulse()
        self._at = at
        self._engines: dict[str, Held] = {}
        self._stored: dict[int, set[str]] = {}
        self._term = 0
        self._settled = False
        self._in_hand: float | None = None
        self._moved = self._looked = monotonic()
        self._silent: dict[int, float] = {}
        self._behind: dict[int, ReadProgress] = {}
        self._gathered: dict[int, _Gathered] = {}
        self._latest_tick: dict[int, datetime] = {}
        self._read_at: dict[int, datetime] = {}
        self._ends: dict[int, dict[TP, int]] = {}
        """How far a partition's topics went when it was taken over."""
        self._current: set[int] = set()
        """Partitions of which all that has been read."""
        # Half of it: what is read meanwhile must not be forgotten before it is judged.
        self._held_back = timedelta(minutes=settings.retention_minutes) / 2
        self._unsettled_since = 0.0
        self._awake = boot_seconds()
        self._stood_still = False
        self._failure: asyncio.Future[None] | None = None
        self._producer: AIOKafkaProducer | None = None
        self._partitions = kafka_settings.cluster_partitions
        self._app = build_app(kafka_settings)
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
        self._producer = clients.producer(self._kafka, linger_ms=2)
        try:
            await clients.started(self._producer, self._kafka)
            await self._changelog.start()
            self._app.finalize()
            self._unsettled_since = monotonic()
            await self._app.start()
            log.info("correlator started", partitions=self._partitions)
            self._pulse.lag = self._lag
            await self._live()
        except KafkaError as error:
            raise Unreachable(f"Kafka at {self._kafka.bootstrap}: {error!r}") from error
        finally:
            self._pulse.ready(False)
            await self._stop()

    async def _stop(self) -> None:
        """Leave the group. After a crash Faust may wait for itself for ever, and its threads would keep the process alive."""
        assert self._producer is not None
        try:
            async with asyncio.timeout(STOPPING_S):
                await self._app.stop()
        except TimeoutError:
            log.error("the stream worker did not stop; the process is ended", after_s=STOPPING_S)
            last_resort = threading.Timer(STOPPING_S, os._exit, (3,))
            last_resort.daemon = True
            last_resort.start()
        await self._changelog.stop()
        await self._producer.stop()

    async def _lag(self) -> int | None:
        consumer: Any = self._app.consumer
        return None if consumer is None else await consumer.lag()

    async def _live(self) -> None:
        """Send ticks until told to stop or until something fails."""
        assert self._failure is not None
        while True:
            in_step = self._settled and self._current >= self._owned()
            pause_s = self._settings.tick_s if in_step else min(CATCHING_UP_S, self._settings.tick_s)
            await asyncio.wait({self._failure}, timeout=pause_s)
            self._look_for_a_stall()
            if self._failure.done():
                return self._failure.result()
            if self._app.crashed or self._app.should_stop:
                raise Unreachable(f"the stream worker ended by itself: {self._app.crash_reason!r}")
            if self._settled and not self._app.rebalancing:
                self._look_for_silence()
                self._pulse.ready()
                await self._send_ticks()
                self._tell_progress()
            else:
                self._looked = monotonic()
                self._look_for_a_stalled_join()

    def _look_for_silence(self) -> None:
        """Faust can be up, own its partitions and deliver nothing; nothing else would notice.

        Raises:
            Unreachable: when an owned partition has brought nothing for `SILENCE_S`, not even a tick. Nothing is lost by
                ending: what was not acknowledged is read again.
        """
        now, before = monotonic(), self._looked
        self._looked = now
        at_work = self._in_hand is not None and self._in_hand <= before
        passed_s = 0.0 if at_work else min(now - before, max(1.0, 2 * self._settings.tick_s))
        for partition in self._owned():
            if self._moved > before and self._stands_in_line(partition):
                self._silent[partition] = 0.0
            silent_s = self._silent[partition] = self._silent.get(partition, 0.0) + passed_s
            if silent_s > SILENCE_S:
                raise Unreachable(
                    f"Kafka at {self._kafka.bootstrap}: partition {partition} brought nothing for {SILENCE_S:g} s, "
                    "not even our own ticks"
                )

    def _stands_in_line(self, partition: int) -> bool:
        """Whether something of a partition was fetched, and waits for what others brought before it."""
        consumer: Any = self._app.consumer
        return any(
            consumer.has_unhandled(self._tp(topic, partition)) for topic in (TICKS, SIGNALS, INVENTORY)
        )

    def _look_for_a_stalled_join(self) -> None:
        """The same for a rebalance that does not end.

        Raises:
            Unreachable: when it took longer than `JOINING_S` and two session timeouts.
        """
        limit_s = JOINING_S + 2 * self._kafka.session_timeout_ms / 1000
        if monotonic() - self._unsettled_since > limit_s:
            raise Unreachable(
                f"Kafka at {self._kafka.bootstrap}: joining the group did not end within {limit_s:g} s"
            )

    def _tell_progress(self) -> None:
        """Say how far a partition is that has been behind for a while, and when it no longer is."""
        consumer: Any = self._app.consumer
        for partition in self._owned():
            tps = [self._tp(topic, partition) for topic in (SIGNALS, INVENTORY)]
            left = sum(consumer.left(tp) for tp in tps)
            progress = self._behind.get(partition)
            if left and progress is None:
                self._behind[partition] = ReadProgress(left)
            elif left and progress is not None:
                if told := progress.told(left):
                    log.info("catching up", partition=partition, progress=told)
            elif progress is not None:
                del self._behind[partition]
                if progress.has_told:
                    log.info("caught up", partition=partition, seconds=round(progress.seconds, 1))

    async def _send_ticks(self) -> None:
        """One tick for each owned partition."""
        assert self._producer is not None
        name = clients.topic_name(self._kafka, TICKS)
        now = self._clock()
        for partition in sorted(self._owned()):
            if partition not in self._current and await self._has_read_what_was_there(partition):
                self._current.add(partition)
            has_caught_up = await self._has_caught_up(partition)
            told = self._timed(partition, now if has_caught_up else self._read_at.get(partition))
            if told is not None:
                await self._producer.send_and_wait(name, rfc3339(told).encode(), partition=partition)

    def _timed(self, partition: int, at: datetime | None) -> datetime | None:
        """The time that has come in a partition when something of it is read; None while none may pass."""
        if partition in self._current or (at is not None and self._clock() - at > self._held_back):
            return at
        return None

    async def _has_read_what_was_there(self, partition: int) -> bool:
        """Whether everything is handled that its topics held when it was taken over, however much has come since."""
        consumer: Any = self._app.consumer
        if not consumer.placed:
            return False
        ends = self._ends.setdefault(partition, {})
        for tp in (self._tp(topic, partition) for topic in (SIGNALS, INVENTORY)):
            if tp not in ends and (end := consumer.highwater(tp)) is not None:
                ends[tp] = end
            position = await consumer.position(tp)
            if (
                tp not in ends
                or position is None
                or position < ends[tp]
                or not consumer.is_handled(tp, ends[tp])
            ):
                return False
        return True

    async def _has_caught_up(self, partition: int) -> bool:
        """Whether every signal and fact that the broker has is handled. Positions count, not offsets of records handled: the
        last offset may be a transaction's marker, which nobody ever handles."""
        consumer: Any = self._app.consumer
        if not consumer.placed:
            return False
        for topic in (SIGNALS, INVENTORY):
            tp = self._tp(topic, partition)
            end = consumer.highwater(tp)
            position = await consumer.position(tp)
            if end is None or position is None or position < end or consumer.has_unhandled(tp):
                return False
        return True

    def _tp(self, topic: Topic, partition: int) -> TP:
        return TP(clients.topic_name(self._kafka, topic), partition)

    def _owned(self) -> set[int]:
        name = clients.topic_name(self._kafka, SIGNALS)
        return {tp.partition for tp in self._app.consumer.assignment() if tp.topic == name}

    async def _correlate(self, stream: Any) -> AsyncIterator[None]:
        stream.enable_acks = False
        consumer: Any = self._app.consumer
        async for event in stream.events():
            self._in_hand = monotonic()
            consumer.taken(event.message)
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
                    consumer.handled(one.message)
            finally:
                self._in_hand = None
                self._moved = monotonic()
                self._silent[event.message.partition] = 0.0
            yield

    async def _handle(self, event: Any) -> Sequence[Any]:
        """Everything that follows from one event and from those of its partition that were put by before it.

        Returns the events that are done with: none when it is put by itself, or when its partition was lost meanwhile.
        """
        if not self._settled:
            return ()  # left over from before a rebalance; it is read again by whoever owns it then
        message, term = event.message, self._term
        partition, at, topic = message.partition, _written_at(message), self._topic(message.topic)
        gathered = self._gathered.pop(partition, None) or _Gathered(topic)
        if gathered.topic != topic:
            if not await self._work(gathered.steps(), partition, term):
                return ()
            gathered = _Gathered(topic, gathered.events)
        gathered.events.append(event)
        try:
            if topic == SIGNALS.name:
                gathered.see(self._batch(event.value, partition), self._timed(partition, at))
            elif topic == INVENTORY.name:
                gathered.tell(*self._fact(message.key, event.value, partition), at)
            else:
                gathered.ticks = self._tick(partition, event.value)
        except BadInput as error:
            await self._bury(event, str(error))
        if term != self._term:
            return ()
        if topic == SIGNALS.name:  # facts may be read up to the present while signals of long ago are unread
            self._read_at[partition] = max(at, self._read_at.get(partition, at))
        if len(gathered.events) < MAX_TOGETHER.get(topic, 1) and self._is_followed(event):
            self._gathered[partition] = gathered
            return ()
        return gathered.events if await self._work(gathered.steps(), partition, term) else ()

    async def _work(self, steps: Sequence[Step], partition: int, term: int) -> bool:
        """Take the steps, store each and publish what follows. False when the partition was lost meanwhile."""
        for cluster, step in steps:
            held = await self._held(cluster, partition, term)
            if held is None:
                return False
            changes = step(held.engine)
            self._at(crash_points.CORRELATOR_BEFORE_STORE)
            if not await self._still_owns(partition, term):
                return False
            offsets = [
                offset for rows in held.store(changes) for offset in await self._store(rows, partition)
            ]
            if term == self._term:
                self._changelog.wrote(partition, offsets)
            self._at(crash_points.CORRELATOR_AFTER_STORE)
            if not await self._still_owns(partition, term):
                return False
            await self._publish(changes, partition)
            self._at(crash_points.CORRELATOR_AFTER_PUBLISH)
            held.clear()
        return term == self._term

    def _is_followed(self, event: Any) -> bool:
        """Whether more than one offset lies behind this one: a single one may be a transaction's marker, which nobody handles.

        What is put by is finished with the next event of its partition, a tick at the latest; rows are written to the
        partition of the event in hand, so it cannot be one of another.
        """
        message = event.message
        end = self._app.consumer.highwater(TP(message.topic, message.partition))
        return bool(end is not None and end - message.offset > 2)

    def _batch(self, value: bytes | None, partition: int) -> SignalBatch:
        """The signals of one record.

        Raises:
            BadInput: when it cannot be read, or lies in a partition that is not its cluster's.
        """
        if value is None:
            raise BadInput("a batch of signals without a value")
        batch = decode(SignalBatch, value)
        if any(signal.entity.cluster != batch.cluster for signal in batch.signals):
            raise BadInput("a batch with signals of several clusters")
        self._belongs(batch.cluster, partition)
        return batch

    def _fact(self, key: bytes | None, value: bytes | None, partition: int) -> tuple[str, Fact | None]:
        """One record of the inventory.

        Raises:
            BadInput: when it cannot be read, or lies in a partition that is not its cluster's.
        """
        name = (key or b"").decode(errors="replace")
        if name.count("/") < 2:
            raise BadInput("a fact whose key is not cluster/kind/name")
        fact = decode(FactRecord, value).fact if value is not None else None
        if fact is not None and fact.key != name:
            raise BadInput(f"a fact of {fact.key[:80]} under the key {name[:80]}")
        self._belongs(name.partition("/")[0], partition)
        return name, fact

    def _belongs(self, cluster: str, partition: int) -> None:
        """Note that a partition has records of a cluster.

        Raises:
            BadInput: when it is not the cluster's partition.
        """
        if partition_of(cluster, self._partitions) != partition:
            raise BadInput(f"cluster {cluster} does not belong in partition {partition}")
        self._clusters(partition).add(cluster)

    def _tick(self, partition: int, value: bytes | None) -> list[Step]:
        """Two owners may both tick while a rebalance is under way: time never runs backwards here."""
        now = parse_rfc3339((value or b"").decode(errors="replace"))
        if now <= self._latest_tick.get(partition, _NEVER):
            return []
        self._latest_tick[partition] = now
        return [
            (cluster, lambda engine: engine.on_tick(now)) for cluster in sorted(self._clusters(partition))
        ]

    def _clusters(self, partition: int) -> set[str]:
        """Clusters of a partition: those with rows, and those heard of since."""
        if partition not in self._stored:
            rows = self._changelog.rows(partition)
            self._stored[partition] = {key.partition(b"\0")[0].decode() for key in rows}
        return self._stored[partition]

    def _look_for_a_stall(self) -> None:
        """A process that was frozen hears last that it was taken for dead."""
        now = boot_seconds()
        self._stood_still |= now - self._awake > self._kafka.session_timeout_ms / 2000
        self._awake = now

    async def _still_owns(self, partition: int, term: int) -> bool:
        """Whether what follows may be written. What one writes who was taken for dead would come to lie over the new owner's."""
        self._look_for_a_stall()
        if not self._stood_still or term != self._term:
            return term == self._term
        consumer: Any = self._app.consumer
        owns = await consumer.owns(TP(clients.topic_name(self._kafka, SIGNALS), partition))
        if owns and term == self._term:
            self._stood_still = False
            return True
        log.warning("another took over while this one stood still; storing nothing", partition=partition)
        if term == self._term:
            self._settled = False
            self._unsettled_since = monotonic()
        return False

    async def _held(self, cluster: str, partition: int, term: int) -> Held | None:
        """The cluster's engine; what a predecessor may have left undone is done first. None when the partition was lost."""
        if cluster in self._engines:
            return self._engines[cluster]
        held = Held(TableRows(self._changelog.rows(partition), cluster), partial(self._make_engine, cluster))
        if not await self._still_owns(partition, term):
            return None
        rows, again = held.taken_over()
        offsets = await self._store(rows, partition)
        if term == self._term:
            self._changelog.wrote(partition, offsets)
        if not await self._still_owns(partition, term):
            return None
        await self._publish(again, partition)
        if term != self._term:
            return None
        self._engines[cluster] = held
        return held

    def _lose_ownership(self, *_: Any, **__: Any) -> None:
        self._term += 1
        self._settled = False
        self._unsettled_since = monotonic()
        self._changelog.leave()
        self._silent.clear()
        self._behind.clear()
        self._gathered.clear()
        self._engines.clear()
        self._stored.clear()
        self._latest_tick.clear()
        self._read_at.clear()
        self._ends.clear()
        self._current.clear()

    async def _take_ownership(self, *_: Any, **__: Any) -> None:
        """Read the state on to its end. Only then does Faust go on, and hand records out."""
        term, owned = self._term, self._owned()
        try:
            read = await self._changelog.take(owned)
        except Exception as error:  # noqa: BLE001 - Faust would only log it, and go on with half of the state
            self._fail(error)
        else:
            self._settled = term == self._term
            log.info("partitions taken over", partitions=sorted(owned), rows_read=read)

    async def _store(self, rows: Records, partition: int) -> Sequence[int]:
        """Rows, confirmed by the broker; returns the offsets at which they lie."""
        return await self._send([(CHANGELOG, *row) for row in rows], partition)

    async def _publish(self, changes: Changes, partition: int) -> None:
        """Incidents and timeline, confirmed by the broker."""
        self._pulse.count("incidents", len(changes.incidents))
        out = [(INCIDENTS, incident.id.encode(), encode(incident)) for incident in changes.incidents]
        for entry in changes.timeline:
            if not entry.incident:
                log.warning(entry.event, cluster=entry.cluster, text=entry.text, **entry.attributes)
        out += [
            (TIMELINE, (entry.incident or entry.cluster).encode(), encode(entry))
            for entry in changes.timeline
        ]
        await self._send(out, partition)

    async def _send(
        self, records: Sequence[tuple[Topic, bytes, bytes | None]], partition: int
    ) -> Sequence[int]:
        """Write records and wait until the broker has them; returns their offsets."""
        assert self._producer is not None
        sent = [
            await self._producer.send(
                clients.topic_name(self._kafka, topic), value, key=key, partition=partition
            )
            for topic, key, value in records
        ]
        return [written.offset for written in await asyncio.gather(*sent)]

    async def _bury(self, event: Any, reason: str) -> None:
        assert self._producer is not None
        message = event.message
        self._pulse.count("dead_letters")
        log.warning("record cannot be read", topic=message.topic, offset=message.offset, reason=reason)
        topic = self._topic(message.topic)
        record = RawRecord(
            topic, message.partition, message.offset, _written_at(message), message.key, event.value
        )
        key, value, headers = dead_letter(record, stage="correlator", reasons=[reason])
        name = clients.topic_name(self._kafka, DEAD_LETTERS)
        await self._producer.send_and_wait(name, value, key=key, headers=headers)

    def _fail(self, error: Exception) -> None:
        """End the process."""
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error)

    def _topic(self, name: str) -> str:
        return name.removeprefix(self._kafka.topic_prefix)

    def _source(self) -> Any:
        names = [clients.topic_name(self._kafka, topic) for topic in (SIGNALS, INVENTORY, TICKS)]
        return self._app.topic(*names, key_serializer="raw", value_serializer="raw", allow_empty=True)


def _written_at(message: Any) -> datetime:
    """When a record was written. Kafka counts milliseconds, but Faust hands them out as seconds with a fraction."""
    return from_millis(round(message.timestamp * 1000))


@dataclass(slots=True)
class _Gathered:
    """Records of one topic and partition that are taken together."""

    topic: str
    events: list[Any] = field(default_factory=list)
    signals: dict[str, list[Signal]] = field(default_factory=dict)
    facts: dict[str, list[tuple[str, Fact | None, datetime]]] = field(default_factory=dict)
    ticks: list[Step] = field(default_factory=list)
    at: datetime | None = None

    def see(self, batch: SignalBatch, at: datetime | None) -> None:
        """Add a record of signals."""
        self.signals.setdefault(batch.cluster, []).extend(batch.signals)
        self.at = max(self.at, at) if self.at is not None and at is not None else at

    def tell(self, key: str, fact: Fact | None, at: datetime) -> None:
        """Add a record of the inventory."""
        self.facts.setdefault(key.partition("/")[0], []).append((key, fact, at))

    def steps(self) -> list[Step]:
        """What they ask for, by cluster."""
        found: list[Step] = [(cluster, _seen(signals, self.at)) for cluster, signals in self.signals.items()]
        found += [(cluster, _told(facts)) for cluster, facts in self.facts.items()]
        return [*found, *self.ticks]


def _seen(signals: Sequence[Signal], at: datetime | None) -> Callable[[StepEngine], Changes]:
    return lambda engine: engine.on_signals(signals, at)


def _told(facts: Sequence[tuple[str, Fact | None, datetime]]) -> Callable[[StepEngine], Changes]:
    return lambda engine: engine.on_facts(facts)
