"""Wordings as data: a row says which words open a message, what to read from it, and what signal it becomes.

A row's `opens` finds the message; `fields` (patterns with named groups, shared by the rows of a file) are looked for one by
one in what follows, so a message that is cut short or reordered by a version still gives what it holds. All patterns are RE2:
linear in the length of the text, whatever the text is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Literal

from pydantic import Field

from streams.config.yaml_tables import Strict
from streams.detect.catalog import FOLDER, load_catalog
from streams.detect.matching import re2_patterns
from streams.detect.matching.re2_patterns import Pattern
from streams.model.kinds import SignalKind
from streams.model.signal import Attribute, Severity, SignalState

MAX_HITS = 16
"""Messages that are looked for in one line: two may be glued together, hundreds are an attack."""

MAX_MESSAGE = 4096
"""Characters after the opening words in which fields are looked for."""


class PatternSample(Strict):
    """A line a row must find (`expect`: the attributes it must give) or must not."""

    text: str
    before: str = ""
    """The line before it, of the same source: what is over must have begun."""
    expect: dict[str, Any] = Field(default_factory=dict)


class PatternRow(Strict):
    """One wording. `source` says where it is known from; `samples` and `look_alikes` are loaded by the tests."""

    id: str
    kind: SignalKind
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
    unwinding: bool = False
    """What follows an error; it says nothing where the same source told the error itself shortly before."""
    ends: bool = False
    """Only told where the same place was firing before: every boot prints such lines too."""
    programs: tuple[str, ...] = ()
    """Only these programs say so (a line that names no program may be of any); empty for any program."""
    report: str | None = None
    """Several lines tell of one fault: the first of the rows with the same `report` says it, the others repeat it."""
    report_by: tuple[str, ...] = ()
    """Fields that are the same in all lines of one report."""
    fields: tuple[str, ...] = ()
    subtypes: dict[str, str] = Field(default_factory=dict)
    """Subtypes by the pattern that tells them; the first that is found in the message counts."""
    sets: dict[str, Attribute] = Field(default_factory=dict)
    source: str
    samples: tuple[PatternSample, ...] = Field(min_length=1)
    look_alikes: tuple[str, ...] = Field(min_length=1)


class PatternSheet(Strict):
    """One file of wordings. `integers` names the fields that are numbers.

    `written_by` says whose lines they are: what the kernel says is a quotation in the mouth of any other program, and the host
    that a line names is a switch when a switch wrote it.
    """

    written_by: Literal["host", "kernel", "pod", "switch"] = "host"
    integers: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rows: tuple[PatternRow, ...]


def sheet_names() -> list[str]:
    """The sheets there are: every file of `catalog/lines`."""
    return sorted(path.stem for path in (FOLDER / "lines").glob("*.yaml"))


def load_sheet(name: str) -> PatternSheet:
    """The sheet `catalog/lines/NAME.yaml`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    return load_catalog(f"lines/{name}", PatternSheet)


@dataclass(frozen=True, slots=True)
class Hit:
    """One wording found: where its opening words begin, where its message ends, and what it holds."""

    row: PatternRow
    start: int
    end: int
    fields: Mapping[str, Attribute]


class _Compiled:
    """One row's patterns."""

    def __init__(self, row: PatternRow) -> None:
        self.row = row
        self.opens = re2_patterns.compile(row.opens)
        self.needs = re2_patterns.compile(row.needs) if row.needs else None
        self.unless = re2_patterns.compile(row.unless) if row.unless else None
        self.fields = [re2_patterns.compile(pattern) for pattern in row.fields]
        self.subtypes = [(name, re2_patterns.compile(pattern)) for name, pattern in row.subtypes.items()]

    def means(self, text: str) -> bool:
        """Whether the line around the opening words lets them mean it."""
        return not (
            (self.needs and not self.needs.search(text)) or (self.unless and self.unless.search(text))
        )


class PatternTable:
    """The compiled rows of one file."""

    def __init__(self, sheet: PatternSheet) -> None:
        self.sheet = sheet
        self.hints = tuple(dict.fromkeys(row.hint.encode() for row in sheet.rows))
        self._integers = frozenset(sheet.integers)
        self._shared = [re2_patterns.compile(pattern) for pattern in sheet.fields]
        rows = sorted(sheet.rows, key=lambda row: row.fallback)
        self._rows = [_Compiled(row) for row in rows]
        self._openers = re2_patterns.PatternSet(row.opens.encode("latin-1") for row in rows)

    @staticmethod
    @cache
    def load(name: str) -> PatternTable:
        """The wordings of `catalog/lines/NAME.yaml`.

        Raises:
            ConfigError: naming the file and the first key that is wrong.
        """
        return PatternTable(load_sheet(name))

    def find(self, text: str, start: int) -> list[Hit]:
        """All messages in `text` from `start` on, in order; a message ends where the next one begins.

        Of two wordings that open in the same words, the one that opens first counts, else the one that stands first in the file.
        """
        opened: list[tuple[int, int, _Compiled]] = []
        for one in sorted(self._openings(text, start), key=lambda found: found[0]):
            if not opened or one[0] >= opened[-1][1]:
                opened.append(one)
        hits: list[Hit] = []
        for number, (begin, _, compiled) in enumerate(opened):
            end = opened[number + 1][0] if number + 1 < len(opened) else len(text)
            # A wording may hold fields in its opening words, so those are read again.
            message = text[begin : min(end, begin + MAX_MESSAGE)]
            fields = read_fields(message, (*compiled.fields, *self._shared), self._integers)
            told = next((name for name, pattern in compiled.subtypes if pattern.search(message)), None)
            hits.append(Hit(compiled.row, begin, end, {**fields, "subtype": told} if told else fields))
        return hits

    def _openings(self, text: str, start: int) -> Iterator[tuple[int, int, _Compiled]]:
        found = False
        for number in self._openers.found_in(text):
            compiled = self._rows[number]
            if compiled.row.fallback and found:
                continue
            for match in islice(compiled.opens.finditer(text, start), MAX_HITS):
                if not compiled.means(text):
                    break
                found = True
                yield match.start(), match.end(), compiled


def read_fields(message: str, patterns: Iterable[Pattern], integers: Collection[str]) -> dict[str, Attribute]:
    """What the patterns' named groups hold, each looked for by itself; the first that holds a name counts.

    Args:
        message: The text.
        patterns: With named groups.
        integers: The names that are numbers; one that does not fit 64 bits is left out.
    """
    fields: dict[str, Attribute] = {}
    for pattern in patterns:
        match = pattern.search(message)
        if match is None:
            continue
        for name, value in match.groupdict().items():
            if value is None or name in fields:
                continue
            if name not in integers:
                fields[name] = value
            elif (number := _integer(value)) is not None:
                fields[name] = number
    return fields


def _integer(text: str) -> int | None:
    """A number that fits 64 bits; log text may claim any."""
    return int(text) if len(text) <= 19 and abs(int(text)) < 2**63 else None
