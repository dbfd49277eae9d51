"""How fast the responder acts: `bench/responder.py [--quick] [--only PART …]`.

One responder process on a real broker, one partition, 2,000 nodes in the inventory. Its connectors answer after the time an API
server (10 ms or so) or a ticket system (300 ms) takes, and count. Each incident stops a job, and its run has seven steps.
Guardrails are computed, with limits wide enough to hold nobody. The machine is not the responder's alone: CPU times are given
beside the times on the clock.

Figures:
  `first_effect_p50_ms`, `first_effect_p99_ms`   ten incidents a second at random moments: from before one is sent to the
                              broker until the first outward call of its run starts; `first_effect_own_ms` of it is the
                              commit that the call had to wait for (P50)
  `transaction_ms`            the median commit of that part, `transaction_requests` how many requests it took, and its parts,
                              each where it was needed: `…_encode_ms`, `…_add_partitions_ms` (with the wait for the markers
                              of the commit before), `…_produce_ms`, `…_add_offsets_ms`, `…_commit_offsets_ms`, `…_end_ms`
  `incidents_1000_s`          1,000 incidents at once: from before the first is sent until each has had its first call;
                              `incidents_1000_over_s` until every run has made its last one (pods take 2 s to go),
                              `incidents_1000_cpu_s` what that cost, and `incidents_1000_twice` calls that were made though
                              they had succeeded before
  `recovery_s`                10,000 finished and 200 running runs with their incidents: from the moment the partition falls to
                              the process until the last of the 200 goes on with a call; `recovery_cpu_s` what that cost,
                              `recovery_decoded` how many run documents were decoded for it
  `storm_ready_s`             10,000 runs in the middle of a call, as a storm leaves them: from the moment the partition falls to
                              the process until it is ready; `storm_first_s` until its first call, `storm_cpu_s` what being
                              ready cost, `storm_calls_1s` calls begun in the second after the first
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median, quantiles

from bench.breakdowns import Past, facts, incident
from bench.brokered import installation
from bench.figures import Figure, middle, progress, report
from bench.responder_process import Line, Process, Writer, now, started, writer
from bench.transactions import middles
from streams.config.settings import KafkaSettings
from streams.kafka.provisioning import apply
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS
from streams.model.codec import encode
from streams.model.facts import Fact, FactRecord
from tests.testbed.kafka import Kafka

NODES = 2_000
RATE_PER_S = 10.0

_installations = count()


async def fresh(bootstrap: str) -> KafkaSettings:
    """Topics of its own, with one partition, for a part."""
    settings = installation(bootstrap, f"responder{next(_installations)}", 1)
    await apply(settings)
    return settings


def records(known: Sequence[Fact]) -> list[tuple[str, bytes]]:
    """Inventory records."""
    return [(fact.key, encode(FactRecord(fact))) for fact in known]


async def ready(process: Process, timeout_s: float = 60) -> list[Line]:
    """Until the process has read everything and acts."""
    return await process.until(lambda line: line["what"] == "partition ready", timeout_s=timeout_s)


@dataclass(slots=True)
class Steady:
    """What was told while incidents came one after another."""

    waits_ms: list[float] = field(default_factory=list)
    """From each incident to its first call."""
    own_ms: list[float] = field(default_factory=list)
    """What the commit before that call took."""
    transactions: list[Line] = field(default_factory=list)


async def steadily(bootstrap: str, incidents: int, told: Steady) -> None:
    """Incidents at random moments."""
    settings = await fresh(bootstrap)
    chance = random.Random(7)
    sent: dict[str, float] = {}
    first: dict[str, float] = {}

    def enough(line: Line) -> bool:
        if line["what"] == "transaction":
            told.transactions.append(line)
        elif line["what"] == "apply" and line["incident"] not in first:
            first[line["incident"]] = line["at"]
            told.own_ms.append(told.transactions[-1]["ms"])
        return len(first) == incidents

    async with writer(settings) as out, started(settings) as process:
        await out.write(INVENTORY, records(list(facts(NODES, now()))))
        await ready(process)

        async def feed() -> None:
            loop = asyncio.get_running_loop()
            for number in range(incidents):
                about = incident(number, now())
                sent[about.id] = loop.time()
                await out.write(INCIDENTS, [(about.id, encode(about))])
                await asyncio.sleep(chance.expovariate(RATE_PER_S))

        await asyncio.gather(feed(), process.until(enough, timeout_s=60 + incidents / RATE_PER_S))
    told.waits_ms += [(first[name] - at) * 1e3 for name, at in sent.items()]


async def at_once(bootstrap: str, incidents: int) -> dict[str, float]:
    """A thousand incidents in one moment."""
    settings = await fresh(bootstrap)
    first: dict[str, float] = {}
    told: Counter[str] = Counter()
    over = 0

    def enough(line: Line) -> bool:
        nonlocal over
        if line["what"] == "apply":
            first.setdefault(line["incident"], line["at"])
            told[line["key"] + (":drain" if line["action"] == "drain_node" else "")] += 1
            over += line["action"] == "verify_job"
        return over == incidents

    async with writer(settings) as out, started(settings) as process:
        await out.write(INVENTORY, records(list(facts(NODES, now()))))
        before = (await ready(process))[-1]
        told_of = [incident(number, now()) for number in range(incidents)]
        began = asyncio.get_running_loop().time()
        await out.write(INCIDENTS, [(about.id, encode(about)) for about in told_of])
        last = (await process.until(enough, timeout_s=600))[-1]
    twice = sum(max(0, times - (2 if name.endswith(":drain") else 1)) for name, times in told.items())
    return {
        "first_s": max(first.values()) - began,
        "over_s": last["at"] - began,
        "cpu_s": last["cpu"] - before["cpu"],
        "twice": twice,
    }


async def fill(
    out: Writer, past: Past, documents: Iterable[tuple[str, bytes, str, bytes]] | None = None
) -> None:
    """Write a history in the order in which it came to be, a piece at a time."""
    await out.write(INVENTORY, records(list(past.facts())))
    about, runs = [], []
    for name, told, of, run in documents or past.documents():
        about.append((name, told))
        runs.append((of, run))
        if len(runs) == 500:
            await out.write(INCIDENTS, about)
            await out.write(RUNS, runs)
            about, runs = [], []
    await out.write(INCIDENTS, about)
    await out.write(RUNS, runs)


async def recovery(bootstrap: str, finished: int, running: int, rounds: int) -> list[dict[str, float]]:
    """A process takes up a partition with a history, once for each round, after one that was killed."""
    found = []
    for _ in range(rounds):
        settings = await fresh(bootstrap)
        continued: set[str] = set()

        def enough(line: Line, continued: set[str] = continued) -> bool:
            if line["what"] in ("apply", "lookup"):
                continued.add(line["incident"])
            return len(continued) == running

        async with writer(settings) as out:
            await fill(out, Past(NODES, finished, running, now()))
        async with started(settings) as process:
            lines = await process.until(enough, timeout_s=120)
        begin = next(line for line in lines if line["what"] == "partition assigned")
        told = {line["what"]: line for line in lines}
        found.append(
            {
                "s": lines[-1]["at"] - begin["at"],
                "cpu_s": lines[-1]["cpu"] - begin["cpu"],
                "journal_s": told["document store open"]["at"] - begin["at"],
                "inputs_s": told["partition ready"]["at"] - told["document store open"]["at"],
                "decoded": told["partition ready"].get("decoded", finished + running),
            }
        )
        progress("recovery: " + ", ".join(f"{name} {value:,.4g}" for name, value in found[-1].items()))
    return found


async def after_a_storm(bootstrap: str, running: int) -> dict[str, float]:
    """A process takes up a partition with nothing but open runs."""
    settings = await fresh(bootstrap)
    past = Past(NODES, 0, 0, now())
    first = 0.0

    def enough(line: Line) -> bool:
        nonlocal first
        if line["what"] in ("apply", "lookup"):
            first = first or line["at"]
            return bool(line["at"] > first + 1)
        return False

    async with writer(settings) as out:
        await fill(out, past, past.storm(running))
    async with started(settings) as process:
        lines = await process.until(enough, timeout_s=300)
    begin = next(line for line in lines if line["what"] == "partition assigned")
    up = next(line for line in lines if line["what"] == "partition ready")
    calls = [line for line in lines if line["what"] in ("apply", "lookup") and line["at"] <= first + 1]
    found = {
        "ready_s": up["at"] - begin["at"],
        "cpu_s": up["cpu"] - begin["cpu"],
        "first_s": first - begin["at"],
        "calls_1s": len(calls),
    }
    progress("storm: " + ", ".join(f"{name} {value:,.4g}" for name, value in found.items()))
    return found


PARTS = ("steady", "at_once", "recovery", "storm")


def measure(parts: Sequence[str], *, quick: bool) -> dict[str, Figure]:
    """The parts asked for, in turn, on one broker."""
    figures: dict[str, Figure] = {}
    rounds = 1 if quick else 3
    with Kafka.running(for_load=True) as server:
        if "steady" in parts:
            told = Steady()
            for _ in range(rounds):
                asyncio.run(steadily(server.bootstrap, 80 if quick else 300, told))
            cut = quantiles(told.waits_ms, n=100, method="inclusive")
            figures |= {
                "first_effect_p50_ms": cut[49],
                "first_effect_p99_ms": cut[98],
                "first_effect_own_ms": median(told.own_ms),
                "incidents": len(told.waits_ms),
            }
            parts_ms = middles(told.transactions)
            figures |= {
                "transaction_ms": parts_ms.pop("ms"),
                "transaction_requests": parts_ms.pop("requests"),
                **{f"transaction_{name}_ms": ms for name, ms in parts_ms.items()},
            }
            progress(f"steady: P50 {cut[49]:.1f} ms, P99 {cut[98]:.1f} ms of {len(told.waits_ms)}")
            progress("transaction: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in parts_ms.items()))
        if "at_once" in parts:
            bursts = []
            for _ in range(rounds):
                bursts.append(asyncio.run(at_once(server.bootstrap, 1_000)))
                progress("at once: " + ", ".join(f"{n} {v:,.4g}" for n, v in bursts[-1].items()))
            figures["incidents_1000_s"] = middle(b["first_s"] for b in bursts)
            figures["incidents_1000_over_s"] = middle(b["over_s"] for b in bursts)
            figures["incidents_1000_cpu_s"] = middle(b["cpu_s"] for b in bursts)
            figures["incidents_1000_twice"] = sum(b["twice"] for b in bursts)
        if "recovery" in parts:
            found = asyncio.run(recovery(server.bootstrap, 10_000, 200, rounds))
            figures["recovery_s"] = middle(r["s"] for r in found)
            figures["recovery_cpu_s"] = middle(r["cpu_s"] for r in found)
            figures["recovery_journal_s"] = middle(r["journal_s"] for r in found)
            figures["recovery_inputs_s"] = middle(r["inputs_s"] for r in found)
            figures["recovery_decoded"] = middle(r["decoded"] for r in found)
        if "storm" in parts:
            figures |= {
                f"storm_{name}": value
                for name, value in asyncio.run(after_a_storm(server.bootstrap, 10_000)).items()
            }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast the responder acts.")
    parser.add_argument("--quick", action="store_true", help="smaller passes, under 50 s on two cores")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts, for profiling")
    options = parser.parse_args()
    report(measure(options.only or PARTS, quick=options.quick), packages=("aiokafka", "orjson", "pydantic"))


if __name__ == "__main__":
    main()
