"""What the message of an Xid holds beyond its code: the catalog's fields, registers, NVLink 5 words, a recovery."""

from __future__ import annotations

from collections.abc import Callable

from streams.detect import xid_catalog
from streams.detect.finding import Attributes
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import read_fields
from streams.model.signal import Severity, SignalState

Verdict = tuple[Severity, SignalState]

_RECOVERY = re2_patterns.compile(
    r"(?i)changed(?: from (?P<old>0x[0-9a-f]{1,8})\s{0,4}(?:\((?P<old_words>[^)]{0,64})\)?)?)?"
    r"(?:\s{0,4}to (?P<new>0x[0-9a-f]{1,8})(?:\s{0,4}\((?P<new_words>[^)]{0,64}))?)?"
)
_UNIT = re2_patterns.compile(r"^(?P<unit>[A-Z][A-Z0-9_]{1,40}(?:/[A-Z0-9_]{1,40})?)(?:\s|$)")
_SEVERITY = re2_patterns.compile(r"(?i)\b(?P<severity>non-?fatal|fatal)\b")
_INJECTED = re2_patterns.compile(r"\bi(?P<injected>\d)\b")
_LINK = re2_patterns.compile(r"(?i)\blink\s{0,8}(?P<link>-?\d{1,3})\b")
_HEX = re2_patterns.compile(r"(?i)0x[0-9a-f]{1,8}")
_CAUSED_BY = re2_patterns.compile(r"(?i)caused by previous Xid (?P<code>\d{1,5})")
_FLAGS = ("rst", "d_rst")


def describe(number: int, message: str, attributes: Attributes, verdict: Verdict) -> Verdict:
    """Add the details of the message to `attributes`. Returns severity and state: `verdict` unless the message overrides it."""
    if (caused := _CAUSED_BY.search(message)) is not None:
        attributes["caused_by"] = int(caused["code"])
    fields = read_fields(message, xid_catalog.body(number), xid_catalog.catalog().integers)
    attributes |= {name: value == "Yes" if name in _FLAGS else value for name, value in fields.items()}
    read = _READERS.get(number)
    return (read(message, attributes) if read is not None else None) or verdict


def _recovery(message: str, attributes: Attributes) -> Verdict | None:
    """154: the recovery the driver names overrides the catalog's action; a change to None clears it."""
    match = _RECOVERY.search(message)
    if match is not None and (old := match["old"]) is not None:
        known = xid_catalog.recovery(match["old_words"] or "", int(old, 16))
        attributes["recovery_from"] = known.words if known else match["old_words"] or old
    if match is None or match["new"] is None:
        attributes["action"] = "contact_support"
        return None
    row = xid_catalog.recovery(match["new_words"] or "", int(match["new"], 16))
    attributes["recovery_to"] = row.words if row else match["new_words"] or match["new"]
    attributes["action"] = row.action if row else "contact_support"
    if row is None:
        return Severity.ERROR, SignalState.FIRING
    return row.severity, SignalState.CLEARED if row.value == 0 else SignalState.FIRING


def _nvlink5(message: str, attributes: Attributes) -> Verdict | None:
    """144 to 150: unit, severity, link and sub-code as far as the line holds them, and the action that follows."""
    unit = found["unit"] if (found := _UNIT.search(message)) is not None else ""
    severity = found["severity"] if (found := _SEVERITY.search(message)) is not None else ""
    if not unit and not severity:
        return None
    fatal = severity.lower() == "fatal"
    words = [int(word.group(), 16) for word in _HEX.finditer(message)][:6]
    if unit:
        attributes["unit"] = unit
    if severity:
        attributes["severity"] = severity
    if (link := _LINK.search(message)) is not None and int(link["link"]) >= 0:
        attributes["link"] = int(link["link"])
    injected = _INJECTED.search(message)
    if injected is not None and injected["injected"] != "0":
        attributes["injected"] = True
        attributes["action"] = "ignore"
    elif severity:
        attributes["action"] = xid_catalog.nvlink5_action(unit, fatal, words)
    if words:
        _decode(unit, words, attributes)
    resets = attributes["action"] == "reset_gpu"
    return Severity.CRITICAL if resets else Severity.ERROR if fatal else Severity.WARNING, SignalState.FIRING


def _decode(unit: str, words: list[int], attributes: Attributes) -> None:
    """Add the sub-code, error status and link-down reason in intrInfo and errorStatus."""
    attributes["subcode"] = xid_catalog.subcode(unit, words[0])
    if len(words) > 1:
        attributes["error_status"] = f"0x{words[1]:08x}"
    reason = xid_catalog.link_down_reason(unit, words[0])
    if reason is not None:
        attributes["down_reason"] = reason
        attributes["reason"] = xid_catalog.link_down_meaning(reason) or "unknown"


def _registers(message: str, attributes: Attributes) -> None:
    """74 and 136 end with seven registers in parentheses; a cut line has fewer."""
    text = message[max(message.find("(0x"), message.find("( 0x")) :] if "0x" in message else ""
    registers = [word.group() for word in _HEX.finditer(text)][:7]
    if registers:
        attributes["registers"] = tuple(registers)
        meanings = xid_catalog.register_meanings([int(word, 16) for word in registers])
        if meanings:
            attributes["reason"] = "; ".join(meanings)


_READERS: dict[int, Callable[[str, Attributes], Verdict | None]] = {
    74: _registers,
    154: _recovery,
    **dict.fromkeys(range(144, 151), _nvlink5),
}
