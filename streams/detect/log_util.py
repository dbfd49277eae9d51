"""Entries of the event log as OpenBMC's log-util prints them and its daemons log them, for each server of a sled.

`1 slot1 2026-11-21 07:13:13 ipmid SEL Entry: FRU: 1, Record: Standard (0x02), Time: …, Sensor: PROC_FAIL (0x65), Event Data:
(04FFFF) FRB3, Assertion`, and sensors beyond a threshold: `ASSERT: Upper Critical threshold - raised - FRU: 1, num: 0x5
curr_val: 96.00 C, thresh_val: 90.00 C, snr: CPU0_TEMP`. Source: facebook/openbmc, ipmid/sel.c, sensor-util and sensord.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from streams.detect.matching import re2_patterns

HINTS = (rb"SEL Entry: FRU: ?\d|ASSERT: (?:Upp|Low)er ",)

_PRINTED = (
    r"(?:\b\d{1,3} {1,8}[a-z][\w-]{1,20} {1,16}\d{4}-\d\d-\d\d \d\d:\d\d:\d\d {1,16}[\w.-]{2,24} {1,24})?"
)
_ENTRY = re2_patterns.compile(
    _PRINTED
    + r"\bSEL Entry: FRU: ?(?P<fru>\d{1,3}), Record: Standard \(0x02\), (?:Time: (?P<time>[\d-]{10} [\d:]{8}), )?"
    r"Sensor: (?P<sensor>[\w /.-]{2,48}?) \(0x[0-9A-Fa-f]{1,4}\), Event Data: \([0-9A-Fa-f]{2,12}\) {0,2}"
    r"(?P<event>[^\n]{2,200}?),? {1,2}(?P<direction>Deassertion|Assertion)\b"
)
_THRESHOLD = re2_patterns.compile(
    _PRINTED
    + r"\b(?P<direction>DEASSERT|ASSERT): (?P<event>(?:Upper|Lower) (?:Non )?[\w-]{4,16}) threshold - [a-z]{4,12} - "
    r"FRU: ?(?P<fru>\d{1,3}), num: [0-9A-Fa-fx]{1,6},? curr_val: (?P<reading>-?[\d.]{1,12}) (?P<unit>[\w %]{1,12}), "
    r"thresh_val: (?P<threshold>-?[\d.]{1,12}) [\w %]{1,12}, snr: (?P<sensor>[\w /.-]{2,48}?)(?:,|\s|$)"
)
_MEASURES = {"C": "temp", "RPM": "fan", "Volts": "volt"}
"""What a sensor measures, by its unit, in the words of the rules."""


class Entry(NamedTuple):
    """One entry. `start` is where it begins in the text, `whole` what it says in the words of the rules in `catalog/sel.yaml`.

    `at` is the entry's own time, which controllers keep in UTC: printing a log shows what is old as well.
    """

    start: int
    sensor: str
    event: str
    whole: str
    at: datetime | None = None
    readings: Mapping[str, str] = MappingProxyType({})


def entry_in(text: str) -> Entry | None:
    """The entry in a line, None where there is none, or the line was cut before it says whether that began or ended."""
    if (found := _ENTRY.search(text)) is not None:
        sensor, event = _of_fru(found["sensor"], found["fru"]), found["event"] or ""
        ended = found["direction"] == "Deassertion"
        whole = f"{sensor} | {event} | {'deasserted' if ended else 'asserted'}"
        return Entry(found.start(), sensor, event, whole, _time(found["time"]))
    if (found := _THRESHOLD.search(text)) is None:
        return None
    sensor, event = _of_fru(found["sensor"], found["fru"]), (found["event"] or "").replace("Non ", "Non-")
    measured = _MEASURES.get((found["unit"] or "").strip(), "")
    whole = f"{sensor} {measured} | {event} | {(found['direction'] or '').lower()}ed"
    readings = {name: found[name] or "" for name in ("reading", "threshold")}
    return Entry(found.start(), sensor, event, whole, readings=readings)


def _of_fru(sensor: str | None, fru: str | None) -> str:
    """The sensor and whose it is: a sled's servers have sensors of the same names."""
    return f"FRU {fru} {sensor}"


def _time(text: str | None) -> datetime | None:
    """None for no time and an impossible one (a clock that was never set)."""
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if text else None
    except ValueError:
        return None
