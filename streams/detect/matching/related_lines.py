"""Folds a fault that is logged in several lines into one signal: the first line counts, those soon after repeat it.

A row names the `report` it is part of, and in `report_by` the fields that tell two reports of one node apart (the process killed,
the device).
"""

from __future__ import annotations

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import PatternRow
from streams.model.clock import to_millis
from streams.model.record import LogLine

APART_MS = 3000
"""The lines of a report come within milliseconds; relays and clocks in whole seconds add to that."""
MAX_REPORTS = 10_000

_MONOTONIC = re2_patterns.compile(r"\[\s{0,8}(\d{1,10})\.(\d{3})\d{0,6}\]")


def is_repeat(row: PatternRow, finding: Finding, line: LogLine, stream: Stream) -> bool:
    """True when another row of the same report matched just before; remembers this one otherwise."""
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
