"""Wordings as data: a row says which words open a message, what to read from it, and what signal it becomes.

A row's `opens` finds the message; `fields` (patterns with named groups, shared by the rows of a file) are looked for one by
one in what follows, so a message that is cut short or reordered by a version still gives what it holds. All patterns are RE2:
linear in the length of the text, whatever the text is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import re2
from pydantic import BaseModel, ConfigDict, Field

from streams.detect.catalog import load_catalog
from streams.model.errors import ConfigError
from streams.model.signal import Attribute, Severity, SignalState

MAX_HITS = 16
"""Messages that are looked for in one line: two may be glued together, hundreds are an attack."""

MAX_MESSAGE = 4096
"""Characters after the opening words in which fields are looked for."""


class Sample(BaseModel):
    """A line a row must find (`expect`: the attributes it must give) or must not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    expect: dict[str, Any] = {}


class Row(BaseModel):
    """One wording. `source` says where it is known from; `samples` and `look_alikes` are loaded by the tests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    kind: str
    severity: Severity
    state: SignalState = SignalState.FIRING
    hint: str = Field(description="RE2 of bytes that every record with this wording holds")
    opens: str
    needs: str | None = None
    """More words that must be in the line."""
    unless: str | None = None
    """Words that make the line mean something else."""
    fallback: bool = False
    """Only when no other row found anything in the line: for messages that lost their beginning."""
    listed: bool = False
    """The program prints the message as an item of a list."""
    fields: tuple[str, ...] = ()
    sets: dict[str, Attribute] = {}
    source: str
    samples: tuple[Sample, ...] = Field(min_length=1)
    look_alikes: tuple[str, ...] = Field(min_length=1)


class Sheet(BaseModel):
    """One file of wordings. `integers` names the fields that are numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    integers: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One wording found: where its opening words begin, where its message ends, and what it holds."""

    row: Row
    start: int
    end: int
    fields: Mapping[str, Attribute]


class Wordings:
    """The compiled rows of one file."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.hints = tuple(dict.fromkeys(row.hint.encode() for row in sheet.rows))
        self._integers = frozenset(sheet.integers)
        self._shared = [_compiled(pattern) for pattern in sheet.fields]
        self._rows = [
            (
                row,
                _compiled(row.opens),
                _compiled(row.needs) if row.needs else None,
                _compiled(row.unless) if row.unless else None,
                [_compiled(pattern) for pattern in row.fields],
            )
            for row in sheet.rows
        ]

    @staticmethod
    @cache
    def load(name: str) -> Wordings:
        """The wordings of `catalog/NAME.yaml`.

        Raises:
            ConfigError: naming the file and the first key that is wrong.
        """
        return Wordings(load_catalog(name, Sheet))

    def find(self, text: str, start: int) -> list[Hit]:
        """All messages in `text` from `start` on, in order; a message ends where the next one begins."""
        opened = sorted(self._openings(text, start), key=lambda found: found[:2])
        hits: list[Hit] = []
        for number, (begin, after, row, own) in enumerate(opened):
            end = opened[number + 1][0] if number + 1 < len(opened) else len(text)
            message = text[after : min(end, after + MAX_MESSAGE)]
            hits.append(Hit(row, begin, end, self._read(message, own)))
        return hits

    def _openings(self, text: str, start: int) -> Iterator[tuple[int, int, Row, list[Any]]]:
        found = False
        for row, opens, needs, unless, own in self._rows:
            if row.fallback and found:
                continue
            for match in islice(opens.finditer(text, start), MAX_HITS):
                if (needs and not needs.search(text)) or (unless and unless.search(text)):
                    break
                found = True
                # A wording may hold fields in its opening words, so those are read again.
                yield match.start(), match.start(), row, own

    def _read(self, message: str, own: list[Any]) -> dict[str, Attribute]:
        fields: dict[str, Attribute] = {}
        for pattern in (*own, *self._shared):
            match = pattern.search(message)
            if match is None:
                continue
            for name, value in match.groupdict().items():
                if value is None or name in fields:
                    continue
                if name not in self._integers:
                    fields[name] = value
                elif (number := _integer(value)) is not None:
                    fields[name] = number
        return fields


def _compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern)
    except re2.error as error:
        raise ConfigError(f"catalog: pattern {pattern!r}: {error}") from error


def _integer(text: str) -> int | None:
    """A number that fits 64 bits; log text may claim any."""
    return int(text) if len(text) <= 19 and abs(int(text)) < 2**63 else None
