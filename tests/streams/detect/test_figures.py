"""What the detector counts of a delivered batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from streams.detect import Detector
from streams.detect.batch import Batch, read_safely
from streams.detect.figures import DetectorFigures
from streams.model.record import RawRecord
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

NOW = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)


def delivered(*lines: str, after_s: float = 0.5) -> Metrics:
    """The metrics once these lines of the kernel, all written now, are delivered."""
    detector, batch, metrics = Detector("c1"), Batch(), Metrics("detector")
    for offset, line in enumerate(lines):
        record = RawRecord("raw.node-logs", 0, offset, NOW, b"gpu-7", line.encode())
        batch.add(record, read_safely(detector, record))
    batch.latest_ms["raw.node-logs"] = round(NOW.timestamp() * 1000)
    batch.outgoing(4)
    DetectorFigures(metrics, clock=lambda: (NOW + timedelta(seconds=after_s)).timestamp()).delivered(batch)
    return metrics


def xid(code: int) -> str:
    return f"NVRM: Xid (PCI:0000:9b:00): {code}, pid=4711, name=python, GPU has had a bad day."


def test_signals_count_by_their_kind_and_by_how_late_they_are() -> None:
    metrics = delivered(xid(79), xid(48), "eth0: link is as it always was")
    assert metrics.value(shown.SIGNALS, "gpu.xid") + metrics.value(shown.SIGNALS, "gpu.off_bus") == 2
    assert metrics.value(shown.RECORDS, "raw.node-logs", "signals") == 2
    assert metrics.value(shown.RECORDS, "raw.node-logs", "ignored") == 1
    assert metrics.value(shown.SIGNAL_DELAY) == 2
    assert metrics.value(shown.SHIPPER_LAST_RECORD, "raw.node-logs") == NOW.timestamp() + 0.5
    assert metrics.value(shown.SHIPPER_LAST_EVENT, "raw.node-logs") == NOW.timestamp()
    assert metrics.value(shown.UNKNOWN_CODES, "xid") == 0
    assert "faultline_signal_delay_seconds_sum 1.0" in metrics.exposition("")[0].decode()


def test_ten_thousand_unknown_codes_are_one_series() -> None:
    metrics = delivered(*(xid(20_000 + number) for number in range(10_000)))
    assert metrics.value(shown.UNKNOWN_CODES, "xid") == 10_000
    lines = metrics.exposition("")[0].decode().splitlines()
    assert len([line for line in lines if line.startswith("faultline_unknown_codes_total{")]) == 4


def test_records_of_other_clusters_and_topics_cost_no_series_of_their_own() -> None:
    """One detector serves many clusters; whatever a record says of its cluster is in no label."""
    detector, batch, metrics = Detector("c1"), Batch(), Metrics("detector")
    for number in range(2_000):
        headers = (("faultline-cluster", f"cluster-{number}".encode()),)
        record = RawRecord("raw.node-logs", 0, number, NOW, b"gpu-7", xid(79).encode(), headers)
        batch.add(record, read_safely(detector, record))
    batch.outgoing(4)
    DetectorFigures(metrics).delivered(batch)
    text = metrics.exposition("")[0].decode()
    assert "cluster-" not in text
    assert metrics.value(shown.RECORDS, "raw.node-logs", "signals") == 2_000


def test_a_reader_that_fails_counts_as_such() -> None:
    class Broken(Detector):
        def read(self, *_: object) -> object:  # type: ignore[override]
            raise RuntimeError("a bug")

    batch, metrics = Batch(), Metrics("detector")
    record = RawRecord("raw.node-logs", 0, 1, NOW, b"gpu-7", b"\xff")
    batch.add(record, read_safely(Broken("c1"), record))
    DetectorFigures(metrics).delivered(batch)
    assert metrics.value(shown.DEAD_LETTERS, "detector", "failed") == 1
    assert metrics.value(shown.DEAD_LETTERS, "detector", "unreadable") == 0


def test_a_line_that_only_its_subject_names_is_still_one_that_no_row_knows() -> None:
    metrics = delivered("NVRM: GPU 0000:9b:00.0: thermal quark failed")
    assert (metrics.value(shown.SIGNALS, "gpu.thermal"), metrics.value(shown.UNKNOWN_CODES, "line")) == (1, 1)
