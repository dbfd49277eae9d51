"""The NVSwitch driver's SXid lines: three for one error, the first of which says what is wrong.

`nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`, then for the same switch and code
`… 20034, Severity 1 Engine instance 30 Sub-engine instance 00` and `… 20034, Data {0x…, …}`. Each is its own record. Whichever
comes first raises the signal and the other two add nothing, so a lost line costs no signal. The fabric manager logs the same
errors: `[ERROR] [tid 123] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id 00000000:c5:00.0
physical id 3 port 61`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from streams.detect import sxid_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.gpu_names import pci_in
from streams.detect.matching import re2_patterns
from streams.detect.matching.glued_lines import until_next
from streams.detect.matching.log_patterns import MAX_HITS
from streams.detect.matching.quotation_filter import reported
from streams.model.clock import to_millis
from streams.model.entity import canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import LogLine

_HEAD = re2_patterns.compile(
    r"(?i)(?:(?P<device>(?:nvidia-)?nvswitch ?\d{0,3})\s?:?\s{0,4})?\bSXid\s{0,4}"
    r"(?:\((?P<where>[^)\n]{0,64})\)\s{0,4}[:,]?\s{0,4}(?P<code>\d{4,6})|[:#]?\s{0,4}(?P<alone>\d{4,6})"
    r"(?:\s{0,4}\((?P<then>[^)\n]{0,64})\))?)(?:[,.;:]|\s{1,4}(?:non|fatal|severity|data|link)|\s{0,4}$)"
)
_SEVERITY = re2_patterns.compile(r"(?i)\b(?P<word>non-?\s?fatal|fatal)\b")
_LINK = re2_patterns.compile(
    r"(?i)\b(?:link|port)\s{0,4}[:=#]?\s{0,4}(?P<link>\d{1,3})(?P<reason>[^\n]{0,200})"
)
_INSTANCE = re2_patterns.compile(
    r"(?i)Severity\s{0,4}(?P<severity>\d{1,2})(?:,?\s{0,4}Engine instance\s{0,4}(?P<engine>\d{1,4}))?"
    r"(?:,?\s{0,4}Sub-?engine instance\s{0,4}(?P<sub>\d{1,4}))?"
)
_DATA = re2_patterns.compile(r"(?i)\bData\s{0,4}\{(?P<words>[^}\n]{0,400})")
_HEX = re2_patterns.compile(r"0x[0-9a-fA-F]{1,8}")
_FURTHER = re2_patterns.compile(r"(?i)^[,:\s]{0,8}(?:Severity\s{0,4}\d|Data\s{0,4}\{)")

_FABRIC_MANAGER = re2_patterns.compile(
    r"(?i)\bdetected NVSwitch (?P<non>non-?\s?)?fatal error\s{0,4}:?\s{0,4}(?P<code>\d{4,6})"
    r"(?:[^\n]{0,80}?pci bus id:?\s{0,4}(?P<pci>[0-9a-f:.]{7,20}))?(?:[^\n]{0,40}?physical id:?\s{0,4}(?P<physical_id>\d{1,3}))?"
    r"(?:[^\n]{0,40}?port:?\s{0,4}(?P<link>\d{1,3}))?"
)

_MAX_ERRORS = 50_000
_APART_MS = 5_000


class Sxid:
    """Reads kernel lines. Remembers the last error of each switch and code."""

    hints = (rb"SXid", rb"(?i:detected NVSwitch (?:non-?)?fatal)")

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The SXids of one line, in order."""
        after: int | None = None
        pending: tuple[int, str | None] | None = None
        attributes: Attributes = {}
        for head in islice(_HEAD.finditer(line.text, line.start), MAX_HITS):
            if not reported(line, head.start(), by_kernel=True, after=after):
                continue
            after = head.end()
            message, _ = until_next(line.text, max(head.end("code"), head.end("alone")))
            code = int(head["code"] or head["alone"])
            pci = pci_in(head["where"] or head["then"] or "")
            if pending == (code, pci):
                # The second or third line of the same error, glued to the first.
                _describe(message, attributes)
                continue
            if pending is not None:
                yield _finding(pending[0], attributes, line)
                pending = None
            if not _is_continuation(line, stream, code, pci, bool(_FURTHER.search(message))):
                pending, attributes = (code, pci), _attributes(code, pci, head["device"])
                _describe(message, attributes)
        if pending is not None:
            yield _finding(pending[0], attributes, line)
        for manager in islice(_FABRIC_MANAGER.finditer(line.text, line.start), MAX_HITS):
            if reported(line, manager.start()):
                yield _of_fabric_manager(manager, line)


def _attributes(code: int, pci: str | None, device: str | None) -> Attributes:
    named: Attributes = {"sxid": code, **sxid_catalog.code(code).attributes}
    return named | {name: value for name, value in (("pci", pci), ("device", device)) if value is not None}


def _finding(code: int, attributes: Attributes, line: LogLine) -> Finding:
    severity = sxid_catalog.severity(sxid_catalog.code(code), str(attributes.get("severity", "")))
    return Finding(SignalKind.GPU_SXID, severity, attributes, text=line.text)


def _of_fabric_manager(match: re2_patterns.Match, line: LogLine) -> Finding:
    """The same error from the log of the fabric manager; `link` is the port of the switch."""
    pci = canonical_pci(match["pci"].rstrip(".:")) if match["pci"] else None
    attributes = _attributes(int(match["code"]), pci, None)
    attributes["severity"] = "Non-fatal" if match["non"] else "Fatal"
    for name in ("physical_id", "link"):
        if match[name]:
            attributes[name] = int(match[name])
    return _finding(int(match["code"]), attributes, line)


def _describe(message: str, attributes: Attributes) -> None:
    """Add severity, link, reason, engine and data words, as far as the line holds them."""
    if (word := _SEVERITY.search(message)) is not None:
        attributes["severity"] = "Non-fatal" if word["word"].lower().startswith("non") else "Fatal"
    if (link := _LINK.search(message)) is not None:
        attributes["link"] = int(link["link"])
        if reason := link["reason"].strip(" ,.:;-\t"):
            attributes["reason"] = reason[:120]
    if (instance := _INSTANCE.search(message)) is not None:
        attributes.setdefault("severity", "Fatal" if int(instance["severity"]) else "Non-fatal")
        if engine := instance["engine"]:
            attributes["engine_instance"] = int(engine)
        if sub := instance["sub"]:
            attributes["subcode"] = int(sub)
    if (data := _DATA.search(message)) is not None:
        words = tuple(word.group() for word in _HEX.finditer(data["words"]))
        if words:
            attributes["data"] = words


def _is_continuation(line: LogLine, stream: Stream, code: int, pci: str | None, further: bool) -> bool:
    """True for the second and third line of an error already seen; remembers this one."""
    key = (stream.cluster, line.node or stream.lines, pci, code)
    at = to_millis(line.at or stream.received_at)
    last_seen = stream.rule_state.table("sxid.told", _MAX_ERRORS)
    (before,) = last_seen.get(key, (None,))
    last_seen[key] = (at,)
    return further and isinstance(before, int) and abs(at - before) <= _APART_MS
