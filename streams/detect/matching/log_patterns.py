"""Log patterns as data: a row has the words that open a message, the fields to read from it, and the signal it becomes.

A row's `opens` finds the message. `fields` (patterns with named groups, shared by the rows of a file) are searched one by one in
what follows, so a message that was cut, or reordered by a version, still gives what it holds. All patterns are RE2: linear in the
length of the text, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import Field

from streams.config.vocabularies import KnownWords
from streams.config.yaml_tables import Strict
from streams.detect.catalog import FOLDER, load_catalog
from streams.detect.matching import re2_patterns
from streams.detect.matching.re2_patterns import Pattern
from streams.detect.matching.whole_number import whole_number
from streams.model.kinds import SignalKind
from streams.model.signal import Attribute, Severity, SignalState

MAX_HITS = 16
"""Messages read from one line: two may be glued together, hundreds are an attack."""

MAX_MESSAGE = 4096
"""Characters from the opening words on that are searched for fields."""


class PatternSample(Strict):
    """A line that a row must find; `expect` are attributes it must give."""

    text: str
    before: str = ""
    """The line before it of the same source: what ends must have been firing."""
    expect: dict[str, Any] = Field(default_factory=dict)


class Pace(Strict):
    """How far behind its peers something is, by two figures of one message: scores, throughputs, or the times that each takes."""

    of: str
    """The field with its own figure."""
    to: str
    """The field with that of its peers. Without it, one up to 1 is a share of theirs, and any other says nothing."""
    below: float
    """From this share of its peers on all is well, and the message says nothing."""
    only: bool = False
    """Without its own figure the message says nothing either."""

    def percent(self, fields: Mapping[str, Attribute]) -> int | None:
        """Its pace in percent of its peers', 100 at most; None where the message does not have it."""
        if isinstance(stated := fields.get("percent"), int):
            return min(stated, 100)
        own, peers = _figure(fields, self.of), _figure(fields, self.to)
        if peers is None and own is not None and own <= 1:
            peers = 1.0
        return round(100 * min(own / peers, peers / own)) if own and peers else None

    def says_something(self, percent: int | None) -> bool:
        """Whether a message with this pace is one about something slow."""
        return not self.only if percent is None else percent < 100 * self.below


def _figure(fields: Mapping[str, Attribute], name: str) -> float | None:
    return float(str(fields[name])) if name in fields else None


class PatternRow(Strict):
    """One message. `source` says where it is known from; the tests load `samples` and `look_alikes`."""

    id: str
    kind: SignalKind
    severity: Severity
    state: SignalState = SignalState.FIRING
    hint: str | None = Field(None, description="RE2 of bytes that every record with this message holds")
    """None for words that are looked for only in lines that were kept for another reason, and in which nothing was found."""
    opens: str
    needs: str | None = None
    """More words that must be in the line."""
    unless: str | None = None
    """Words that give the line another meaning."""
    fallback: bool = False
    """Only where no other row matched the line: for messages that lost their beginning."""
    listed: bool = False
    """The program itself prints the message as a list item."""
    unwinding: bool = False
    """What follows an error; ignored where the same source logged the error itself shortly before."""
    ends: bool = False
    """Only where the same place was firing: every boot prints such lines too."""
    programs: tuple[str, ...] = ()
    """Only from these programs, or from a line that names none; empty for any program."""
    itself: bool = False
    """It is about the host that it was logged on, though lines of this sheet are about others."""
    report: str | None = None
    """Several lines report one fault: the first of the rows with the same `report` counts, the others repeat it."""
    report_by: tuple[str, ...] = ()
    """Fields with the same value in all lines of a report."""
    fields: tuple[str, ...] = ()
    pace: Pace | None = None
    """Two figures of which the field `percent` is made, where the message does not state it."""
    subtypes: dict[str, str] = Field(default_factory=dict)
    """Subtypes and their patterns; the first found in the message counts."""
    sets: Annotated[dict[str, Attribute], KnownWords] = Field(default_factory=dict)
    source: str
    samples: tuple[PatternSample, ...] = Field(min_length=1)
    look_alikes: tuple[str, ...] = Field(min_length=1)


class PatternSheet(Strict):
    """One file of patterns. `integers` names the fields that are numbers; `counts`, those of them that may have thousands
    separators, and that are left out where the line may be cut within them (`whole_number.py`).

    `written_by` says who logs these lines. A kernel message from another program is a quotation; the host of a switch's line is
    the switch, and the host of a manager's none of the ports that the line is about (`managers.yaml`).
    """

    written_by: Literal["host", "kernel", "manager", "pod", "switch"] = "host"
    integers: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    rows: tuple[PatternRow, ...]


def sheet_names() -> list[str]:
    """The names of all files in `catalog/lines`."""
    return sorted(path.stem for path in (FOLDER / "lines").glob("*.yaml"))


def load_sheet(name: str) -> PatternSheet:
    """The file `catalog/lines/NAME.yaml`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    return load_catalog(f"lines/{name}", PatternSheet)


@dataclass(frozen=True, slots=True)
class Hit:
    """A message found: its row, where its opening words begin, where it ends, and its fields."""

    row: PatternRow
    start: int
    end: int
    fields: Mapping[str, Attribute]


class _Compiled:
    """The patterns of one row."""

    def __init__(self, row: PatternRow) -> None:
        self.row = row
        self.opens = re2_patterns.compile(row.opens)
        self.needs = re2_patterns.compile(row.needs) if row.needs else None
        self.unless = re2_patterns.compile(row.unless) if row.unless else None
        self.fields = [re2_patterns.compile(pattern) for pattern in row.fields]
        self.subtypes = [(name, re2_patterns.compile(pattern)) for name, pattern in row.subtypes.items()]

    def fits(self, text: str) -> bool:
        """True when the line has what the row needs and nothing it excludes."""
        lacks = self.needs and not self.needs.search(text)
        return not (lacks or (self.unless and self.unless.search(text)))


class PatternTable:
    """The compiled rows of one file."""

    def __init__(self, sheet: PatternSheet) -> None:
        self.sheet = sheet
        self.hints = tuple(dict.fromkeys(row.hint.encode() for row in sheet.rows if row.hint))
        self.unhinted = tuple(row.opens.encode("latin-1") for row in sheet.rows if not row.hint)
        """What opens the messages of rows without a hint."""
        self._integers = frozenset(sheet.integers)
        self._counts = frozenset(sheet.counts)
        self._shared = [re2_patterns.compile(pattern) for pattern in sheet.fields]
        rows = sorted(sheet.rows, key=lambda row: row.fallback)
        self._rows = [_Compiled(row) for row in rows]
        self._openers = re2_patterns.PatternSet(row.opens.encode("latin-1") for row in rows)

    @staticmethod
    @cache
    def load(name: str) -> PatternTable:
        """The compiled rows of `catalog/lines/NAME.yaml`, built once.

        Raises:
            ConfigError: naming the file and the first key that is wrong.
        """
        return PatternTable(load_sheet(name))

    def find(self, text: str, start: int) -> list[Hit]:
        """All messages in `text` from `start` on, in order; a message ends where the next one begins.

        Of rows whose opening words overlap, the one that opens first counts, else the first in the file.
        """
        opened: list[tuple[int, int, _Compiled]] = []
        for one in sorted(self._openings(text, start), key=lambda found: found[0]):
            if not opened or one[0] >= opened[-1][1]:
                opened.append(one)
        hits: list[Hit] = []
        for number, (begin, _, compiled) in enumerate(opened):
            end = opened[number + 1][0] if number + 1 < len(opened) else len(text)
            # The opening words may hold fields, so they are searched too.
            message = text[begin : min(end, begin + MAX_MESSAGE)]
            fields = read_fields(message, (*compiled.fields, *self._shared), self._integers)
            if self._counts & fields.keys():
                fields = self._whole_counts(fields, compiled, message, text[begin:])
            if (pace := compiled.row.pace) is not None:
                percent = pace.percent(fields)
                if not pace.says_something(percent):
                    continue
                fields = {**fields, "percent": percent} if percent is not None else fields
            subtype = next((name for name, pattern in compiled.subtypes if pattern.search(message)), None)
            hits.append(Hit(compiled.row, begin, end, {**fields, "subtype": subtype} if subtype else fields))
        return hits

    def _whole_counts(
        self, fields: dict[str, Attribute], compiled: _Compiled, message: str, text: str
    ) -> dict[str, Attribute]:
        """The fields with each count as it was meant. It may go on beyond the pattern, and beyond the message that it ends."""
        counts: dict[str, int | None] = {}
        for pattern in (*compiled.fields, *self._shared):
            match = pattern.search(message)
            for name, _ in match.named() if match is not None else ():
                if match is not None and name in self._counts and name not in counts:
                    counts[name] = whole_number(text, match.start(name))
        known: dict[str, Attribute] = {name: count for name, count in counts.items() if count is not None}
        return {**{name: value for name, value in fields.items() if name not in counts}, **known}

    def _openings(self, text: str, start: int) -> Iterator[tuple[int, int, _Compiled]]:
        found = False
        for number in self._openers.found_in(text):
            compiled = self._rows[number]
            if compiled.row.fallback and found:
                continue
            for match in islice(compiled.opens.finditer(text, start), MAX_HITS):
                if not compiled.fits(text):
                    break
                found = True
                yield match.start(), match.end(), compiled


def read_fields(message: str, patterns: Iterable[Pattern], integers: Collection[str]) -> dict[str, Attribute]:
    """The named groups of the patterns, each searched by itself; the first value of a name counts.

    Groups named in `integers` become numbers; one that does not fit 64 bits is left out.
    """
    fields: dict[str, Attribute] = {}
    for pattern in patterns:
        match = pattern.search(message)
        if match is None:
            continue
        for name, value in match.named():
            if name in fields:
                continue
            if name not in integers:
                fields[name] = value
            elif (number := _integer(value)) is not None:
                fields[name] = number
    return fields


def _integer(text: str) -> int | None:
    """The number, None when it does not fit 64 bits: log text may hold any."""
    return int(text) if len(text) <= 19 and abs(int(text)) < 2**63 else None
