"""The NVIDIA driver's Xid lines, in every shape drivers have printed them since 2012.

`NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=1942, name=ray::IDLE, <message>`: the address may lack its prefix, be masked or
missing, pid and name may be missing or `'<unknown>'`, names hold commas and colons, lines are cut anywhere, and two of them may
be glued together. So: find the stable head, take whatever stands in the parentheses, and read the rest piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import re2

from streams.detect import xid_catalog
from streams.detect.finding import Finding, Recent, Stream
from streams.detect.quoting import reported
from streams.detect.wording import MAX_HITS, MAX_MESSAGE
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity, SignalState

_HEAD = re2.compile(
    r"(?i)(?:NVRM\s?:\s{0,4}(?:GPU ?\d{1,3}:?\s)?Xid\s{0,4}(?:\((?P<where>[^)\n]{0,96})\))"
    r"|\bXid\s\((?P<cut>PCI:[^)\n]{0,96})\))\s{0,4}[:,]?\s{0,4}(?P<code>\d{1,5})(?:[,.;\s]|$)"
    r"|NVRM\s?:\s{0,4}(?:GPU ?\d{1,3}:?\s)?Xid(?:"
    r"\s{0,4}:\s{0,4}(?P<alone>\d{1,5})(?:[,.;\s]|$)"
    r"| (?P<first>\d{1,5})\s{0,4}(?:\((?P<then>[^)\n]{0,96})\)\s?)?[:,]"
    r"| ?\((?P<open>PCI:(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)[:,]?\s{1,4}(?P<last>\d{1,5})[,.;\s])"
)
_WHERE = ("where", "cut", "then", "open")
_CODE = ("code", "alone", "first", "last")
"""The code stands behind the address, or before it; the character that ends the match belongs to the message."""
_NEXT = re2.compile(r"NVRM\s?:")
_TRAILING_HEADER = re2.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,253} kernel: ?)?(?:\[ {0,8}\d{1,10}\.\d{1,9}\] ?)?$"
)
_ADDRESS = re2.compile(r"(?i)((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)(?:[^0-9a-f:]|$)")
_INSTANCE = re2.compile(r"GPU-I:0*(\d{1,4})(?:\s{1,4}GPU-CI:0*(\d{1,4}))?")
_PID = re2.compile(r"^\s{0,4}pid=\s?(?:'?<unknown>'?|(?P<pid>\d{0,10}))(?P<more>,\s{0,4}|\s*$)")
_NAME = re2.compile(r"^name=")
_MESSAGE_BEGINS = re2.compile(
    r", {1,4}(?:Ch(?:annel)?\b|channel\b|Graphics\b|MMU Fault|[Ii]ntr\b|Contained|Uncontained|GPU (?:has|recovery)|Row Remap|"
    r"Dynamic Page|An uncorr|NVLink|Timeout|SEC_FAULT|Class Error|Error status|CTX|GSP|PMU|FECS|engine\b|errorString|"
    r"[A-Z][A-Z0-9_/]{2,40} {1,8}(?:Non-?)?[Ff]atal)"
)
_RECOVERY = re2.compile(
    r"changed from (0x[0-9a-fA-F]{1,8}) \(([^)]{0,64})\)(?: to (0x[0-9a-fA-F]{1,8})(?: \(([^)]{0,64}))?)?"
)
_NVLINK5 = re2.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40}(?:/[A-Z0-9_]{1,40})?)\s{1,8}(?P<severity>Fatal|Non-?[Ff]atal)"
    r"(?:\s{1,8}XC\d{1,3}\s{1,8}i(?P<injected>\d)(?:\s{1,8}Link\s{1,8}(?P<link>-?\d{1,3})(?:\s{0,8}\((?P<words>[^)]{0,160}))?)?)?"
)
_HEX = re2.compile(r"0x[0-9a-fA-F]{1,8}")
_LINK = re2.compile(r"\blink(?:\(s\))? (\d{1,3})\s?(?:\(([^)]{0,160}))?")
_PLACE = re2.compile(r"GPC (?P<gpc>\d{1,3}), TPC (?P<tpc>\d{1,3})(?:, SM (?P<sm>\d{1,3}))?")
_FAULT = re2.compile(r"ENGINE (?P<engine>\w{1,32}(?: GPC\d{1,3})?)")
_FAULT_TYPE = re2.compile(r"type (?P<fault_type>FAULT_\w{1,32})(?: (?P<access>ACCESS_TYPE_\w{1,32}))?")
_CAUSED_BY = re2.compile(r"caused by previous Xid (\d{1,5})")
_BANNER = re2.compile(r"NVRM\s?:\s{0,4}GPU at (?:PCI:)?(\S{7,20}): (GPU-[0-9a-fA-F-]{36})")

_MAX_GPUS = 100_000

Attributes = dict[str, Attribute]


class Xid:
    """Reads kernel lines. Remembers each GPU's UUID, which the driver prints once, before its first Xid."""

    hints = (rb"(?i:Xid\s{0,4}(?:\(|:)|NVRM.{1,12}Xid \d)", rb"NVRM: GPU at")

    def __init__(self) -> None:
        self._uuids: Recent[tuple[str, str, str], str] = Recent(_MAX_GPUS)

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The Xids of one line, in order."""
        self._remember_uuid(line, stream)
        after: int | None = None
        for head in islice(_HEAD.finditer(line.text, line.start), MAX_HITS):
            if not reported(line, head.start(), by_kernel=True, after=after):
                continue
            after = head.end()
            number = int(_first(head, _CODE))
            if number:
                yield self._finding(line, head, number, stream)

    def _finding(self, line: LogLine, head: Any, number: int, stream: Stream) -> Finding:
        rest, end = _rest(line.text, max(head.start(), head.end() - 1))
        row = xid_catalog.code(number)
        attributes: Attributes = {
            "xid": number,
            "mnemonic": row.mnemonic,
            "action": row.action,
            "family": row.family,
        }
        message = _process(rest, attributes)
        gpu = self._gpu(
            _first(head, _WHERE),
            line.node,
            stream,
            attributes,
        )
        severity, state = row.severity, SignalState.FIRING
        if (caused := _CAUSED_BY.search(message)) is not None:
            attributes["caused_by"] = int(caused.group(1))
        if (detail := _DETAILS.get(number)) is not None:
            found = detail(message, attributes)
            severity, state = found if found is not None else (severity, state)
        return Finding(
            "gpu.xid",
            severity,
            attributes,
            state,
            gpu=gpu,
            text=line.text[:end] if not line.start else line.text,
        )

    def _gpu(self, where: str, node: str | None, stream: Stream, attributes: Attributes) -> Gpu | None:
        address = _ADDRESS.search(where)
        pci = canonical_pci(address.group(1)) if address else None
        if pci is None:
            return None
        attributes["pci"] = pci
        mig = None
        if (instance := _INSTANCE.search(where)) is not None:
            mig = ":".join(part for part in instance.groups() if part is not None)
            attributes["mig"] = mig
        return Gpu(pci, self._uuids.get((stream.cluster, node or stream.lines, pci)), mig=mig)

    def _remember_uuid(self, line: LogLine, stream: Stream) -> None:
        if (banner := _BANNER.search(line.text, line.start)) is not None:
            pci = canonical_pci(banner.group(1))
            if pci is not None:
                self._uuids[stream.cluster, line.node or stream.lines, pci] = banner.group(2)


def _first(head: Any, names: tuple[str, ...]) -> str:
    """What one of these groups holds."""
    return next((found for name in names if (found := head.group(name)) is not None), "")


def _rest(text: str, start: int) -> tuple[str, int]:
    """What follows the code, up to the next line that was glued on, without that line's header."""
    rest = text[start : start + MAX_MESSAGE]
    glued = _NEXT.search(rest)
    if glued is None:
        return rest.lstrip(",.; \t"), len(text)
    rest = rest[: glued.start()]
    if (header := _TRAILING_HEADER.search(rest)) is not None:
        rest = rest[: header.start()]
    return rest.lstrip(",.; \t"), start + glued.start()


def _process(rest: str, attributes: Attributes) -> str:
    """Take pid and process name off the message. A name may hold `, `, so it ends where a known message begins."""
    head = _PID.match(rest)
    if head is None:
        return rest
    if head.group("pid"):
        attributes["pid"] = int(head.group("pid"))
    rest = rest[head.end() :]
    if _NAME.match(rest) is None:
        return rest
    rest = rest[len("name=") :]
    known = _MESSAGE_BEGINS.search(rest)
    end = known.start() if known is not None and known.start() <= 64 else rest.find(", ")
    name, message = (rest[:end], rest[end + 1 :].lstrip()) if end >= 0 else (rest, "")
    name = name.strip().strip(",")
    if name and "<unknown>" not in name:
        attributes["process"] = name[:64]
    return message


Detail = Callable[[str, Attributes], tuple[Severity, SignalState] | None]


def _recovery(message: str, attributes: Attributes) -> tuple[Severity, SignalState] | None:
    """154: the driver's own words override the catalog; back to None means that nothing is asked for any more."""
    match = _RECOVERY.search(message)
    if match is None or match.group(3) is None:
        attributes["action"] = "contact_support"
        return None
    attributes["recovery_from"] = match.group(2)
    row = xid_catalog.recovery(match.group(4) or "", int(match.group(3), 16))
    attributes["recovery_to"] = row.words if row else (match.group(4) or match.group(3))
    attributes["action"] = row.action if row else "contact_support"
    if row is None:
        return Severity.ERROR, SignalState.FIRING
    return row.severity, SignalState.CLEARED if row.value == 0 else SignalState.FIRING


def _nvlink5(message: str, attributes: Attributes) -> tuple[Severity, SignalState] | None:
    match = _NVLINK5.search(message)
    if match is None:
        return None
    unit, fatal = match.group("unit"), match.group("severity") == "Fatal"
    words = [int(word, 16) for word in _HEX.findall(match.group("words") or "")]
    attributes |= {"unit": unit, "severity": match.group("severity")}
    if match.group("link") and int(match.group("link")) >= 0:
        attributes["link"] = int(match.group("link"))
    injected = (match.group("injected") or "0") != "0"
    attributes["action"] = "ignore" if injected else xid_catalog.nvlink5_action(unit, fatal, words)
    if injected:
        attributes["injected"] = True
    if words:
        older = xid_catalog.is_before_r575(unit, words[0])
        attributes["subcode"] = words[0] >> 5 & 0x1F if older else words[0] & 0x7F
        reason = xid_catalog.link_down_reason(unit, words[0])
        if reason is not None:
            attributes["down_reason"] = reason
            attributes["reason"] = xid_catalog.link_down_meaning(reason) or "unknown"
    resets = attributes["action"] == "reset_gpu"
    return Severity.CRITICAL if resets else Severity.ERROR if fatal else Severity.WARNING, SignalState.FIRING


def _link(message: str, attributes: Attributes) -> None:
    if (match := _LINK.search(message)) is not None:
        attributes["link"] = int(match.group(1))
        if registers := _HEX.findall(match.group(2) or ""):
            attributes["registers"] = tuple(registers)


def _named(*patterns: Any) -> Detail:
    def read(message: str, attributes: Attributes) -> None:
        for pattern in patterns:
            if (match := pattern.search(message)) is not None:
                for name, value in match.groupdict().items():
                    if value is not None:
                        attributes[name] = int(value) if value.isdigit() else value

    return read


_DETAILS: dict[int, Detail] = {
    13: _named(_PLACE),
    31: _named(_FAULT, _FAULT_TYPE),
    74: _link,
    154: _recovery,
    **dict.fromkeys(range(144, 151), _nvlink5),
}
