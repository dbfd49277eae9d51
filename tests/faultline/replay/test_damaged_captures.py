"""Damage is noticed: a capture that is not what its manifest says, a compressed file that is cut off, a file that is no file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.replay.capture import Capture, read, write
from faultline.replay.frames import compressed
from faultline.replay.manifest import MANIFEST, read_manifest
from faultline.replay.partition_writer import write_by_partition
from faultline.replay.record_format import record_line
from faultline.replay.replay import replay_capture
from streams.model.errors import BadInput
from tests.faultline.replay.test_replay import capture

EXAMPLE = Path("docs/examples/gpu-off-bus")
TOPIC = "raw.node-logs"


@pytest.fixture
def taken(tmp_path: Path) -> Path:
    """A capture as one taken from Kafka lies there."""
    directory = tmp_path / "taken"
    write_by_partition(directory, capture())
    read(directory)
    return directory


def first_file(directory: Path) -> Path:
    return min((directory / TOPIC).iterdir())


def test_a_partition_that_was_deleted_is_named(taken: Path) -> None:
    file = first_file(taken)
    file.unlink()
    with pytest.raises(BadInput, match=f"{TOPIC}/{file.name} is not there"):
        read(taken)


def test_a_file_of_another_capture_is_named(taken: Path) -> None:
    shutil.copytree(taken / TOPIC, taken / "raw.fabric", dirs_exist_ok=True)
    with pytest.raises(BadInput, match=r"raw.fabric/.* is not in it"):
        read(taken)


def test_frames_that_were_appended_are_named_unless_one_says_that_it_is_meant(taken: Path) -> None:
    file = first_file(taken)
    file.write_bytes(file.read_bytes() + compressed(b"\n"))
    with pytest.raises(BadInput, match=f"{TOPIC}/{file.name} has .* bytes, not"):
        read(taken)
    assert CliRunner().invoke(cli, ["replay", str(taken), "--changed-ok"]).exit_code == 0


def test_other_bytes_of_the_same_length_are_named(taken: Path) -> None:
    file = first_file(taken)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadInput, match=f"{TOPIC}/{file.name} has another digest"):
        read(taken)


def compressed_example(tmp_path: Path, keep: int | None) -> Path:
    directory = tmp_path / "by-hand"
    shutil.copytree(EXAMPLE, directory)
    plain = directory / f"{TOPIC}.jsonl"
    whole = zstandard.compress(plain.read_bytes())
    plain.with_name(f"{TOPIC}.jsonl.zst").write_bytes(whole[:keep])
    plain.unlink()
    return directory


@pytest.mark.parametrize("keep", [0, 3, 40, -1])
def test_a_compressed_file_that_is_cut_off_is_an_error_with_a_reason(tmp_path: Path, keep: int) -> None:
    directory = compressed_example(tmp_path, keep)
    with pytest.raises(BadInput, match=rf"{TOPIC}.jsonl.zst: cut off: \w+"):
        replay_capture(read(directory))


def test_a_whole_compressed_file_is_read(tmp_path: Path) -> None:
    directory = compressed_example(tmp_path, None)
    assert replay_capture(read(directory)).decision_hash == replay_capture(read(EXAMPLE)).decision_hash


def test_a_cut_frame_of_a_partition_has_a_reason(taken: Path) -> None:
    file = first_file(taken)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BadInput, match="damaged from byte 0 on: a frame is cut off"):
        list(read(taken, changed_ok=True).records[TOPIC])


def test_an_empty_file_of_a_partition_is_whole_when_the_manifest_says_that_nothing_was_there(
    taken: Path,
) -> None:
    partition = next(iter(read_manifest(taken / MANIFEST).topics[TOPIC].partitions))
    (taken / TOPIC / f"{partition}.jsonl.zst").write_bytes(b"")
    with pytest.raises(BadInput, match="not even an empty frame"):
        list(read(taken, changed_ok=True).records[TOPIC])


@pytest.mark.parametrize("name", [f"{TOPIC}.jsonl", "meta.json", "topology.yaml", "kube-objects.jsonl"])
def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "by-hand"
    shutil.copytree(EXAMPLE, directory)
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    with pytest.raises(BadInput, match=f"{name}: is no regular file"):
        replay_capture(read(directory))


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z"),
        ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
        ("2026-03-02T00:00:00Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_times_that_cannot_be_are_refused(tmp_path: Path, begin: str, end: str) -> None:
    (tmp_path / "meta.json").write_text(
        f'{{"cluster":"c1","from":"{begin}","to":"{end}","format":1}}', encoding="utf-8"
    )
    with pytest.raises(BadInput, match=r"meta.json: .*do not follow each other"):
        read(tmp_path)


@pytest.mark.parametrize("millis", [0, 4_102_444_800_000])
def test_one_record_with_a_wrong_clock_is_left_out_and_told(tmp_path: Path, millis: int) -> None:
    directory = tmp_path / "by-hand"
    shutil.copytree(EXAMPLE, directory)
    file = directory / f"{TOPIC}.jsonl"
    before = replay_capture(read(EXAMPLE)).decision_hash
    with file.open("a", encoding="utf-8") as out:
        out.write(f'{{"partition":0,"offset":99999,"timestamp":{millis},"key":null,"value":"x"}}\n')
    asked = CliRunner().invoke(cli, ["replay", str(directory)])
    assert asked.exit_code == 0, asked.output
    assert f"decision hash {before}" in asked.stdout
    assert "1 records of raw.node-logs" in asked.stderr


def test_a_capture_in_memory_is_read_back_whole(tmp_path: Path) -> None:
    whole: Capture = capture()
    write(tmp_path, whole)
    lines = [record_line(one) for topic in read(tmp_path).records.values() for one in topic]
    assert len(lines) == sum(map(len, whole.records.values()))
