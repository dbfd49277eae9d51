"""One record of `dead-letters`: a letter, or the mark that a letter was written back; and what letters are chosen."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from aiokafka import ConsumerRecord

from streams.kafka.dead_letters import HEADER, RETRIED_HEADER, original, why_buried
from streams.model.clock import from_millis
from streams.model.codec import decode
from streams.model.conversation import DeadLetter
from streams.model.digest import digest
from streams.model.errors import BadInput
from streams.model.record import RawRecord

PREVIEW_BYTES = 4096
"""How much of a value is kept where letters are only listed."""

_FOLDED = (
    (re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"(['\"`]).{1,200}?\1"), "<text>"),
    (re.compile(r"\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<n>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "<n>"),
)
_MAX_FOLDED = 300


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: where it lies in `dead-letters`, when it was written there, and the record it was made of."""

    partition: int
    offset: int
    at: datetime
    why: DeadLetter
    record: RawRecord

    @property
    def coordinates(self) -> str:
        """`partition:offset` in `dead-letters`, as commands take it."""
        return f"{self.partition}:{self.offset}"

    @property
    def group(self) -> str:
        """The id of its group: letters of one stage and topic whose reasons differ in numbers and ids only."""
        return digest(self.why.stage, self.why.topic, folded(self.why.reason), size=4)

    @property
    def source(self) -> int:
        """64 bits that stand for the original record: its topic, partition, offset and time.

        By time too, because offsets begin again in a topic that was deleted and made anew.
        """
        about = self.why
        return int(
            digest(about.topic, about.partition, about.offset, about.timestamp.isoformat(), size=8), 16
        )

    @property
    def slim(self) -> Letter:
        """The same with the beginning of the value only."""
        value = self.record.value
        return replace(self, record=self.record._replace(value=value and value[:PREVIEW_BYTES]))


@dataclass(frozen=True, slots=True)
class Retried:
    """A mark on `dead-letters`: this letter was written back. It lies behind its letter, in the same partition.

    So it is deleted after the letter, never before, whether retention does it or a purge.
    """

    letter: str
    """The letter's coordinates."""
    source: int
    group: str
    at: datetime
    by: str


def read(record: ConsumerRecord[bytes, bytes]) -> Letter | Retried | None:
    """What a record of `dead-letters` is; None for one that is neither, which nobody but Faultline's processes could read."""
    headers = tuple(record.headers)
    names = {name for name, _ in headers}
    try:
        if HEADER in names:
            return Letter(
                record.partition,
                record.offset,
                from_millis(record.timestamp),
                why_buried(headers),
                original(headers, record.value),
            )
        if RETRIED_HEADER in names:
            return decode(Retried, dict(headers)[RETRIED_HEADER])
    except BadInput:
        # Counted as foreign by whoever reads: the letter stays where it is.
        return None
    return None


def folded(reason: str) -> str:
    """A reason without what differs from record to record: numbers, ids, and what is quoted."""
    for pattern, stands_for in _FOLDED:
        reason = pattern.sub(stands_for, reason[:2000])
    return reason[:_MAX_FOLDED]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant. Empty parts choose all; `since` and `until` are about when the letter was written."""

    since: datetime | None = None
    until: datetime | None = None
    stage: str | None = None
    topic: str | None = None
    grep: re.Pattern[str] | None = None
    groups: tuple[str, ...] = ()
    letters: frozenset[str] = frozenset()

    @property
    def is_all(self) -> bool:
        """True when nothing narrows it."""
        return self == Choice()

    def takes(self, letter: Letter) -> bool:
        """Whether it is one of those that are meant. A pattern is looked for in the reason and at the beginning of the text."""
        return (
            (self.since is None or letter.at >= self.since)
            and (self.until is None or letter.at < self.until)
            and (self.stage is None or letter.why.stage == self.stage)
            and (self.topic is None or letter.why.topic == self.topic)
            and (not self.letters or letter.coordinates in self.letters)
            and (not self.groups or letter.group.startswith(self.groups))
            and (self.grep is None or any(map(self.grep.search, _texts(letter))))
        )


def _texts(letter: Letter) -> Iterable[str]:
    yield letter.why.reason
    yield (letter.record.value or b"")[:PREVIEW_BYTES].decode(errors="replace")


def place_of(coordinates: str) -> tuple[int, int]:
    """Partition and offset of `PARTITION:OFFSET`, also with `dead-letters:` before it.

    Raises:
        BadInput: when it is neither.
    """
    match = re.fullmatch(r"(?:\S*dead-letters:)?(\d{1,9}):(\d{1,18})", coordinates)
    if match is None:
        raise BadInput(
            f"{coordinates[:60]!r}: give PARTITION:OFFSET, as `faultline dead-letters list` prints it"
        )
    return int(match[1]), int(match[2])
