"""`nvidia-smi -q`, in one record or line by line: the GPU and heading a line belongs to are remembered.

A block begins with `GPU 00000000:1B:00.0`; headings have no colon; everything else is `label : value`. The XML of `-x` has the
same in elements: `<dram_uncorrectable>2</dram_uncorrectable>`. What values mean is in `catalog/smi.yaml`; healthy ones give
nothing. Blocks that nothing else has (`Remapped Rows`, `Retired Pages`) are read without the line that names their GPU, too, as
their node's. A fault that a dump shows twice (volatile and aggregate, many unreadable fields of one GPU) is reported once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated

from pydantic import Field

from streams.config.vocabularies import ActionName, KnownWords
from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.gpu_names import named
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import reported, written_by_people
from streams.model.clock import to_millis
from streams.model.entity import canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Severity

_GPU = re2_patterns.compile(
    r"GPU\s{1,2}(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s{0,8}$"
)
_LINE = re2_patterns.compile(
    r"\s{0,40}(?P<label>[A-Z][\w ()/.-]{1,60}?)\s{0,60}:\s{1,4}(?P<value>\S[^\n]{0,80}?)\s{0,80}$"
)
_HEADING = re2_patterns.compile(r"\s{0,40}(?P<heading>[A-Z][\w .-]{2,50}?)\s{0,80}$")

_ELEMENT = re2_patterns.compile(r"\s{0,40}<(?P<label>[a-z][a-z0-9_]{1,60})>(?P<value>[^<\n]{1,80})</")
_OPENED = re2_patterns.compile(r"\s{0,40}<(?P<heading>[a-z][a-z0-9_]{2,50})>\s{0,8}$")
_GPU_ELEMENT = re2_patterns.compile(r"\s{0,40}<gpu id=\\?\"(?P<pci>[0-9A-Fa-f:.]{7,20})\\?\">")
_FLAT = re2_patterns.compile(
    r"(?:\bGPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\W{1,8})?\bRemapped Rows\b"
)
_FLAT_PAIR = re2_patterns.compile(
    r"\b(?P<label>(?:Unc|C)orrectable Error|Pending|Remapping Failure Occurred)\s{0,60}[:=]\s{0,4}(?P<value>\w{1,12})\b"
)
"""A block of which a logger has made one line."""
_REMAPPED = ("uncorrectable error", "remapped row unc")
_OWN_WORDS = {
    "Remapped Rows": ("correctable error", *_REMAPPED, "pending", "remapping failure occurred"),
    "Retired Pages": ("single bit ecc", "double bit ecc", "pending page blacklist", "pending retirement"),
}
"""Headings that nothing else has, and their labels: scripts print such a block without the line that names its GPU."""
_PREFIXES = ("clocks_event_reason_", "clocks_throttle_reason_")

_MAX_NODES = 20_000
_APART_MS = 120_000
"""A dump takes seconds; a later line belongs to another one."""
_BLOCK_MS = 10_000
"""A block without its GPU is printed at once: `Pending : Yes` that comes later is another program's."""


class SmiRow(Strict):
    """A line that is a finding: with `counts` its value is the number `count`, with `named` a text under that name."""

    id: str
    label: str
    section: tuple[str, ...] = ()
    value: str
    kind: SignalKind
    severity: Severity
    sets: Annotated[dict[str, str], KnownWords] = Field(default_factory=dict)
    alone: bool = False
    """The label is specific enough without its heading, when no GPU was named."""
    counts: bool = False
    once: bool = False
    """Once for each block, in which many lines match."""
    named: str | None = None


class SmiSheet(Strict):
    """`catalog/smi.yaml`."""

    headings: tuple[str, ...]
    rows: tuple[SmiRow, ...]
    recovery: dict[str, ActionName]
    elements: dict[str, str]
    """Elements of the XML whose names differ from the labels of the text."""
    columns: dict[str, tuple[str, str]]
    """Columns of `--query-gpu`, with the equivalent heading and label of the text."""


@cache
def _sheet() -> SmiSheet:
    return load_catalog("smi", SmiSheet)


class SmiQuery:
    """Reads lines of `nvidia-smi -q`."""

    hints = (
        rb"(?m:GPU +[0-9A-F]{4,8}:[0-9A-F][0-9A-F]:[0-9A-F][0-9A-F]\.\d *(?:$|[\\\"\r]))",
        rb"(?m: (?:Volatile|Aggregate|Double Bit|Single Bit|Retired Pages|Remapped Rows|Fabric) *(?:$|[\\\"\r]))",
        rb"(?:Uncorrectable|Parity|SEC-DED|  Total|Bit ECC|Uncorrectable Error) +: [1-9]",
        rb"(?:Threshold Exceeded|Unrepairable Memory|  Pending|Repair Pending|Failure Occurred|Blacklist|Retirement) +: Yes",
        rb"Recovery Action +: [RDG]",
        rb"(?:Slowdown|Brake|Sync Boost) +: (?:Not )?Active",
        rb" : \[?(?:GPU is lost|Unknown Error|ERR!)",
        rb"Bandwidth +: Degraded|Route (?:Unhealthy|Recovery in [Pp]rogress) +: True",
        rb"<gpu id=|<(?:volatile|aggregate|double_bit|retired_pages|remapped_rows)>|(?:<total|row_unc)>[1-9]",
        rb"ncorrectable(?:_parity|_secded)?>[1-9]|_slowdown>Active|_sync_boost>|(?:pending|failure|exceeded|retirement)>Yes",
        rb"recovery_action>[RDG]|>\[?(?:GPU is lost|Unknown Error|ERR!)",
        rb"Remapped Rows\W.*(?:Pending|Occurred) *[:=] *Yes",
    )

    def __init__(self) -> None:
        sheet = _sheet()
        self._rows = [
            (row, re2_patterns.compile(f"(?i){row.label}"), re2_patterns.compile(row.value))
            for row in sheet.rows
        ]
        self._headings = {heading.lower(): heading for heading in sheet.headings}
        self._elements = sheet.elements
        self._recovery = sheet.recovery
        self.columns = sheet.columns

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The findings of a line of a dump, given those before it."""
        if written_by_people(line.source):
            return
        dump, message = Dump(line, stream), line.message
        if (gpu := _GPU.match(message.lstrip()) or _GPU_ELEMENT.match(message)) is not None:
            dump.begin(canonical_pci(gpu["pci"]))
        elif (flat := _FLAT.search(message)) is not None and message[flat.end() :].strip():
            if reported(line, len(line.text) - len(message) + flat.start()):
                yield from self._of_flat(flat["pci"], message[flat.end() :], dump)
        elif (pair := _LINE.match(message)) is not None:
            yield from self.value(pair["label"], pair["value"], dump)
        elif (element := _ELEMENT.match(message)) is not None:
            yield from self.value(self._label(element["label"]), element["value"], dump)
        elif (opened := _HEADING.match(message) or _OPENED.match(message)) is not None:
            heading = self._headings.get(opened["heading"].replace("_", " ").lower())
            if heading is not None:
                dump.enter(heading)

    def _of_flat(self, pci: str | None, block: str, dump: Dump) -> Iterator[Finding]:
        """The findings of a block of remapped rows in one line; what follows it is none of it."""
        dump.begin(canonical_pci(pci) if pci else None)
        dump.enter("Remapped Rows")
        for pair in _FLAT_PAIR.finditer(block):
            yield from self.value(pair["label"] or "", pair["value"] or "", dump)
        dump.begin(None)

    def _label(self, element: str) -> str:
        """The label of the text for an element of the XML."""
        if element in self._elements:
            return self._elements[element]
        for prefix in _PREFIXES:
            element = element.removeprefix(prefix)
        return element.replace("_", " ")

    def value(self, label: str, value: str, dump: Dump) -> Iterator[Finding]:
        """The findings of a value under the current heading of `dump`."""
        if label.lower() == "hw slowdown":
            dump.slowed = value == "Active"
            dump.save()
            return
        if label.lower() == "sync boost" and dump.slowed:
            dump.slowed = False
            dump.save()
            yield dump.finding(
                SignalKind.GPU_SLOW, Severity.WARNING, {"subtype": "hw_slowdown", "reason": "hw_slowdown"}
            )
        if dump.section == "Remapped Rows" and label.lower() in _REMAPPED and value.isdecimal():
            dump.remapped = int(value[:9])
            dump.save()
        for row, labels, values in self._rows:
            if labels.fullmatch(label) is None or values.fullmatch(value) is None:
                continue
            if row.section and not dump.is_under(row.section, row.alone, label):
                continue
            if row.once and not dump.pci:
                continue
            if (found := self._finding(row, value, dump)) is not None:
                yield found
            return

    def _finding(self, row: SmiRow, value: str, dump: Dump) -> Finding | None:
        attributes: Attributes = dict(row.sets)
        severity = row.severity
        if row.counts:
            attributes["count"] = int(value)
        if row.named:
            attributes[row.named] = value
            attributes["action"] = self._recovery.get(
                value.removeprefix("GPU ").removesuffix(" Required"), "contact_support"
            )
        if row.kind == SignalKind.GPU_ECC and row.counts:
            if dump.scope:
                attributes["scope"] = dump.scope
            repeated = dump.mark_reported(row.id)
            if dump.scope == "aggregate":
                severity = Severity.WARNING
                if repeated:
                    return None
        elif row.once and dump.mark_reported(row.id):
            return None
        if row.kind in (SignalKind.GPU_THERMAL, SignalKind.GPU_POWER):
            dump.slowed = False
            dump.save()
        if row.kind == SignalKind.GPU_ROW_REMAP and dump.section == "Remapped Rows" and dump.remapped:
            attributes["count"] = dump.remapped
        return dump.finding(row.kind, severity, attributes)


class Dump:
    """The dump a line belongs to: its GPU, heading and scope of counts, what depends on later lines, and what was reported."""

    def __init__(self, line: LogLine, stream: Stream) -> None:
        self._line = line
        self._stream = stream
        self._at = to_millis(line.at or stream.received_at)
        self._key = (stream.cluster, line.node or stream.lines)
        self._open = stream.rule_state.table("smi.open", _MAX_NODES)
        row = self._open.get(self._key, (0, "", "", "", 0, 0, ""))
        if abs(self._at - int(row[0] or 0)) > _APART_MS:
            row = (0, "", "", "", 0, 0, "")
        self.pci, self.section, self.scope = str(row[1]), str(row[2]), str(row[3])
        if not self.pci and abs(self._at - int(row[0] or 0)) > _BLOCK_MS:
            self.section = ""
        self.slowed, self.remapped = bool(row[4]), int(row[5] or 0)
        self._reported = str(row[6])

    def begin(self, pci: str | None) -> None:
        """A GPU's block or row begins."""
        self.pci, self.section, self.scope = pci or "", "", ""
        self.slowed, self.remapped, self._reported = False, 0, ""
        self.save()

    def enter(self, heading: str) -> None:
        """A heading begins, and the scope it opens."""
        self.section = heading
        if heading in ("Volatile", "Aggregate"):
            self.scope = heading.lower()
        elif heading not in ("Single Bit", "Double Bit"):
            self.scope = ""
        self.save()

    def is_under(self, sections: tuple[str, ...], alone: bool, label: str) -> bool:
        """True under one of the headings.

        Without a GPU this is no dump or only part of one: then a heading counts that nothing else has, else `alone` decides.
        """
        if self.pci:
            return self.section in sections
        return alone or (self.section in sections and label.lower() in _OWN_WORDS.get(self.section, ()))

    def save(self) -> None:
        """Remember for the next line."""
        waiting = (int(self.slowed), self.remapped, self._reported)
        self._open[self._key] = (self._at, self.pci, self.section, self.scope, *waiting)

    def mark_reported(self, what: str) -> bool:
        """True when this was already reported of this GPU in this dump; marks it as reported."""
        repeated = f" {what} " in self._reported
        if not repeated:
            self._reported += f" {what} "
            self.save()
        return repeated

    def finding(self, kind: str, severity: Severity, attributes: Attributes) -> Finding:
        """A finding about the block's GPU."""
        gpu = named(self.pci, self._line, self._stream, attributes) if self.pci else None
        return Finding(kind, severity, attributes, gpu=gpu, text=self._line.text)
