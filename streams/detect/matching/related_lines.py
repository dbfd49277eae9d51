"""One fault that prints several lines is one signal: the first line says it, what follows soon after repeats it.

Rows of wordings name the `report` they are part of, and under `report_by` the fields by which two reports of one node are
told apart (the process killed, the device).
"""

from __future__ import annotations

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import PatternRow
from streams.model.clock import to_millis
from streams.model.record import LogLine

APART_MS = 3000
"""The lines of one report come within milliseconds; relays and second-wide clocks add to that."""
MAX_REPORTS = 10_000

_MONOTONIC = re2_patterns.compile(r"\[\s{0,8}(\d{1,10})\.(\d{3})\d{0,6}\]")


def told(row: PatternRow, finding: Finding, line: LogLine, stream: Stream) -> bool:
    """True when another row of the same report has said it just before; remembers that it is said now."""
    if row.report is None:
        return False
    table = stream.rule_state.table("reports", MAX_REPORTS)
    by = (str(finding.attributes.get(name, "")) for name in row.report_by)
    key = (stream.cluster, finding.node or line.node or stream.lines, row.report, *by)
    now = _at_ms(line, stream)
    before = table.get(key)
    if before is not None and before[0] != row.id and abs(now - _int(before[1])) <= APART_MS:
        return True
    table[key] = (row.id, now)
    return False


def _at_ms(line: LogLine, stream: Stream) -> int:
    if line.at is not None:
        return to_millis(line.at)
    clock = _MONOTONIC.search(line.text[: line.start])
    if clock is not None:
        return int(clock[1] or 0) * 1000 + int(clock[2] or 0)
    return to_millis(stream.received_at)


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
