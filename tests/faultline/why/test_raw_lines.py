"""The raw line behind a signal, found again in its record."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from faultline.why.raw_lines import MAX_LINE, line_of, lines_in
from streams.model.record import RawRecord
from streams.model.signal import Evidence

LINE = "Mar  3 03:04:12 gpu-03 kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=8812, name=python, GPU has fallen off the bus."


def test_a_line_is_found_in_the_json_that_its_shipper_made_of_it() -> None:
    value = orjson.dumps({"host": "gpu-03", "events": [{"message": "quiet"}, {"message": LINE}]})
    assert line_of(value, LINE[:80]) == LINE


def test_one_line_of_a_record_of_many_is_shown_alone() -> None:
    assert line_of(f"before\n{LINE}\nafter".encode(), LINE[:40]) == LINE


def test_a_record_that_does_not_hold_the_kept_text_is_shown_as_it_is_and_bounded() -> None:
    assert line_of(b"x" * 10_000, "something else") == "x" * MAX_LINE


def test_only_records_that_are_still_there_are_found() -> None:
    at = datetime(2026, 3, 3, tzinfo=UTC)
    here = RawRecord("raw.node-logs", 0, 7, at, None, LINE.encode())
    wanted = {f"raw.node-logs:0:{n}": Evidence("raw.node-logs", 0, n, LINE[:40]) for n in (7, 8)}
    assert lines_in({"raw.node-logs": [here]}, wanted) == {"raw.node-logs:0:7": LINE}
