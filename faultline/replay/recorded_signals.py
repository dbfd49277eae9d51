"""The signals that a capture holds, with when a replay learns of them: as the correlator read them, each once.

They are taken by the Kafka time of their records, then by partition and offset, so that late ones come late here as well. A
detector that was killed wrote some of them again, with the same ids: the first counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import itemgetter

from faultline.replay.detection import Found, Moment
from faultline.replay.topic_records import Survey, TopicRecords, from_micros
from streams.model.codec import decode
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from streams.model.signal import Signal, SignalBatch

REPEATED_WITHIN = timedelta(hours=1)
"""How long after a signal a repetition is known for one. A detector writes again what was not committed: seconds, or what lay
between its death and the next one's start. The correlator knows them for `correlator.retention_minutes`, less than that."""

_Waiting = tuple[int, int, int, RawRecord]
"""When a record is due (µs), its partition and offset, and the record."""
_order = itemgetter(0, 1, 2)


class RecordedSignals:
    """Reads a `signals` topic. `dead_letters` counts the records that could not be read."""

    def __init__(self, records: TopicRecords, counts: Callable[[Signal], bool]) -> None:
        """`counts` says which signals are taken."""
        self.dead_letters = 0
        self._records = records
        self._counts = counts
        self._seen: dict[str, datetime] = {}
        self._forgotten_at: datetime | None = None

    @property
    def survey(self) -> Survey:
        """Where the records begin and end."""
        return self._records.survey

    def found(self) -> Iterator[Found]:
        """What is found, in the order of `detection.order`. What lies apart in the file waits until nothing earlier may come."""
        latest: dict[int, int] = {}
        waiting: list[_Waiting] = []
        disorder = self._records.survey.disorder
        for batch in self._records.batches():
            for index, (partition, time) in enumerate(zip(batch.partitions, batch.times, strict=True)):
                latest[partition] = due = max(time, latest.get(partition, time))
                record = batch.record(index)
                waiting.append((due, partition, record.offset, record))
            if not latest:
                continue
            safe = batch.reached if batch.reached is not None else max(latest.values()) - disorder
            waiting.sort(key=_order)
            ready = [one for one in waiting if one[0] < safe]
            del waiting[: len(ready)]
            yield from self._signals_of(ready)
        yield from self._signals_of(sorted(waiting, key=_order))

    def _signals_of(self, ready: list[_Waiting]) -> Iterator[Found]:
        for due_us, partition, offset, record in ready:
            if record.value is None:
                continue
            try:
                signals = decode(SignalBatch, record.value).signals
            except BadInput:
                self.dead_letters += 1
                continue
            due = from_micros(due_us)
            if taken := tuple(one for one in signals if self._is_first(one, due) and self._counts(one)):
                yield Found(due, Moment.RECORD, record.topic, partition, offset, record.timestamp, taken)

    def _is_first(self, signal: Signal, at: datetime) -> bool:
        if self._forgotten_at is None or at - self._forgotten_at > REPEATED_WITHIN:
            self._seen = {name: seen for name, seen in self._seen.items() if at - seen < REPEATED_WITHIN}
            self._forgotten_at = at
        if signal.id in self._seen:
            return False
        self._seen[signal.id] = at
        return True
