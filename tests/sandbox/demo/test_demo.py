"""The demo itself, as a person starts it: everything it promises, and nothing left behind."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import pytest

from faultline.replay.capture import read
from faultline.replay.replay import replay_capture
from faultline.runtime.settings import load
from sandbox.demo.director import STORY_TIMEOUT_S
from streams.correlate import Config
from tests.testbed.waiting import until

pytestmark = pytest.mark.embedded


def start(folder: Path, *more: str, capture: Path) -> subprocess.Popen[bytes]:
    """The demo as a child, with a folder of its own to work in and for everything temporary."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("FAULTLINE_")}
    command = [
        sys.executable,
        "-m",
        "faultline",
        "demo",
        "--output",
        "json",
        "--capture",
        str(capture),
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, env=env | {"TMPDIR": str(folder)})


def lines(out: bytes) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in out.splitlines()]


def left_behind(folder: Path) -> list[str]:
    """Processes that were given something in that folder and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and int(entry.name) != os.getpid() and str(folder).encode() in told:
            found.append(entry.name)
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[dict[str, Any]], Path, Path]:
    folder = tmp_path_factory.mktemp("demo")
    capture = tmp_path_factory.mktemp("kept") / "capture"
    child = start(folder, capture=capture)
    out, _ = child.communicate(timeout=500)
    return child.returncode, lines(out), capture, folder


def test_all_that_the_stories_demand_became_true(
    played: tuple[int, list[dict[str, Any]], Path, Path],
) -> None:
    code, told, _, _ = played
    checks = [line for line in told if line["record"] == "check"]
    assert [check["text"] for check in checks if not check["good"]] == []
    assert len(checks) > 20
    assert code == 0


def test_every_story_has_one_thread_its_time_and_a_ticket_unless_it_is_its_owners(
    played: tuple[int, list[dict[str, Any]], Path, Path],
) -> None:
    stories = {line["story"]: line for line in played[1] if line["record"] == "story"}
    assert stories.keys() == {"gpu", "silent", "pfc", "application", "memory"}
    for name, story in stories.items():
        assert (len(story["tickets"]), len(story["threads"])) == (name != "application", 1)
        assert 0 < story["recovered_s"] < STORY_TIMEOUT_S
    (summary,) = [line for line in played[1] if line["record"] == "summary"]
    assert sum(story["recovered_s"] for story in stories.values()) < summary["seconds"]
    assert set(summary["cordoned"]) == {stories[name]["node"] for name in ("gpu", "silent", "pfc", "memory")}


def test_a_person_of_the_group_approves_from_the_thread_and_nobody_else(
    played: tuple[int, list[dict[str, Any]], Path, Path],
) -> None:
    told = played[1]
    (story,) = [line for line in told if line["record"] == "story" and line["presses"]]
    assert story["story"] == "memory"
    assert [press["answer"].partition(":")[0] for press in story["presses"]] == ["refused", "accepted"]
    moments = [line for line in told if line["record"] == "moment"]
    after = moments[next(n for n, one in enumerate(moments) if "presses [Approve]" in one["text"]) :]
    assert any(
        one["channel"] == "step" and f"cordon_node Node {story['node']}" in one["text"] for one in after
    )
    assert any(one["channel"] == "thread" and "the question has changed" in one["text"] for one in after)


def test_the_console_is_named_before_the_first_fault(
    played: tuple[int, list[dict[str, Any]], Path, Path],
) -> None:
    records = [line["record"] for line in played[1]]
    assert records.index("console") < records.index("moment")


def test_nothing_but_the_capture_is_left(played: tuple[int, list[dict[str, Any]], Path, Path]) -> None:
    _, _, capture, folder = played
    assert left_behind(folder) == []
    assert list(folder.iterdir()) == []
    assert (capture / "meta.json").exists()


@pytest.mark.nightly
def test_the_capture_gives_the_same_decisions_however_its_partitions_interleave(
    played: tuple[int, list[dict[str, Any]], Path, Path],
) -> None:
    _, told, capture, _ = played
    settings = load(capture / "faultline.yaml")
    held = read(capture)
    shuffled = {}
    for topic, records in held.records.items():
        lanes = list(records)
        random.Random(7).shuffle(lanes)
        shuffled[topic] = tuple(lanes)

    def decided(one: Any) -> Any:
        return replay_capture(one, responder=settings.responder, config=Config.of(settings.correlator))

    first, second, third = decided(held), decided(held), decided(replace(held, records=shuffled))
    assert first.decision_hash == second.decision_hash == third.decision_hash
    live = {line["incident"] for line in told if line["record"] == "story"}
    assert set(first.incidents) == live


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_all_its_processes_and_says_so(tmp_path: Path, number: signal.Signals) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    child = start(folder, capture=tmp_path / "capture")
    assert child.stdout is not None

    def under_way() -> bool:
        assert child.stdout is not None
        return bool(orjson.loads(child.stdout.readline()).get("channel") == "step")

    until(under_way, "the first step of a run", timeout_s=200)
    assert left_behind(folder)
    child.send_signal(number)
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 130
    assert lines(out)[-1]["text"] == "interrupted; all processes are stopped"
    assert left_behind(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.nightly
def test_told_to_stay_it_serves_the_console_until_it_is_interrupted(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    child = start(folder, "--stay", capture=tmp_path / "capture")
    assert child.stdout is not None
    links: list[str] = []
    notes: list[str] = []

    def stays() -> bool:
        assert child.stdout is not None
        line = orjson.loads(child.stdout.readline())
        notes.extend([line["text"]] if line["record"] == "note" else [])
        links.extend([line["url"]] if line["record"] == "console" else [])
        return len(links) == 2

    until(stays, "the end of the last story", timeout_s=400)
    with urlopen(links[-1], timeout=30) as page:
        assert "text/html" in page.headers["Content-Type"]
    (command,) = (note.removeprefix("talk to it:") for note in notes if note.startswith("talk to it:"))
    asked = subprocess.run(
        [*shlex.split(command), "-o", "json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (asked.returncode, asked.stdout.count("inc-") > 0) == (0, True), asked.stderr
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    assert [line["good"] for line in lines(out) if line["record"] == "summary"] == [True]
    assert left_behind(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.nightly
def test_killed_it_takes_all_its_processes_along(tmp_path: Path) -> None:
    child = start(tmp_path, capture=tmp_path / "capture")
    assert child.stdout is not None
    until(lambda: len(left_behind(tmp_path)) > 6, "the processes", timeout_s=200)
    child.kill()
    child.wait()
    child.stdout.close()
    until(lambda: not left_behind(tmp_path), "the end of all processes", timeout_s=60)
