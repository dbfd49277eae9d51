"""Prometheus remote-write: requests written by hand, byte for byte, and what is read from them."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector
from streams.ingest import Opened, RecordContext, compression, open_record
from streams.model.record import Sample
from tests.effort import tries
from tests.streams.detect.lines import firm, record
from tests.streams.ingest.wire import message, sample, series, write_request, write_request_2

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, 250_000, tzinfo=UTC)
MILLIS = int(AT.timestamp() * 1000)
OUTSIDE = RecordContext(NOW, "from-key")
DETECTOR = Detector("c1")
STALE = struct.pack("<Q", 0x7FF0000000000002)
DCGM = {
    "Hostname": "n1",
    "UUID": "GPU-1",
    "__name__": "DCGM_FI_DEV_XID_ERRORS",
    "device": "nvidia3",
    "gpu": "3",
    "instance": "10.0.0.5:9400",
    "modelName": "NVIDIA H100 80GB HBM3",
    "pci_bus_id": "00000000:1B:00.0",
}


def opened(raw: bytes) -> Opened:
    block = bytes(cramjam.snappy.compress_raw(raw))
    assert compression.is_packed(block)
    assert DETECTOR.select([b"hi", block, b"hi"]) == [1] or len(raw) < 128
    result = open_record(compression.unpacked(block), OUTSIDE)
    assert not result.unreadable
    return result


def samples(raw: bytes) -> list[Sample]:
    found = opened(raw).observations
    assert all(isinstance(one, Sample) for one in found)
    return found  # type: ignore[return-value]


def test_each_sample_of_each_series_is_one() -> None:
    found = samples(
        write_request(
            series(DCGM, sample(0.0, MILLIS - 15_000), sample(79.0, MILLIS)),
            series({"__name__": "up", "instance": "n2:9100"}, sample(1.0, MILLIS)),
        )
    )
    assert [(one.name, one.value, one.node) for one in found] == [
        ("DCGM_FI_DEV_XID_ERRORS", 0.0, "n1"),
        ("DCGM_FI_DEV_XID_ERRORS", 79.0, "n1"),
        ("up", 1.0, "n2"),
    ]
    assert found[1].at == AT
    assert found[1].labels == {name: value for name, value in DCGM.items() if name != "__name__"}


def test_the_marker_of_an_ended_series_is_no_sample_and_another_nan_is_one() -> None:
    found = samples(write_request(series(DCGM, sample(STALE, MILLIS), sample(float("nan"), MILLIS))))
    assert len(found) == 1


def test_descriptions_of_metrics_are_passed_over() -> None:
    description = message(3, b"\x08\x02" + message(2, "DCGM_FI_DEV_XID_ERRORS") + message(4, "Value of"))
    assert len(samples(write_request(series(DCGM, sample(1.0, MILLIS))) + description)) == 1
    assert not samples(description)


def test_the_second_version_is_read_through_its_table() -> None:
    symbols = ["", "__name__", "DCGM_FI_DEV_XID_ERRORS", "Hostname", "n1", "gpu", "3"]
    (found,) = samples(write_request_2(symbols, ([1, 2, 3, 4, 5, 6], [sample(79.0, MILLIS)])))
    assert (found.name, found.value, found.at, found.node) == ("DCGM_FI_DEV_XID_ERRORS", 79.0, AT, "n1")
    assert found.labels == {"Hostname": "n1", "gpu": "3"}


def test_a_second_version_with_labels_outside_of_its_table_says_so() -> None:
    raw = write_request_2(["", "__name__"], ([1, 9], [sample(1.0, MILLIS)]))
    (reason,) = open_record(raw, OUTSIDE).unreadable
    assert "symbols" in reason


def test_a_request_that_came_without_its_snappy_is_read() -> None:
    (found,) = open_record(write_request(series(DCGM, sample(79.0, MILLIS))), OUTSIDE).observations
    assert isinstance(found, Sample)


def test_the_gauge_is_told_of_when_it_changes() -> None:
    detector = Detector("c1")
    found = [
        signal
        for step, value in enumerate((0.0, 79.0, 79.0))
        for signal in detector.detect(
            record(
                bytes(
                    cramjam.snappy.compress_raw(
                        write_request(
                            series({"__name__": "up"}, sample(1.0, MILLIS)),
                            series(DCGM, sample(value, MILLIS + 15_000 * step)),
                        )
                    )
                ),
                offset=step,
            )
        ).signals
    ]
    assert [(signal.entity.key, signal.attributes["xid"]) for signal in firm(found)] == [
        ("gpu/n1/0000:1b:00", 79)
    ]


def test_metrics_that_no_rule_reads_are_not_opened() -> None:
    raw = write_request(*[series({"__name__": f"up_{n}"}, sample(1.0, MILLIS)) for n in range(50)])
    raw += write_request(series(DCGM, sample(1.0, MILLIS)))
    found = Detector("c1").detect(record(bytes(cramjam.snappy.compress_raw(raw))))
    assert (found.observations, found.dead) == (1, ())


def test_a_series_without_a_name_is_none() -> None:
    raw = write_request(series(DCGM, sample(1.0, MILLIS)), series({"gpu": "1"}, sample(1.0, MILLIS)))
    assert len(samples(raw)) == 1


def test_a_label_that_is_none_is_told_and_the_other_series_are_read() -> None:
    broken = message(1, message(1, message(1, "__name__") + message(2, "up")) + message(1, b"\x0a\x09cut"))
    result = open_record(broken + write_request(series(DCGM, sample(1.0, MILLIS))), OUTSIDE)
    assert len(result.observations) == 1
    (reason,) = result.unreadable
    assert "label" in reason


def test_labels_are_bounded_in_number_and_length() -> None:
    labels = {f"label_{n}": "x" * 5000 for n in range(300)} | {"__name__": "up"}
    (found,) = samples(write_request(series(labels, sample(1.0, MILLIS))))
    assert len(found.labels) == 64
    assert all(len(value) == 512 for value in found.labels.values())


@pytest.mark.parametrize("cut", [1, 9, 40, 100])
def test_a_request_that_was_cut_is_a_dead_letter(cut: int) -> None:
    raw = write_request(series(DCGM, sample(79.0, MILLIS), sample(0.0, MILLIS)))
    found = Detector("c1").read(record(raw[:-cut]))
    assert found.dead
    assert not found.signals


@settings(max_examples=tries(200))
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.text(min_size=1), st.text(min_size=1, max_size=500), max_size=6),
            st.text(min_size=1),
            st.lists(st.tuples(st.floats(allow_nan=False), st.integers(1, 2**53)), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_was_written_is_read(written: list[tuple[dict[str, str], str, list[tuple[float, int]]]]) -> None:
    expected = [
        (name, value, {k: v for k, v in labels.items() if k != "__name__"})
        for labels, name, points in written
        for value, _ in points
    ]
    raw = write_request(
        *[
            series(labels | {"__name__": name}, *[sample(value, at) for value, at in points])
            for labels, name, points in written
        ]
    )
    assert [(one.name, one.value, one.labels) for one in samples(raw)] == expected


@settings(max_examples=tries(300))
@given(st.binary(max_size=200), st.integers(0, 200))
def test_damaged_requests_are_read_or_refused(noise: bytes, at: int) -> None:
    raw = write_request(series(DCGM, sample(79.0, MILLIS)))
    for damaged in (raw[:at] + noise + raw[at:], raw[:at] + noise, b'"\x00' + noise, message(5, noise)):
        result = open_record(damaged, OUTSIDE)
        assert len(result.observations) <= len(damaged)
