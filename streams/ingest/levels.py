"""How severe a shipper or header says a line is, as syslog counts: 0 is an emergency, 3 an error, 4 a warning, 6 information.

The journal has `PRIORITY`, /dev/kmsg a number, rsyslog and Vector `severity` in words, GELF a numeric `level`, Telegraf
`severity_code`, OpenTelemetry `severityNumber` from 1 to 24. Loggers that count otherwise (Python's and pino's from 10 to 60)
are told apart by their numbers. Sources: RFC 5424, section 6.2.1; OpenTelemetry, logs data model; GELF 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ERROR = 3
WARNING = 4
INFO = 6

_NAMES = (
    "priority",
    "severity_code",
    "syslog_severity",
    "severity",
    "severity_text",
    "severity_label",
    "syslogseverity",
    "syslogseverity_text",
    "log_syslog_severity_code",
    "log_syslog_severity_name",
    "fields_severity_code",
    "tags_severity",
    "log_level",
    "loglevel",
    "level",
    "level_name",
)
_WORDS = {
    word: level
    for level, words in enumerate(
        (
            "emerg emergency panic",
            "alert",
            "crit critical fatal",
            "err error major",
            "warn warning minor",
            "notice",
            "info information informational",
            "debug trace",
        )
    )
    for word in words.split()
}
_OPENTELEMETRY = ((21, 2), (17, ERROR), (13, WARNING), (9, INFO))
"""The lowest number of each range, and its level."""
_PRIORITY = re.compile(r"<(\d{1,3})>|^(\d{1,5}),\d{1,20},\d{1,20},")
_IN_HEADER = re.compile(
    r"\b(?:EMERG|ALERT|CRIT|CRITICAL|ERR|ERROR|WARN|WARNING|NOTICE|INFO|DEBUG)\b(?= )|"
    r"(?<=[a-z\d]\.)(?:emerg|alert|crit|err|warning|warn|notice|info|debug)\b(?=[> ])|"
    r"(?<= :)(?:emerg|alert|crit|err|warn|notice|info|debug)(?= {0,4}: )"
)


def of_fields(known: Mapping[str, Any]) -> int | None:
    """The level that a record's fields (`fields.py`) give; None when they give none that can be read."""
    for name in _NAMES:
        value = known.get(name)
        if value is not None and (level := of_value(value)) is not None:
            return level
    return of_number(known.get("severitynumber", known.get("severity_number")))


def of_value(value: object) -> int | None:
    """The level in a syslog number or a word; None for anything else."""
    if isinstance(value, str):
        word = value.strip()
        if not word.isdecimal():
            return _WORDS.get(word.lower())
        value = int(word) if len(word) == 1 else None
    return value if type(value) is int and 0 <= value <= 7 else None


def of_number(value: object) -> int | None:
    """The level of a severity number of OpenTelemetry, which exporters also write by name (`SEVERITY_NUMBER_ERROR2`)."""
    if isinstance(value, str):
        if value.isdecimal() and len(value) < 3:
            value = int(value)
        else:
            return _WORDS.get(value.rpartition("_")[2].rstrip("234").lower())
    if type(value) is not int or not 0 < value <= 24:
        return None
    return next((level for lowest, level in _OPENTELEMETRY if value >= lowest), 7)


def of_header(header: str) -> int | None:
    """The level in the header of a line: syslog's priority, the number of /dev/kmsg, or a word."""
    if (match := _PRIORITY.search(header)) is not None:
        return int(match[1] or match[2]) & 7
    if (match := _IN_HEADER.search(header)) is not None:
        return _WORDS.get(match[0].lower())
    return None
