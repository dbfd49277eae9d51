"""What the detector makes of every alert of the packs, with the labels that Alertmanager delivers."""

from __future__ import annotations

import pytest

from k8s.monitoring.render import DOCS
from k8s.monitoring.rows import PACK, Row, read
from streams.detect.alerts import KINDS
from streams.model.signal import SignalState
from tests.streams.detect.lines import detect, signals
from tests.streams.detect.test_alerts import webhook

ROWS = [row for name in PACK for row in read(name).rows]
EVIDENCE = [row for row in ROWS if row.evidence == "signal"]
NONE = [row for name in (*PACK, "own") for row in read(name).rows if row.evidence == "none"]

ALSO = {
    "GpuRetiredPagesPending": (
        "gpu.row_remap",
    ),  # retired pages and remapped rows are one thing before and after Ampere
    "GpuRetiredPagesDoubleBit": ("gpu.row_remap",),
    "GpuHealthMemory": ("gpu.memory",),
    "GpuMissing": ("gpu.off_bus",),  # which an alert is only context for
    "GpuExporterDown": ("gpu.driver",),
    "SwitchDown": ("fabric.link",),
    "TrainingPodOomKilled": ("node.memory",),
}
"""Alerts whose name alone is of another kind to the table of other people's rules, and of which."""


def delivered(row: Row, *, status: str = "firing", without: tuple[str, ...] = ()) -> bytes:
    labels = {name: value for name, value in row.firing_labels.items() if name not in without}
    return webhook(row.alert, labels, status=status, annotations=row.annotations(DOCS, shown=row.shown))


def test_there_are_more_than_a_hundred_and_none_stands_twice() -> None:
    names = [row.alert for row in ROWS]
    assert len(names) > 100
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", EVIDENCE, ids=lambda row: row.alert)
def test_an_alert_is_the_signal_that_its_row_says_about_the_place_that_failed(row: Row) -> None:
    assert row.kind in KINDS
    (signal,) = signals(delivered(row))
    assert (signal.kind, signal.entity.key) == (row.kind, row.entity)
    if row.kind == "gpu.xid":
        assert signal.attributes["xid"] == int(row.yields["xid"])
    else:
        assert signal.attributes.get("subtype", "") == row.subtype or row.alert == "PduFeedLost"


@pytest.mark.parametrize("row", EVIDENCE, ids=lambda row: row.alert)
def test_an_alert_that_is_resolved_ends_what_it_began(row: Row) -> None:
    (signal,) = signals(delivered(row, status="resolved"))
    assert signal.state == SignalState.CLEARED


@pytest.mark.parametrize("row", NONE, ids=lambda row: row.alert)
def test_what_is_no_evidence_by_design_becomes_none_and_says_why(row: Row) -> None:
    assert row.why
    assert not detect(delivered(row)).signals


@pytest.mark.parametrize("row", EVIDENCE, ids=lambda row: row.alert)
def test_a_site_that_drops_the_label_of_the_kind_is_not_told_something_else(row: Row) -> None:
    """Its name then says what it is, or nothing; never a fault of another kind."""
    found = signals(delivered(row, without=("faultline_kind", "faultline_subtype")))
    assert {signal.kind for signal in found} <= {row.kind, *ALSO.get(row.alert, ())}
