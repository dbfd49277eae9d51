"""Records as aiokafka's parser makes them, without the copy of each into a `ConsumerRecord`, for who throws most of them away.

The copy and the loops around it cost four fifths of what reading a record costs after the parser. aiokafka has no setting for it
(`docs/upstream` proposes one), so a consumer's own fetch results are given another way to be taken. This is
private to aiokafka: with a version that is not known here, records come in the ordinary way, and a warning says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from typing import Any
from weakref import proxy

import aiokafka
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException

log = structlog.get_logger(__name__)

KNOWN_VERSIONS = frozenset({"0.14.0"})
"""Versions of aiokafka whose `FetchResult.getall` and `PartitionRecords._unpack_records` are what this module does otherwise."""

_NEEDED = (
    (fetcher.FetchResult, ("getall", "check_assignment", "has_more", "_update_position")),
    (fetcher.PartitionRecords, ("_consume_aborted_up_to", "_contains_abort_marker")),
)


def lighten(consumer: AIOKafkaConsumer) -> None:
    """Have a started consumer's `getmany` return light records: `offset`, `timestamp`, `key`, `value` and `headers`, no more.

    `getone` must not be used after it. What was fetched before the call still comes as `ConsumerRecord`.
    """
    fetched: Any = getattr(getattr(consumer, "_fetcher", None), "_records", None)
    known = aiokafka.__version__ in KNOWN_VERSIONS and type(fetched) is OrderedDict
    if not known or not all(hasattr(kind, name) for kind, names in _NEEDED for name in names):
        log.warning("reading is slower: this version of aiokafka is not known", version=aiokafka.__version__)
        return
    light = _Fetched()
    for place, result in fetched.items():
        OrderedDict.__setitem__(light, place, result)  # some of it may have been taken already
    consumer._fetcher._records = light


class _Fetched(OrderedDict[TopicPartition, Any]):
    """A consumer's fetch results, by partition; each new one is taken in the light way."""

    def __setitem__(self, place: TopicPartition, result: Any) -> None:
        if type(result) is fetcher.FetchResult:
            result._partition_records = _LightRecords(result._partition_records)
            # A result that held itself would stay in memory, with megabytes, until the garbage collector comes.
            result.getall = partial(_take, proxy(result))
        super().__setitem__(place, result)


def _take(result: Any, most: int | None = None) -> list[Any]:
    """Does what `FetchResult.getall` does."""
    if not result.check_assignment(result._topic_partition) or not result.has_more():
        return []
    records = result._partition_records
    taken: list[Any] = records.take(most)
    result._update_position()
    if records.ended:
        result._partition_records = None
    return taken


class _LightRecords:
    """The records of one fetch, in the place of aiokafka's `PartitionRecords`, which still decides on aborted transactions.

    What is taken from or dropped is freed at once: it holds megabytes, and a process that collects garbage seldom would keep
    all it has read for an hour if it lay in a reference cycle.
    """

    def __init__(self, ordinary: Any) -> None:
        ordinary._records_iterator = None  # its own generator, which holds it until it has run
        self._ordinary = ordinary
        self._begun: Iterator[Any] = iter(())
        self._behind: int | None = None
        self.next_fetch_offset: int = ordinary.next_fetch_offset
        self.ended = False

    def take(self, most: int | None) -> list[Any]:
        """The next records, `most` at most; sets `ended` when there are no more."""
        taken: list[Any] = []
        while most is None or len(taken) < most:
            some = list(islice(self._begun, None if most is None else most - len(taken)))
            if some:
                if some[0].offset < self.next_fetch_offset:  # a fetch may begin in the middle of a batch
                    some = [record for record in some if record.offset >= self.next_fetch_offset]
                if some:
                    self.next_fetch_offset = some[-1].offset + 1
                    taken += some
                continue
            batch = self._next_batch()
            if batch is None:
                self.ended = True
                break
            self._begun = chain(batch)  # a batch refuses to be asked twice for its iterator, as `islice` does
        return taken

    def _next_batch(self) -> Any | None:
        """The next batch that holds records to return; moves `next_fetch_offset` behind all before it, compacted or not."""
        ordinary = self._ordinary
        if self._behind is not None:
            self.next_fetch_offset = self._behind
        while ordinary._records.has_next():
            batch = ordinary._records.next_batch()
            if ordinary._check_crcs and not batch.validate_crc():
                raise CorruptRecordException(f"Invalid CRC - {ordinary._tp}")
            self._behind = batch.next_offset
            if not self._is_aborted(batch) and not batch.is_control_batch:
                return batch
            self.next_fetch_offset = batch.next_offset
        return None

    def _is_aborted(self, batch: Any) -> bool:
        """Does what `PartitionRecords._unpack_records` does with transactions."""
        ordinary = self._ordinary
        if ordinary._isolation_level != fetcher.READ_COMMITTED or batch.producer_id is None:
            return False
        ordinary._consume_aborted_up_to(batch.base_offset)
        if batch.is_control_batch and ordinary._contains_abort_marker(batch):
            ordinary._aborted_producers.discard(batch.producer_id)
        return bool(batch.is_transactional and batch.producer_id in ordinary._aborted_producers)
