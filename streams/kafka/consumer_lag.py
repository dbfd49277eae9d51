"""Looks every few seconds how far a process is behind, by the broker's own word on where partitions end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from streams.config.settings import KafkaSettings
from streams.model.pulse import Pulse
from streams.telemetry.lag import LagMeter, Place, Processed
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

ANSWER_S = 3.0
"""How long the broker may take to answer."""


class ConsumerLag:
    """The lag of one consumer, for the metrics and the probes of its process.

    Args:
        unfinished: The first offset of a partition that was read and is not processed yet; None where there is none.
        written_ms: When the last record of a partition that was processed was written, as far as known.
        waits: Whether a partition is meant to stand still now.
    """

    consumer: AIOKafkaConsumer | None = None
    """Set while there is one. A process that joins its group anew has a new one."""

    def __init__(
        self,
        settings: KafkaSettings,
        metrics: Metrics,
        pulse: Pulse,
        *,
        unfinished: Callable[[TopicPartition], int | None] = lambda place: None,
        written_ms: Callable[[TopicPartition], int | None] = lambda place: None,
        waits: Callable[[TopicPartition], bool] = lambda place: False,
        meter: LagMeter | None = None,
    ) -> None:
        self._prefix = settings.topic_prefix
        self._unfinished = unfinished
        self._written_ms = written_ms
        self._waits = waits
        self.meter = meter or LagMeter()
        self.meter.show(metrics)
        pulse.stuck = lambda: self.meter.stuck
        metrics.watch(self.look)

    async def look(self) -> None:
        """Look once."""
        consumer = self.consumer
        if consumer is None:
            self.meter.looked({}, {})
            return
        try:
            # Positions first: what comes in between counts as lag, and never the other way round.
            processed = {place: await self._processed(consumer, place) for place in consumer.assignment()}
        except (KafkaError, IllegalStateError, TimeoutError) as error:
            log.debug("no positions around a rebalance", reason=repr(error))
            return
        ends, confirmed = await ends_of(
            processed, lambda: consumer.end_offsets(list(processed)), consumer.highwater
        )
        self.meter.looked(
            {self._place(place): one for place, one in processed.items()},
            {self._place(place): end for place, end in ends.items()},
            confirmed=confirmed,
        )

    async def _processed(self, consumer: AIOKafkaConsumer, place: TopicPartition) -> Processed:
        async with asyncio.timeout(ANSWER_S):
            position = await consumer.position(place)
        first = self._unfinished(place)
        offset = position if first is None else min(first, position)
        return Processed(offset, self._written_ms(place), self._waits(place))

    def _place(self, place: TopicPartition) -> Place:
        return (place.topic.removeprefix(self._prefix), place.partition)


async def ends_of(
    places: Mapping[Any, object],
    ask: Callable[[], Awaitable[Mapping[Any, int]]],
    last_heard: Callable[[Any], int | None],
) -> tuple[dict[Any, int], bool]:
    """Where partitions end and whether the broker has just told: if it does not answer, what was last heard of each."""
    if not places:
        return {}, True
    try:
        async with asyncio.timeout(ANSWER_S):
            return dict(await ask()), True
    except (KafkaError, IllegalStateError, TimeoutError) as error:
        log.debug("the broker does not tell where partitions end", reason=repr(error))
    heard = {place: last_heard(place) for place in places}
    return {place: end for place, end in heard.items() if end is not None}, False
