"""How fast a day of a large cluster is replayed: `bench/day.py [--quick] [--nodes N] [--faults N] [--lines N]`, no broker.

A simulated day of 2,000 nodes with 200 faults and what goes on beside them, and ordinary lines up to 20 million records, is
written as `faultline capture` writes it: a zstd file for each partition, inventory included. Then it is replayed from raw
records by one process and by all cores, and once more from the signals alone. Each replay is a process of its own; its
imports are not in the figures, its catalogs and its decisions are.

Figures:
  `records`, `signals`, `incidents`   of the day; `file_mb`, compressed
  `lines_per_s`, `lines_cpu_us`       raw records on all cores, and what one cost on all of them together; `_1_`: in one process
  `signals_per_s`                     from the signals; `signals_s` for all of them, with a tick for each second of the day
  `rss_mb`, `rss_1_mb`, `rss_signals_mb`   most resident memory of one process of each
  `same`                              whether all three replays give one decision hash (else the bench fails)
"""

from __future__ import annotations

import argparse
import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count, cycle, islice
from operator import attrgetter
from pathlib import Path

from bench import chatter
from bench.campaign import SCENARIOS
from bench.figures import Figure, progress, report
from bench.replay import replayed
from faultline.replay.capture import Capture, Meta, read
from faultline.replay.detection import Clock, Detection, Found
from faultline.replay.manifest import MANIFEST, Manifest, PartitionPart, TopicPart, write_manifest
from faultline.replay.partition_writer import PartitionWriter
from faultline.replay.topic_folder import TopicFolder
from faultline.replay.topic_records import from_micros
from sandbox.simulation.campaign import Simulated, simulate
from sandbox.simulation.scenario import load
from streams.inventory.recorded_watch import facts
from streams.inventory.topology_file import read_topology
from streams.kafka.topics import INVENTORY, RAW_NODE_LOGS, SIGNALS
from streams.model.clock import to_millis
from streams.model.codec import encode
from streams.model.record import RawRecord
from streams.model.signal import MAX_BATCH, SignalBatch

SEED = 20261127
PARTITIONS = 8
"""Of each raw topic, in turn by record: more than cores, so that they can be dealt out evenly."""
POOL = 50_000
"""Ordinary lines come again after so many: writing them all anew would take longer than reading them."""
_CHUNK = 50_000
_UNKNOWN = 2**53
"""Where a partition ends, before it is written."""


@dataclass(frozen=True)
class Day:
    """What is played."""

    nodes: int = 2_000
    faults: int = 200
    lines: int = 20_000_000

    def simulated(self) -> Simulated:
        """Faults in the mix of the scenario `month`, spread over most of a day."""
        scenario = load(SCENARIOS)["month"].sized(self.nodes)
        spacing = 0.9 * 86_400 / self.faults
        changed = {"faults": self.faults, "per_hundred_nodes": 0.0, "spacing_s": spacing}
        campaign = scenario.campaign.model_copy(update=changed)
        return simulate(scenario.model_copy(update={"campaign": campaign}), SEED)


class Writer:
    """Writes topics as a capture from Kafka has them, with memory for a frame of each partition."""

    def __init__(self, folder: Path, meta: Meta) -> None:
        self._folder = folder
        self._meta = meta
        self._topics: dict[str, TopicPart] = {}

    def topic(self, name: str, records: Iterable[RawRecord], partitions: int) -> None:
        """Write a topic; its records come in order of time, and get partitions and offsets here."""
        lead_ms, end_ms = to_millis(self._meta.lead), to_millis(self._meta.end) + 1
        writers = {
            number: PartitionWriter(
                self._folder, name, number, PartitionPart(0, _UNKNOWN), lead_ms=lead_ms, end_ms=end_ms
            )
            for number in range(partitions)
        }
        numbered = zip(count(), records, strict=False)
        while chunk := list(islice(numbered, _CHUNK)):
            for partition, writer in writers.items():
                writer.add(
                    RawRecord(
                        name, partition, number // partitions, record.timestamp, record.key, record.value, record.headers
                    )
                    for number, record in chunk
                    if number % partitions == partition
                )  # fmt: skip
        written = {number: writer.finish() for number, writer in writers.items()}
        self._topics[name] = TopicPart(
            {number: replace(part, end=part.records) for number, part in written.items()}
        )

    def finish(self) -> Path:
        """Write the manifest."""
        meta = self._meta
        write_manifest(
            self._folder / MANIFEST,
            Manifest(meta.cluster, meta.begin, meta.end, meta.lead, self._topics, complete=True),
        )
        return self._folder


def write_raw(folder: Path, capture: Capture, lines: int) -> Path:
    """Write all that shippers sent, with ordinary lines up to so many records."""
    writer = Writer(folder, capture.meta)
    for topic, records in capture.records.items():
        ordered: Iterable[RawRecord] = sorted(records, key=attrgetter("timestamp"))
        if topic == RAW_NODE_LOGS.name:
            missing = max(0, lines - sum(map(len, capture.records.values())))
            ordered = heapq.merge(ordered, _ordinary(capture.meta, missing), key=attrgetter("timestamp"))
        writer.topic(topic, ordered, PARTITIONS)
    writer.topic(INVENTORY.name, _inventory(capture), 1)
    return writer.finish()


def _ordinary(meta: Meta, lines: int) -> Iterator[RawRecord]:
    """Lines at an even pace."""
    usual = cycle(list(islice(chatter.ordinary(SEED, meta.begin), POOL)))
    pace = (meta.end - meta.begin - timedelta(minutes=10)) / max(lines, 1)
    for number, value in enumerate(islice(usual, lines)):
        at = meta.begin + number * pace
        yield RawRecord(RAW_NODE_LOGS.name, 0, number, at, None, value)


def _inventory(capture: Capture) -> Iterator[RawRecord]:
    """The facts that the inventory process would have published."""
    cluster, begin = capture.meta.cluster, capture.meta.begin
    cabling = read_topology(cluster, capture.topology, begin)
    for number, (at, (key, fact)) in enumerate(
        facts(cluster, capture.kube_changes, cabling.links, cabling.places, begin)
    ):
        value = encode(fact) if fact is not None else None
        yield RawRecord(INVENTORY.name, 0, number, at, key.encode(), value)


def write_signals(folder: Path, raw: Capture) -> Path:
    """Write what the detector would have sent of it, and the inventory."""
    topics = {name: topic for name, topic in raw.records.items() if isinstance(topic, TopicFolder)}
    raws = {name: topic for name, topic in topics.items() if name.startswith("raw.")}
    last = max(topic.survey.last or 0 for topic in raws.values())
    clock = Clock(raw.meta.begin, from_micros(last), raw.meta.end)
    writer = Writer(folder, raw.meta)
    found = Detection(raw.meta.cluster, clock, raws).found()
    writer.topic(SIGNALS.name, _batches(raw.meta, found), 1)
    writer.topic(INVENTORY.name, topics[INVENTORY.name], 1)
    return writer.finish()


def _batches(meta: Meta, found: Iterable[Found]) -> Iterator[RawRecord]:
    for number, one in enumerate(found):
        for start in range(0, len(one.signals), MAX_BATCH):
            batch = SignalBatch(meta.cluster, one.signals[start : start + MAX_BATCH])
            yield RawRecord(SIGNALS.name, 0, number, one.due, meta.cluster.encode(), encode(batch))


def measure(folder: Path, day: Day) -> dict[str, Figure]:
    """Write the day, and replay it in each way."""
    progress(f"  simulating {day.nodes} nodes and {day.faults} faults …")
    simulated = day.simulated()
    progress("  writing the capture …")
    raw = write_raw(folder / "raw", simulated.capture, day.lines)
    faults = len(simulated.truth.faults)
    del simulated
    cores = os.cpu_count() or 1
    every, one = replayed(raw, cores), replayed(raw, 1)
    signals = replayed(write_signals(folder / "signals", read(raw)), 1)
    hashes: Sequence[str] = (every["hash"], one["hash"], signals["hash"])
    if len(set(hashes)) != 1:
        progress(f"  DIFFERENT: {hashes}")
    return {
        "nodes": day.nodes,
        "faults": faults,
        "records": every["records"],
        "signals": every["signals"],
        "incidents": every["incidents"],
        "file_mb": sum(path.stat().st_size for path in raw.rglob("*") if path.is_file()) / 1e6,
        "lines_per_s": every["records"] / every["seconds"],
        "lines_cpu_us": every["cpu_s"] / every["records"] * 1e6,
        "lines_1_per_s": one["records"] / one["seconds"],
        "lines_1_cpu_us": one["cpu_s"] / one["records"] * 1e6,
        "signals_per_s": signals["signals"] / signals["seconds"],
        "signals_s": signals["seconds"],
        "rss_mb": max(every["rss_mb"], every["rss_of_others_mb"]),
        "rss_1_mb": one["rss_mb"],
        "rss_signals_mb": signals["rss_mb"],
        "same": len(set(hashes)) == 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="200 nodes, 20 faults, a million lines")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--faults", type=int)
    parser.add_argument("--lines", type=int)
    parser.add_argument("--keep", type=Path, help="write the captures here and leave them")
    options = parser.parse_args()
    usual = Day(200, 20, 1_000_000) if options.quick else Day()
    day = Day(options.nodes or usual.nodes, options.faults or usual.faults, options.lines or usual.lines)
    with tempfile.TemporaryDirectory() as where:
        figures = measure(options.keep or Path(where), day)
    report(figures, packages=("orjson", "google-re2", "zstandard"))
    if not figures["same"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
