"""Deliveries of the detector: one at a time, in order; what is found meanwhile goes out together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import TopicPartition

from streams.detect import batch as batches
from streams.detect.batch import Batch
from streams.detect.delivery import Delivery
from streams.detect.detector import Detected
from streams.kafka.topics import RAW_NODE_LOGS
from streams.model.clock import from_millis
from streams.model.record import RawRecord
from tests.streams.detect.lines import signals as signals_of

PLACE = TopicPartition(RAW_NODE_LOGS.name, 0)
(SIGNAL,) = signals_of("[ 12.3] NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=python, Ch 00000008")


class Slow:
    """A destination that takes its time: `let` ends one delivery."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[int] = []
        self._let = asyncio.Semaphore(0)
        self.delivery = Delivery(self._deliver)

    async def _deliver(self, batch: Batch) -> None:
        self.began.append(batch.counts[RAW_NODE_LOGS.name].records)
        await self._let.acquire()
        self.ended.append(self.began[-1])

    def add(self, records: int) -> None:
        self.delivery.gathered.places.add(PLACE)
        self.delivery.gathered.add_unread(RAW_NODE_LOGS.name, records)

    def let(self, deliveries: int = 1) -> None:
        for _ in range(deliveries):
            self._let.release()


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_found_while_nothing_is_under_way_goes_out_at_once() -> None:
    slow = Slow()
    for number in (1, 2, 3):
        slow.add(number)
        await slow.delivery.go_on()
        slow.let()
        await settled()
    assert slow.ended == [1, 2, 3]


async def test_what_is_found_during_a_delivery_goes_out_together_right_after_it() -> None:
    slow = Slow()
    for number in (1, 20, 300):
        slow.add(number)
        await slow.delivery.go_on()
        await settled()
    assert slow.began == [1]
    slow.let()
    await settled()  # nobody calls: a stream that falls silent is delivered too
    assert slow.began == [1, 320]
    slow.let()
    await slow.delivery.done()
    assert slow.ended == [1, 320]


@pytest.mark.parametrize("wait", [Delivery.wait, Delivery.done])
async def test_who_waits_for_the_delivery_waits_for_all_that_was_gathered(
    wait: Callable[[Delivery], Awaitable[None]],
) -> None:
    slow = Slow()
    slow.add(1)
    await slow.delivery.go_on()
    await settled()
    slow.add(2)
    await slow.delivery.go_on()
    waiting = asyncio.ensure_future(wait(slow.delivery))
    slow.let()
    await settled()
    assert not waiting.done()
    slow.let()
    await waiting
    assert slow.ended == [1, 2]


async def test_nothing_is_delivered_where_nothing_was_read() -> None:
    slow = Slow()
    await slow.delivery.go_on()
    await slow.delivery.done()
    assert slow.began == []


async def test_a_reader_waits_when_enough_is_gathered() -> None:
    slow = Slow()
    slow.add(1)
    await slow.delivery.go_on()
    await settled()
    slow.add(batches.MAX_RECORDS)
    reading = asyncio.ensure_future(slow.delivery.go_on())
    await settled()
    assert not reading.done()
    slow.let()
    await reading
    assert slow.began == [1, batches.MAX_RECORDS]
    slow.let()
    await slow.delivery.done()


def test_signals_and_dead_letters_are_enough_sooner_than_records() -> None:
    record = RawRecord(RAW_NODE_LOGS.name, 0, 0, from_millis(1), None, b"x" * 1024 * 1024)
    signals, letters = Batch(), Batch()
    for _ in range(batches.MAX_SIGNALS - 1):
        signals.add(record, Detected((SIGNAL,)))
    for _ in range(3):
        letters.add(record, Detected(dead=("torn",)))
    assert not signals.full
    assert not letters.full
    signals.add(record, Detected((SIGNAL,)))
    letters.add(record, Detected(dead=("torn",)))
    assert signals.full
    assert letters.full


async def test_after_a_failure_nothing_more_is_delivered_and_the_reader_learns_of_it() -> None:
    tried: list[int] = []
    may_fail = asyncio.Event()

    async def refuse(batch: Batch) -> None:
        tried.append(batch.counts[RAW_NODE_LOGS.name].records)
        await may_fail.wait()
        raise ConnectionError

    delivery = Delivery(refuse)
    for number in (1, 2):
        delivery.gathered.places.add(PLACE)
        delivery.gathered.add_unread(RAW_NODE_LOGS.name, number)
        await delivery.go_on()
        await settled()
    may_fail.set()
    await delivery.wait()
    with pytest.raises(ConnectionError):
        await delivery.go_on()
    await delivery.done()
    assert tried == [1]
