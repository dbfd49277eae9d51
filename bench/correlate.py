"""How fast the correlator judges: `bench/correlate.py [--quick] [--only PART …]`.

The core parts run in a process of their own each, on one core, without Kafka, with a dict for the rows. Times are computing
times: what is waited for in event time (20 s of silence before a hang is judged by its ranks alone) passes by ticks.
Making the signals is no part of any figure. The garbage collector is set as in the process.

Figures:
  `core_signals_per_s`        batches of 500 of a bad day of 10,000 nodes: XIDs and their clean-up, watchdogs, PFC, progress
  `us_per_signal_100`, `_1000`, `_10000`   the same faults in clusters of so many nodes; must not grow. Ticks are apart: once
                              a minute one of them sweeps out what is old, which took `sweep_ms_10000` at most
  `burst_16384_s`             watchdogs of all ranks of a job on 2,048 nodes but eight, until the one incident is decided
  `burst_200_s`, `burst_200_wrong`   200 faults at once among 10,000 nodes and 1,800 look-alikes, until the last is decided;
                              faults without their incident plus incidents without a fault
  `kafka_facts_per_s`         20,650 facts of 7,000 nodes through a broker and one process, from its first step to its last: the
                              marginal rate, without the start and without the second until the offset is committed
  `kafka_signals_per_s`       then a bad day of 136,000 signals (34,000 with --quick), from the first one written to the last step
  `kafka_us_per_fact`, `kafka_us_per_signal`, `kafka_rss_mb`   computing time of the process for each, and its memory after that;
                              unlike rates they hardly depend on what else the machine does
  `kills`, `takeover_s`, `takeover_max_s`   how often the elder of two processes was killed in a campaign, and how long until
                              time was told again; with `kills_wrong`, incidents that are not as undisturbed, and
                              `kills_gaps`, revisions that are missing. Not with --quick
  `catch_up_records_per_s`, `_signals_per_s`, `_rss_mb`, `_deaths`, `_idle_s`   40,000 records of 36 signals from 5,000 pods wait
                              in one of eight partitions: how fast they are read, the most memory meanwhile, how often the
                              process ended, and how long a GPU lost meanwhile in another partition's cluster waits for its
                              incident. Not with --quick
  `blind_ordered_s`, `blind_killed_s`   from the signal until GPUs lost at that moment in the clusters of all eight partitions
                              are decided: SIGTERM or SIGKILL, the next correlator is started when the last one has ended;
                              `_standby_` with another beside it, `_200k_` with 200,000 records in the changelog;
                              `interpreter_s` is what Python and its imports take of it. Not with --quick
  `rss_mb_10k`                resident memory with 10,000 nodes of eight GPUs and NICs, 500 jobs and the bad day's evidence
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench import correlator_away, correlator_process
from bench.brokered import installation
from bench.correlator_process import recent
from bench.figures import Figure, middle, progress, report
from bench.trouble import CLUSTER, Cluster, Fault, bad_day, batches, moment
from streams.correlate import Changes, Engine
from streams.kafka.provisioning import apply
from streams.model.garbage import collect_seldom
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.testbed.kafka import Kafka

Figures = dict[str, Figure]


class Run:
    """An engine under measurement and what it published."""

    def __init__(self, cluster: Cluster) -> None:
        self.rows: dict[str, bytes] = {}
        self.engine = Engine(CLUSTER, self.rows)
        self.published: dict[str, Incident] = {}
        self.ticks_s: list[float] = []
        """CPU time of each tick."""
        self.now = moment(-3600)
        for fact in cluster.facts():
            self.engine.on_fact(fact.key, fact, self.now)
        self.tick(moment(-60))
        collect_seldom()

    def tick(self, now: datetime) -> None:
        """Let time pass."""
        self._ticked = self.now = max(now, self.now)
        began = time.process_time()
        self._note(self.engine.on_tick(self.now))
        self.ticks_s.append(time.process_time() - began)

    def see(self, batch: Sequence[Signal]) -> None:
        """Take in a batch, at the moment its last signal was observed, and a tick for each second of that."""
        self.now = max(self.now, batch[-1].observed_at)
        self._note(self.engine.on_signals(batch, self.now))
        if self.now - self._ticked >= timedelta(seconds=1):
            self.tick(self.now)

    def standing(self) -> list[Incident]:
        """Incidents that were not merged or withdrawn."""
        return [
            i
            for i in self.published.values()
            if i.state is not IncidentState.MERGED and not i.reason.startswith("Withdrawn")
        ]

    def _note(self, changes: Changes) -> None:
        for incident in changes.incidents:
            self.published[incident.id] = incident


def throughput(nodes: int, faults: int) -> Figures:
    """A bad day, batch after batch."""
    jobs = nodes // 20
    cluster = Cluster(nodes, jobs, nodes_a_job=18)
    injected, signals = bad_day(cluster, faults, every_s=2.0)
    run = Run(cluster)
    began = time.process_time()
    for batch in batches(signals):
        run.see(batch)
    took = time.process_time() - began
    run.tick(run.now + timedelta(seconds=60))
    return {
        "per_s": len(signals) / took,
        "us": (took - sum(run.ticks_s[1:])) / len(signals) * 1e6,
        "tick_ms": max(run.ticks_s[1:]) * 1e3,
        "signals": len(signals),
        "wrong": wrong(injected, run.standing()),
        "rss_mb": _rss_mb(),
        "rows_mb": sum(len(k) + len(v) for k, v in run.rows.items()) / 1e6,
    }


def burst_of_one_job(ranks: int) -> Figures:
    """All watchdogs of one large job."""
    cluster = Cluster(10_000, 1, nodes_a_job=ranks // 8)
    fault = cluster.silent_node(0, 0)
    signals = sorted(
        (s for s in fault.signals if s.attributes.get("seq") and "subtype" not in s.attributes),
        key=lambda s: s.observed_at,
    )
    run = Run(cluster)
    began = time.process_time()
    for batch in batches(signals):
        run.see(batch)
    while not run.standing() and run.now < moment(900):
        run.tick(run.now + timedelta(seconds=1))
    took = time.process_time() - began
    return {"s": took, "signals": len(signals), "wrong": wrong([fault], run.standing())}


def burst_of_many_faults(faults: int, look_alikes: int) -> Figures:
    """Many faults in the same seconds."""
    cluster = Cluster(10_000, 500, nodes_a_job=18)
    hit = cluster.chance.sample(range(500), faults)
    injected = [cluster.lost_gpu(job, i * 0.01) for i, job in enumerate(hit[: faults // 2])]
    injected += [
        cluster.silent_node(job, i * 0.01) for i, job in enumerate(hit[faults // 2 : faults * 3 // 4])
    ]
    injected += [cluster.own_code(job, 600 + i * 0.01) for i, job in enumerate(hit[faults * 3 // 4 :])]
    signals = [s for fault in injected for s in fault.signals]
    well = [n for n in range(cluster.nodes) if n // cluster.nodes_a_job not in hit]
    for node in cluster.chance.sample(well, look_alikes):
        signals += cluster.look_alike(node, 595 + 10 * cluster.chance.random())
    signals.sort(key=lambda s: s.observed_at)
    run = Run(cluster)
    began = time.process_time()
    for batch in batches(signals):
        run.see(batch)
    for _ in range(60):
        run.tick(run.now + timedelta(seconds=1))
    took = time.process_time() - began
    return {"s": took, "signals": len(signals), "wrong": wrong(injected, run.standing())}


def wrong(faults: Sequence[Fault], incidents: Sequence[Incident]) -> int:
    """Faults that got no incident of their own, and incidents beyond weak ones that no fault stands behind."""
    truth = {(f.family, f.node or f.job) for f in faults}
    found = {(i.family, i.root.node or (i.root.job.name if i.root.job else str(i.root))) for i in incidents}
    doubtful = {
        (i.family, i.root.node or (i.root.job.name if i.root.job else str(i.root)))
        for i in incidents
        if i.certainty is Certainty.WEAK
    }
    missed, extra = truth - found, found - truth - doubtful
    for name in sorted(map(str, [*list(missed)[:5], *list(extra)[:5]])):
        progress(f"    wrong: {name}")
    return len(missed) + len(extra)


def _rss_mb() -> float:
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def apart(part: Callable[..., Figures], *options: int) -> Figures:
    """Run a part in a fresh process, so that no part's memory or garbage weighs on another's."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        figures = pool.submit(part, *options).result()
    told = ", ".join(
        f"{name} {value:,.4g}" for name, value in figures.items() if isinstance(value, (int, float))
    )
    progress(f"{part.__name__}{options}: {told}")
    return figures


def median_of(rounds: Sequence[Figures], name: str) -> float:
    """The middle of a figure over the rounds."""
    return middle(value for figures in rounds if isinstance(value := figures[name], (int, float)))


async def through_kafka(bootstrap: str, faults: int) -> Figures:
    """A bad day that lies in the topic before it is read."""
    cluster = Cluster(7_000, 350, nodes_a_job=18, nics=1)
    _, signals = bad_day(cluster, faults, every_s=2.0)
    signals = recent(signals, datetime.now(UTC) - signals[-1].observed_at)
    settings = installation(bootstrap, "rate", 1)
    await apply(settings)
    found = await correlator_process.rate(settings, list(cluster.facts()), list(batches(signals)))
    progress(
        f"kafka: {found.signals_per_s:,.0f} signals/s, {found.facts_per_s:,.0f} facts/s, {found.records} records"
    )
    return {
        "kafka_signals_per_s": found.signals_per_s,
        "kafka_us_per_signal": found.us_per_signal,
        "kafka_facts_per_s": found.facts_per_s,
        "kafka_us_per_fact": found.us_per_fact,
        "kafka_rss_mb": found.rss_mb,
    }


async def through_kills(bootstrap: str, kills: int) -> Figures:
    """A campaign while correlators are killed, against the same signals seen by an engine that is left alone."""
    cluster = Cluster(400, 20, nodes_a_job=18, nics=1)
    _, signals = bad_day(cluster, 20, every_s=2.0)
    signals = recent(signals, datetime.now(UTC) - signals[-1].observed_at)
    facts = list(cluster.facts())
    engine = Engine(CLUSTER, {})
    for fact in facts:
        engine.on_fact(fact.key, fact, fact.observed_at)
    told = [engine.on_signals(signals, signals[-1].observed_at)]
    told += [engine.on_tick(signals[-1].observed_at + timedelta(seconds=s)) for s in (0, 35)]
    settings = installation(bootstrap, "kills", 1).model_copy(update={"session_timeout_ms": 6000})
    await apply(settings)
    campaign = await correlator_process.killed(
        settings, facts, list(batches(signals, 60)), kills=kills, settle_s=45, seed=cluster.seed
    )
    expected = essence(i for changes in told for i in changes.incidents)
    revisions: dict[str, set[int]] = {}
    for incident in campaign.published:
        revisions.setdefault(incident.id, set()).add(incident.revision)
    gaps = sum(max(found) - len(found) for found in revisions.values())
    takeovers = campaign.takeovers_s
    wrong_ones = expected ^ essence(campaign.published)
    for name in sorted(map(str, wrong_ones))[:6]:
        progress(f"    differs: {name}")
    return {
        "kills": kills,
        "takeover_s": middle(takeovers),
        "takeover_max_s": max(takeovers),
        "kills_incidents": len(expected),
        "kills_wrong": len(wrong_ones),
        "kills_gaps": gaps,
    }


def essence(published: Iterable[Incident]) -> set[tuple[str, str, str, tuple[str, ...]]]:
    """What must be the same however the incidents came about."""
    latest = {i.id: i for i in published}
    return {
        (i.family, str(i.root), i.certainty.value, tuple(job.key for job in i.jobs))
        for i in latest.values()
        if i.state is not IncidentState.MERGED and not i.reason.startswith("Withdrawn")
    }


async def through_a_backlog(bootstrap: str, records: int) -> Figures:
    """A correlator that was away for ten minutes of 5,000 pods' progress."""
    settings = installation(bootstrap, "away", 1).model_copy(update={"cluster_partitions": 8})
    await apply(settings)
    return await correlator_away.catch_up(settings, _LOG, records=records, pods=5_000)


async def through_restarts(bootstrap: str, rounds: int) -> Figures:
    """How long nobody decides while a correlator gives place to the next."""
    settings = installation(bootstrap, "restart", 1).model_copy(update={"cluster_partitions": 8})
    await apply(settings)
    figures: Figures = {"interpreter_s": middle([await correlator_away.interpreter_s() for _ in range(3)])}
    async with correlator_away.site(settings) as found:
        for size in ("", "_200k"):
            if size:
                await correlator_away.lengthen(found, 200_000)
            for standby in (False, True):
                for name, number in (("ordered", signal.SIGTERM), ("killed", signal.SIGKILL)):
                    times = await correlator_away.blind_s(
                        found, _LOG, number=number, standby=standby, rounds=rounds
                    )
                    figure = f"blind_{name}{'_standby' if standby else ''}{size}_s"
                    progress(f"{figure}: {', '.join(f'{s:.1f}' for s in times)}")
                    figures[figure] = middle(times)
    return figures


PARTS = ("core", "scale", "burst_16384", "burst_200", "kafka", "kills", "catch_up", "restart")
NOT_QUICK = {"kills", "catch_up", "restart"}

_LOG = Path(tempfile.gettempdir()) / "faultline-bench-correlator.log"


def measure(parts: Sequence[str], *, quick: bool) -> Figures:
    """The parts asked for, in turn."""
    figures: Figures = {}
    if "core" in parts:
        rounds = [apart(throughput, 10_000, 200 if quick else 450) for _ in range(1 if quick else 3)]
        figures["core_signals_per_s"] = median_of(rounds, "per_s")
        figures["core_signals"] = rounds[0]["signals"]
        figures["core_wrong"] = rounds[0]["wrong"]
        figures["rss_mb_10k"] = median_of(rounds, "rss_mb")
    if "scale" in parts:
        for nodes in (100, 1_000, 10_000):
            rounds = [apart(throughput, nodes, 5) for _ in range(1 if quick else 3)]
            figures[f"us_per_signal_{nodes}"] = median_of(rounds, "us")
            figures[f"sweep_ms_{nodes}"] = median_of(rounds, "tick_ms")
    if "burst_16384" in parts:
        rounds = [apart(burst_of_one_job, 16_384)]
        figures["burst_16384_s"] = median_of(rounds, "s")
        figures["burst_16384_wrong"] = rounds[0]["wrong"]
    if "burst_200" in parts:
        rounds = [apart(burst_of_many_faults, 200, 1_800)]
        figures["burst_200_s"] = median_of(rounds, "s")
        figures["burst_200_wrong"] = rounds[0]["wrong"]
    if {"kafka", "kills", "catch_up", "restart"} & set(parts):
        with Kafka.running(for_load=True) as server:
            if "kafka" in parts:
                figures |= asyncio.run(through_kafka(server.bootstrap, 100 if quick else 400))
            if "kills" in parts:
                figures |= asyncio.run(through_kills(server.bootstrap, 4 if quick else 10))
            if "catch_up" in parts:
                figures |= asyncio.run(through_a_backlog(server.bootstrap, 5_000 if quick else 40_000))
            if "restart" in parts:
                figures |= asyncio.run(through_restarts(server.bootstrap, 1 if quick else 3))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast the correlator judges.")
    parser.add_argument("--quick", action="store_true", help="smaller passes, under 50 s on two cores")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts, for profiling")
    options = parser.parse_args()
    parts = options.only or [part for part in PARTS if not (options.quick and part in NOT_QUICK)]
    report(
        measure(parts, quick=options.quick),
        packages=("faust-streaming", "orjson", "pydantic"),
    )


if __name__ == "__main__":
    main()
