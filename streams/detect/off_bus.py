"""A GPU that fell off the bus without an Xid, in one line or in three.

One: `NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.` Three, each its own record in most pipelines:
`NVRM: The NVIDIA GPU 0000:18:00.0` / `NVRM: (PCI ID: 10de:2901) installed in this system has` /
`NVRM: fallen off the bus and is not responding to commands.` The last one alone is enough to raise the signal: the first may be
lost, and then the node is known and the GPU is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import re2

from streams.detect.finding import Finding, Recent, Stream
from streams.detect.quoting import reported
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import LogLine
from streams.model.signal import Severity

_ONE = re2.compile(
    r"NVRM\s?:\s{0,4}(?P<what>(?:(?:A|The|One|NVIDIA|GPU|at|is|serial|number|and|has)\s|[^\sX]{0,24}\d\S{0,24}\s|:\s){0,12}?)"
    r"(?:has|have) fallen off the b"
)
_ADDRESS = re2.compile(r"(?i)((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)")
_FIRST = re2.compile(r"NVRM\s?:\s{0,4}The NVIDIA GPU (?:at )?(?:PCI:)?([0-9a-fA-F:.]{7,20})")
_LAST = re2.compile(r"(?:NVRM\s?:[^\n]{0,80}|^)fallen off the bus and is not(?:\s|$)")
_APART = timedelta(seconds=5)
"""The three lines come within milliseconds; a first line older than this belongs to another event."""

_MAX_STREAMS = 20_000


class OffBus:
    """Reads kernel lines. Remembers the GPU of a first line until the last one comes."""

    hints = (rb"fallen off the b", rb"NVRM: The NVIDIA GPU")

    def __init__(self) -> None:
        self._begun: Recent[tuple[str, str], tuple[str, datetime]] = Recent(_MAX_STREAMS)

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """At most one finding a line. Lines with an Xid are left to `Xid`."""
        text, at = line.text, line.at or stream.received_at
        key = (stream.cluster, line.node or stream.lines)
        if (first := _FIRST.search(text, line.start)) is not None and reported(
            line, first.start(), by_kernel=True
        ):
            pci = canonical_pci(
                first.group(1).rstrip(".:") if first.group(1).endswith(":") else first.group(1)
            )
            if pci is not None:
                self._begun[key] = (pci, at)
        if (one := _ONE.search(text, line.start)) is not None:
            if reported(line, one.start(), by_kernel=True):
                address = _ADDRESS.search(one.group("what"))
                yield _finding(canonical_pci(address.group(1)) if address else None, text)
        elif (last := _LAST.search(text, line.start)) is not None and reported(
            line, last.start(), by_kernel=True
        ):
            pci, begun = self._begun.pop(key, (None, at))
            yield _finding(pci if abs(at - begun) <= _APART else None, text)


def _finding(pci: str | None, text: str) -> Finding:
    attributes = {"action": "restart_bm", "family": "gpu_off_bus", "mnemonic": "GPU_HAS_FALLEN_OFF_THE_BUS"}
    return Finding(
        "gpu.off_bus",
        Severity.CRITICAL,
        {**attributes, "pci": pci} if pci else attributes,
        gpu=Gpu(pci) if pci else None,
        text=text,
    )
