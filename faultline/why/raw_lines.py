"""The raw lines behind an incident, read again from where its records are kept: a capture, an archive, or Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from streams.model.incident import Incident
from streams.model.record import RawRecord
from streams.model.signal import Evidence

MAX_LINE = 4000
"""Characters of a raw line that are shown: shippers send lines of a megabyte."""
_MARK = 60
"""So many characters of what a signal kept of a line find the line in its record."""


def evidence_of(incident: Incident) -> dict[str, Evidence]:
    """By coordinates: the evidence that an incident shows."""
    return {e.coordinates: e for proof in incident.shown for e in proof.evidence[:1]}


def lines_in(records: Mapping[str, Collection[RawRecord]], wanted: Mapping[str, Evidence]) -> dict[str, str]:
    """The whole lines of these evidences, as far as the records still hold them, by coordinates."""
    found: dict[str, str] = {}
    for topic in sorted({evidence.topic for evidence in wanted.values()}):
        missing = {name for name, evidence in wanted.items() if evidence.topic == topic}
        for record in records.get(topic, ()):
            if record.coordinates in missing and record.value is not None:
                found[record.coordinates] = line_of(record.value, wanted[record.coordinates].text)
                missing.discard(record.coordinates)
                if not missing:
                    break
    return found


def line_of(value: bytes, kept: str) -> str:
    """The line of a record that a signal kept the beginning of; the record as it is where that cannot be told."""
    text = value.decode(errors="replace")
    mark = kept[:_MARK]
    for candidate in _texts(value):
        for line in candidate.splitlines():
            if mark and mark in line:
                return line[:MAX_LINE]
    return text[:MAX_LINE]


def _texts(value: bytes) -> Iterator[str]:
    """The strings of a JSON record, at any depth; else its text."""
    try:
        yield from _strings(orjson.loads(value))
    except orjson.JSONDecodeError:
        yield value.decode(errors="replace")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _in(value.values())
    elif isinstance(value, list):
        yield from _in(value)


def _in(values: Iterable[Any]) -> Iterator[str]:
    for one in values:
        yield from _strings(one)
