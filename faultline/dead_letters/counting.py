"""Counts letters by group, in 8 bytes a letter: to tell which were written back, the offsets of those counted are kept."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from faultline.dead_letters.letter import Letter, Retried, folded, place_of
from streams.model.clock import rfc3339

MAX_GROUPS = 5000
"""More groups are counted as one: a shipper may write reasons that do not fold."""

REST = "rest"
"""The id of that one."""


@dataclass(slots=True)
class Group:
    """Letters of one stage and topic with the same reason but for numbers and ids. `example` is the newest's coordinates."""

    id: str
    stage: str
    topic: str
    reason: str
    first: datetime
    last: datetime
    example: str
    letters: int = 0
    bytes: int = 0
    truncated: int = 0
    retried: int = 0

    def add(self, letter: Letter) -> None:
        """Count a letter."""
        self.letters += 1
        self.bytes += letter.why.size_bytes
        self.truncated += letter.why.truncated
        self.first = min(self.first, letter.at)
        if letter.at >= self.last:
            self.last, self.example = letter.at, letter.coordinates

    def document(self) -> dict[str, object]:
        """Plain values."""
        return {
            "id": self.id,
            "stage": self.stage,
            "topic": self.topic,
            "reason": self.reason,
            "letters": self.letters,
            "retried": self.retried,
            "truncated": self.truncated,
            "bytes": self.bytes,
            "first": rfc3339(self.first),
            "last": rfc3339(self.last),
            "example": self.example,
        }


class Groups:
    """The groups of the letters added so far. `foreign` counts records that are no letters."""

    def __init__(self, most: int = MAX_GROUPS) -> None:
        self._most = most
        self._groups: dict[str, Group] = {}
        self._offsets: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
        """Of the letters counted, by partition, ascending: each partition is read in its order."""
        self.letters = 0
        self.foreign = 0

    def add(self, found: Letter | Retried | None) -> None:
        """Count a letter, or a mark that one of those counted before was written back."""
        if found is None:
            self.foreign += 1
        elif isinstance(found, Retried):
            group = self._groups.get(found.group) or self._groups.get(REST)
            if group is not None and self._counted(*place_of(found.letter)):
                group.retried += 1
        else:
            self.letters += 1
            self._offsets[found.partition].append(found.offset)
            self._of(found).add(found)

    def _counted(self, partition: int, offset: int) -> bool:
        offsets = self._offsets[partition]
        index = bisect_left(offsets, offset)
        return index < len(offsets) and offsets[index] == offset

    def _of(self, letter: Letter) -> Group:
        known = self._groups.get(letter.group)
        if known is not None:
            return known
        if len(self._groups) < self._most:
            new = Group(
                letter.group, letter.why.stage, letter.why.topic, folded(letter.why.reason),
                letter.at, letter.at, letter.coordinates,
            )  # fmt: skip
        elif REST in self._groups:
            return self._groups[REST]
        else:
            new = Group(REST, "", "", "all other reasons", letter.at, letter.at, letter.coordinates)
        self._groups[new.id] = new
        return new

    def largest_first(self) -> list[Group]:
        """Every group, that with most letters first."""
        return sorted(self._groups.values(), key=lambda group: (-group.letters, group.id))
