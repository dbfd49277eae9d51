"""The NVIDIA driver's Xid lines, in every format drivers have printed since 2012.

`NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=1942, name=ray::IDLE, <message>`: the address may lack its prefix, be masked or
missing, pid and name may be missing or `'<unknown>'`, names hold commas and colons, lines are cut anywhere, and two of them may
be glued together. So: find the stable head, read what the parentheses hold, then the rest piece by piece. The commonest form
of the kernel's own line, which leaves nothing open, is read at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from streams.detect import xid_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.gpu_names import named, pci_in
from streams.detect.matching import re2_patterns
from streams.detect.matching.glued_lines import until_next
from streams.detect.matching.log_patterns import MAX_HITS, MAX_MESSAGE
from streams.detect.matching.quotation_filter import reported
from streams.detect.xid_details import describe
from streams.model.entity import Gpu
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import SignalState

_HEAD = re2_patterns.compile(
    r"(?i)(?:NVRM\s?:\s{0,4}(?:GPU ?\d{1,3}:?\s)?Xid\s{0,4}(?:\((?P<where>[^)\n]{0,96})\))"
    r"|\bXid\s\((?P<cut>PCI:[^)\n]{0,96})\))\s{0,4}[:,]?\s{0,4}(?P<code>\d{1,5})(?:[,.;\s]|$)"
    r"|NVRM\s?:\s{0,4}(?:GPU ?\d{1,3}:?\s)?Xid(?:"
    r"\s{0,4}:\s{0,4}(?P<alone>\d{1,5})(?:[,.;\s]|$)"
    r"| (?P<first>\d{1,5})\s{0,4}(?:\((?P<then>[^)\n]{0,96})\)\s?)?[:,]"
    r"| ?\((?P<open>PCI:(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)[:,]?\s{1,4}(?P<last>\d{1,5})[,.;\s])"
)
_WHERE = ("where", "cut", "then", "open")
_CODE = ("code", "alone", "first", "last")
"""The code is behind the address or before it; the character that ends the match belongs to the message."""
_INSTANCE = re2_patterns.compile(r"GPU-I:0*(\d{1,4})(?:\s{1,4}GPU-CI:0*(\d{1,4}))?")
_PID = re2_patterns.compile(
    r"(?i)^\s{0,4}pid\s?=\s?(?:'?<unknown>'?|'?(?P<pid>\d{0,10})'?)(?:,\s{0,4}|\s{0,4}$)"
)
_NAME = re2_patterns.compile(r"(?i)^\s{0,4}name\s?=\s?")
_BEGINNINGS = (
    r"(?:pid\s?=|Ch(?:annel)?\b|channel\b|Graphics\b|MMU Fault|[Ii]ntr\b|Contained|Uncontained|GPU (?:has|recovery)|"
    r"Row Remap|Dynamic Page|An uncorr|NVLink|Timeout|SEC_FAULT|Class Error|Error status|CTX|GSP|PMU|FECS|engine\b|errorString|"
    r"[A-Z][A-Z0-9_/]{2,40} {1,8}(?:Non-?)?[Ff]atal)"
)
_MESSAGE_BEGINS = re2_patterns.compile(", {1,4}" + _BEGINNINGS)
_COMMONEST = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\): (?P<code>[1-9]\d{0,3}), "
    rf"pid=(?P<pid>\d{{1,10}}), name=(?P<name>[\w./:-]{{1,64}}), (?={_BEGINNINGS})",
    re.ASCII,
)
_MAY_GO_ON = ("xid", "nvrm", "nvidia-nvswitch", "#012", "\\n")
"""What a second message in the line, or a message about another Xid, holds."""


class Xid:
    """Reads kernel lines."""

    hints = (rb"(?i:Xid\s{0,4}(?:\(|:)|NVRM.{1,12}Xid \d)",)

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The Xids of one line, in order."""
        if (found := _commonest(line)) is not None:
            yield self._at_once(line, found, stream)
            return
        after: int | None = None
        for head in islice(_HEAD.finditer(line.text, line.start), MAX_HITS):
            if not reported(line, head.start(), by_kernel=True, after=after):
                continue
            after = head.end()
            number = int(_first(head, _CODE))
            if number:
                yield self._finding(line, head, number, stream)

    def _at_once(self, line: LogLine, found: re.Match[str], stream: Stream) -> Finding:
        number = int(found["code"])
        attributes: Attributes = {"xid": number, **xid_catalog.code(number).attributes}
        attributes["pid"], attributes["process"] = int(found["pid"]), found["name"]
        gpu = named(found["pci"], line, stream, attributes)
        return _described(number, line.text[found.end() :], attributes, gpu, line.text)

    def _finding(self, line: LogLine, head: Any, number: int, stream: Stream) -> Finding:
        rest, end = until_next(line.text, max(head.start(), head.end() - 1))
        attributes: Attributes = {"xid": number, **xid_catalog.code(number).attributes}
        message = _process(rest, attributes)
        gpu = self._gpu(_first(head, _WHERE), line, stream, attributes)
        text = line.text[:end] if not line.start else line.text
        return _described(number, message, attributes, gpu, text)

    def _gpu(self, where: str, line: LogLine, stream: Stream, attributes: Attributes) -> Gpu | None:
        if (pci := pci_in(where)) is None:
            return None
        mig = None
        if (instance := _INSTANCE.search(where)) is not None:
            mig = ":".join(part for part in instance.groups() if part is not None)
        return named(pci, line, stream, attributes, mig)


def _commonest(line: LogLine) -> re.Match[str] | None:
    """The line as one match, when there is nothing else to decide: the kernel's message from its beginning, whole and alone."""
    text = line.text
    if line.source != "kernel" or len(text) - line.start > MAX_MESSAGE:
        return None
    found = _COMMONEST.match(text, line.start)
    if found is None:
        return None
    message = text[found.end() :].lower()
    return None if any(sign in message for sign in _MAY_GO_ON) else found


def _described(number: int, message: str, attributes: Attributes, gpu: Gpu | None, text: str) -> Finding:
    severity, state = describe(
        number, message, attributes, (xid_catalog.code(number).severity, SignalState.FIRING)
    )
    return Finding(SignalKind.GPU_XID, severity, attributes, state, gpu=gpu, text=text)


def _first(head: Any, names: tuple[str, ...]) -> str:
    """The text of the first of these groups that took part, else empty."""
    return next((found for name in names if (found := head.group(name)) is not None), "")


def _process(rest: str, attributes: Attributes) -> str:
    """The message without pid and process name, which stand before it in either order and go to `attributes`."""
    for _ in range(2):
        if (head := _PID.match(rest)) is not None:
            if head["pid"]:
                attributes["pid"] = int(head["pid"])
            rest = rest[head.end() :]
        elif (opening := _NAME.match(rest)) is not None:
            name, rest = _name(rest[opening.end() :])
            if name and "<unknown>" not in name:
                attributes["process"] = name[:64]
    return rest


def _name(rest: str) -> tuple[str, str]:
    """The name and the message after it. A name may hold `, `, so it ends where a known message begins."""
    known = _MESSAGE_BEGINS.search(rest)
    end = known.start() if known is not None and known.start() <= 64 else rest.find(", ")
    name, message = (rest[:end], rest[end + 1 :].lstrip()) if end >= 0 else (rest, "")
    return name.strip().strip(","), message
