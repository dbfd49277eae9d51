"""A partition's file that is written on after a kill is the file that would have been written at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from faultline.replay import partition_writer
from faultline.replay.manifest import PartitionPart
from faultline.replay.partition_writer import PartitionWriter
from faultline.replay.topic_folder import PartitionFile, TopicFolder
from streams.model.clock import to_millis
from streams.model.errors import BadInput
from streams.model.record import RawRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPIC = "raw.node-logs"
PART = PartitionPart(0, 60)


def record(offset: int, second: int | None = None) -> RawRecord:
    at = NOON + timedelta(seconds=offset if second is None else second)
    return RawRecord(TOPIC, 0, offset, at, None, b"line %d" % offset)


RECORDS = [record(offset) for offset in range(60)]


def writer(directory: Path, part: PartitionPart = PART) -> PartitionWriter:
    end = NOON + timedelta(minutes=1)
    return PartitionWriter(directory, TOPIC, 0, part, lead_ms=to_millis(NOON), end_ms=to_millis(end))


def written(directory: Path, records: Sequence[RawRecord]) -> PartitionPart:
    one = writer(directory)
    one.add(record for record in records if record.offset >= one.next_offset)
    return one.finish()


def content(directory: Path) -> list[RawRecord]:
    return list(PartitionFile(TOPIC, 0, directory / TOPIC / "0.jsonl.zst", None))


@given(st.lists(st.integers(0, 60), max_size=4).map(sorted), st.sampled_from(("", "more", "less", "other")))
def test_a_capture_that_was_killed_goes_on_as_if_it_had_not_been(
    tmp_path_factory: pytest.TempPathFactory, kills: list[int], damage: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_writer, "FRAME_BYTES", 700)
        whole, killed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("killed")
        expected = written(whole, RECORDS)
        path = killed / TOPIC / "0.jsonl.zst"
        for kill in kills:
            one = writer(killed)
            one.add(RECORDS[one.next_offset : kill])
            one.close()  # without what is not in a frame
            raw = path.read_bytes()
            if damage == "more":
                path.write_bytes(raw + b"\x28\xb5\x2f\xfd half of a frame")
            elif damage == "less":
                path.write_bytes(raw[:-3])
            elif damage == "other" and raw:
                path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        assert written(killed, RECORDS) == expected
        assert content(killed) == RECORDS
        assert path.read_bytes() == (whole / TOPIC / "0.jsonl.zst").read_bytes()


def test_what_is_in_whole_frames_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_writer, "FRAME_BYTES", 700)
    one = writer(tmp_path)
    one.add(RECORDS[:50])
    one.close()
    assert 30 < writer(tmp_path).next_offset < 50


def test_records_of_wrong_clocks_are_kept_or_left_out_and_counted(tmp_path: Path) -> None:
    seconds = [5, 6, -100, 7, 90, 8, 61, 9]
    part = written(tmp_path, [record(n, second) for n, second in enumerate(seconds)])
    assert [(r.timestamp - NOON).total_seconds() for r in content(tmp_path)] == [5, 6, -100, 7, 8, 9]
    assert (part.records, part.late, part.ahead) == (6, 1, 2)
    assert (part.first_ms, part.last_ms) == (to_millis(NOON) + 5000, to_millis(NOON) + 9000)


def test_what_comes_before_the_first_record_of_the_time_is_no_late_record(tmp_path: Path) -> None:
    part = written(tmp_path, [record(n, second) for n, second in enumerate([-5, -4, 90, -3, 0, 1])])
    assert (part.records, part.late, part.ahead) == (2, 0, 1)


def test_one_shipper_with_a_fast_clock_does_not_end_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "AHEAD_IN_A_ROW", 3)
    one = writer(tmp_path)
    one.add([record(0, 90), record(1, 90), record(2), record(3, 90), record(4, 91)])
    assert not one.has_all
    one.add([record(5, 92)])
    assert one.has_all


def test_a_partition_that_grows_ends_where_it_was_planned_to(tmp_path: Path) -> None:
    one = writer(tmp_path, PartitionPart(0, 10))
    one.add(RECORDS)
    assert one.has_all
    assert one.finish().records == 10


def test_gaps_of_transactions_and_of_what_was_deleted_are_passed(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.add([record(0)])
    one.reach(20)
    one.lose(50)
    one.add([record(50)])
    one.reach(60)
    assert one.has_all
    assert one.finish().lost == 30


def test_the_file_of_an_empty_partition_is_one_that_zstd_can_read(tmp_path: Path) -> None:
    part, path = written(tmp_path, []), tmp_path / TOPIC / "0.jsonl.zst"
    assert zstandard.ZstdDecompressor().decompress(path.read_bytes()) == b""
    assert part.size == path.stat().st_size
    assert content(tmp_path) == []
    assert written(tmp_path, []) == part, "and it goes on from there"


def test_a_partition_without_records_may_have_an_empty_file_or_none(tmp_path: Path) -> None:
    written(tmp_path, [])
    path = tmp_path / TOPIC / "0.jsonl.zst"
    for file in (path.read_bytes(), b""):
        path.write_bytes(file)
        found = TopicFolder(TOPIC, path.parent, {0: PART})
        assert (len(found), list(found), list(found.batches())) == (0, [], [])
    path.unlink()
    found = TopicFolder(TOPIC, path.parent, {0: PART})
    assert (len(found), list(found), list(found.batches())) == (0, [], [])


def test_a_frame_that_is_cut_off_is_said_to_be(tmp_path: Path) -> None:
    written(tmp_path, RECORDS)
    path = tmp_path / TOPIC / "0.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BadInput, match=r"damaged from byte 0 on: a frame is cut off"):
        content(tmp_path)
