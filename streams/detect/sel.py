"""The event log of a node's management controller (IPMI SEL): rows of tables and lines of daemons, by `catalog/sel.yaml`.

`ID | date | time | sensor | event | direction [| reading]` is how ipmitool prints an entry, with commas instead of bars on
request; FreeIPMI has more columns. A column is recognised by its content, not by its number.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pydantic import Field

from streams.config.yaml_tables import Strict
from streams.detect import log_util
from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import reported, written_by_people
from streams.detect.matching.re2_patterns import Match, Pattern
from streams.detect.subjects import subject_of
from streams.detect.unknown_errors import told_lately
from streams.ingest import levels
from streams.model.hostnames import host_of_controller
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity, SignalState


class SelRule(Strict):
    """The signal of an event: `matches` is searched in sensor and event."""

    matches: str
    kind: SignalKind
    subtype: str
    severity: Severity


class SelSample(Strict):
    """An entry and the signal it must give."""

    text: str
    kind: SignalKind
    state: SignalState = SignalState.FIRING
    expect: dict[str, Any] = Field(default_factory=dict)


class SelSheet(Strict):
    """`catalog/sel.yaml`."""

    programs: tuple[str, ...]
    forwarded: tuple[str, ...]
    harmless: str
    grave: str
    wrong: str
    rules: tuple[SelRule, ...]
    well: str
    samples: tuple[SelSample, ...]
    look_alikes: tuple[str, ...]


@cache
def sheet() -> SelSheet:
    """The file, read once."""
    return load_catalog("sel", SelSheet)


_DATE = r"(?:\d\d/\d\d/(?:\d{4}|\d\d)|[A-Z][a-z]{2}-\d\d-\d{4}|\d{4}[-/]\d\d[-/]\d\d|Pre-Init|PostInit)"
_CLOCK = r"(?:\d\d:\d\d:\d\d(?: ?[AP]M)?(?:Z| ?[A-Z]{3,4}| ?[+-]\d\d:?\d\d)?|\d{1,12})"
_ROW = re2_patterns.compile(
    r"(?:\b(?:SEL|sel|OEM)(?: [Rr]ecord| [Ee]ntry)?:? {0,3}|\bID ?= ?)?\b(?:0x)?[0-9a-fA-F]{1,5}"
    rf"(?:\s{{0,6}}\|\s{{0,3}}{_DATE}(?:\s{{0,8}}\|\s{{0,3}}|[T ]){_CLOCK}\s{{0,3}}\||,{_DATE},{_CLOCK},)"
    r"(?P<rest>[^\n]{4,400})"
)
_WHEN = re2_patterns.compile(r"(\d\d)/(\d\d)/(\d{2,4})[\s|,]{1,8}(\d\d):(\d\d):(\d\d)")
_DIRECTION = re2_patterns.compile(r"(?i)^(?:de)?assert(?:ed|ion)(?: event)?$")
_LEVEL = re2_patterns.compile(r"(?i)^(?:nominal|warning|critical|n/a|information(?:al)?)$")
_READING = re2_patterns.compile(
    r"(?i)reading (?P<reading>-?[\d.]{1,12})[^\d\n]{1,24}threshold (?P<threshold>-?[\d.]{1,12})"
)
_DIMM = re2_patterns.compile(r"(?i)\b(?P<dimm>(?:P\d[_-])?DIMM[\w.#-]{0,24})")
_SEL = re2_patterns.compile(
    r"(?:\b(?:SEL|sel)\b[\w #.-]{0,40}:? {1,3})?"
    r"(?P<rest>[A-Z][\w#/+.() -]{2,60} ?\| ?[A-Z][^|\n]{2,100}\| ?(?:Deas|As)serted\b[^\n]{0,200})"
)
"""An entry without its number and time."""
_SENSOR_ROW = re2_patterns.compile(
    r"(?:\bipmi[\w-]{0,12}\b[^\n:|]{0,40}: {0,3})?\b"
    r"(?P<name>[A-Za-z][\w+./# -]{1,40}?) {0,24}\| {0,3}-?[\d.]{1,12} {0,12}\|? ?"
    r"(?P<unit>RPM|Volts|degrees C|Watts|Amps) {0,24}\| {0,3}(?:cr|nr|[lu]cr|[lu]nr)\b|"
    r"(?:\bipmi[\w-]{0,12}\b[^\n:|]{0,40}: {0,3})?\b\d{1,5} {1,4}\| (?P<sensor>[\w+./# -]{2,40}?) {0,24}\| "
    r"(?P<of>Temperature|Fan|Voltage|Power Supply|Current) {0,16}\| Critical {0,8}\|"
)
"""A sensor beyond its critical threshold in `ipmitool sensor` and `ipmitool sdr`."""
_RELAYED = re2_patterns.compile(
    r"^(?:(?:ipmitool|ipmi-sel|ipmiutil)\[(?P<node>[\w.-]{1,253})\]: |(?P<host>[\w.-]{1,253}) (?:ipmievd|ipmiseld): |"
    r"(?P<entry>[\w.-]{1,253}) (?:(?:ipmitool|ipmi-sel|ipmiutil|sel): {1,8}|SEL:? {1,8}|\| {1,8}))"
)
"""What a script puts before the output of a tool that it runs for another host; `entry` only before a numbered entry."""
_HOST_FIRST = re2_patterns.compile(r"(?P<host>[A-Za-z][\w.-]{1,253}): ")
_PART = re2_patterns.compile(
    r"^(?:(?i:psu?|fan|cpu|proc(?:essor)?|dimm|memory|pdb|nvme|drive|disk|hdd|ssd|slot|bay|temp|volt|vrm?|vdd\w*|pcie?|riser|"
    r"module|port|nic|ocp|power|inlet|outlet|bank|channel|sensor|event|entry|pump|leak)|P|GPU|HGX|SYS|SEL|MEM)[\w.-]{0,12}$|"
    r"^FQX[A-Z0-9]{9,11}$"
)
"""Names of parts, sensors and of Lenovo's messages, which stand before a colon as hosts do."""
_CLOSING = re2_patterns.compile(r"(?:\s*\(\)|\s)+$")


class Sel:
    """Reads log entries of management controllers."""

    hints = (
        *log_util.HINTS,
        rb"(?:\||,)\s{0,3}(?i:asserted|deasserted|assertion event|deassertion event)",
        rb"[a-z]-\d\d-\d{4}(?:\s{0,3}\||,\d\d:)",  # FreeIPMI prints no direction unless asked
        rb"#ILO \d|\biLO ?\d? (?:IML|\S+: (?:\d|[A-Z]))|M(?:essage|sg) ?I[dD](?:: |=| = )[A-Z]{3}|\bFQX[A-Z0-9]{9}|"
        rb"\bF\d{4}[\]:]? ?(?:[a-z]+: )?\[|"
        rb"(?:Supermicro |SMC-)BMC|BMC: \[|Health [Ee]vent|\biDRAC|racadm |Lifecycle (?:Log|-) |"
        rb" (?:CRT|MAJ) (?:BMC|B[iI][oO][sS]|SMI) |\| {0,3}(?:cr|nr|[lu][cn]r)\b|\| Critical +\||Critical(?:High|Low) assert|"
        rb"(?:[Uu]pper|[Ll]ower) (?:[Nn]on-?)?(?:[Cc]ritical|[Rr]ecover)",
        rb"\b(?:bmc|BMC|ipmi-\w+|iLO\d?|XCC\d?|iDRAC\d?|CIMC|iRMC)(?:\[\d+\])?(?:: | - - )|"
        rb"ipmievd|ipmiseld|ipmi-sel|ID=\d+,|phosphor-sel-logger|bmcweb|bmc-sel|\bidrac\b|\bredfish\b",
    )

    def __init__(self) -> None:
        self._rules: list[tuple[Pattern, SelRule]] = [
            (re2_patterns.compile(f"(?i){rule.matches}"), rule) for rule in sheet().rules
        ]
        self._well = re2_patterns.compile(f"(?i){sheet().well}")
        self._programs = frozenset(sheet().programs)
        self._forms = re2_patterns.compile("|".join(sheet().forwarded))
        self._harmless = re2_patterns.compile(f"(?i){sheet().harmless}")
        self._grave = re2_patterns.compile(f"(?i){sheet().grave}")
        self._wrong = re2_patterns.compile(f"(?i){sheet().wrong}")

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The entry in a line, if it reports a fault or the end of one."""
        by_controller = self._is_controller(line.source) and not written_by_people(line.source)
        if by_controller:
            line = _of_named_host(line)
        row = _ROW.search(line.text)  # an entry's number looks like the name of a compose service
        if (entry := log_util.entry_in(line.text)) is not None:
            if reported(line, entry.start, listed=True):
                yield from self._of_sled(entry, line, stream)
        elif row is not None:
            # The entry may begin with the same `SEL` that ends what stands before it.
            if (relayed := _RELAYED.match(line.text)) is not None and row.start() <= relayed.end():
                line = line._replace(node=relayed["node"] or relayed["host"] or relayed["entry"])
                yield from self._entry(row, line, stream)
            elif reported(line, row.start(), listed=True):
                yield from self._entry(row, line, stream)
        elif (forwarded := self._forms.search(line.text)) is not None:
            if reported(line, forwarded.start()):
                yield from self._forwarded(forwarded, line, stream)
        elif (bare := _SEL.search(line.text)) is not None and reported(line, bare.start()):
            yield from self._entry(bare, line, stream)
        elif (sensor := _SENSOR_ROW.search(line.text)) is not None and reported(line, sensor.start()):
            name, unit = sensor["name"] or sensor["sensor"] or "", sensor["unit"] or sensor["of"] or ""
            beyond = f"{name} {_UNITS.get(unit, unit)} | Upper Critical"
            yield from self._classified(name, beyond, line, None, event="beyond a critical threshold")
        elif (relayed := _RELAYED.match(line.text)) is not None and relayed["host"]:
            line = line._replace(node=relayed["host"])
            yield from self._classified("", line.text[relayed.end() :], line, None)
        elif by_controller:
            found = list(self._classified("", line.message, line, None))
            yield from found
            if not found and self._is_fault("", line.message):
                yield from self._unknown(line.message, line, stream)

    def _is_controller(self, program: str) -> bool:
        """True for a controller's name, or what relays its log, with or without a version behind it."""
        name = program.lower()
        return name.rstrip("0123456789") in self._programs or name.startswith("ipmi")

    def _forwarded(self, forwarded: Match, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """An entry as a controller forwards it, with its own word of how grave it is."""
        line = line._replace(node=forwarded["node"] or forwarded["server"] or line.node)
        text = line.text[forwarded.end() :]
        found = list(self._classified("", text, line, None))
        if self._well.search(forwarded[0] or "") is not None:
            # iLO says once more what was wrong, after `Repaired`.
            found = [finding._replace(state=SignalState.CLEARED) for finding in found]
        # An entry the controller itself calls harmless may be a passed test, but it can end a fault.
        if self._harmless.search(forwarded[0] or "") is not None:
            yield from (finding for finding in found if finding.state is SignalState.CLEARED)
        elif found:
            yield from found
        elif self._is_fault(forwarded[0] or "", text) or _by_level(line):
            yield from self._unknown(text, line, stream)

    def _unknown(self, reason: str, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """What the controller calls a fault and no rule knows."""
        subject = subject_of(_AUTHOR, line)
        if not told_lately(_AUTHOR, {"node": line.node or ""}, line, stream, subject):
            attributes: dict[str, Attribute] = {"author": _AUTHOR, "reason": _trimmed(reason)[:160]}
            attributes |= subject.attributes("error")
            yield Finding(subject.kind, Severity.INFO, attributes, node=line.node, text=line.text)

    def _is_fault(self, before: str, text: str) -> bool:
        """True for an entry that no rule knows and the controller or its words call a fault."""
        grave = self._grave.search(before) is not None or self._wrong.search(text) is not None
        return grave and self._well.search(text) is None

    def _entry(self, row: Match, line: LogLine, stream: Stream) -> Iterator[Finding]:
        rest = row["rest"] or ""
        columns = [column.strip() for column in rest.split("|" if "|" in rest else ",")]
        texts = [c for c in columns if c and not _DIRECTION.match(c) and not _LEVEL.match(c)]
        if len(texts) < 2:
            return
        event = next((column for column in reversed(texts) if not _READING.search(column)), texts[-1])
        at, whole = _when(row[0] or ""), " | ".join(columns)
        found = list(self._classified(texts[0], whole, line, at, event=event))
        yield from found
        if not found and self._is_fault("", whole):
            yield from self._unknown(event, line, stream)

    def _of_sled(self, entry: log_util.Entry, line: LogLine, stream: Stream) -> Iterator[Finding]:
        found = list(self._classified(entry.sensor, entry.whole, line, entry.at, event=entry.event))
        yield from (one._replace(attributes={**one.attributes, **entry.readings}) for one in found)
        if not found and self._is_fault("", entry.whole):
            yield from self._unknown(entry.whole, line, stream)

    def _classified(
        self, sensor: str, text: str, line: LogLine, at: datetime | None, *, event: str = ""
    ) -> Iterator[Finding]:
        rule = next((rule for pattern, rule in self._rules if pattern.search(text)), None)
        well = self._well.search(text) is not None
        if rule is None and well and "redundan" in text.lower():
            rule = next(rule for _, rule in self._rules if rule.subtype == _redundancy_of(text))
        if rule is None:
            return
        attributes: dict[str, Attribute] = {"subtype": rule.subtype}
        if sensor:
            attributes["sensor"] = sensor
        attributes["reason"] = _trimmed(event or text)[:160]
        for pattern in (_READING, _DIMM):
            if (match := pattern.search(text)) is not None:
                attributes |= {name: value for name, value in match.groupdict().items() if value}
        state = SignalState.CLEARED if well else SignalState.FIRING
        yield Finding(rule.kind, rule.severity, attributes, state, at=at, node=line.node, text=line.text)


_AUTHOR = "management controller"
_UNITS = {
    "RPM": "fan",
    "degrees C": "temp",
    "Volts": "volt",
    "Watts": "power supply out-of-range",
    "Amps": "power supply out-of-range",
}
"""What a sensor measures, by its unit, in the words of the rules."""


def _redundancy_of(text: str) -> str:
    return "fan" if "fan" in text.lower() else "psu_redundancy"


def _of_named_host(line: LogLine) -> LogLine:
    """The line as of the host that it names first: one relay asks the controllers of many."""
    named = _HOST_FIRST.match(line.message)
    host = named["host"] or "" if named is not None else ""
    is_host = host_of_controller(host) is not None or (
        any(map(str.isdigit, host)) and _PART.search(host) is None
    )
    if named is None or not host or not is_host:
        return line
    return line._replace(node=host, start=line.start + named.end())


def _by_level(line: LogLine) -> bool:
    level = levels.of_header(line.text[: line.start])
    return level is not None and level <= levels.ERROR


def _trimmed(text: str) -> str:
    closing = _CLOSING.search(text)
    return text[: closing.start()] if closing is not None else text


def _when(text: str) -> datetime | None:
    """The time of an entry, which controllers keep in UTC; None for an impossible date (a clock never set)."""
    match = _WHEN.search(text)
    if match is None:
        return None
    month, day, year, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        return datetime(year if year > 99 else 2000 + year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
