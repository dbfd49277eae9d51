"""Errors of known machine authors in words that no row knows: `catalog/unknown.yaml`.

Read last, and only of lines in which nothing else was found. What the line speaks of gives it its kind (`subjects.py`). A line
whose opening words belong to some row is not unknown: that row left it out on purpose, as a repeat, a retry or a healthy host's
habit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import Field

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import load_sheet, read_fields, sheet_names
from streams.detect.matching.quotation_filter import reported
from streams.detect.matching.re2_patterns import Pattern, PatternSet
from streams.detect.subjects import Subject, subject_of
from streams.ingest import levels
from streams.kafka.topics import RAW_ALERTS, RAW_FABRIC, RAW_JOB_LOGS
from streams.model.clock import to_millis
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity

MAX_TOLD = 20_000
MAX_MESSAGE = 1024


class KernelAuthor(Strict):
    """A driver or subsystem. `opens` is RE2 of what its messages begin with.

    One that is `loud` logs everything as an error, so its words count; one that is `tagged` counts only where the header names
    the kernel. With `itself` it may name no place but its own host.
    """

    author: str
    opens: str
    by_gpu: bool = False
    by_nic: bool = False
    loud: bool = False
    tagged: bool = False
    itself: bool = False


class Program(Strict):
    """A daemon, by its name in the header or its container's; `containers` are SONiC's (`swss#orchagent`).

    With `states` it also reports what left a good state, at whatever level; with `itself` it may name no place but its own host;
    with `words` its lines are errors by their words, for it writes no level. Only messages with what `needs` matches count. With
    `graded` the error level that a message begins with counts as one of its header does.
    """

    author: str
    names: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    by_gpu: bool = False
    by_nic: bool = False
    on_switch: bool = False
    states: bool = False
    itself: bool = False
    words: bool = False
    needs: str | None = None
    graded: bool = False


class Shape(Strict):
    """An author whom the form of its lines gives away; `bare` ones only where no program is named.

    With `graded` the form holds its own level, an error or worse.
    """

    author: str
    opens: str
    by_gpu: bool = False
    by_nic: bool = False
    on_switch: bool = False
    bare: bool = False
    itself: bool = False
    graded: bool = False


Author = KernelAuthor | Program | Shape


class ErrorWords(Strict):
    """How an author says that a line is an error: by words, by the level that programs print, by a state that was left.

    `opens` is the level of an error where a message begins with it.
    """

    words: str
    programs: str
    opens: str
    warnings: str
    harmless: str
    states: str


class UnknownSample(Strict):
    """A line of words that are in no row, and whose it is."""

    text: str
    author: str


class UnknownSheet(Strict):
    """The whole file; its head explains the keys."""

    kernel: tuple[KernelAuthor, ...]
    programs: tuple[Program, ...]
    shapes: tuple[Shape, ...]
    error: ErrorWords
    quiet: str
    settled: str
    by_people: str
    places: tuple[str, ...]
    integers: tuple[str, ...]
    each_s: float = Field(gt=0)
    places_each: int = Field(ge=1)
    samples: tuple[UnknownSample, ...]
    look_alikes: tuple[str, ...]
    hints: tuple[str, ...]


@cache
def sheet() -> UnknownSheet:
    """The file, read once."""
    return load_catalog("unknown", UnknownSheet)


class UnknownErrors:
    """Reads what no row knows. Says each author and place once in a while: `each_s` and `places_each` bound it."""

    def __init__(self) -> None:
        table = sheet()
        self._kernel = [(re2_patterns.compile(one.opens), one) for one in table.kernel]
        self._shapes = [(re2_patterns.compile(one.opens), one) for one in table.shapes]
        self._programs = {name: one for one in table.programs for name in one.names}
        self._containers = {name: one for one in table.programs for name in one.containers}
        self._needs = {one.author: re2_patterns.compile(one.needs) for one in table.programs if one.needs}
        self._words = re2_patterns.compile(table.error.words)
        self._program_error = re2_patterns.compile(table.error.programs)
        self._opens_with_level = re2_patterns.compile(table.error.opens)
        self._warning = re2_patterns.compile(table.error.warnings)
        self._harmless = re2_patterns.compile(table.error.harmless)
        self._left_state = re2_patterns.compile(table.error.states)
        self._quiet = re2_patterns.compile(table.quiet)
        self._by_people = re2_patterns.compile(table.by_people)
        self._settled = re2_patterns.compile(table.settled)
        self._places = [re2_patterns.compile(pattern) for pattern in table.places]
        self.hints = tuple(hint.encode() for hint in table.hints)

    def concerns(self, line: LogLine, stream: Stream) -> bool:
        """True for a line that may be such an error by what is known besides its text."""
        by_level = line.level is not None and line.level <= levels.ERROR
        of_host = line.source == "kernel" or (not line.source and line.pod is None)
        return of_host or by_level or _is_of_devices(line, stream) or self._program_of(line) is not None

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The finding of the line, if it is such an error and its author was not heard of this place lately."""
        message = line.text[line.start : line.start + MAX_MESSAGE]
        level = _level(line)
        found = self._author(line, message, level, stream)
        # What its author calls an error is one unless it is over; words alone may also speak of what was tried or averted.
        if found is None:
            return
        author, begin = found
        if (self._settled if self._is_graded(author, message, level) else self._quiet).search(message):
            return
        by_kernel = isinstance(author, KernelAuthor)
        if not reported(line, begin, by_kernel=by_kernel):
            return
        if by_kernel and _is_known(line.text):
            return
        if _is_of_devices(line, stream) and self._by_people.search(_spaced(line.text)) is not None:
            return
        place = read_fields(line.text[begin : begin + MAX_MESSAGE], self._places, sheet().integers)
        if not place and not isinstance(author, KernelAuthor) and author.on_switch:
            place = {"switch": line.node or ""}  # it speaks of itself
        if not place and author.itself:
            place = {"node": line.node} if line.node else {"program": line.source or author.author}
        if not place:
            return
        subject = subject_of(author.author, line)
        if author is _WATCHER and (subject.row is None or not _OF_DEVICES & place.keys()):
            return  # anybody's error: it counts for the device that it names
        if not told_lately(author.author, place, line, stream, subject):
            yield _finding(author, place, line, subject)

    def _author(
        self, line: LogLine, message: str, level: int | None, stream: Stream
    ) -> tuple[Author, int] | None:
        """Whose error the line is, and where it begins; None for any other line."""
        program = self._program_of(line)
        if program is not None:
            needs = self._needs.get(program.author)
            if needs is not None and needs.search(message) is None:
                return None
            return (program, line.start) if self._is_error(program, message, level) else None
        for opens, shape in self._shapes:
            if shape.bare and line.source not in _NO_PROGRAM:
                continue
            opened = opens.search(line.text)
            if opened is not None and opened.start() <= line.start + _SHAPE_WITHIN:
                return shape, opened.start()
        if (device := self._device(line, message, level, stream)) is not None:
            return device, line.start
        return self._of_kernel(line, message, level) or self._watcher(line, message, level, stream)

    def _is_graded(self, author: Author, message: str, level: int | None) -> bool:
        """True where the author itself calls the line an error: by its header, or by the level in its own form."""
        if level is not None or isinstance(author, KernelAuthor):
            return level is not None and level <= levels.ERROR
        if isinstance(author, Shape):
            return author.graded
        return author.graded and self._opens_with_level.match(message) is not None

    def _of_kernel(self, line: LogLine, message: str, level: int | None) -> tuple[Author, int] | None:
        """The driver or subsystem whose error the line is."""
        if line.source not in ("kernel", ""):
            return None
        tagged = line.source == "kernel"
        by_level = tagged and level is not None and level <= levels.ERROR
        by_words = self._words.search(message) is not None
        if not by_level and not by_words:
            return None
        drivers = (one for opens, one in self._kernel if (tagged or not one.tagged) and opens.match(message))
        driver = next(drivers, _KERNEL if by_level else _KERNEL_OF_A_DEVICE if tagged else None)
        return (driver, line.start) if driver is not None and (by_words or not driver.loud) else None

    def _watcher(
        self, line: LogLine, message: str, level: int | None, stream: Stream
    ) -> tuple[Author, int] | None:
        """Whatever a host runs besides jobs, when it prints an error at that level: a site's own check of its devices."""
        if line.pod is not None or line.source == "kernel" or _topic_of(stream) == RAW_JOB_LOGS.name:
            return None
        begin = message[:_LEVEL_WITHIN]
        if self._harmless.search(begin) is not None:
            return None
        by_level = level is not None and level <= levels.ERROR
        by_words = line.source != "" and self._program_error.search(begin) is not None
        return (_WATCHER, line.start) if by_level or by_words else None

    def _device(self, line: LogLine, message: str, level: int | None, stream: Stream) -> Shape | None:
        """The sender of an error on a topic that only machines write to."""
        if not _is_of_devices(line, stream):
            return None
        grave = level is not None and level <= levels.ERROR
        worded = level is None or level <= levels.WARNING
        if not grave and not (worded and self._words.search(_spaced(message)) is not None):
            return None
        return _DEVICES[_topic_of(stream)]

    def _program_of(self, line: LogLine) -> Program | None:
        """The daemon that wrote the line: by its header's tag, or where a relay stands there, by the tag behind that."""
        known = self._program(line, _name_of(line))
        if known is None and line.source and line.pod is None:
            inner = _named_at(line)
            known = self._program(line, inner) if inner else None
        return known

    def _program(self, line: LogLine, name: str) -> Program | None:
        """The daemon that wrote the line, by its own name or its container's."""
        container, hashed, _ = name.partition("#")
        if hashed:
            return self._containers.get(container.rstrip("0123456789"))
        plain = name.rpartition("/")[2].removesuffix(".service")
        kind = plain.partition("-")[0].rstrip(
            "0123456789"
        )  # `cdu-3` is a device that writes no name but its own
        known = self._programs.get(plain) or self._programs.get(line.container or "")
        return known or (self._programs.get(kind) if plain[-1:].isdigit() else None)

    def _is_error(self, program: Program, message: str, level: int | None) -> bool:
        """True where the daemon's own level says so, its words do, or a part left its good state."""
        if program.states and self._left_state.search(message) is not None:
            return True
        if self._program_error.search(message) is not None:
            return True
        begin = message[:_LEVEL_WITHIN]
        if self._harmless.search(begin) is not None:
            return False
        if level is not None and level <= levels.ERROR:
            return True
        if level is not None and level >= levels.INFO:
            return False
        warns = program.words or level == levels.WARNING or self._warning.search(begin) is not None
        return warns and self._words.search(message) is not None


def told_lately(
    author: str, place: Mapping[str, Attribute], line: LogLine, stream: Stream, subject: Subject
) -> bool:
    """True when the author spoke of this subject and place lately, or of too many; remembers this one otherwise."""
    each_ms = round(sheet().each_s * 1000)
    told = stream.rule_state.table("unknown.told", MAX_TOLD)
    now = to_millis(line.at or stream.received_at)
    of = (stream.cluster, line.node or stream.lines, author)
    key = (*of, str(next(iter(place.values()))), subject.id)
    before = told.get(key)
    if before is not None and abs(now - _int(before[0])) < each_ms:
        return True
    since, count = (_int(value) for value in told.get(of, (now, 0)))
    if abs(now - since) >= each_ms:
        since, count = now, 0
    if count >= sheet().places_each:
        return True
    told[of] = (since, count + 1)
    told[key] = (now,)
    return False


def _finding(author: Author, place: Mapping[str, Attribute], line: LogLine, subject: Subject) -> Finding:
    attributes: dict[str, Attribute] = {"author": author.author, **place, **subject.attributes("error")}
    pci, device, node, port = (_text(place, name) for name in ("pci", "device", "node", "port"))
    index = place.get("index")
    on_switch = not isinstance(author, KernelAuthor) and author.on_switch
    on_switch = on_switch or (isinstance(author, Program) and bool(author.containers))
    gpu = Gpu(
        canonical_pci(pci) if pci and author.by_gpu else None,
        _text(place, "uuid"),
        index if isinstance(index, int) and author.by_gpu else None,
    )
    return Finding(
        subject.kind,
        Severity.INFO,
        attributes,
        gpu=None if gpu == Gpu() else gpu,
        node=node,
        nic=(device or (pci.lower() if pci else None)) if author.by_nic else None,
        port=port if on_switch else None,
        on_switch=on_switch,
        text=line.text,
    )


def _text(place: Mapping[str, Attribute], name: str) -> str | None:
    value = place.get(name)
    return value if isinstance(value, str) and value else None


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _is_known(text: str) -> bool:
    """True where some row's own words are in the line, whatever made the row leave it out."""
    return any(
        needs is None or needs.search(text) is not None
        for openers, rows in _openers()
        for needs in (rows[number] for number in openers.found_in(text))
    )


@cache
def _openers() -> tuple[tuple[PatternSet, tuple[Pattern | None, ...]], ...]:
    """For each sheet the opening words of its rows, and what else a row needs.

    These are the sets that the sheets' families match, in the same order, so they are compiled once and cost no memory here.
    """
    found = []
    for name in sheet_names():
        rows = sorted(load_sheet(name).rows, key=lambda row: row.fallback)
        needs = tuple(re2_patterns.compile(row.needs) if row.needs else None for row in rows)
        found.append((PatternSet(row.opens.encode("latin-1") for row in rows), needs))
    return tuple(found)


def _name_of(line: LogLine) -> str:
    """The program that wrote the line, by its header, else by how its message begins; empty where neither names one."""
    return line.source or _named_at(line)


def _named_at(line: LogLine) -> str:
    """The program that the message itself begins with."""
    named = _NAMED.match(line.text[line.start : line.start + _NAME_WITHIN])
    return (named["program"] or "") if named is not None else ""


def _spaced(text: str) -> str:
    """The text with the words of names such as `LOGIN_FAILED` apart."""
    return text.replace("_", " ")


def _topic_of(stream: Stream) -> str:
    return stream.lines.partition(":")[0]


def _is_of_devices(line: LogLine, stream: Stream) -> bool:
    """True where the author must be a machine of the site, whatever it calls itself."""
    return line.pod is None and _topic_of(stream) in _DEVICES


def _level(line: LogLine) -> int | None:
    """How severe the line is: by its own header, else by its shipper, which knows no level of what a pod prints."""
    level = levels.of_header(line.text[: line.start])
    if level is None and (mnemonic := _MNEMONIC.search(line.text[: line.start + _SHAPE_WITHIN])) is not None:
        level = int(mnemonic["level"] or 7)
    return line.level if level is None and line.pod is None else level


_KERNEL = KernelAuthor(author="kernel", opens="", itself=True)
"""The author of an error of the kernel that begins with none of the drivers' names."""
_KERNEL_OF_A_DEVICE = KernelAuthor(author="kernel", opens="")
"""The same where only its words call it an error: it must name a device."""
_WATCHER = Shape(author="watcher", opens="", by_gpu=True, by_nic=True)
"""A program that is none of the known ones."""
_OF_DEVICES = frozenset({"pci", "uuid", "index", "device"})
"""Fields that name a device."""
_DEVICES = {
    RAW_FABRIC.name: Shape(author="fabric device", opens="", on_switch=True),
    RAW_ALERTS.name: Shape(author="alert", opens="", itself=True),
}
"""Topics that programs of users do not write to, and the author of what no row knows there."""
_MNEMONIC = re2_patterns.compile(r"%[A-Z0-9_]{2,32}(?:-[A-Z0-9_]{1,24})?-(?P<level>[0-7])-[A-Z]")
"""A switch's own level of its message."""
_NO_PROGRAM = frozenset({"", "container"})
"""Sources of lines whose header names no program: what a container prints is shipped as `container`'s."""
_NAMED = re2_patterns.compile(r"(?P<program>[a-z][\w.-]{2,48})(?:\[\d{1,10}\])?: ")
_NAME_WITHIN = 80
_LEVEL_WITHIN = 96
"""How far into its message a program prints its level."""
_SHAPE_WITHIN = 160
"""How far into a line's message a shape may begin: behind a rank's or a launcher's prefix."""
