"""Every row of the data finds its own samples, gives the fields it promises, and leaves its look-alikes alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streams.detect import xid_catalog
from streams.detect.catalog import load_catalog
from streams.detect.kube import EventSheet
from streams.detect.wording import Sheet, Wordings
from streams.model.errors import ConfigError
from streams.model.signal import Signal
from tests.detect.lines import detect, signals

SHEETS = {name: load_catalog(name, Sheet) for name in ("nccl", "pfc", "progress")}
ROWS = [
    pytest.param(name, row, id=f"{name}-{row.id}") for name, sheet in SHEETS.items() for row in sheet.rows
]


def of_a_pod(text: str) -> bytes:
    """Progress counts only for pods, so job lines come as Fluent Bit ships them."""
    pod = {"pod_name": "llm-0", "namespace_name": "ml", "host": "gpu-1"}
    return orjson.dumps({"@timestamp": 1795245200.5, "log": text + "\n", "kubernetes": pod})


def shipped(sheet: str, text: str) -> bytes:
    return of_a_pod(text) if sheet != "pfc" else text.encode()


def lacking(signal: Signal, expect: dict[str, Any]) -> dict[str, Any]:
    got = {**signal.attributes, "mig": signal.entity.gpu.mig if signal.entity.gpu else None}
    want = {name: tuple(value) if isinstance(value, list) else value for name, value in expect.items()}
    return {name: (value, got.get(name)) for name, value in want.items() if got.get(name) != value}


@pytest.mark.parametrize(("sheet", "row"), ROWS)
def test_a_wording_finds_its_samples_with_their_fields(sheet: str, row: Any) -> None:
    for sample in row.samples:
        (signal,) = signals(shipped(sheet, sample.text))
        assert (signal.kind, signal.state, signal.severity) == (row.kind, row.state, row.severity)
        assert not lacking(signal, sample.expect), sample.text


@pytest.mark.parametrize(("sheet", "row"), ROWS)
def test_a_wording_leaves_its_look_alikes_alone(sheet: str, row: Any) -> None:
    for text in row.look_alikes:
        assert not signals(shipped(sheet, text)), text


@pytest.mark.parametrize("sample", xid_catalog.catalog().samples, ids=lambda sample: sample.text[:60])
def test_an_xid_line_of_any_generation_is_read_whole(sample: Any) -> None:
    (signal,) = signals(sample.text)
    assert signal.kind == "gpu.xid"
    assert not lacking(signal, sample.expect)


@pytest.mark.parametrize("sample", xid_catalog.catalog().glued, ids=lambda sample: sample.text[:60])
def test_two_xids_glued_into_one_line_are_two_signals(sample: Any) -> None:
    assert tuple(signal.attributes["xid"] for signal in signals(sample.text)) == sample.xids


@pytest.mark.parametrize("text", xid_catalog.catalog().look_alikes, ids=lambda text: text[:60])
def test_what_only_looks_like_an_xid_raises_nothing(text: str) -> None:
    assert not signals(text)
    assert not signals(of_a_pod(text))


CODES = [(code, row) for row in xid_catalog.catalog().codes for code in row.codes]


@pytest.mark.parametrize(("code", "row"), CODES, ids=lambda value: str(value)[:12])
def test_every_code_brings_its_catalog_row(code: int, row: Any) -> None:
    (signal,) = signals(f"NVRM: Xid (PCI:0000:3b:00): {code}, {row.sample or 'no more is known'}")
    assert (signal.attributes["mnemonic"], signal.attributes["family"]) == (row.mnemonic, row.family)
    if code not in (154, *range(144, 151)):
        assert (signal.attributes["action"], signal.severity) == (row.action, row.severity)


def test_no_code_has_two_rows() -> None:
    assert len({code for code, _ in CODES}) == len(CODES)


def test_codes_of_todays_drivers_are_all_known() -> None:
    missing = set(range(1, 177)) - {code for code, _ in CODES}
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


@pytest.mark.parametrize("row", load_catalog("kube", EventSheet).rows, ids=lambda row: row.reason)
def test_a_kubernetes_event_of_the_table_is_a_signal_and_the_same_words_about_a_pod_are_not(row: Any) -> None:
    event = {
        "metadata": {"name": "e1", "creationTimestamp": "2026-11-21T07:13:00Z"},
        "reason": row.reason,
        "message": row.sample,
        "type": "Normal",
        "clusterName": "",
        "involvedObject": {"kind": row.object, "name": "node-07", "uid": "node-07"},
    }
    (signal,) = signals(orjson.dumps(event))
    assert (signal.kind, signal.state, signal.entity.node) == (row.kind, row.state, "node-07")
    event["involvedObject"] = {"kind": "Pod", "namespace": "ml", "name": "node-07"}
    assert not detect(orjson.dumps(event)).signals


def test_a_wrong_pattern_in_the_data_names_itself() -> None:
    row = SHEETS["pfc"].rows[0].model_copy(update={"opens": "(unclosed"})
    with pytest.raises(ConfigError, match="unclosed"):
        Wordings(Sheet(rows=(row,)))
