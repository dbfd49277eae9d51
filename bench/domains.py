"""What splitting a cluster by failure domain gains: `bench/domains.py [--faults N]`.

The same number of nodes, faults and signals, through a real broker: once as one cluster with one correlator, once as two domains
(installations with topics of their own) with a correlator each, at the same time. On a machine with two cores the broker and the
feeding take part of both, so computing time and memory of each process tell more than the rates do.

Figures:
  `one_signals_per_s`, `one_us_per_signal`, `one_rss_mb`    one correlator
  `two_signals_per_s`       both together, until the later of them is done
  `two_us_per_signal`, `two_rss_mb`   of the one that took more
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import UTC, datetime

from bench.brokered import installation
from bench.correlator_process import Rate, rate, recent
from bench.figures import Figure, progress, report
from bench.trouble import Cluster, bad_day, batches
from streams.kafka.provisioning import apply
from tests.testbed.kafka import Kafka

NODES, JOBS = 7_000, 350


async def _domain(
    bootstrap: str, name: str, share: int, faults: int, ready: asyncio.Barrier
) -> tuple[Rate, int]:
    """One installation with a share of the nodes, the jobs and the faults."""
    cluster = Cluster(NODES // share, JOBS // share, nodes_a_job=18, nics=1)
    _, signals = bad_day(cluster, faults // share, every_s=2.0 * share)
    signals = recent(signals, datetime.now(UTC) - signals[-1].observed_at)
    settings = installation(bootstrap, name, 1)
    await apply(settings)
    await ready.wait()
    return await rate(settings, list(cluster.facts()), list(batches(signals))), len(signals)


async def measure(bootstrap: str, faults: int) -> dict[str, Figure]:
    """Both, one after the other."""
    (one, count), *_ = await asyncio.gather(_domain(bootstrap, "whole", 1, faults, asyncio.Barrier(1)))
    progress(f"one correlator: {one.signals_per_s:,.0f} signals/s of {count:,}")
    both, began = asyncio.Barrier(2), time.monotonic()
    halves = await asyncio.gather(*(_domain(bootstrap, name, 2, faults, both) for name in ("north", "south")))
    progress(f"two correlators: {time.monotonic() - began:.0f} s in all")
    slowest_s = max(number / found.signals_per_s for found, number in halves)
    return {
        "signals": count,
        "one_signals_per_s": one.signals_per_s,
        "one_us_per_signal": one.us_per_signal,
        "one_rss_mb": one.rss_mb,
        "two_signals": sum(number for _, number in halves),
        "two_signals_per_s": sum(number for _, number in halves) / slowest_s,
        "two_us_per_signal": max(found.us_per_signal for found, _ in halves),
        "two_rss_mb": max(found.rss_mb for found, _ in halves),
    }


def main() -> None:
    """Measure on a broker of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    options = parser.parse_args()
    with Kafka.running(for_load=True) as kafka:
        figures = asyncio.run(measure(kafka.bootstrap, options.faults))
    report(figures, packages=("aiokafka", "faust-streaming"))


if __name__ == "__main__":
    main()
