"""The level that a shipper carries beside a text, as syslog counts it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from streams.ingest import RecordContext, levels, open_record
from streams.model.record import LogLine

NOW = datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)


def otlp(**fields: object) -> dict[str, object]:
    record = {"timeUnixNano": "1795245193000000000", "body": {"stringValue": "quark"}, **fields}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


@pytest.mark.parametrize(
    ("record", "level"),
    [
        ({"PRIORITY": "3", "MESSAGE": "quark"}, 3),
        ({"priority": 4, "sequence": 1, "sec": 1, "usec": 1, "msg": "quark"}, 4),
        ({"severity": "err", "message": "quark"}, 3),
        ({"log": {"syslog": {"severity": {"code": 2}}}, "message": "quark"}, 2),
        ({"version": "1.1", "short_message": "quark", "level": 1}, 1),
        ({"level": "WARNING", "msg": "quark"}, 4),
        ({"level": 50, "msg": "quark"}, None),  # pino counts from 10 to 60
        ({"priority": "high", "msg": "quark"}, None),
        ({"msg": "quark"}, None),
        (otlp(severityNumber=17), 3),
        (otlp(severityNumber="SEVERITY_NUMBER_WARN2"), 4),
        (otlp(severityNumber=21, severityText="critical"), 2),
        (otlp(severityText="Error"), 3),
        (otlp(severityNumber=9), 6),
        (otlp(), None),
    ],
)
def test_a_level_is_read_under_the_names_that_shippers_use(
    record: dict[str, object], level: int | None
) -> None:
    (line,) = open_record(json.dumps(record).encode(), RecordContext(NOW)).observations
    assert isinstance(line, LogLine)
    assert line.level == level


def test_what_is_wrapped_keeps_its_wrappers_level_unless_it_has_its_own() -> None:
    inner = json.dumps({"level": "error", "msg": "quark"})
    for outer, level in (({"severity": "info", "message": inner}, 3), ({"severity": "crit", "message": "quark"}, 2)):  # fmt: skip
        (line,) = open_record(json.dumps(outer).encode(), RecordContext(NOW)).observations
        assert isinstance(line, LogLine)
        assert line.level == level


@pytest.mark.parametrize(
    ("header", "level"),
    [
        ("<27>1 2026-11-21T07:13:13Z gpu-7 quarkd 9 - - ", 3),
        ("3,8812,99,-;", 3),
        ("Nov 21 07:13:13.1 leaf-2 WARNING pmon#psud: ", 4),
        ("kern  :err   : ", 3),
        ("Nov 21 07:13:13 daemon.crit quarkd: ", 2),
        ("Nov 21 07:13:13 gpu-7 kernel: ", None),
    ],
)
def test_a_header_says_its_level_by_number_or_word(header: str, level: int | None) -> None:
    assert levels.of_header(header) == level
