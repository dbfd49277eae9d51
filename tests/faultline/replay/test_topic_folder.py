"""A capture with a file per partition is the same capture as one with a file per topic."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings

from faultline.replay import frames, partition_writer
from faultline.replay.capture import Capture, Meta, read, write
from faultline.replay.detection import Detection
from faultline.replay.manifest import MANIFEST, read_manifest, write_manifest
from faultline.replay.partition_writer import write_by_partition
from faultline.replay.record_format import record_line
from faultline.replay.replay import replay_capture
from faultline.replay.topic_folder import TopicFolder
from faultline.replay.topic_records import HeldRecords, TopicFile, in_time_order
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from tests.effort import tries
from tests.faultline.replay.test_detection import NOON, TOPIC, clock_of, detected, recorded, steps
from tests.faultline.replay.test_replay import LIBRARY, capture, decided_once

META = Meta("c1", NOON, NOON + timedelta(hours=1))


def folder_of(directory: Path, records: Sequence[RawRecord]) -> TopicFolder:
    write_by_partition(directory, Capture(META, {TOPIC: records}))
    topic = read(directory).records[TOPIC]
    assert isinstance(topic, TopicFolder)
    return topic


@settings(max_examples=tries(30))
@given(steps)
def test_a_file_per_partition_gives_the_same_as_one_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int]]
) -> None:
    records = recorded(steps)
    clock = clock_of(records)
    expected = detected(HeldRecords(records), clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_writer, "FRAME_BYTES", 300)
        topic = folder_of(tmp_path_factory.mktemp("capture"), records)
        assert list(topic) == in_time_order(records)
        assert detected(topic, clock) == expected
        for dealt in ({0}, {1, 2}):
            found = Detection("c1", clock, {TOPIC: topic}, {TOPIC: dealt}).found()
            assert list(found) == [one for one in expected if one.partition in dealt]


def test_what_the_manifest_says_of_a_file_is_what_reading_it_says(tmp_path: Path) -> None:
    records = recorded([(number % 3, 100 - 350 * (number % 7 == 0), number % 4) for number in range(200)])
    told = folder_of(tmp_path, records).survey
    held = HeldRecords(records).survey
    assert (told.records, told.first, told.last) == (held.records, held.first, held.last)
    (tmp_path / TOPIC / "1.jsonl.zst").write_bytes(
        zstandard.compress(b"".join(record_line(r) for r in records if r.partition == 1 and r.offset < 5))
    )
    changed = read(tmp_path, changed_ok=True).records[TOPIC]
    assert len(changed) == 200 - 67 + 5, "a file that was changed by hand is read anew"


def test_whoever_wants_one_partition_opens_its_file_alone(tmp_path: Path) -> None:
    records = recorded([(number % 3, 100, 0) for number in range(30)])
    topic = folder_of(tmp_path, records)
    (tmp_path / TOPIC / "2.jsonl.zst").unlink()
    read_ = [batch.record(n) for batch in topic.batches({1}) for n in range(len(batch.values))]
    assert read_ == [record for record in records if record.partition == 1]


def test_a_partition_that_has_come_far_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "FRAME_BYTES", 400)
    records = recorded([(number % 3, 1000, 0) for number in range(90)])
    topic = folder_of(tmp_path, records)
    reached = 0
    for batch in topic.batches():
        assert min(batch.times) >= reached
        assert batch.reached is not None
        reached = batch.reached
        assert max(batch.times) - min(batch.times) < 20_000_000


@pytest.mark.parametrize("cut", [1, 40])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, cut: int) -> None:
    topic = folder_of(tmp_path, recorded([(0, 100, 0)] * 30))
    path = tmp_path / TOPIC / "0.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(BadInput, match=r"0\.jsonl\.zst: damaged from byte 0 on"):
        list(topic.batches())


def test_a_record_of_another_partition_is_refused(tmp_path: Path) -> None:
    topic = folder_of(tmp_path, recorded([(0, 100, 0), (1, 100, 0)]))
    shutil.copy(tmp_path / TOPIC / "0.jsonl.zst", tmp_path / TOPIC / "1.jsonl.zst")
    with pytest.raises(BadInput, match=r"1\.jsonl\.zst: holds records of partition 0"):
        list(topic.batches())


def test_a_capture_that_is_not_complete_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, recorded([(0, 100, 0)]))
    manifest = read_manifest(tmp_path / MANIFEST)
    write_manifest(tmp_path / MANIFEST, replace(manifest, complete=False))
    with pytest.raises(BadInput, match="is not complete"):
        read(tmp_path)


def test_a_file_that_was_compressed_by_hand_is_read_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "LARGEST_FRAME_BYTES", 100)
    records = recorded([(0, 100, 0)] * 30)
    assert list(folder_of(tmp_path, records)) == records


def test_a_file_that_others_were_appended_to_is_read_to_its_end(tmp_path: Path) -> None:
    records = recorded([(0, 100, 0)] * 4)
    lines = [record_line(record) for record in records]
    path = tmp_path / f"{TOPIC}.jsonl.zst"
    path.write_bytes(zstandard.compress(b"".join(lines[:2])) + zstandard.compress(b"".join(lines[2:])))
    assert list(TopicFile(TOPIC, path)) == records


def test_a_capture_by_partition_decides_what_the_same_by_topic_does(tmp_path: Path) -> None:
    write_by_partition(tmp_path, capture())
    for processes in (1, 2):
        decided = replay_capture(read(tmp_path), runbooks=LIBRARY, processes=processes)
        assert decided.decision_hash == decided_once().decision_hash


def test_state_and_lead_are_read_back(tmp_path: Path) -> None:
    stood = RawRecord("inventory", 0, 3, NOON - timedelta(days=3), b"c1/node/n1", b"{}")
    meta = replace(META, warm_up=timedelta(hours=2))
    one = Capture(meta, {TOPIC: recorded([(0, 100, 0)])}, state={"inventory": (stood,)})
    for writes in (write, write_by_partition):
        directory = tmp_path / writes.__name__
        writes(directory, one)
        again = read(directory)
        assert again.meta == meta
        assert again.meta.lead == NOON - timedelta(hours=2)
        assert list(again.state["inventory"]) == [stood]
