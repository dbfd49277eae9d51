import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faultline.replay import detect_processes
from faultline.replay.capture import Capture, read, write
from faultline.replay.detect_processes import DetectProcesses, detection_of, shares
from faultline.replay.detection import Clock, Detection
from faultline.replay.replay import replay_capture
from faultline.replay.topic_records import TopicFile
from streams.kafka.topics import RAW
from streams.model.errors import BadInput, Temporary
from tests.faultline.replay.test_replay import LIBRARY, NOON, capture, decided_once

CLOCK = Clock(NOON, NOON, NOON + timedelta(minutes=3))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that were started."""
    processes: list[subprocess.Popen[bytes]] = []

    class Watched(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def written(folder: Path) -> Capture:
    write(folder, capture())
    return read(folder)


def files_of(opened: Capture) -> dict[str, TopicFile]:
    known = {topic.name for topic in RAW}
    return {t: r for t, r in opened.records.items() if t in known and isinstance(r, TopicFile)}


def test_several_processes_decide_what_one_does(
    tmp_path: Path, watched: list[subprocess.Popen[bytes]]
) -> None:
    decided = replay_capture(written(tmp_path), runbooks=LIBRARY, processes=2)
    assert len(watched) == 2
    assert all(process.returncode is not None for process in watched)
    assert decided.decision_hash == decided_once().decision_hash
    assert (decided.records, decided.signals) == (decided_once().records, decided_once().signals)


def test_an_invalid_line_is_named_by_whichever_process_reads_it(tmp_path: Path) -> None:
    opened = written(tmp_path)
    with (tmp_path / "raw.job-logs.jsonl").open("a") as file:
        file.write(
            '{"partition":1,"offset":99,"timestamp":1772366400000,"key":null,"value":7,"headers":[]}\n'
        )
    with pytest.raises(BadInput, match=r"raw\.job-logs\.jsonl:33: value: must be"):
        replay_capture(opened, runbooks=LIBRARY, processes=2)


def test_processes_end_with_whoever_started_them(
    tmp_path: Path, watched: list[subprocess.Popen[bytes]]
) -> None:
    found = DetectProcesses(shares("c1", CLOCK, files_of(written(tmp_path)), 2)).found()
    next(found)
    assert len(watched) == 2
    found.close()  # type: ignore[attr-defined]
    assert all(process.returncode is not None for process in watched)


def test_a_process_ends_when_its_pipe_closes(tmp_path: Path, watched: list[subprocess.Popen[bytes]]) -> None:
    os.mkfifo(tmp_path / "raw.job-logs.jsonl")  # it waits for records that never come
    never = {"raw.job-logs": TopicFile("raw.job-logs", tmp_path / "raw.job-logs.jsonl")}
    share = detect_processes.Share("c1", CLOCK, never, {"raw.job-logs": frozenset({0})})
    process = subprocess.Popen([sys.executable, *detect_processes._WORKER], stdin=subprocess.PIPE)
    process.communicate(pickle.dumps(share), timeout=60)
    assert process.returncode == 1


def test_a_process_that_is_ended_from_outside_is_no_end_of_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect_processes, "_WORKER", ("-c", "import os; os._exit(9)"))
    found = DetectProcesses(shares("c1", CLOCK, files_of(written(tmp_path)), 2)).found()
    with pytest.raises(Temporary, match="exit code 9"):
        list(found)


def test_only_big_files_in_order_are_dealt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    files = files_of(written(tmp_path))
    assert isinstance(detection_of("c1", CLOCK, files), Detection)
    monkeypatch.setattr(detect_processes, "WORTH_IT", 1000)
    assert isinstance(detection_of("c1", CLOCK, files), DetectProcesses)
    path = tmp_path / "raw.node-logs.jsonl"
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    assert isinstance(detection_of("c1", CLOCK, files_of(read(tmp_path))), Detection)


def test_partitions_are_dealt_out_by_weight_and_each_once(tmp_path: Path) -> None:
    files = files_of(written(tmp_path))
    dealt = shares("c1", CLOCK, files, 3)
    everything = [(t, p) for share in dealt for t, mine in share.partitions.items() for p in mine]
    assert sorted(everything) == sorted((t, p) for t, f in files.items() for p in f.survey.weights)
    assert len(shares("c1", CLOCK, files, 100)) == len(everything)
