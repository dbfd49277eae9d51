"""The data of codes and events. That every row finds its own samples and leaves its look-alikes alone: `tests/faultline/lint`."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streams.detect import Detector, xid_catalog
from streams.detect.kube_events import EventRow
from streams.detect.kube_events import sheet as kube_sheet
from streams.detect.matching.log_patterns import PatternSheet, PatternTable, load_sheet, sheet_names
from streams.model.errors import ConfigError
from tests.streams.detect.lines import detect, record, signals

SHEETS = {name: load_sheet(name) for name in sheet_names()}
CODES = {code for row in xid_catalog.catalog().codes for code in row.codes}


def test_codes_of_todays_drivers_are_all_known() -> None:
    missing = set(range(1, 177)) - CODES
    assert missing <= set(range(1, 177)) - {
        13,
        31,
        43,
        45,
        48,
        63,
        64,
        74,
        79,
        94,
        95,
        119,
        120,
        *range(140, 173),
    }


def event_of(kind: str, reason: str, message: str) -> bytes:
    about = {
        "kind": kind,
        "name": "thing-07",
        "uid": "u-07",
        **({} if kind == "Node" else {"namespace": "ml"}),
    }
    event = {"reason": reason, "message": message, "type": "Warning", "involvedObject": about}
    event |= {"metadata": {"name": "e1", "creationTimestamp": "2026-11-21T07:13:00Z"}, "clusterName": ""}
    return orjson.dumps({**event, "source": {"component": "kubelet", "host": "gpu-3"}})


BESIDE = {(row.kind, row.subtype) for row in kube_sheet().rows if row.beside}


@pytest.mark.parametrize("row", kube_sheet().rows, ids=lambda row: f"{row.reasons[0]}-{row.subtype}")
def test_an_event_of_the_table_is_a_signal_and_the_same_words_about_another_object_are_not(
    row: EventRow,
) -> None:
    object_ = row.objects[0].replace("*", "")
    if row.ends:
        assert not signals(event_of(object_, row.reasons[0], row.sample))
        return
    (signal,) = (
        one
        for one in signals(event_of(object_, row.reasons[0], row.sample))
        if ((one.kind, one.attributes.get("subtype")) in BESIDE) == row.beside
    )
    assert (signal.kind, signal.state, signal.severity) == (row.kind, row.state, row.severity)
    assert signal.attributes.get("subtype", "") == row.subtype
    # What fails for want of a GPU is the node's fault, whichever pod it hits.
    of_pod = "pod/ml/thing-07" if row.kind.startswith("job.") else "node/gpu-3"
    place = {"Node": "node/thing-07", "Pod": of_pod}.get(object_, f"job/{object_}/ml/thing-07")
    assert signal.entity.key == place
    assert signal.entity.node == {"Node": "thing-07", "Pod": "gpu-3"}.get(object_)
    assert not detect(event_of("ConfigMap", row.reasons[0], row.sample)).signals


@pytest.mark.parametrize(
    "row", [row for row in kube_sheet().rows if row.ends], ids=lambda row: row.reasons[0]
)
def test_the_end_of_a_condition_is_told_where_it_was_firing(row: EventRow) -> None:
    begun = next(
        one
        for one in kube_sheet().rows
        if one.subtype == row.subtype and one.state == "firing" and one.kind == row.kind
    )
    detector = Detector("c1")
    told = [
        detector.detect(record(event_of("Node", one.reasons[0], one.sample), offset=number)).signals
        for number, one in enumerate((begun, row))
    ]
    assert [signal.state for signals in told for signal in signals] == ["firing", "cleared"]


def test_the_end_of_a_link_s_fall_counts_in_whichever_partition_it_comes() -> None:
    detector = Detector("c1")
    lines = [
        b"node-7 kernel: mlx5_core 0000:5e:00.0 eth6: Link down",
        b"node-7 kernel: mlx5_core 0000:5e:00.0 eth6: Link up",
    ]
    records = [record(line)._replace(partition=n, key=None) for n, line in enumerate(lines)]
    told = [signal.state for one in records for signal in detector.detect(one).signals]
    assert told == ["firing", "cleared"]
    # Of keyed records all of a host's come to one partition: there the end of nothing is a boot.
    booted = record(lines[1])._replace(partition=1, key=b"node-7")
    assert not Detector("c1").detect(booted).signals


NAMES = {"^Ready$": "Ready", "deadlock": "KernelDeadlock", ".": "SomethingElse"}
"""A condition that a pattern of the sheet stands for."""


@pytest.mark.parametrize(
    "row", [row for row in kube_sheet().conditions if row.type in NAMES], ids=lambda row: row.type
)
@pytest.mark.parametrize("status", ["True", "False"])
def test_every_condition_fires_when_bad_and_clears_when_well(row: Any, status: str) -> None:
    named = NAMES[row.type]
    said = f'Node condition {named} is now: {status}, reason: Because, message: "so it is"'
    (signal,) = signals(event_of("Node", "Because", said))
    assert (signal.kind, signal.state) == (row.kind, "firing" if status in row.bad else "cleared")
    assert (signal.attributes["condition"], signal.attributes["reason"]) == (named, "Because")


def test_a_wrong_pattern_in_the_data_names_itself() -> None:
    row = SHEETS["pfc"].rows[0].model_copy(update={"opens": "(unclosed"})
    with pytest.raises(ConfigError, match="unclosed"):
        PatternTable(PatternSheet(rows=(row,)))
