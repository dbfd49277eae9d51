"""What the driver logs once per GPU: its UUID and the serial number of its board.

`NVRM: GPU at PCI:0000:91:00: GPU-<uuid>` comes before a GPU's first Xid, `NVRM: GPU Board Serial Number: N` right after it and
without an address; `NVRM: GPU 0000:91:00.0: GPU serial number is N.` comes when a GPU was lost. They raise nothing; the names are
added to later findings about that GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import reported
from streams.detect.rule_state import RuleTable
from streams.model.clock import to_millis
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import LogLine

_UUID = re2_patterns.compile(
    r"(?i)NVRM\s?:\s{0,4}GPU at (?:PCI:)?(?P<pci>[0-9a-f]{1,8}:[0-9a-f:.]{4,10})\s?:\s{0,4}(?P<uuid>GPU-[0-9a-f-]{36})"
)
_BOARD = re2_patterns.compile(r"(?i)NVRM\s?:\s{0,4}GPU Board Serial Number\s?[:=]\s{0,4}(?P<serial>\d{4,20})")
_SERIAL = re2_patterns.compile(
    r"(?i)NVRM\s?:\s{0,4}GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-f]{4,8}:[0-9a-f:.]{5,9}):?\s{0,4}"
    r"(?:GPU )?serial number (?:is|:)\s{0,4}(?P<serial>\d{4,20})"
)

_MAX_GPUS = 100_000
_MAX_NODES = 20_000
_ADDRESS = re2_patterns.compile(
    r"(?i)(?:^:?|[^0-9a-f:]|[^0-9a-f]:)([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:[.:]0?[0-7])?|[0-9a-f]{2}:[0-9a-f]{2}(?:\.0?[0-7])?"
    r"|[0-9a-f]{4,8}:[0-9a-f]{2})(?:[^0-9a-f:]|$)"
)
_APART_MS = 10_000
"""The two header lines come within milliseconds; a serial number later than this belongs to an unknown GPU."""


class GpuNames:
    """Reads the driver's header lines; finds nothing itself."""

    hints = (rb"(?i:NVRM\s?:\s{0,4}GPU at )", rb"(?i:serial number\s?(?:is|[:=]))")

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """Remember the names in the line."""
        yield from ()
        node, at = line.node or stream.lines, to_millis(line.at or stream.received_at)
        for header in _UUID.finditer(line.text, line.start):
            if (pci := _address(header, line)) is not None:
                _known(stream)[stream.cluster, node, pci] = (header["uuid"], _names(stream, node, pci)[1])
                _headers(stream)[stream.cluster, node] = (pci, at)
        if (board := _BOARD.search(line.text, line.start)) is not None:
            last, seen = _headers(stream).get((stream.cluster, node), (None, None))
            if isinstance(last, str) and isinstance(seen, int) and abs(at - seen) <= _APART_MS:
                _known(stream)[stream.cluster, node, last] = (_names(stream, node, last)[0], board["serial"])
        elif (lost := _SERIAL.search(line.text, line.start)) is not None and (pci := _address(lost, line)):
            _known(stream)[stream.cluster, node, pci] = (_names(stream, node, pci)[0], lost["serial"])


def named(pci: str, line: LogLine, stream: Stream, attributes: Attributes, mig: str | None = None) -> Gpu:
    """The GPU at the canonical address `pci` of the line's node, with all its known names; adds them to `attributes`."""
    node = line.node or stream.lines
    uuid, serial = _names(stream, node, pci)
    attributes["pci"] = pci
    if mig is not None:
        attributes["mig"] = mig
    if uuid is not None:
        attributes["uuid"] = uuid
    if serial is not None:
        attributes["serial"] = serial
    return Gpu(pci, uuid, mig=mig)


def pci_in(text: str) -> str | None:
    """The first PCI address in a text, in canonical form; None when it holds none. The end of a longer one is none."""
    found = _ADDRESS.search(text)
    return canonical_pci(found[1]) if found is not None else None


def _address(found: re2_patterns.Match, line: LogLine) -> str | None:
    """The address in a header line, None for a quoted one. It may be glued to another line of the driver."""
    glued = line.text.find("NVRM", line.start, found.start()) >= 0
    if not reported(line, found.start(), by_kernel=True, after=found.start() if glued else None):
        return None
    return canonical_pci(found["pci"].rstrip(".:"))


def _known(stream: Stream) -> RuleTable:
    """UUID and serial number by cluster, node and address."""
    return stream.rule_state.table("gpu.names", _MAX_GPUS)


def _headers(stream: Stream) -> RuleTable:
    """The address in a node's last header line and its time."""
    return stream.rule_state.table("gpu.headers", _MAX_NODES)


def _names(stream: Stream, node: str, pci: str) -> tuple[str | None, str | None]:
    """UUID and serial number of a GPU, as far as they are known."""
    return cast(
        "tuple[str | None, str | None]", _known(stream).get((stream.cluster, node, pci), (None, None))
    )
