"""`nvidia-smi --query-gpu=… --format=csv`: a line of names, then a line for each GPU, repeated under `-l`.

    index, pci.bus_id, remapped_rows.pending
    0, 00000000:1B:00.0, No
    1, 00000000:5E:00.0, Yes

The names are remembered, and a row is read as the equivalent lines of `nvidia-smi -q` (`columns` in `catalog/smi.yaml`). Rows
without names before them (`noheader`) or without a GPU's address or UUID are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import written_by_people
from streams.detect.smi_query import Dump, SmiQuery
from streams.model.clock import to_millis
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import LogLine
from streams.model.signal import Attribute

_NAME = re2_patterns.compile(r"[a-z][a-z0-9_.]{2,63}(?: \[[A-Za-z%/]{1,8}\])?$")
_UUID = re2_patterns.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_ADDRESSES = ("pci.bus_id", "gpu_bus_id")
_UUIDS = ("uuid", "gpu_uuid")
_UNREADABLE = ("[GPU is lost]", "[Unknown Error]", "ERR!")

_MAX_NODES = 20_000
_MAX_ROW = 4096
_APART_MS = 900_000
"""Rows of a loop come more often than this."""


class SmiCsv:
    """Reads the names and the rows. `query` knows what the values mean."""

    hints = (
        rb"(?:^|[^\w.])(?:pci\.bus_id|gpu_bus_id|uuid|gpu_uuid), |, (?:pci\.bus_id|gpu_bus_id|uuid|gpu_uuid)",
        rb"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0, |, [0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0",
        rb"(?:GPU-[0-9a-f]{8}-[0-9a-f-]{27}, )|, GPU-[0-9a-f]{8}-[0-9a-f-]{27}",
    )

    def __init__(self, query: SmiQuery) -> None:
        self._query = query

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The findings of a row."""
        if ", " not in line.message or written_by_people(line.source):
            return
        seen = stream.rule_state.table("smi.columns", _MAX_NODES)
        key = stream.source(line)
        at = to_millis(line.at or stream.received_at)
        cells = [cell.strip() for cell in line.message[:_MAX_ROW].split(", ")]
        if all(_NAME.match(cell) is not None for cell in cells):
            columns = [cell.partition(" ")[0] for cell in cells]
            if any(name in columns for name in (*_ADDRESSES, *_UUIDS)):
                seen[key] = (at, ",".join(columns))
            return
        header = seen.get(key)
        if header is None or abs(at - int(header[0] or 0)) > _APART_MS:
            return
        names = str(header[1]).split(",")
        if len(names) != len(cells):
            return
        seen[key] = (at, header[1])
        yield from self._row(dict(zip(names, cells, strict=True)), line, stream)

    def _row(self, row: dict[str, str], line: LogLine, stream: Stream) -> Iterator[Finding]:
        pci = next((found for name in _ADDRESSES if (found := canonical_pci(row.get(name, "")))), None)
        uuid = next((row[name] for name in _UUIDS if _UUID.match(row.get(name, "")) is not None), None)
        if pci is None and uuid is None:
            return
        dump = Dump(line, stream)
        dump.begin(pci or uuid)
        reported: set[tuple[str, Attribute | None]] = set()
        for name, value in row.items():
            heading, label = self._query.columns.get(name, ("", "Reading" if value in _UNREADABLE else ""))
            if not label:
                continue
            dump.enter(heading)
            for finding in self._query.value(label, value, dump):
                # Two columns may count the same errors: the total, and by memory.
                what = (finding.kind, finding.attributes.get("subtype"))
                if what not in reported:
                    reported.add(what)
                    yield _of(finding, pci, uuid, row.get("index", ""))


def _of(found: Finding, pci: str | None, uuid: str | None, index: str) -> Finding:
    """The finding with every name the row has for its GPU."""
    gpu = found.gpu or Gpu()
    number = int(index) if index.isdecimal() and len(index) < 4 else gpu.index
    gpu = Gpu(pci, uuid or gpu.uuid, number)
    named = {"pci": pci, "uuid": gpu.uuid, "index": number}
    attributes = {name: value for name, value in found.attributes.items() if name not in named}
    attributes |= {name: value for name, value in named.items() if value is not None}
    return found._replace(attributes=attributes, gpu=gpu)
