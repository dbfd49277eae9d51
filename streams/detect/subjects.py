"""What an error that no row knows speaks of: `catalog/subjects.yaml`. A device and a kind of trouble, by nouns of the field.

Asked only of lines that are errors already (`unknown_errors.py`, `weak_signs.py`, the event logs of `sel.py`), so words alone are
enough here. The kind is for people, who look for what concerns them; the correlator reads such a signal as `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from streams.config.vocabularies import KindName
from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import MAX_MESSAGE
from streams.detect.matching.re2_patterns import Pattern, PatternSet
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import BY_SUBJECT, Attribute

HARDWARE = "hardware"
"""Attribute of what a program says of itself: the kind of the device that its line names, such as `gpu.ecc`."""


class SubjectRow(Strict):
    """A subject. `speaks` is RE2 of its nouns, `about` names a device of the sheet that the line must name too.

    `of` are authors, areas of signs or `area/row`; empty for all. A row without `speaks` is what its authors speak of by default.
    """

    id: str
    kind: KindName
    subtype: str
    speaks: str = ""
    about: str | None = None
    of: tuple[str, ...] = ()
    samples: tuple[str, ...]


class SubjectSheet(Strict):
    """The whole file; its head explains the keys."""

    devices: Mapping[str, str]
    rows: tuple[SubjectRow, ...]


class Subject(NamedTuple):
    """What a line speaks of; `row` is None where no row says so. `hardware` is the device that a program blames, if any."""

    row: SubjectRow | None
    hardware: str | None = None

    @property
    def id(self) -> str:
        """What tells two subjects of one author and place apart."""
        return self.row.id if self.row is not None else ""

    @property
    def kind(self) -> str:
        """The kind of the signal."""
        return self.row.kind if self.row is not None else SignalKind.UNKNOWN

    def attributes(self, found_by: str) -> dict[str, Attribute]:
        """What the signal holds besides: its subtype and the mark (`BY_SUBJECT`) with `found_by`; empty without a row."""
        if self.row is None:
            return {}
        named: dict[str, Attribute] = {"subtype": self.row.subtype, BY_SUBJECT: found_by}
        return {**named, HARDWARE: self.hardware} if self.hardware is not None else named


@cache
def sheet() -> SubjectSheet:
    """The file, read once."""
    return load_catalog("subjects", SubjectSheet)


def subject_of(author: str, line: LogLine, row: str = "") -> Subject:
    """What an error speaks of, by the first row that fits.

    Args:
        author: Whose error it is, or the area of the sign.
        line: The line; its header does not count, for a host may be named after its GPUs.
        row: The row of the sign.
    """
    text = f"{line.source}: {line.text[line.start : line.start + MAX_MESSAGE]}"
    fitting = _fitting(text, {author, f"{author}/{row}"})
    first = next(fitting, None)
    if first is None or not first.kind.startswith(_OF_PROGRAMS):
        return Subject(first)
    return Subject(first, next((one.kind for one in fitting if one.kind.startswith(_OF_DEVICES)), None))


def _fitting(text: str, authors: set[str]) -> Iterator[SubjectRow]:
    """The rows that fit, in their order; those without words last, by how the sheet is written."""
    rows, devices = sheet().rows, _devices()
    for number in _speakers().found_in(text):
        row = rows[number]
        if row.of and authors.isdisjoint(row.of):
            continue
        if row.about is None or devices[row.about].search(text) is not None:
            yield row


@cache
def _speakers() -> PatternSet:
    return PatternSet(row.speaks.encode("latin-1") for row in sheet().rows)


@cache
def _devices() -> Mapping[str, Pattern]:
    return {name: re2_patterns.compile(pattern) for name, pattern in sheet().devices.items()}


_OF_PROGRAMS = ("job.", "nccl.")
_OF_DEVICES = ("gpu.", "node.pcie", "node.memory", "node.storage", "fabric.")
