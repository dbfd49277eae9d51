"""A GPU that fell off the bus without an Xid, in one line or in three.

One: `NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.` Three, each its own record in most pipelines:
`NVRM: The NVIDIA GPU 0000:18:00.0` / `NVRM: (PCI ID: 10de:2901) installed in this system has` /
`NVRM: fallen off the bus and is not responding to commands.` The last one alone is enough to raise the signal: the first may be
lost, and then the node is known and the GPU is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.gpu_names import named
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import reported
from streams.detect.rule_state import RuleTable
from streams.model.clock import to_millis
from streams.model.entity import canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Severity

_FELL = re2_patterns.compile(
    r"(?i)(?:NVRM\s?:|^)(?P<what>[^\n]{0,160}?)(?:\bfallen off(?: the b| (?:t(?:he?)?)?\s{0,4}$|$)|has fall?e?n?(?: of?)?$)"
)
_OTHERWISE = re2_patterns.compile(
    r"(?i)\bXid\b|\b(?:not|never|no|none|if|when|whether|might|may|could|would|recovered|unless|since|previously)\b"
)
"""An Xid has its own family; the other words are of people who discuss it."""
_ADDRESS = re2_patterns.compile(
    r"(?i)(?:^|PCI:|[^0-9a-f:.])((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)(?::?(?:[^0-9a-f:]|$))"
)
_FIRST = re2_patterns.compile(r"NVRM\s?:\s{0,4}The NVIDIA GPU (?:at )?(?:PCI:)?(?P<pci>[0-9a-fA-F:.]{7,20})")
_APART_MS = 5000
"""The three lines come within milliseconds; an older first line belongs to another event."""

_MAX_STREAMS = 20_000


class OffBus:
    """Reads kernel lines. Remembers the GPU of a first line until the last one comes."""

    hints = (rb"fallen off|has fal", rb"NVRM: The NVIDIA GPU")

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """At most one finding a line. Lines with an Xid are left to `Xid`."""
        if line.text.startswith("NVRM: Xid (", line.start) and line.text.lower().count("nvrm") == 1:
            return  # the commonest of them: nothing else is in it, which the patterns take long to find out
        first = _FIRST.search(line.text, line.start)
        if first is not None and reported(line, first.start(), by_kernel=True):
            pci = canonical_pci(first["pci"].rstrip(".:"))
            if pci is not None:
                _first_lines(stream)[_node(line, stream)] = (pci, to_millis(line.at or stream.received_at))
        fell = _FELL.search(line.text, line.start)
        if fell is None:
            return
        # A line that lost its `NVRM:` begins at once; one that has it may be quoted by what stands before.
        if not reported(line, fell.start() + max(fell.group().rfind("NVRM"), 0), by_kernel=True):
            return
        if _OTHERWISE.search(fell["what"]) is None and ("NVRM" in fell.group() or fell["what"] == ""):
            yield _finding(_address(fell["what"]) or _of_first_line(line, stream), line, stream)


def _address(what: str) -> str | None:
    found = _ADDRESS.search(what)
    return canonical_pci(found[1]) if found else None


def _of_first_line(line: LogLine, stream: Stream) -> str | None:
    """The GPU in the first of the three lines, if that came just now."""
    pci, at = _first_lines(stream).pop(_node(line, stream), (None, 0))
    now = to_millis(line.at or stream.received_at)
    return pci if isinstance(pci, str) and abs(now - int(at or 0)) <= _APART_MS else None


def _first_lines(stream: Stream) -> RuleTable:
    return stream.rule_state.table("off_bus.begun", _MAX_STREAMS)


def _node(line: LogLine, stream: Stream) -> tuple[str, str]:
    return stream.cluster, line.node or stream.lines


def _finding(pci: str | None, line: LogLine, stream: Stream) -> Finding:
    attributes: Attributes = {
        "action": "restart_bm",
        "family": "gpu_off_bus",
        "mnemonic": "GPU_HAS_FALLEN_OFF_THE_BUS",
    }
    gpu = named(pci, line, stream, attributes) if pci else None
    return Finding(SignalKind.GPU_OFF_BUS, Severity.CRITICAL, attributes, gpu=gpu, text=line.text)
