"""How far the owned partitions are read, and so what time it is in each of them.

While a partition has unread signals, its time is that of the last one read: a backlog must not look like silence. What was there
at the takeover is read first, facts included, and no time passes meanwhile: nothing is opened on half of what is known. Only the
beginning of a backlog that is longer than the retention is evaluated as it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import structlog
from faust.types import TP

from streams.config.settings import CorrelatorSettings, KafkaSettings
from streams.correlate.faust_app import App
from streams.kafka import clients
from streams.kafka.read_progress import ReadProgress
from streams.kafka.topics import INVENTORY, SIGNALS, TICKS, Topic
from streams.model.clock import utc_now
from streams.model.errors import Unreachable

log = structlog.get_logger(__name__)

SILENCE_S = 45.0
"""An owned partition brings at least our own tick every second. When none has come for so long, the stream has stalled.
What waits behind another partition's records has come, and time in which one record is worked on does not count."""


@dataclass(slots=True)
class _Partition:
    """One owned partition since it was taken over."""

    ends: dict[TP, int] = field(default_factory=dict)
    """How far its topics went then."""
    is_current: bool = False
    """Whether all of that is read."""
    read_at: datetime | None = None
    """When the latest record of signals was written that was read."""
    latest_tick: datetime | None = None
    silent_s: float = 0.0
    backlog: ReadProgress | None = None


class Consumption:
    """Positions of the owned partitions. Starts over after each rebalance (`reset`)."""

    def __init__(self, app: App, kafka_settings: KafkaSettings, settings: CorrelatorSettings) -> None:
        self._app = app
        self._kafka = kafka_settings
        self._tick_s = settings.tick_s
        # Half of it: what is read meanwhile must not be forgotten before it is evaluated.
        self._longest_backlog = timedelta(minutes=settings.retention_minutes) / 2
        self._partitions: dict[int, _Partition] = {}
        self._working_since: float | None = None
        self._worked_at = self._checked_at = monotonic()

    def reset(self) -> None:
        """Forget all positions: a rebalance began."""
        self._partitions.clear()

    def owned(self) -> set[int]:
        """The partitions that are assigned to this worker."""
        name = clients.topic_name(self._kafka, SIGNALS)
        return {tp.partition for tp in self._app.consumer.assignment() if tp.topic == name}

    def is_current(self) -> bool:
        """Whether all that was there at the takeover is read, in every owned partition."""
        return all(self._of(partition).is_current for partition in self.owned())

    def took(self, message: Any) -> None:
        """Record that work on an event begins."""
        self._working_since = monotonic()
        consumer: Any = self._app.consumer
        consumer.taken(message)

    def handled(self, message: Any) -> None:
        """Record that everything that follows from an event is written."""
        consumer: Any = self._app.consumer
        consumer.handled(message)

    def finished(self, partition: int) -> None:
        """Record that work on an event of the partition ended, whatever came of it."""
        self._working_since = None
        self._worked_at = monotonic()
        self._of(partition).silent_s = 0.0

    def read_signals(self, partition: int, at: datetime) -> None:
        """Record when signals that were read had been written. Facts may be read up to the present while signals of long ago are
        unread, so they do not count."""
        known = self._of(partition)
        known.read_at = max(at, known.read_at or at)

    def is_new_tick(self, partition: int, at: datetime) -> bool:
        """Whether a tick is later than all before it. Two owners may both tick during a rebalance: time never runs backwards."""
        known = self._of(partition)
        if known.latest_tick is not None and at <= known.latest_tick:
            return False
        known.latest_tick = at
        return True

    def time_of(self, partition: int, at: datetime | None) -> datetime | None:
        """`at` where time may pass in a partition, else None."""
        if self._of(partition).is_current or (at is not None and utc_now() - at > self._longest_backlog):
            return at
        return None

    async def tick_time(self, partition: int) -> datetime | None:
        """The time that a tick of the partition carries now; None while no time may pass there."""
        # Before the check: what comes after it is later than this tick.
        known, now = self._of(partition), utc_now()
        known.is_current = known.is_current or await self._has_read_takeover(partition)
        return self.time_of(partition, now if await self._has_caught_up(partition) else known.read_at)

    async def _has_read_takeover(self, partition: int) -> bool:
        """Whether everything is handled that its topics held when it was taken over, however much has come since."""
        consumer: Any = self._app.consumer
        if not consumer.placed:
            return False
        ends = self._of(partition).ends
        for tp in (self._tp(topic, partition) for topic in (SIGNALS, INVENTORY)):
            if tp not in ends and (end := consumer.highwater(tp)) is not None:
                ends[tp] = end
            if tp not in ends or not await self._is_at(tp, ends[tp]) or not consumer.is_handled(tp, ends[tp]):
                return False
        return True

    async def _has_caught_up(self, partition: int) -> bool:
        """Whether every signal and fact that the broker has is handled. Positions count, not offsets of records handled: the
        last offset may be a transaction's marker, which nobody ever handles."""
        consumer: Any = self._app.consumer
        if not consumer.placed:
            return False
        for tp in (self._tp(topic, partition) for topic in (SIGNALS, INVENTORY)):
            if not await self._is_at(tp, consumer.highwater(tp)) or consumer.has_unhandled(tp):
                return False
        return True

    async def _is_at(self, tp: TP, end: int | None) -> bool:
        position = await self._app.consumer.position(tp)
        return end is not None and position is not None and position >= end

    def has_more(self, event: Any) -> bool:
        """Whether more than one offset lies behind this one: a single one may be a transaction's marker, which nobody handles.

        What waits for more is finished with the next event of its partition, a tick at the latest; rows are written to the
        partition of the event in hand, so it cannot be one of another.
        """
        message = event.message
        end = self._app.consumer.highwater(TP(message.topic, message.partition))
        return bool(end is not None and end - message.offset > 2)

    def check_silence(self) -> None:
        """Faust can be up, own its partitions and deliver nothing; nothing else would notice.

        Raises:
            Unreachable: when an owned partition has brought nothing for `SILENCE_S`, not even a tick. Nothing is lost by
                ending: what was not acknowledged is read again.
        """
        before = self._checked_at
        self.skip_silence()
        working = self._working_since is not None and self._working_since <= before
        passed_s = 0.0 if working else min(self._checked_at - before, max(1.0, 2 * self._tick_s))
        for partition in self.owned():
            known = self._of(partition)
            if self._worked_at > before and self._waits_for_others(partition):
                known.silent_s = 0.0
            known.silent_s += passed_s
            if known.silent_s > SILENCE_S:
                raise Unreachable(
                    f"Kafka at {self._kafka.bootstrap}: partition {partition} brought nothing for {SILENCE_S:g} s, "
                    "not even our own ticks"
                )

    def skip_silence(self) -> None:
        """Count no silence up to now: nothing is delivered during a rebalance."""
        self._checked_at = monotonic()

    def _waits_for_others(self, partition: int) -> bool:
        """Whether something of a partition was fetched, and waits for what others brought before it."""
        consumer: Any = self._app.consumer
        return any(
            consumer.has_unhandled(self._tp(topic, partition)) for topic in (TICKS, SIGNALS, INVENTORY)
        )

    def log_backlog(self) -> None:
        """Log how far a partition is that has been behind for a while, and when it no longer is."""
        consumer: Any = self._app.consumer
        for partition in self.owned():
            known = self._of(partition)
            left = sum(consumer.left(self._tp(topic, partition)) for topic in (SIGNALS, INVENTORY))
            if left and known.backlog is None:
                known.backlog = ReadProgress(left)
            elif left and known.backlog is not None:
                if progress := known.backlog.told(left):
                    log.info("catching up", partition=partition, progress=progress)
            elif known.backlog is not None:
                if known.backlog.has_told:
                    log.info("caught up", partition=partition, seconds=round(known.backlog.seconds, 1))
                known.backlog = None

    @property
    def consumer(self) -> Any:
        """Faust's consumer; None before it has started."""
        return self._app.consumer

    async def processed(self) -> dict[TP, tuple[int, int | None]]:
        """For each topic of the owned partitions the first offset that is not handled, and when what was handled last had been
        written, in ms; empty while it is not certain where reading goes on."""
        consumer: Any = self._app.consumer
        if not consumer.placed:
            return {}
        found = {}
        for tp in (
            self._tp(topic, number) for number in self.owned() for topic in (SIGNALS, INVENTORY, TICKS)
        ):
            position = await consumer.position(tp)
            if position is not None:
                # Handled offsets do not count alone: the last offset may be a transaction's marker, which nobody ever handles.
                offset = consumer.first_unhandled(tp) if consumer.has_unhandled(tp) else position
                found[tp] = (offset, consumer.handled_ms(tp))
        return found

    async def lag(self) -> int | None:
        """Records still to be read; None around a rebalance."""
        consumer: Any = self._app.consumer
        return None if consumer is None else await consumer.lag()

    def _of(self, partition: int) -> _Partition:
        return self._partitions.setdefault(partition, _Partition())

    def _tp(self, topic: Topic, partition: int) -> TP:
        return TP(clients.topic_name(self._kafka, topic), partition)
