import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from faultline.replay.capture import Capture, Meta, read, write
from faultline.replay.record_format import record_line
from faultline.replay.topic_records import in_time_order
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from streams.model.watch import ObjectChange

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
META = '{"cluster":"c1","from":"2026-03-01T12:00:00Z","to":"2026-03-01T13:00:00+01:00","format":1}'


def record(offset: int, value: bytes | None = b"x", **changes: object) -> RawRecord:
    base = RawRecord("raw.node-logs", 0, offset, NOON + timedelta(seconds=offset), b"n1", value)
    return base._replace(**changes)  # type: ignore[arg-type]


def held(capture: Capture) -> Capture:
    """The capture with its records in memory."""
    return replace(capture, records={topic: tuple(records) for topic, records in capture.records.items()})


def test_what_is_written_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    records = (
        record(0),
        record(1, None, key=None),
        record(2, b"\xff\xfe not utf-8", headers=(("h", b"\x80"), ("h", b"again"))),
    )
    change = ObjectChange(NOON, "ADDED", {"kind": "Node", "metadata": {"name": "n1"}})
    capture = Capture(Meta("c1", NOON, NOON + timedelta(hours=1)), {"raw.node-logs": records}, (change,))
    write(tmp_path, capture)
    assert held(read(tmp_path)) == capture


def test_a_compressed_topic_reads_like_a_plain_one(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(META)
    plain = b"".join(record_line(record(n)) for n in range(50))
    (tmp_path / "raw.node-logs.jsonl.zst").write_bytes(zstandard.compress(plain))
    assert list(read(tmp_path).records["raw.node-logs"]) == [record(n) for n in range(50)]


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("meta.json", "{", "meta.json"),
        ("meta.json", META.replace("1}", "2}"), "format 2 is not known"),
        ("meta.json", META.replace("Z", ""), "without an offset"),
        ("raw.fabric.jsonl", "{}", r"raw\.fabric\.jsonl:1: needs"),
        (
            "raw.fabric.jsonl",
            '\n{"partition":0,"offset":0,"timestamp":1,"value":7}',
            r"jsonl:2: value: must be",
        ),
        ("raw.fabric.jsonl", "not json", r"raw\.fabric\.jsonl:1"),
        (
            "kube-objects.jsonl",
            '{"time":"soon","type":"ADDED","object":{}}',
            r"kube-objects\.jsonl:1: not an RFC 3339 time",
        ),
    ],
)
def test_a_broken_capture_says_which_file_and_line(
    tmp_path: Path, file: str, content: str, complaint: str
) -> None:
    (tmp_path / "meta.json").write_text(META)
    (tmp_path / file).write_text(content)
    with pytest.raises(BadInput, match=complaint):
        held(read(tmp_path))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text(META)
    (tmp_path / "raw.fabric.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"raw.fabric.jsonl: is no regular file"):
        held(read(tmp_path))


def test_a_directory_without_meta_is_no_capture(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no capture"):
        read(tmp_path)


@given(
    st.randoms(use_true_random=False), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=40)
)
def test_the_order_of_records_does_not_depend_on_how_partitions_interleave(
    shuffle: random.Random, places: list[tuple[int, int]]
) -> None:
    records = [
        record(n)._replace(partition=partition, timestamp=NOON + timedelta(seconds=second))
        for n, (partition, second) in enumerate(places)
    ]
    mixed = records[:]
    shuffle.shuffle(mixed)
    ordered = in_time_order(mixed)
    assert ordered == in_time_order(records)
    for partition in range(3):
        offsets = [r.offset for r in ordered if r.partition == partition]
        assert offsets == sorted(offsets)
