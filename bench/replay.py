"""How fast captures are replayed, and how soon commands answer: `bench/replay.py [--quick] [--only PART …]`, no broker.

Each replay is a process of its own, with the processes that it starts; three rounds, the median counts. Its imports are not in
the figures, its catalogs are. Lines are those of `bench/detect.py` in one file of four partitions: 0.1 % are reports, of 64
places that repeat themselves. The same capture must give the same decision hash, in one process and in all.

Figures:
  `lines_per_s`          log lines from a file, on all cores; `lines_cpu_us` what one cost, on all cores together
  `lines_1_per_s`        the same in one process; `lines_1_cpu_us`
  `rss_mb`               resident memory at most, in one process, after so many lines (`rss_lines`);
  `rss_fourth_mb`        after a fourth of them: what is held does not grow with the capture
  `campaign_cpu_s`       a simulated campaign of 512 nodes with faults of many kinds
  `quiet_day_cpu_s`      a simulated day of 32 nodes without a fault, most of it the replay's 86,400 ticks
  `help_cpu_s`           CPU of the slowest `faultline … --help`; `help_slowest` is its command
  `plan_cpu_s`           CPU of `faultline runbook plan gpu_off_bus`: catalogs and runbooks
  `small_cpu_s`          CPU of `faultline replay` of the example capture in the documentation
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from bench import chatter
from bench.campaign import SCENARIOS
from bench.figures import Figure, middle, progress, report
from faultline.cli.main import COMMANDS
from faultline.replay.capture import Capture, Meta, write
from faultline.replay.record_format import record_line
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import load
from streams.kafka.topics import RAW_NODE_LOGS
from streams.model.record import RawRecord

SEED = 20261124
ROUNDS = 3
PARTITIONS = 4
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
EXAMPLE = Path(__file__).parent.parent / "docs/examples/gpu-off-bus"
PARTS = ("lines", "memory", "campaigns", "starts")


@dataclass(frozen=True)
class Sizes:
    """How many lines the file has, and how often commands are started."""

    lines: int
    rounds: int


FULL = Sizes(lines=2_000_000, rounds=ROUNDS)
QUICK = Sizes(lines=400_000, rounds=1)


def capture_of(folder: Path, lines: int) -> Path:
    """Write a capture of so many lines, two each millisecond."""
    end = BEGIN + timedelta(milliseconds=lines // 2)
    write(folder, Capture(Meta("bench", BEGIN, end), {}))
    with (folder / f"{RAW_NODE_LOGS.name}.jsonl").open("wb") as file:
        file.writelines(map(record_line, _records(lines)))
    return folder


def _records(lines: int) -> Iterator[RawRecord]:
    values = chatter.mixed(SEED, lines, 0.001, begin=BEGIN, places=64)
    for number, value in enumerate(values):
        offset, partition = divmod(number, PARTITIONS)
        at = BEGIN + timedelta(milliseconds=number // 2)
        yield RawRecord(RAW_NODE_LOGS.name, partition, offset, at, None, value)


def replayed(folder: Path, processes: int) -> dict[str, Any]:
    """One replay."""
    command = [sys.executable, "-m", "bench.replay_pass", str(folder), str(processes)]
    found: dict[str, Any] = orjson.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    progress(
        f"  {folder.name} in {processes}: {found['records'] / found['seconds']:,.0f}/s, "
        f"{found['cpu_s'] / found['records'] * 1e6:.1f} µs of CPU each, {found['signals']} signals, {found['rss_mb']:.0f} MB"
    )
    return found


def measure_lines(folder: Path, sizes: Sizes) -> dict[str, Figure]:
    """All cores and one process, in turn."""
    rounds: defaultdict[str, list[float]] = defaultdict(list)
    hashes: set[str] = set()
    for _ in range(sizes.rounds):
        for name, processes in (("lines", os.cpu_count() or 1), ("lines_1", 1)):
            found = replayed(folder, processes)
            hashes.add(found["hash"])
            rounds[f"{name}_per_s"].append(found["records"] / found["seconds"])
            rounds[f"{name}_cpu_us"].append(found["cpu_s"] / found["records"] * 1e6)
    if len(hashes) != 1:
        raise RuntimeError("several processes decide something else than one")
    return {name: middle(values) for name, values in rounds.items()}


def measure_memory(folder: Path, sizes: Sizes) -> dict[str, Figure]:
    """After all lines, and after a fourth of them."""
    whole = replayed(folder, 1)
    fourth = replayed(capture_of(folder.parent / "fourth", sizes.lines // 4), 1)
    return {"rss_mb": whole["rss_mb"], "rss_fourth_mb": fourth["rss_mb"], "rss_lines": sizes.lines}


def measure_campaigns(folder: Path, sizes: Sizes) -> dict[str, Figure]:
    """Faults of many kinds one after the other, and a day without any."""
    figures: dict[str, Figure] = {}
    for name, scenario, nodes in (("campaign", "month", 512), ("quiet_day", "quiet_day", 32)):
        write(folder / name, simulate(load(SCENARIOS)[scenario].sized(nodes), SEED).capture)
        figures[f"{name}_cpu_s"] = middle(replayed(folder / name, 1)["cpu_s"] for _ in range(sizes.rounds))
    return figures


def measure_starts(sizes: Sizes) -> dict[str, Figure]:
    """Commands as a person types them, starting Python included."""
    helps = {name: _started(sizes, *filter(None, [name]), "--help") for name in ("", *sorted(COMMANDS))}
    slowest = max(helps, key=lambda name: helps[name])
    return {
        "help_cpu_s": helps[slowest],
        "help_slowest": slowest,
        "plan_cpu_s": _started(sizes, "runbook", "plan", "gpu_off_bus"),
        "small_cpu_s": _started(sizes, "replay", str(EXAMPLE)),
    }


def _started(sizes: Sizes, *arguments: str) -> float:
    """CPU seconds of a command, the median of the rounds."""
    found = []
    for _ in range(sizes.rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "faultline", *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    progress(f"  faultline {' '.join(arguments)}: {middle(found):.2f} s of CPU")
    return middle(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer lines, one round")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    options = parser.parse_args()
    sizes, parts = QUICK if options.quick else FULL, options.only or PARTS
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as where:
        lines = Path(where) / "lines"
        if not {"lines", "memory"}.isdisjoint(parts):
            capture_of(lines, sizes.lines)
        if "lines" in parts:
            figures |= measure_lines(lines, sizes)
        if "memory" in parts:
            figures |= measure_memory(lines, sizes)
        if "campaigns" in parts:
            figures |= measure_campaigns(Path(where), sizes)
    if "starts" in parts:
        figures |= measure_starts(sizes)
    report(figures, packages=("orjson", "google-re2"))


if __name__ == "__main__":
    main()
