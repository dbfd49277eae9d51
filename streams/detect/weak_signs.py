"""Signs of trouble that say too little to act on: `catalog/signs/*.yaml`, read of lines in which no other family found anything.

What launchers, schedulers, daemons, agents of clouds and tools print when something went wrong, without saying what, or
without saying whose fault it is. Each is a signal, info, of what it speaks of (`subjects.py`): context of its place, for people.
A sheet is one area (`slurm`, `kubernetes`); its name is the author of what it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

from streams.config.yaml_tables import Strict
from streams.detect.catalog import FOLDER, load_catalog
from streams.detect.finding import Finding, Stream
from streams.detect.matching import carriers, re2_patterns
from streams.detect.matching.log_patterns import MAX_MESSAGE, read_fields
from streams.detect.matching.quotation_filter import written_by_people
from streams.detect.matching.re2_patterns import Pattern, PatternSet
from streams.detect.slurm import hosts_in
from streams.detect.subjects import Subject, subject_of
from streams.ingest.logs import quotation
from streams.model.clock import to_millis
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity

MAX_TOLD = 20_000
_EACH_MS = 600_000
"""One signal for a row, subject and place in this time."""
_MAX_NODES = 8
_MARK = "\x1f"
"""Stands between program and message in what is matched: there `^` of a pattern matches."""
_BEGIN = re.compile(r"(?<![\[\\])\^")
_OF_THE_KERNEL = re.compile(r"^\[\s{0,8}\d{1,10}\.\d{1,9}\] |\bNVRM\b|\bkernel: ")
_HEADER = re.compile(
    r"[\[(]?[EWIF]?\d{3,4}[ -]\d\d|\[|[A-Za-z][\w.-]{1,48}\[[\w.-]{1,32}\]: |[\w.-]{3,48} [\w-]{3,32} \{\""
)
_MAX_HEADER = 128
_QUOTES = ('"', "'", "`", "\u201c", "\u2018")
_NO_PROGRAM = frozenset({"container", quotation.SOURCE, "error", "fatal", "warning"})
"""Sources that name no program: Slurm's files have the level where others have a name."""


class SignWords(Strict):
    """`catalog/sign_words.yaml`: what the prefilter looks for, and patterns that rows name in angle brackets."""

    hints: tuple[str, ...]
    words: Mapping[str, str]


class SignRow(Strict):
    """Wordings of one sort. `opens` is RE2 of what the line holds, `unless` takes it back; the tests load the samples."""

    id: str
    opens: str
    unless: str | None = None
    programs: tuple[str, ...] = ()
    """Only of these programs, or of a line that names none; empty for any program."""
    listed: bool = False
    """The program itself prints it with marks, bars or quotes, as people do around what they quote."""
    source: str
    samples: tuple[str, ...]
    look_alikes: tuple[str, ...]


class SignSheet(Strict):
    """One area. `fields` are RE2 patterns with named groups; `nodes` is a host list of Slurm's."""

    fields: tuple[str, ...] = ()
    rows: tuple[SignRow, ...]


@cache
def words() -> SignWords:
    """The shared words, read once."""
    return load_catalog("sign_words", SignWords)


@cache
def sheets() -> Mapping[str, SignSheet]:
    """All files of `catalog/signs`, by name."""
    names = sorted(path.stem for path in (FOLDER / "signs").glob("*.yaml"))
    return {name: load_catalog(f"signs/{name}", SignSheet) for name in names}


class _Sign(NamedTuple):
    """A row, compiled, with the area and the fields of its sheet."""

    area: str
    row: SignRow
    opens: Pattern
    unless: Pattern | None
    fields: Sequence[Pattern]


def _spelled_out(pattern: str) -> str:
    for name, meaning in words().words.items():
        pattern = pattern.replace(f"<{name}>", f"(?:{meaning})")
    return _BEGIN.sub(_MARK, pattern)


@cache
def _signs() -> tuple[_Sign, ...]:
    return tuple(
        _Sign(
            area,
            row,
            re2_patterns.compile(_spelled_out(row.opens)),
            re2_patterns.compile(_spelled_out(row.unless)) if row.unless else None,
            [re2_patterns.compile(pattern) for pattern in sheet.fields],
        )
        for area, sheet in sheets().items()
        for row in sheet.rows
    )


class WeakSigns:
    """Reads all sheets; a row of a sheet is heard of a place once in a while."""

    def __init__(self) -> None:
        self.hints = tuple(hint.encode() for hint in words().hints)
        self._openers = PatternSet(sign.opens.pattern.encode("latin-1") for sign in _signs())

    def concerns(self, line: LogLine, stream: Stream) -> bool:
        """Never: a sign is told by its words alone."""
        return False

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The first sign in the line, if its place has not given it lately."""
        message = line.text[line.start : line.start + MAX_MESSAGE]
        if line.source == "kernel" or _OF_THE_KERNEL.search(line.text) is not None:
            return
        header = line.text[: line.start]
        named = line.source and line.source not in _NO_PROGRAM and not header.startswith("[20")
        begin = f"{line.source}: " if named else header
        begin = begin[-_MAX_HEADER:]
        text = f"{begin}{_MARK}{message}"
        for number in self._openers.found_in(text):
            sign = _signs()[number]
            hit = sign.opens.search(text)
            if hit is None or (sign.row.programs and line.source not in ("", *sign.row.programs)):
                continue
            if sign.unless is not None and sign.unless.search(text):
                continue
            before = message[: max(hit.start() - len(begin) - 1, 0)]
            if not _is_reported(line, before, sign.row):
                continue
            subject = subject_of(sign.area, line, sign.row.id)
            yield from _findings(sign, read_fields(message, sign.fields, ()), line, stream, subject)
            return


def _findings(
    sign: _Sign, fields: Mapping[str, Attribute], line: LogLine, stream: Stream, subject: Subject
) -> Iterator[Finding]:
    named = fields.get("nodes")
    nodes = list(islice(hosts_in(named), _MAX_NODES)) if isinstance(named, str) else [None]
    attributes: dict[str, Attribute] = {"author": sign.area, "subtype": sign.row.id}
    attributes |= {name: value for name, value in fields.items() if name != "nodes"}
    attributes |= subject.attributes("sign")
    told = stream.rule_state.table("signs.told", MAX_TOLD)
    now = to_millis(line.at or stream.received_at)
    for node in nodes:
        key = (
            *(stream.cluster, node or line.node or stream.lines, str(line.pod or "")),
            *(sign.area, sign.row.id, subject.id),
        )
        before = told.get(key)
        if before is not None and abs(now - int(before[0] or 0)) < _EACH_MS:
            continue
        told[key] = (now,)
        yield Finding(subject.kind, Severity.INFO, attributes, node=node, text=line.text)


def _is_reported(line: LogLine, before: str, row: SignRow) -> bool:
    """Whether a program says it: no people's channel, no question, no words or quotes of people before it."""
    if _asks(line):
        return False
    if row.listed:
        return line.source == quotation.SOURCE or not written_by_people(line.source)
    if written_by_people(line.source):
        return False
    if before.count('"') % 2 and not _has_header(line):
        return False
    if before.rstrip().endswith(_QUOTES) and not carriers.in_a_field(line.text[: line.start] + before):
        return False
    return not carriers.personal(before)


def _asks(line: LogLine) -> bool:
    """A person's question; a program that logs one has a header before it."""
    return line.text.rstrip().endswith("?") and not _has_header(line)


def _has_header(line: LogLine) -> bool:
    return line.start > 0 or _HEADER.match(line.text) is not None
