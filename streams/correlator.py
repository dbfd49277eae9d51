"""The correlator process: a Faust agent around the pure core.

One agent reads signals, inventory and ticks; its state lies in one table whose changelog we create ourselves. Three things
Faust would do differently are taken out of its hands:

- An exception inside an agent acknowledges the event and goes on. Here nothing escapes: a record that cannot be read goes to
  `dead-letters`; anything else holds the event back, unacknowledged, and ends the process, so that it is read again.
- Timers may not write tables. Time comes in as a record: one tick per owned partition and second, on `ticks`.
- Incidents go out through a producer of our own and are confirmed before the event that caused them is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from datetime import datetime
from typing import Any, Protocol

import faust
import structlog
from aiokafka import AIOKafkaProducer

from streams import kafka
from streams.dead_letters import dead_letter
from streams.model.clock import Clock, from_millis, parse_rfc3339, rfc3339, utc_now
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput, ConfigError, FaultlineError
from streams.model.incident import Incident
from streams.model.inventory import Fact, FactRecord
from streams.model.pulse import Pulse
from streams.model.record import RawRecord
from streams.model.settings import CorrelatorSettings, KafkaSettings
from streams.model.signal import Signal, SignalBatch
from streams.topics import (
    CORRELATOR_APP,
    DEAD_LETTERS,
    INCIDENTS,
    INVENTORY,
    SIGNALS,
    TICKS,
    TIMELINE,
    Topic,
    partition_of,
)

log = structlog.get_logger(__name__)

Rows = MutableMapping[str, bytes]
"""The core's state as rows; what is written here is in the changelog before the event is acknowledged."""


class Changes(Protocol):
    """What one step of the core brought about."""

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """New revisions, in order."""

    @property
    def timeline(self) -> tuple[TimelineEntry, ...]:
        """What to tell about them."""


class Core(Protocol):
    """The pure core, for one cluster."""

    def on_signals(self, signals: tuple[Signal, ...], now: datetime) -> Changes:
        """Take in observations."""

    def on_fact(self, key: str, fact: Fact | None, at: datetime) -> Changes:
        """Take in what is where; None when it is gone."""

    def on_tick(self, now: datetime) -> Changes:
        """Let time pass."""


class Correlator:
    """One worker of the correlator group.

    `make_core(cluster, rows)` builds the core of a cluster from its rows; it is called again after every rebalance, so that no
    core outlives its ownership.
    """

    def __init__(
        self,
        kafka_settings: KafkaSettings,
        settings: CorrelatorSettings,
        make_core: Callable[[str, Rows], Core],
        *,
        clock: Clock = utc_now,
        pulse: Pulse | None = None,
    ) -> None:
        self._kafka = kafka_settings
        self._settings = settings
        self._make_core = make_core
        self._clock = clock
        self._pulse = pulse or Pulse()
        self._cores: dict[str, Core] = {}
        self._latest_tick: dict[int, datetime] = {}
        self._failure: asyncio.Future[None] | None = None
        self._producer: AIOKafkaProducer | None = None
        self._partitions = kafka_settings.cluster_partitions
        self._app = self._build_app()
        self._table = self._app.Table(
            "state",
            partitions=self._partitions,
            key_type=bytes,
            value_type=bytes,
            schema=faust.Schema(
                key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
            ),
        )
        self._app.agent(self._source(), name="correlate", concurrency=1)(self._correlate)
        self._app.on_partitions_revoked.connect(self._forget_cores)
        self._app.on_partitions_assigned.connect(self._forget_cores)

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            FaultlineError: when it cannot go on; the event in hand is not acknowledged and will be read again.
        """
        self._failure = asyncio.get_running_loop().create_future()
        self._producer = await kafka.started(kafka.producer(self._kafka, linger_ms=2), self._kafka)
        try:
            self._app.finalize()
            await self._app.start()
            self._pulse.ready()
            log.info("correlator works", partitions=self._partitions)
            await self._live()
        finally:
            self._pulse.ready(False)
            await self._app.stop()
            await self._producer.stop()

    async def _live(self) -> None:
        """Send ticks until told to stop or until something fails."""
        assert self._failure is not None
        while True:
            await asyncio.wait({self._failure}, timeout=self._settings.tick_s)
            if self._failure.done():
                return self._failure.result()
            if self._app.crashed or self._app.should_stop:
                raise FaultlineError(f"the stream worker ended by itself: {self._app.crash_reason!r}")
            if not self._app.rebalancing and not self._app.in_recovery:
                await self._send_ticks()
                self._pulse.beat()

    async def _send_ticks(self) -> None:
        assert self._producer is not None
        name = kafka.topic_name(self._kafka, TICKS)
        now = rfc3339(self._clock()).encode()
        for partition in sorted(self._owned()):
            await self._producer.send_and_wait(name, now, partition=partition)

    def _owned(self) -> set[int]:
        name = kafka.topic_name(self._kafka, SIGNALS)
        return {tp.partition for tp in self._app.consumer.assignment() if tp.topic == name}

    async def _correlate(self, stream: Any) -> AsyncIterator[None]:
        async for event in stream.events():
            try:
                await self._handle(event)
            except BadInput as error:
                await self._bury(event, str(error))
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - nothing may escape an agent: the event would be acknowledged
                await self._give_up(error)
            yield

    async def _handle(self, event: Any) -> None:
        message = event.message
        at = from_millis(message.timestamp)
        match self._topic(message.topic):
            case SIGNALS.name if event.value is not None:
                batch = decode(SignalBatch, event.value)
                core = self._core(batch.cluster)
                await self._emit(batch.cluster, core.on_signals(batch.signals, at))
            case INVENTORY.name:
                key = (message.key or b"").decode(errors="replace")
                fact = decode(FactRecord, event.value).fact if event.value is not None else None
                cluster = fact.cluster if fact else key.partition("/")[0]
                await self._emit(cluster, self._core(cluster).on_fact(key, fact, at))
            case TICKS.name if event.value is not None:
                await self._tick(message.partition, parse_rfc3339(event.value.decode(errors="replace")))

    async def _tick(self, partition: int, now: datetime) -> None:
        """Two owners may both tick while a rebalance is under way: time never runs backwards here."""
        if now <= self._latest_tick.get(partition, now.min.replace(tzinfo=now.tzinfo)):
            return
        self._latest_tick[partition] = now
        for cluster in self._clusters(partition):
            await self._emit(cluster, self._core(cluster).on_tick(now))

    def _clusters(self, partition: int) -> list[str]:
        stored = {bytes(key).partition(b"\0")[0].decode() for key in self._table}
        return sorted(c for c in stored | set(self._cores) if partition_of(c, self._partitions) == partition)

    def _core(self, cluster: str) -> Core:
        if cluster not in self._cores:
            self._cores[cluster] = self._make_core(cluster, TableRows(self._table, cluster))
        return self._cores[cluster]

    def _forget_cores(self, *_: Any, **__: Any) -> None:
        self._cores.clear()
        self._latest_tick.clear()

    async def _emit(self, cluster: str, changes: Changes) -> None:
        """Incidents and timeline, confirmed by the broker."""
        partition = partition_of(cluster, self._partitions)
        out = [(INCIDENTS, incident.id, encode(incident)) for incident in changes.incidents]
        out += [(TIMELINE, entry.incident, encode(entry)) for entry in changes.timeline]
        await self._send(out, partition)

    async def _send(self, records: list[tuple[Topic, str, bytes]], partition: int) -> None:
        assert self._producer is not None
        sent = [
            await self._producer.send(
                kafka.topic_name(self._kafka, topic), value, key=key.encode(), partition=partition
            )
            for topic, key, value in records
        ]
        await asyncio.gather(*sent)

    async def _bury(self, event: Any, reason: str) -> None:
        assert self._producer is not None
        message = event.message
        log.warning("record cannot be read", topic=message.topic, offset=message.offset, reason=reason)
        topic = self._topic(message.topic)
        record = RawRecord(
            topic, message.partition, message.offset, from_millis(message.timestamp), message.key, event.value
        )
        key, value, headers = dead_letter(record, stage="correlator", reasons=[reason])
        name = kafka.topic_name(self._kafka, DEAD_LETTERS)
        await self._producer.send_and_wait(name, value, key=key, headers=headers)

    async def _give_up(self, error: Exception) -> None:
        """End the process and never return, so that the event is not acknowledged."""
        assert self._failure is not None
        if not self._failure.done():
            self._failure.set_exception(error)
        await asyncio.Event().wait()

    def _topic(self, name: str) -> str:
        return name.removeprefix(self._kafka.topic_prefix)

    def _source(self) -> Any:
        names = [kafka.topic_name(self._kafka, topic) for topic in (SIGNALS, INVENTORY, TICKS)]
        return self._app.topic(*names, key_serializer="raw", value_serializer="raw", allow_empty=True)

    def _build_app(self) -> faust.App:
        """Settings that matter, each for a reason given where Faust's own choice would lose or stall something."""
        session_s = self._kafka.session_timeout_ms / 1000
        return faust.App(
            self._kafka.topic_prefix + CORRELATOR_APP,
            broker=[f"kafka://{address.strip()}" for address in self._kafka.bootstrap.split(",")],
            broker_credentials=_credentials(self._kafka),
            broker_session_timeout=session_s,
            broker_heartbeat_interval=max(0.3, session_s / 5),
            broker_rebalance_timeout=session_s * 2,
            broker_request_timeout=max(40.0, session_s * 2),
            broker_commit_interval=1.0,
            broker_check_crcs=self._kafka.check_crcs,
            consumer_auto_offset_reset="earliest",
            store="memory://",  # the whole state fits, and a local file could disagree with the changelog
            stream_buffer_maxsize=32768,  # pausing and resuming a hot partition costs more than the records
            stream_wait_empty=False,  # a stuck event must not keep the process from ending
            stream_recovery_delay=0.0,
            table_standby_replicas=1,
            topic_allow_declare=False,  # topics are ours to make, with counts that are certain
            topic_disable_leader=True,
            topic_partitions=self._partitions,
            producer_request_timeout=60.0,  # the default waits for twenty minutes
            web_enabled=False,
            autodiscover=False,
        )


class TableRows(MutableMapping[str, bytes]):
    """The rows of one cluster inside the table all clusters share."""

    def __init__(self, table: Any, cluster: str) -> None:
        self._table = table
        self._prefix = cluster.encode() + b"\0"

    def __getitem__(self, key: str) -> bytes:
        value: bytes = self._table[self._prefix + key.encode()]
        return value

    def __setitem__(self, key: str, value: bytes) -> None:
        self._table[self._prefix + key.encode()] = value

    def __delitem__(self, key: str) -> None:
        del self._table[self._prefix + key.encode()]

    def __iter__(self) -> Iterator[str]:
        for key in list(self._table):
            if key.startswith(self._prefix):
                yield key[len(self._prefix) :].decode()

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _credentials(settings: KafkaSettings) -> Any:
    """Faust's own way to say what `kafka.security_protocol` says.

    Raises:
        ConfigError: for a combination Faust cannot speak.
    """
    if settings.security_protocol == "PLAINTEXT":
        return None
    context = kafka.ssl_context(settings)
    if settings.security_protocol == "SSL":
        return faust.SSLCredentials(context)
    if settings.sasl_username is None or settings.sasl_password is None:
        raise ConfigError("kafka.sasl_username and kafka.sasl_password are needed for SASL")
    return faust.SASLCredentials(
        username=settings.sasl_username,
        password=settings.sasl_password.get_secret_value(),
        mechanism=settings.sasl_mechanism,
        ssl_context=context,
    )
