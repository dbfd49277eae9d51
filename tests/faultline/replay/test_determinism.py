"""One decision hash for one capture, however its files lie, are read, and by whom."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import deque
from functools import cache
from pathlib import Path

import orjson
import pytest

from faultline.replay import topic_records
from faultline.replay.capture import Capture, read, write
from faultline.replay.expected import read_expected
from faultline.replay.replay import replay_capture
from runbooks.language.loader import load
from streams.model.record import RawRecord
from tests.effort import FULL, tries

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT / "tests" / "captures"
PLAYED = "pfc-storm-port"
"""Of five raw topics with several partitions each, and three incidents."""
LOCALES = ("C", "C.UTF-8", "de_DE.UTF-8", "tr_TR.UTF-8")
ZONES = ("UTC", "America/St_Johns", "Asia/Kathmandu", "Pacific/Chatham")


@cache
def kept() -> Capture:
    """The capture, in memory."""
    found = read(CAPTURES / PLAYED)
    return Capture(
        found.meta,
        {name: tuple(records) for name, records in found.records.items()},
        found.kube_changes,
        found.topology,
    )


def interleaved(records: tuple[RawRecord, ...], chance: random.Random) -> tuple[RawRecord, ...]:
    """The same records with the partitions' offsets in their order, and the partitions among each other in any."""
    queues: dict[int, deque[RawRecord]] = {}
    for record in sorted(records, key=lambda one: one.offset):
        queues.setdefault(record.partition, deque()).append(record)
    found = []
    while queues:
        # Whole runs of one partition as well as single records: a recorder that reads partition by partition, and one that polls.
        name = chance.choice(sorted(queues))
        for _ in range(min(chance.choice((1, 3, 1000)), len(queues[name]))):
            found.append(queues[name].popleft())
        if not queues[name]:
            del queues[name]
    return tuple(found)


@pytest.mark.parametrize("seed", range(tries(50, quick=4)))
def test_no_interleaving_and_no_size_of_batches_changes_a_decision(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    one = kept()
    records = {name: interleaved(tuple(found), chance) for name, found in one.records.items()}
    names = list(records)
    chance.shuffle(names)
    laid = Capture(one.meta, {name: records[name] for name in names}, one.kube_changes, one.topology)
    monkeypatch.setattr(topic_records, "_BLOCK", chance.choice((700, 10_000, 2 * 1024 * 1024)))
    monkeypatch.setattr(topic_records, "_BATCH", chance.choice((1, 7, 5_000)))
    if chance.random() < 0.7:
        write(tmp_path, laid)
        laid = read(tmp_path)
    decided = replay_capture(laid, runbooks=load(), processes=chance.choice((1, 1, 2)))
    assert decided.decision_hash == read_expected(CAPTURES / PLAYED / "expected.json").decision_hash


def test_the_interleavings_differ() -> None:
    one = next(tuple(found) for found in kept().records.values() if len({r.partition for r in found}) > 1)
    assert len({interleaved(one, random.Random(seed)) for seed in range(5)}) > 1


def hash_of(python: Path | str, **environment: str) -> str:
    """What the command says in a process of its own, with nothing of our environment that it does not need."""
    result = subprocess.run(
        [python, "-m", "faultline", "replay", str(CAPTURES / PLAYED), "-o", "json"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        check=True,
    )
    summary = orjson.loads(result.stdout.splitlines()[-1])
    return str(summary["decision_hash"])


def surroundings() -> list[dict[str, str]]:
    """Hash seeds, locales and time zones: some together, or every one with some of the others."""
    if not FULL:
        return [{"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"}]
    found = []
    for number, zone in enumerate(ZONES):
        for other, locale in enumerate(LOCALES):
            seed = str((number * 7919 + other * 104_729) % 4_294_967_295)
            found.append({"PYTHONHASHSEED": seed, "LC_ALL": locale, "TZ": zone})
    return found


@pytest.mark.parametrize("environment", surroundings(), ids=lambda env: "-".join(env.values()))
def test_no_hash_seed_locale_or_time_zone_changes_a_decision(environment: dict[str, str]) -> None:
    expected = read_expected(CAPTURES / PLAYED / "expected.json").decision_hash
    assert hash_of(sys.executable, **environment) == expected


def other_python(minor: int) -> str | None:
    """An interpreter of another version on this machine; None when there is none."""
    versions = Path.home() / ".pyenv" / "versions"
    own = sorted(versions.glob(f"3.{minor}.*/bin/python"))
    return str(own[-1]) if own else shutil.which(f"python3.{minor}")


@pytest.mark.nightly
@pytest.mark.parametrize("minor", [minor for minor in range(11, 15) if minor != sys.version_info.minor])
def test_no_version_of_python_changes_a_decision(minor: int, tmp_path: Path) -> None:
    python = other_python(minor)
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} on this machine")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    inside = tmp_path / "venv" / "bin" / "python"
    installed = subprocess.run(
        [
            inside,
            "-m",
            "pip",
            "install",
            "-q",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "-r",
            "requirements.lock",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode != 0:
        pytest.skip(f"the locked packages are not to be had for Python 3.{minor}: {installed.stderr[-300:]}")
    expected = read_expected(CAPTURES / PLAYED / "expected.json").decision_hash
    assert hash_of(inside) == expected
