"""A report is the same report as protobuf and compressed: the corpus of metric envelopes, in other bytes."""

from __future__ import annotations

import pytest

from streams.detect import Detector
from streams.model.signal import Signal
from tests.streams.detect.cases import CORPUS, Case, cases_of, raw
from tests.streams.detect.lines import record
from tests.streams.ingest.binary import as_protobuf, compressed

CASES = cases_of(CORPUS / "metric_envelopes.jsonl")
OF_REQUESTS = [case for case in CASES if all(as_protobuf(one) for one in case["records"])]


def found_in(values: list[bytes]) -> list[Signal]:
    detector = Detector("c1")
    return [
        signal
        for number, value in enumerate(values)
        if detector.select([b"{}", value]) == [1]
        for signal in detector.read(record(value, offset=number)).signals
    ]


def test_there_are_requests_of_logs_and_of_metrics() -> None:
    kinds = {name for case in OF_REQUESTS for one in case["records"] for name in one}
    assert {"resourceLogs", "resourceMetrics"} <= kinds
    assert len(OF_REQUESTS) > 20


@pytest.mark.parametrize("case", OF_REQUESTS, ids=lambda case: str(case["family"]))
def test_a_request_says_the_same_as_protobuf(case: Case) -> None:
    messages = [as_protobuf(one) or b"" for one in case["records"]]
    assert found_in(messages) == found_in([raw(one) for one in case["records"]])


def test_a_record_says_the_same_however_it_is_compressed() -> None:
    for case in CASES:
        plain = [raw(one) for one in case["records"]]
        expected = found_in(plain)
        for ways in zip(*map(compressed, plain), strict=True):
            assert found_in(list(ways)) == expected
