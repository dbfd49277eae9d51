"""Detection without Kafka for `faultline detect`: lines of a file in, signals with a reference to their line out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import orjson

from streams.detect.detector import Detector
from streams.detect.finding import Stream
from streams.detect.matching.quotation_filter import written_by_people
from streams.ingest import RecordContext, open_record, timestamps
from streams.ingest.fields import is_chat_record
from streams.model.record import LogLine, RawRecord
from streams.model.signal import Signal

Ref = str | int

_TOPIC = "stdin"


def cli_records(lines: Iterable[str], *, cluster: str, now: datetime) -> Iterator[tuple[Ref, Signal]]:
    """The signals of raw log lines, or of JSON lines `{"id", "text", "node"?, "time"?, "source"?}`, mixed as they come.

    Args:
        lines: As read from a file, with or without their ends. A JSON line's `text` may hold several log lines; a JSON
            line without `text` is read as a shipper's record.
        cluster: The cluster of the signals.
        now: The time of lines without one, and the year of those that leave it out.

    Yields:
        The reference (the record's `id`, else the line's number, from 1) with each signal, in order.
    """
    detector = Detector(cluster)
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if not line.strip():
            continue
        yield from _read(detector, number, line, cluster, now)
    for signal in detector.flush_unfinished(_TOPIC, 0):  # lines that were never completed
        yield signal.evidence[0].offset, signal


def _read(
    detector: Detector, number: int, line: str, cluster: str, now: datetime
) -> Iterator[tuple[Ref, Signal]]:
    record = _record(line)
    if record is None:
        raw = _raw(line, number, now)
        yield from ((number, signal) for signal in detector.detect(raw).signals)
        return
    ref = record.get("id")
    ref = ref if isinstance(ref, (str, int)) else number
    received = timestamps.any_form(record.get("time")) or now
    node = record.get("node")
    node = node if isinstance(node, str) and node else None
    raw = _raw(record["text"], number, received)
    source = str(record.get("source", "")).lower()
    if not detector.wants(raw.value or b"") or written_by_people(source) or is_chat_record(record):
        return
    kernel = any(word in source for word in ("kern", "kmsg", "dmesg"))
    opened = open_record(raw.value or b"", RecordContext(received, node))
    observations = [
        found._replace(node=node or found.node, source="kernel" if kernel else found.source)
        if isinstance(found, LogLine)
        else found
        for found in opened.observations
    ]
    # Records without a node are unrelated, so no line of one continues a line of another.
    stream = Stream(
        cluster, f"stdin:{node or number}", received, detector.rule_state(raw.topic, raw.partition)
    )
    yield from ((ref, signal) for signal in detector.observe(observations, stream, raw).signals)


def _record(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        record = orjson.loads(line.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        try:
            record = json.loads(line)  # unpaired surrogates and NaN, which other writers let through
        except (ValueError, RecursionError):
            return None
    return record if isinstance(record, dict) and isinstance(record.get("text"), str) else None


def _raw(text: str, number: int, at: datetime) -> RawRecord:
    # Unpaired surrogates get U+FFFD: a question mark would make the line a question, which is read as a person's.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return RawRecord(_TOPIC, 0, number, at, None, whole.encode())
