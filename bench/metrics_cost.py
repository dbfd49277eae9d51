"""What counting costs the detector: `bench/metrics_cost.py [--lines N]`, no broker, one process.

The same lines are read, gathered and encoded in batches as the detector does it, by turns with its metrics and without. CPU time
counts, and the fastest turn of each kind: whatever else the machine does only makes a turn slower.

Figures:
  `ratio_0p1`, `ratio_5p`   CPU time with metrics over CPU time without, where 0.1 % and 5 % of the lines are reports
  `scrape_ms`               one scrape of the detector in OpenMetrics, 24 partitions, every label value in use
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

from bench import chatter
from bench.figures import Figure, progress, report
from streams.detect import Detector
from streams.detect.batch import Batch, read_safely
from streams.detect.figures import DetectorFigures
from streams.model.record import RawRecord
from streams.telemetry import metrics as shown
from streams.telemetry.lag import LagMeter, Processed
from streams.telemetry.registry import Metrics

SEED, ROUNDS, BATCH = 20261127, 9, 10_000
MIXES = {"0p1": 0.001, "5p": 0.05}


def one_turn(lines: list[bytes], now: datetime, figures: DetectorFigures | None) -> float:
    """CPU seconds of reading all lines once."""
    detector = Detector("c1")
    began = time.process_time()
    for start in range(0, len(lines), BATCH):
        values = lines[start : start + BATCH]
        batch, live = Batch(), len(values)
        for index in detector.wanted(values, detector.rule_state("raw.node-logs", 0)):
            record = RawRecord("raw.node-logs", 0, start + index, now, None, values[index])
            batch.add(record, read_safely(detector, record))
            live -= 1
        batch.add_unread("raw.node-logs", live)
        batch.outgoing(8)
        if figures is not None:
            figures.delivered(batch)
    return time.process_time() - began


def scrape_ms() -> float:
    """Milliseconds of one scrape."""
    metrics, meter = Metrics("detector").with_process(), LagMeter()
    meter.show(metrics)
    places = [(f"raw.topic-{number % 6}", number // 6) for number in range(24)]
    meter.looked(dict.fromkeys(places, Processed(1)), dict.fromkeys(places, 2))
    for topic, _ in places:
        metrics.set(shown.SHIPPER_LAST_RECORD, 1, topic)
    began = time.perf_counter()
    for _ in range(20):
        metrics.exposition("application/openmetrics-text; version=1.0.0")
    return (time.perf_counter() - began) / 20 * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lines", type=int, default=200_000)
    lines_each = parser.parse_args().lines
    now = datetime.now(UTC)
    found: dict[str, Figure] = {}
    for name, share in MIXES.items():
        lines = list(chatter.mixed(SEED, lines_each, share, begin=now))
        one_turn(lines, now, None)
        spent: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS):
            for counts in (True, False) if number % 2 else (False, True):
                figures = DetectorFigures(Metrics("detector")) if counts else None
                spent[counts].append(one_turn(lines, now, figures))
            progress(f"  {name:4} {spent[True][-1]:7.3f} s with, {spent[False][-1]:7.3f} s without")
        found[f"ratio_{name}"] = min(spent[True]) / min(spent[False])
    found["scrape_ms"] = scrape_ms()
    report(found, packages=("prometheus-client",))


if __name__ == "__main__":
    main()
