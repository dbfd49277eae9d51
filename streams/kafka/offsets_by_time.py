"""Where reading since a time begins, on a broker too that cannot search by time.

A partition's times need not ascend: a shipper's clock may be wrong. So it is the first record that is late enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.model.clock import to_millis

_LOOK_BACK = 100
"""Records at the end of a partition that are looked at when the broker says that none of them is late enough."""


@dataclass(frozen=True, slots=True)
class FirstSince:
    """The place to begin at. `timestamp` (milliseconds) is that of its record.

    It is None at the end, and where the broker told none.
    """

    offset: int
    timestamp: int | None = None


async def first_since(
    client: AIOKafkaConsumer, partitions: Sequence[TopicPartition], since: datetime
) -> dict[TopicPartition, FirstSince]:
    """The first record since a time in each partition: its end where there is none, its beginning where a broker cannot tell.

    The client is assigned to other partitions afterwards.
    """
    # The protocol takes negative times for names of the first and the last offset.
    at_ms = max(0, to_millis(since))
    client.assign(partitions)  # a client asks for the leaders of what is assigned to it alone
    client.pause(*partitions)
    oldest = await client.beginning_offsets(partitions)
    ends = await client.end_offsets(partitions)  # of a read-committed consumer: the last stable offset
    told = await client.offsets_for_times(dict.fromkeys(partitions, at_ms))
    found: dict[TopicPartition, FirstSince] = {}
    for place in partitions:
        low, end, first = oldest[place], ends[place], told.get(place)
        if first is not None:
            found[place] = FirstSince(min(first.offset, end), first.timestamp)
        elif low < end and await _has_later(client, place, max(low, end - _LOOK_BACK), end, at_ms):
            found[place] = FirstSince(low)
        else:
            found[place] = FirstSince(end)
    return found


async def _has_later(
    client: AIOKafkaConsumer, place: TopicPartition, first: int, end: int, at_ms: int
) -> bool:
    """Whether one of these records is since that time, whatever the broker says: not every one can search by time."""
    client.assign([place])
    client.seek(place, first)
    while await client.position(place) < end:
        records = (await client.getmany(place, timeout_ms=200)).get(place, [])
        if any(record.timestamp >= at_ms for record in records):
            return True
    return False
