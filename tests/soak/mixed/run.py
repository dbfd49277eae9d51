"""A whole installation under load for a while, hit by everything that happens to one, and then audited from outside.

python -m tests.soak.mixed.run [--minutes 10] [--lines-per-s 3000] [--seed 1] [--keep FOLDER]

Every process of Faultline, two of those that scale, on a real broker and a real control plane with simulated kubelets; Slack,
Jira and PagerDuty are stand-ins. Ends with 1 when a rule of `rules.py` does not hold or a process grows. The last line of
standard output is one JSON object with the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.installation import ROOT
from tests.soak.mixed import evidence, rules
from tests.soak.mixed.chaos import Chaos, Told
from tests.soak.mixed.ledger import NAMESPACE, PERSON, Faults, Ledger
from tests.soak.mixed.load import read_report
from tests.soak.mixed.site import Site
from tests.soak.mixed.watch import Sample, Slope, look, slope
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually, patience

SPARED = (
    "inventory", "detector-1", "correlator-1", "responder-1", "chat", "notifier", "gateway",
)  # fmt: skip
"""Not killed in the second half: their memory is measured there."""

LASTING_JOBS = 8
WORK_NODES = 40
HEALTHY = 20
FOREIGN = 4
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """One soak. `disk_mb` is the size of the file system with the broker's data."""

    minutes: float = 10.0
    lines_per_s: float = 3000.0
    seed: int = 1
    blow_every_s: float = 12.0
    fault_every_s: float = 12.0
    job_every_s: float = 30.0
    disk_mb: int = 3000


@dataclass(slots=True)
class Figures:
    """What a soak has shown."""

    minutes: float
    lines_per_s: float
    seed: int
    written: int = 0
    written_per_s: float = 0.0
    faults_told: int = 0
    incidents: int = 0
    runs: int = 0
    tickets: int = 0
    threads: int = 0
    pages: int = 0
    settled_s: float | None = None
    blows: dict[str, int] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    ended_by_themselves: list[str] = field(default_factory=list)
    slopes: dict[str, Any] = field(default_factory=dict)
    rss_mb: dict[str, float] = field(default_factory=dict)
    cpu_load: str = ""
    violations: list[str] = field(default_factory=list)


class MixedSoak:
    """One soak on servers of its own."""

    def __init__(
        self, options: Options, site: Site, kafka: Kafka, plane: ControlPlane, disk: Path | None
    ) -> None:
        self._options = options
        self._site, self._kafka, self._plane, self._disk = site, kafka, plane, disk
        self._samples: dict[str, list[Sample]] = defaultdict(list)
        self._born: dict[int, float] = {}
        self._ledger = Ledger()
        self.figures = Figures(options.minutes, options.lines_per_s, options.seed)

    async def run(self) -> Figures:
        """Set up, let it run, let it settle, audit."""
        options, site, figures = self._options, self._site, self.figures
        for_s = options.minutes * 60
        spare = int(for_s / options.fault_every_s * 2) + 10
        nodes = await asyncio.to_thread(self._add_nodes, spare)
        site.start_all()
        await eventually(self._all_ready, "every process is ready", timeout_s=240)
        mark = self._plane.audit.mark()
        pods = site.folder / "pods.json"
        pods.write_text("[]")
        began = time.monotonic()
        faults = Faults(site, self._plane, self._ledger, nodes=nodes, began=began, pods=pods)
        await faults.begin_lasting(LASTING_JOBS)
        writer = self._start_load(pods)
        chaos = Chaos(
            site, self._kafka, self._plane, seed=options.seed, every_s=options.blow_every_s, disk=self._disk,
            spared=SPARED,
        )  # fmt: skip
        over, gone = asyncio.Event(), asyncio.Event()
        r = random.Random(options.seed + 1)
        tasks = [
            asyncio.create_task(faults.strike_until(over, options.fault_every_s, r)),
            asyncio.create_task(faults.work_until(over, options.job_every_s)),
            asyncio.create_task(self._keep_up(gone, began)),
        ]
        hitting = asyncio.create_task(chaos.run(over))
        try:
            await self._wait(for_s / 2, [*tasks, hitting])
            chaos.calm_kills = True
            await self._wait(for_s / 2, [*tasks, hitting])
            over.set()
            await asyncio.gather(hitting, *tasks[:2])
            figures.written_per_s = round(
                sum(read_report(self._report).records.values()) / (time.monotonic() - began), 1
            )
            await asyncio.to_thread(writer.stop, 600)
            await self._settle(mark)
            gone.set()
            await tasks[2]
        finally:
            writer.kill()
            for task in (*tasks, hitting):
                task.cancel()
        self._tell(
            chaos.told, await evidence.gather(site, self._ledger, read_report(self._report), mark), for_s
        )
        return figures

    async def _settle(self, mark: int) -> None:
        """Until nothing is violated any more, or the time for that is over."""
        began = time.monotonic()
        limit = patience(rules.EXPECTED.handled_within_s)
        while (passed := time.monotonic() - began) < limit:
            found = await evidence.gather(self._site, self._ledger, read_report(self._report), mark)
            if not rules.violations(found):
                self.figures.settled_s = round(passed, 1)
                return
            await asyncio.sleep(2)

    async def _wait(self, for_s: float, working: list[asyncio.Task[None]]) -> None:
        """Let it go on, and stop at once when a part of the soak itself breaks."""
        done, _ = await asyncio.wait(working, timeout=for_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def _keep_up(self, gone: asyncio.Event, began: float) -> None:
        """Play the kubelet, and look at memory and backlog."""
        looked = 0.0
        while not gone.is_set():
            await asyncio.to_thread(self._site.revive)
            now = time.monotonic() - began
            if now >= looked + _LOOK_EVERY_S:
                looked = now
                pids = self._site.pids()
                for pid in pids.values():
                    self._born.setdefault(pid, now)
                for sample in look(now, pids, self._born):
                    self._samples[sample.label].append(sample)
            await asyncio.sleep(0.5)

    def _tell(self, told: Told, found: evidence.Evidence, for_s: float) -> None:
        figures = self.figures
        # The second half of the time under load: what came to settle it is another thing.
        late = {label: [s for s in self._samples[label] if for_s / 2 <= s.at_s <= for_s] for label in SPARED}
        slopes: dict[str, Slope | None] = {label: slope(rows) for label, rows in late.items()}
        figures.violations = rules.violations(found) + rules.growing(late, slopes, for_s / 2)
        figures.written = found.written
        figures.faults_told, figures.incidents = len(found.ledger.struck), len(found.incidents)
        figures.runs, figures.tickets = len(found.runs), len(found.tickets)
        figures.threads, figures.pages = len(found.roots), found.pages.total()
        figures.blows, figures.not_run = dict(told.counts), told.not_run
        figures.restarts = dict(self._site.restarts)
        figures.ended_by_themselves = found.ended
        figures.slopes = {label: asdict(one) if one else None for label, one in slopes.items()}
        figures.rss_mb = {label: round(rows[-1].rss_mb, 1) for label, rows in late.items() if rows}
        figures.cpu_load = " ".join(f"{n:.1f}" for n in os.getloadavg())
        (self._site.folder / "blows.json").write_text(json.dumps(told.blows))
        (self._site.folder / "ledger.json").write_text(json.dumps(asdict(found.ledger)))
        (self._site.folder / "memory.json").write_text(
            json.dumps({label: [asdict(s) for s in rows] for label, rows in self._samples.items()})
        )

    @property
    def _report(self) -> Path:
        return self._site.folder / "load.json"

    async def _all_ready(self) -> bool:
        self._site.revive()
        return set((await asyncio.to_thread(self._site.probe, "/ready")).values()) == {200}

    def _add_nodes(self, spare: int) -> list[str]:
        plane, ledger = self._plane, self._ledger
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.add_nodes("work", WORK_NODES)
        ledger.healthy = plane.add_nodes("well", HEALTHY)
        ledger.foreign = plane.add_nodes("foreign", FOREIGN)
        for node in ledger.foreign:
            plane.kubectl("cordon", node, user=PERSON)
        return plane.add_nodes("bad", spare)

    def _start_load(self, pods: Path) -> Child:
        settings = self._site.kafka_settings
        wanted = {
            "bootstrap": settings.bootstrap,
            "topic_prefix": settings.topic_prefix,
            "partitions": settings.raw_partitions,
            "lines_per_s": self._options.lines_per_s,
            "nodes": self._ledger.healthy,
            "pods": str(pods),
            "report": str(self._report),
        }
        command = [sys.executable, "-m", "tests.soak.mixed.load", json.dumps(wanted)]
        return Child("load", command, log=self._site.folder / "logs" / "load.log", cwd=ROOT)


@contextmanager
def small_disk(folder: Path, size_mb: int) -> Iterator[Path | None]:
    """A file system of this size, mounted at `folder`; None where none can be mounted (no root, no Linux)."""
    folder.mkdir(parents=True)
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "faultline-soak", str(folder)],
            check=True, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def broker_properties(options: Options) -> dict[str, str]:
    """Old records are deleted as soon as there are too many for the disk; the rules tell if one was not read by then."""
    partitions = 2 * 4  # of the four topics that carry the load
    kept = options.disk_mb * 1024 * 1024 // 2 // partitions
    segment = max(1024 * 1024, min(64 * 1024 * 1024, kept // 4))
    return {
        "log.retention.bytes": str(kept),
        "log.segment.bytes": str(segment),
        "log.retention.check.interval.ms": "5000",
        "log.segment.delete.delay.ms": "1000",
    }


async def soak(folder: Path, options: Options) -> Figures:
    """One soak on servers of its own, whose logs are left in `folder`."""
    with small_disk(folder / "disk", options.disk_mb) as disk:
        properties = broker_properties(options)
        data = {"log.dirs": str(disk / "data")} if disk else {}
        with (
            Kafka.running(folder / "kafka", for_load=True, properties=properties | data) as kafka,
            ControlPlane.running(
                folder / "kubernetes", node_grace_s=120, users={PERSON: ("system:masters",)}
            ) as plane,
        ):
            async with Site.at(kafka, plane, folder) as site:
                return await MixedSoak(options, site, kafka, plane, disk).run()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description="A whole installation under load and blows, audited from outside."
    )
    default = Options()
    parser.add_argument("--minutes", type=float, default=default.minutes)
    parser.add_argument("--lines-per-s", type=float, default=default.lines_per_s)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--blow-every", type=float, default=default.blow_every_s, help="seconds, in the mean")
    parser.add_argument(
        "--fault-every", type=float, default=default.fault_every_s, help="seconds, in the mean"
    )
    parser.add_argument("--disk-mb", type=int, default=default.disk_mb, help="room for the broker's data")
    parser.add_argument("--keep", type=Path, help="keep the logs of all processes here")
    wanted = parser.parse_args()
    # As Ctrl-C does: an end that is asked for takes the mounted disk along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # The broker is away on purpose, and the soak's own client would say so some hundred times a second.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    options = Options(
        wanted.minutes, wanted.lines_per_s, wanted.seed, wanted.blow_every, wanted.fault_every,
        disk_mb=wanted.disk_mb,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="faultline-soak-") as own:
        figures = asyncio.run(soak(wanted.keep or Path(own), options))
    for name, why in figures.not_run.items():
        print(f"NOT RUN: {name}: {why}", file=sys.stderr)
    for fault in figures.violations:
        print(fault, file=sys.stderr)
    print(json.dumps(asdict(figures)))
    missing = bool(figures.not_run) and os.environ.get("CI") == "true"
    return 1 if figures.violations or missing else 0


if __name__ == "__main__":
    sys.exit(main())
