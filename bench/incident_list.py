"""How long a person waits for the list: `bench/incident_list.py [--quick]`.

1,900 incidents with eight proofs each on a real broker, in two revisions each, nearly all over, with their runs, and a cluster of
3,800 nodes. The commands are started as a person types them: starting Python is in the figures.

Figures:
  `list_all_s`      `faultline incidents list --all`, the median of the rounds; `list_all_cpu_s` what it cost
  `list_open_s`     `faultline incidents`: those not over, and those of which a node stays closed; `list_open_cpu_s`
  `show_s`          `faultline incidents show ID` of one of them
  `listed`          lines of `--all --output json`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace

from bench.breakdowns import CLUSTER, Past
from bench.brokered import environment, installation
from bench.figures import Figure, middle, progress, report
from bench.responder_process import now, writer
from streams.config.settings import KafkaSettings
from streams.kafka.provisioning import apply
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS
from streams.model.codec import decode, encode
from streams.model.facts import FactRecord
from streams.model.incident import Incident, IncidentState
from tests.testbed.kafka import Kafka

INCIDENTS_OVER, INCIDENTS_OPEN = 1_880, 20


async def fill(settings: KafkaSettings) -> str:
    """Write the history; returns the id of an incident in it."""
    await apply(settings)
    past = Past(2 * (INCIDENTS_OVER + INCIDENTS_OPEN), INCIDENTS_OVER, INCIDENTS_OPEN, now())
    documents = list(past.documents())
    async with writer(settings) as out:
        await out.write(INVENTORY, ((fact.key, encode(FactRecord(fact))) for fact in past.facts()))
        opened = (
            replace(decode(Incident, raw), id=name, revision=1, state=IncidentState.OPEN)
            for name, raw, _, _ in documents
        )
        await out.write(INCIDENTS, ((about.id, encode(about)) for about in opened))
        await out.write(INCIDENTS, ((name, raw) for name, raw, _, _ in documents))
        await out.write(RUNS, ((name, raw) for _, _, name, raw in documents))
    return documents[0][0]


def typed(settings: KafkaSettings, *words: str) -> tuple[float, float, bytes]:
    """Seconds on the clock, CPU seconds and the output of a command."""
    env = environment(settings) | {"FAULTLINE_CLUSTER": CLUSTER}
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "faultline", *words], env=env, capture_output=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu_s, done.stdout


def main() -> None:
    """Fill a broker, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    rounds = 3 if parser.parse_args().quick else 9
    figures: dict[str, Figure] = {}
    with Kafka.running(for_load=True) as kafka:
        settings = installation(kafka.bootstrap, "list", 1)
        about = asyncio.run(fill(settings))
        progress(f"filled; load {os.getloadavg()[0]:.1f}")
        commands = {"list_all": ("list", "--all"), "list_open": ("list",), "show": ("show", about)}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for number in range(rounds):
            for name, words in commands.items():
                took_s, cpu_s, _ = typed(settings, "incidents", *words)
                times[name].append((took_s, cpu_s))
            progress(f"round {number + 1}: " + ", ".join(f"{n} {t[-1][0]:.2f} s" for n, t in times.items()))
        for name, taken in times.items():
            figures[f"{name}_s"] = middle(t for t, _ in taken)
            figures[f"{name}_cpu_s"] = middle(c for _, c in taken)
        figures["listed"] = typed(settings, "incidents", "list", "--all", "--output", "json")[2].count(b"\n")
    report(figures, packages=("aiokafka", "pydantic", "rich"))


if __name__ == "__main__":
    main()
