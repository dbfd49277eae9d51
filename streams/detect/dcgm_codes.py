"""What the error codes of DCGM's health checks and diagnostics mean, by name and by number (`catalog/dcgm.yaml`).

Agents hand them on in their verdicts: a code says more than the name of the check, which covers a dozen of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.matching import re2_patterns
from streams.model.kinds import SignalKind
from streams.model.signal import Severity


class CodeRow(Strict):
    """Codes of one kind; the head of the file explains the keys."""

    kind: SignalKind
    codes: Mapping[str, int]
    info: bool = False
    but_on: str = ""


class CodeSheet(Strict):
    """`catalog/dcgm.yaml`."""

    rows: tuple[CodeRow, ...]


class Code(NamedTuple):
    """One code. `name` is empty for a number that no row has."""

    name: str
    row: CodeRow

    def severity(self, machine: str) -> Severity:
        """How severe it is on a machine, by what is written about it: its name, its type, the message."""
        but_on = self.row.but_on
        acts = not self.row.info or (but_on and re2_patterns.compile(but_on).search(machine))
        return Severity.WARNING if acts else Severity.INFO


_UNLISTED = CodeRow(kind=SignalKind.GPU_DRIVER, codes={})
_NAMED = re2_patterns.compile(r"\bDCGM_FR_(?P<name>[A-Z0-9_]{2,60})")


@cache
def sheet() -> CodeSheet:
    """The file, read once."""
    return load_catalog("dcgm", CodeSheet)


@cache
def _codes() -> Mapping[str | int, Code]:
    return {
        key: Code(name, row)
        for row in sheet().rows
        for name, number in row.codes.items()
        for key in (name, number)
    }


def numbered(number: int) -> Code:
    """The code with a number, one about GPUs where no row has it."""
    return _codes().get(number, Code("", _UNLISTED))


def named_in(text: str) -> list[Code]:
    """The codes that a text names, in order; those of no row have the kind of GPUs."""
    return [_codes().get(one["name"], Code(one["name"], _UNLISTED)) for one in _NAMED.finditer(text)]


def is_listed(code: Code) -> bool:
    """Whether a row has it, so that its kind says more than that it is about GPUs."""
    return code.row is not _UNLISTED


def worst(codes: list[Code], machine: str) -> Severity | None:
    """How severe the codes of one verdict are together; None where there are none."""
    return max((one.severity(machine) for one in codes), key=lambda one: one.rank, default=None)
