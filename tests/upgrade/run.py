"""Every process from the previous release to this one under load, one at a time, and back; then audited from outside.

python -m tests.upgrade.run [--from COMMIT] [--lines-per-s 500] [--keep FOLDER]

Both releases run side by side on a real broker and a real control plane. A node is broken after each process that was replaced.
The order is that of `docs/upgrade.md`. Ends with 1 when a rule of `tests/soak/mixed/rules.py` does not hold, or when a process
ended by itself or could not read a record; and with 2 when this checkout does not have the previous release.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.end_to_end.installation import END_S, ROOT
from tests.soak.mixed import evidence, rules
from tests.soak.mixed.ledger import NAMESPACE, PERSON, Faults, Ledger
from tests.soak.mixed.load import read_report
from tests.soak.mixed.site import LABELS, Site
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually, patience
from tests.upgrade.release import NoPreviousRelease, previous, unpack

ORDER = (
    "chat",
    "notifier",
    "gateway",
    "responder-1",
    "responder-2",
    "correlator-1",
    "correlator-2",
    "inventory",
    "detector-1",
    "detector-2",
)
"""Who reads is upgraded before who writes. Back it goes the other way."""

_UNREADABLE = ("BadInput", "unreadable", "cannot be read", "newer than")
_JOBS, _WORK_NODES, _HEALTHY, _FOREIGN = 2, 8, 8, 2


@dataclass(slots=True)
class Figures:
    """What an upgrade and the way back have shown."""

    previous: str
    written: int = 0
    faults_told: int = 0
    incidents: int = 0
    runs: int = 0
    tickets: int = 0
    upgraded_s: float = 0.0
    back_s: float = 0.0
    settled_s: float | None = None
    load: str = ""
    violations: list[str] = field(default_factory=list)


class Mixed(Site):
    """An installation of which each process runs the code of one of two folders."""

    trees: dict[str, Path]
    old: Path

    def tree(self, label: str) -> Path:
        """The folder whose code a process runs."""
        return self.trees.get(label, self.old)

    def own(self, label: str) -> dict[str, str]:
        """What every process has, and the folder of its code before anything that is installed."""
        return super().own(label) | {"PYTHONPATH": str(self.tree(label))}

    async def replace(self, label: str, tree: Path) -> None:
        """End a process in order, and start it with the code of the other release."""
        code = await asyncio.to_thread(self.child(label).stop, END_S)
        if code != 0:
            self.ended.append(f"{label} was asked to end and ended with {code}: {self.child(label).tail(2)}")
        self.trees[label] = tree
        self._start(label, LABELS[label])

        async def ready() -> bool:
            return (await asyncio.to_thread(self.probe, "/ready"))[label] == 200

        await eventually(ready, f"{label} is ready with the other code", timeout_s=120)


class Upgrade:
    """One upgrade and the way back."""

    def __init__(self, site: Mixed, plane: ControlPlane, commit: str, lines_per_s: float) -> None:
        self._site, self._plane, self._lines_per_s = site, plane, lines_per_s
        self._ledger = Ledger()
        self.figures = Figures(commit)

    async def run(self) -> Figures:
        """The old release, then this one process by process, then the old one again."""
        site, figures = self._site, self.figures
        nodes = await asyncio.to_thread(self._add_nodes)
        site.start_all()
        await eventually(self._all_ready, "every process is ready", timeout_s=240)
        mark = self._plane.audit.mark()
        pods = site.folder / "pods.json"
        pods.write_text("[]")
        faults = Faults(site, self._plane, self._ledger, nodes=nodes, began=time.monotonic(), pods=pods)
        await faults.begin_lasting(_JOBS)
        writer = self._start_load(pods)
        over = asyncio.Event()
        working = asyncio.create_task(faults.work_until(over, 20.0))
        try:
            await faults.strike_next()
            figures.upgraded_s = await self._roll(faults, ORDER, ROOT)
            await faults.strike_next(on_a_job=True)
            figures.back_s = await self._roll(faults, ORDER[::-1], site.old)
            await faults.strike_next()
            over.set()
            await working
            await asyncio.to_thread(writer.stop, 300)
            await self._settle(mark)
        finally:
            writer.kill()
            working.cancel()
        found = await evidence.gather(site, self._ledger, read_report(self._report), mark)
        figures.violations = [*rules.violations(found), *found.ended, *self._unread()]
        figures.written, figures.faults_told = found.written, len(self._ledger.struck)
        figures.incidents, figures.runs = len(found.incidents), len(found.runs)
        figures.tickets = len(found.tickets)
        figures.load = " ".join(f"{n:.1f}" for n in os.getloadavg())
        return figures

    async def _roll(self, faults: Faults, order: Sequence[str], tree: Path) -> float:
        began = time.monotonic()
        for label in order:
            # The fault comes while the process is away: its first work is what the other release left for it.
            await asyncio.gather(self._site.replace(label, tree), faults.strike_next())
        return round(time.monotonic() - began, 1)

    async def _settle(self, mark: int) -> None:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < patience(rules.EXPECTED.handled_within_s):
            found = await evidence.gather(self._site, self._ledger, read_report(self._report), mark)
            if not rules.violations(found):
                self.figures.settled_s = round(passed, 1)
                return
            await asyncio.sleep(2)

    def _unread(self) -> list[str]:
        """What a process of either release said that it could not read."""
        found = []
        for log in sorted((self._site.folder / "logs").glob("*.log")):
            for line in log.read_text(errors="replace").splitlines():
                if any(word in line for word in _UNREADABLE) and "cut in the mid" not in line:
                    found.append(f"{log.stem}: {line[:300]}")
        return found[:20]

    @property
    def _report(self) -> Path:
        return self._site.folder / "load.json"

    async def _all_ready(self) -> bool:
        return set((await asyncio.to_thread(self._site.probe, "/ready")).values()) == {200}

    def _add_nodes(self) -> list[str]:
        plane, ledger = self._plane, self._ledger
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.add_nodes("work", _WORK_NODES)
        ledger.healthy = plane.add_nodes("well", _HEALTHY)
        ledger.foreign = plane.add_nodes("foreign", _FOREIGN)
        for node in ledger.foreign:
            plane.kubectl("cordon", node, user=PERSON)
        return plane.add_nodes("bad", 2 * len(ORDER) + 4)

    def _start_load(self, pods: Path) -> Child:
        settings = self._site.kafka_settings
        wanted = {
            "bootstrap": settings.bootstrap,
            "topic_prefix": settings.topic_prefix,
            "partitions": settings.raw_partitions,
            "lines_per_s": self._lines_per_s,
            "nodes": self._ledger.healthy,
            "pods": str(pods),
            "report": str(self._report),
        }
        command = [sys.executable, "-m", "tests.soak.mixed.load", json.dumps(wanted)]
        return Child("load", command, log=self._site.folder / "logs" / "load.log", cwd=ROOT)


async def upgrade(
    folder: Path, kafka: Kafka, plane: ControlPlane, commit: str, lines_per_s: float
) -> Figures:
    """One upgrade on these servers; the logs of all processes are left in `folder`."""
    old = unpack(commit, folder / "previous")
    async with Mixed.at(kafka, plane, folder) as site:
        site.old, site.trees = old, {}
        return await Upgrade(site, plane, commit, lines_per_s).run()


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description="Every process from the previous release to this one, and back."
    )
    parser.add_argument(
        "--from", dest="commit", help="the previous release; else found by tests/upgrade/release.py"
    )
    parser.add_argument("--lines-per-s", type=float, default=500.0)
    parser.add_argument("--keep", type=Path, help="keep the logs of all processes here")
    wanted = parser.parse_args()
    try:
        commit = wanted.commit or previous()
    except NoPreviousRelease as missing:
        print(f"NOT RUN: {missing}", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="faultline-upgrade-") as own,
        Kafka.running(for_load=True) as kafka,
        ControlPlane.running(node_grace_s=120, users={PERSON: ("system:masters",)}) as plane,
    ):
        folder = wanted.keep or Path(own)
        figures = asyncio.run(upgrade(folder, kafka, plane, commit, wanted.lines_per_s))
    for fault in figures.violations:
        print(fault, file=sys.stderr)
    print(json.dumps(asdict(figures)))
    return 1 if figures.violations else 0


if __name__ == "__main__":
    sys.exit(main())
