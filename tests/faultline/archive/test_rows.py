"""A record as rows and back, and the columns that questions are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline.archive.rows import ASKED_FOR, TOPICS, entry_of, records_of, table_of
from streams.kafka.topics import INCIDENTS, RUNS, SIGNALS
from streams.model.codec import encode
from streams.model.record import RawRecord
from streams.model.signal import SignalBatch
from tests.faultline.archive.documents import CLUSTER, T0, batch, gone, one_of_each, xid


def back(*records: RawRecord) -> list[RawRecord]:
    """The records, once through Parquet's columns."""
    rows = [row for record in records for row in entry_of(record).rows]
    return list(records_of(records[0].topic, records[0].partition, iter([table_of(rows)])))


def columns(record: RawRecord) -> Sequence[dict[str, Any]]:
    """What the typed columns of its rows hold, as far as they are not null."""
    kept = {*ASKED_FOR, "xid", "count"}
    return [{k: v for k, v in row.items() if k in kept and v is not None} for row in entry_of(record).rows]


@pytest.mark.parametrize("record", one_of_each(), ids=lambda record: record.topic)
def test_a_record_of_each_topic_comes_back_as_it_was(record: RawRecord) -> None:
    assert back(record) == [record]


def test_every_topic_that_is_archived_is_among_them() -> None:
    assert [record.topic for record in one_of_each()] == [topic.name for topic in TOPICS]


def test_a_batch_is_a_row_for_each_signal_and_comes_back_byte_for_byte() -> None:
    record = batch(7, *(xid(number) for number in range(500)))
    assert len(entry_of(record).rows) == 500
    assert back(record, batch(8, xid(1))) == [record, batch(8, xid(1))]


def test_the_bytes_of_a_batch_are_not_stored_twice() -> None:
    (row, *_) = entry_of(batch(7, xid(1), xid(2))).rows
    assert row.get("record") is None
    assert orjson.loads(row["document"]) == orjson.loads(encode(xid(1)))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"[]",
        b'{"cluster":"c","signals":[]}',
        b'{"cluster":"c","signals":[1]}',
        b'{"signals":[{"id":"a"}]}',
        b'{ "cluster": "c", "signals": [ {"id": "a", "attributes": {"xid": 79}} ], "schema": 1 }',
        b'{"note":"\\"signals\\":[]","cluster":"c","signals":[{"id":"a"},{"id":"b"}],"new":{"deep":[1e400]}}',
        b'{"cluster":"c","signals":[{"id":"a","count":99999999999999999999999}],"schema":2}',
    ],
)
def test_whatever_lies_in_the_topic_is_kept_byte_for_byte(value: bytes) -> None:
    record = RawRecord(SIGNALS.name, 0, 1, T0, None, value)
    assert back(record) == [record]


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=20)), st.sampled_from(TOPICS))
def test_any_bytes_come_back(value: bytes, key: bytes | None, topic: Any) -> None:
    record = RawRecord(topic.name, 0, 1, T0, key, value, (("name", value),))
    assert back(record) == [record]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    ["entity", "job", "fact", "plan", "steps", "root", "jobs", "changes", "at", "xid", "attributes"]
)


@given(st.dictionaries(_FIELDS, _JSON, max_size=5), st.sampled_from(TOPICS))
def test_a_document_of_any_shape_becomes_a_row(document: dict[str, Any], topic: Any) -> None:
    try:
        value = orjson.dumps({"cluster": "c", "signals": [document], "fact": document, **document})
    except TypeError:  # an integer that JSON's readers here do not take
        return
    record = RawRecord(topic.name, 0, 1, T0, b"c/x/y", value)
    assert back(record) == [record]


def test_a_tombstone_comes_back_with_its_headers_and_is_of_no_cluster_where_nothing_tells() -> None:
    record = gone(4, RUNS.name, "run-1")
    assert back(record) == [record]
    assert entry_of(record).cluster is None
    assert entry_of(gone(4, "inventory", f"{CLUSTER}/node/gpu-1")).cluster == CLUSTER


def test_a_signal_is_asked_for_by_place_code_and_job() -> None:
    (found,) = columns(batch(1, xid(1)))
    assert found == {
        "cluster": CLUSTER,
        "node": "gpu-0007",
        "gpu": "0000:1b:00",
        "kind": "gpu.xid",
        "severity": "critical",
        "state": "firing",
        "job": "PyTorchJob/research/llm",
        "xid": 79,
        "count": 1,
    }


def test_the_other_topics_are_asked_for_by_what_they_are_about() -> None:
    found = {record.topic: columns(record)[0] for record in one_of_each()}
    assert found["inventory"] == {
        "cluster": CLUSTER,
        "node": "gpu-0007",
        "pool": "train",
        "kind": "node",
        "state": "ready",
    }
    incident = found[INCIDENTS.name]
    assert (incident["root"], incident["family"]) == ("gpu/gpu-0007/0000:1b:00", "gpu_off_bus")
    assert (incident["certainty"], incident["job"]) == ("decisive", "PyTorchJob/research/llm")
    assert (found[RUNS.name]["runbook"], found[RUNS.name]["node"]) == ("gpu-off-bus", "gpu-0007")
    refused = found["timeline"]
    assert (refused["verdict"], refused["action"], refused["rule"]) == (
        "refused",
        "cordon_node",
        "blast radius",
    )
    assert (found["commands"]["kind"], found["commands"]["node"]) == ("release", "gpu-0007")
    assert (found["controls"]["state"], found["controls"]["kind"]) == ("killed", "control.killed")


def test_a_signal_with_a_field_of_a_newer_version_keeps_it() -> None:
    value = encode(SignalBatch(CLUSTER, (replace(xid(1)),))).replace(b'"count":1', b'"count":1,"later":[1,2]')
    (found,) = back(RawRecord(SIGNALS.name, 0, 1, T0, None, value))
    assert found.value == value
