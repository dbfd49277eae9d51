"""How fast the archive is written and read: `bench/archive.py [--quick]`, no broker.

Signals are XIDs of a thousand nodes, each with the line that it quotes, in batches of 100. They
are written as the process writes them, from records to files in a folder, a file for every 50,000 rows; then merged, as a day
that is over; then read as a replay reads them, from files to `Signal` values. Each part is a process of its own.

Figures:
  `rows_per_s`          signals written, from records of Kafka to files on disk, on one core; `written_rss_mb` its memory
  `merged_per_s`        rows of a day's files made into one; `merged_rss_mb`
  `signals_per_s`       read from the files into `Signal` values, on one core; `read_rss_mb`
  `records_per_s_…`     the same without decoding: what the archive itself costs, in signals
  `mb_per_million`      of signals, as merged files; `json_mb_per_million` is what the same are in Kafka, uncompressed
  `state_s`             what an inventory of 2,000 nodes and 16,000 pods held at a time, months into it, from the daily state
  `state_from_all_s`    the same without a daily state, from every revision (`revisions`)
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bench.figures import Figure, middle, progress, report
from faultline.archive.daily_state import state_at
from faultline.archive.folder import Archive
from faultline.archive.pending import PendingRows
from faultline.archive.reader import ArchivedRecords
from faultline.archive.upkeep import keep_up
from streams.kafka.topics import INVENTORY, SIGNALS
from streams.model.codec import decode, encode
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import FactRecord, NodeFact, PodFact
from streams.model.record import RawRecord
from streams.model.signal import Evidence, Severity, SignalBatch, signal

CLUSTER = "bench"
BEGIN = datetime(2026, 3, 1, 1, tzinfo=UTC)
BATCH = 100
ROWS = 50_000
NODES, PODS = 2_000, 16_000
DAYS = 60
REPORTS = {"written": "rows_per_s", "merged": "merged_per_s", "read": "signals_per_s"}


def records(signals: int) -> Iterator[RawRecord]:
    """Batches of XIDs within one day."""
    for offset in range(signals // BATCH):
        at = BEGIN + timedelta(milliseconds=80 * offset)
        found = tuple(_xid(offset * BATCH + n, at) for n in range(BATCH))
        yield RawRecord(SIGNALS.name, 0, offset, at, CLUSTER.encode(), encode(SignalBatch(CLUSTER, found)))


def _xid(number: int, at: datetime) -> Any:
    code, node = (79, 94, 48, 31, 13)[number % 5], f"gpu-{number * 7919 % 1000:04}"
    job = JobRef("PyTorchJob", "research", f"llm-{number % 40}", f"uid-{number % 40}")
    return signal(
        "gpu.xid",
        Entity(CLUSTER, node=node, gpu=Gpu(f"0000:{number % 8 + 16:02x}:00", index=number % 8), job=job),
        severity=Severity.CRITICAL,
        occurred_at=at,
        observed_at=at + timedelta(seconds=1),
        attributes={"xid": code, "pid": number, "action": "reset_gpu"},
        evidence=[
            Evidence(
                "raw.node-logs",
                number % 12,
                number,
                f"{node} kernel: [{number}.{number % 997:03}] NVRM: Xid (PCI:0000:{number % 8 + 16:02x}:00): {code}, "
                f"pid={number}, name=python3, Ch {number % 64:08x}",
            )
        ],
    )


def write_signals(folder: Path, signals: int) -> float:
    """Write them; returns the seconds of CPU that it took without making them."""
    spent = 0.0
    made = records(signals)
    archive, written = Archive.at(str(folder)), dict[Any, int]()
    while some := list(islice(made, ROWS // BATCH)):
        begin = time.process_time()
        _write(archive, written, some)
        spent += time.process_time() - begin
    return spent


def _write(archive: Archive, written: dict[Any, int], found: list[RawRecord]) -> None:
    """Write records as one flush."""
    pending = PendingRows(found[0].topic, 0, found[0].offset, 0.0)
    for record in found:
        pending.take(record)
    pending.write(archive, written, 2**62)


def merge_signals(folder: Path, signals: int) -> float:
    """Merge the files of their day, which is over; returns seconds of CPU."""
    begin = time.process_time()
    keep_up(Archive.at(str(folder)), SIGNALS, 0, BEGIN + timedelta(days=1))
    return time.process_time() - begin


def read_signals(folder: Path, signals: int) -> float:
    """Read them as values; returns seconds of CPU."""
    begin = time.process_time()
    found = ArchivedRecords(Archive.at(str(folder)), SIGNALS.name, CLUSTER, None, None)
    assert sum(len(decode(SignalBatch, record.value or b"").signals) for record in found.of(0)) == signals
    return time.process_time() - begin


def read_records(folder: Path, signals: int) -> float:
    """Read the records, whatever is in them; returns seconds of CPU."""
    begin = time.process_time()
    found = ArchivedRecords(Archive.at(str(folder)), SIGNALS.name, CLUSTER, None, None)
    assert sum(1 for _ in found.of(0)) == signals // BATCH
    return time.process_time() - begin


def inventory(folder: Path) -> int:
    """An inventory that changes for two months: every pod once a day, every node now and then. Returns how many records."""
    offset, archive, written = 0, Archive.at(str(folder)), dict[Any, int]()
    for day in range(DAYS):
        at = BEGIN + timedelta(days=day)
        facts: list[NodeFact | PodFact] = [
            NodeFact(CLUSTER, f"gpu-{n:04}", f"uid-{n}", at, gpus=8, pool="train", rack=f"r{n // 16}")
            for n in range(day % 10, NODES, 1 if day == 0 else 10)
        ]
        facts += [
            PodFact(
                CLUSTER,
                "research",
                f"llm-{n}-{day % 7}",
                f"uid-{day}-{n}",
                at,
                node=f"gpu-{n % NODES:04}",
                gpus=1,
            )
            for n in range(PODS)
        ]
        today = []
        for fact in facts:
            value = encode(FactRecord(fact))
            today.append(RawRecord(INVENTORY.name, 0, offset, at, fact.key.encode(), value))
            offset += 1
        for n in range(PODS if day else 0):
            key = f"{CLUSTER}/pod/research/llm-{n}-{(day - 1) % 7}".encode()
            today.append(RawRecord(INVENTORY.name, 0, offset, at, key, None))
            offset += 1
        _write(archive, written, today)
    return offset


def measured(part: str, folder: Path, signals: int) -> dict[str, float]:
    """One part, in a process of its own."""
    command = [sys.executable, "-m", "bench.archive", "--part", part, str(folder), str(signals)]
    found: dict[str, float] = orjson.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    progress(f"  {part}: {found['per_s']:,.0f}/s, {found['rss_mb']:.0f} MB")
    return found


PARTS: dict[str, Callable[[Path, int], float]] = {
    "written": write_signals,
    "merged": merge_signals,
    "read": read_signals,
    "records": read_records,
}


def run_part(name: str, folder: Path, signals: int) -> None:
    """Do a part and print what it cost."""
    seconds = PARTS[name](folder, signals)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(orjson.dumps({"per_s": signals / seconds, "rss_mb": rss_mb}).decode())


def states(folder: Path) -> dict[str, Figure]:
    """How long the state of an inventory takes, with a daily state and without."""
    archive, at = Archive.at(str(folder)), BEGIN + timedelta(days=DAYS, hours=-12)
    revisions = inventory(folder)
    begin = time.perf_counter()
    from_all = state_at(archive, INVENTORY, CLUSTER, at)
    between = time.perf_counter()
    keep_up(archive, INVENTORY, 0, at)
    kept = time.perf_counter()
    from_state = state_at(archive, INVENTORY, CLUSTER, at)
    end = time.perf_counter()
    assert from_all == from_state
    return {
        "revisions": revisions,
        "state_records": len(from_all),
        "state_from_all_s": between - begin,
        "state_written_s": kept - between,
        "state_s": end - kept,
    }


def size_mb(folder: Path) -> float:
    """Of all files."""
    return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", nargs=3)
    options = parser.parse_args()
    if options.part:
        name, folder, signals = options.part
        run_part(name, Path(folder), int(signals))
        return
    signals, rounds = (100_000, 1) if options.quick else (1_000_000, 3)
    figures: dict[str, Figure] = {"signals": signals}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in PARTS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name in PARTS:
                found[name].append(measured(name, Path(folder), signals))
            figures["mb_per_million"] = size_mb(Path(folder)) / signals * 1e6
    for name, runs in found.items():
        figures[REPORTS.get(name, f"{name}_per_s")] = middle(one["per_s"] for one in runs)
        figures[f"{name}_rss_mb"] = middle(one["rss_mb"] for one in runs)
    figures["json_mb_per_million"] = sum(len(one.value or b"") for one in records(10_000)) / 10_000
    with tempfile.TemporaryDirectory() as folder:
        figures |= states(Path(folder))
    report(figures, packages=("pyarrow", "pydantic"))


if __name__ == "__main__":
    main()
