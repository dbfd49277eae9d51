"""What is fuzzed: one function of bytes for each door through which untrusted bytes come in, and the seeds to begin with.

A target must never raise, whatever the bytes are, and its cost must grow no faster than their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import cramjam

from streams.detect import Detector, cli_records
from streams.detect.families import line_families
from streams.detect.finding import Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import load_sheet, sheet_names
from streams.detect.rule_state import RuleState
from streams.ingest import RecordContext, open_record
from streams.model.record import LogLine
from tests.streams.detect.cases import CORPUS, cases_of, raw
from tests.streams.detect.lines import NOW, record
from tests.streams.ingest import wire
from tests.streams.ingest.binary import as_protobuf, compressed

WRITTEN = wire.write_request(
    wire.series({"__name__": "DCGM_FI_DEV_XID_ERRORS", "gpu": "3"}, wire.sample(79.0, 1_795_245_195_000))
)

Target = Callable[[bytes], None]

_DETECTOR = Detector("c1")
_FAMILIES = line_families()


def envelopes(data: bytes) -> None:
    """Every envelope: a record's value as it comes."""
    opened = open_record(data, RecordContext(NOW, "node-1"))
    assert all(isinstance(reason, str) and len(reason) < 2000 for reason in opened.unreadable)


def detector(data: bytes) -> None:
    """The whole of detection on one Kafka record, past the prefilter and through it."""
    key, _, value = data.partition(b"\x00") if data[:1] == b"\x01" else (b"", b"", data)
    one = record(value, key=key or None, at=NOW + timedelta(milliseconds=len(data)), offset=len(data))
    found = _DETECTOR.read(one)
    assert found.ignored <= found.observations
    _DETECTOR.detect(one)


def families(data: bytes) -> None:
    """Every family on one line, whether or not its hints are in it."""
    text = data.decode("utf-8", "surrogateescape").replace("\n", " ")
    line = LogLine(text, NOW, "node-1", source="kernel" if data[:1] == b"N" else "")
    stream = Stream("c1", "fuzz:0", NOW, RuleState())
    for family in _FAMILIES:
        for finding in family.read(line, stream):
            assert finding.kind


def command(data: bytes) -> None:
    """What `faultline detect` reads from a file."""
    for _ in cli_records(data.decode("utf-8", "surrogateescape").split("\n"), cluster="c1", now=NOW):
        pass


TARGETS: dict[str, Target] = {target.__name__: target for target in (envelopes, detector, families, command)}


def seeds() -> Iterator[bytes]:
    """The corpus of the tests, in binary as well where it can be so, and every sample of the catalog."""
    for path in sorted(CORPUS.glob("*.jsonl")):
        for case in cases_of(path):
            yield from map(raw, case["records"])
            for message in filter(None, map(as_protobuf, case["records"])):
                yield message
                yield from compressed(message)
    yield bytes(cramjam.snappy.compress_raw(WRITTEN))
    for name in sheet_names():
        for row in load_sheet(name).rows:
            yield from (sample.text.encode() for sample in row.samples)


def words() -> Iterator[bytes]:
    """Words that open doors: the literal beginnings of what the catalog looks for."""
    literal = re2_patterns.compile(r"[A-Za-z][A-Za-z0-9 _./#-]{3,40}")
    for name in sheet_names():
        for row in load_sheet(name).rows:
            for sample in row.samples:
                yield from (word.strip().encode() for word in literal.findall(sample.text)[:8])
