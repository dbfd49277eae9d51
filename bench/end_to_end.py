"""How long a fault's line is on its way to the cordon: `bench/end_to_end.py [--quick] [--faults N] [--only PART …]`.

The five processes in mode `auto`, each a program of its own, on a real broker and a real API server, with a ticket system and
a chat that answer at once. A fault is XID 79 on a node of its own, half of them as rsyslog's text, half as Fluent Bit's JSON,
at random moments; each starts a run that closes the node. Everything runs on `--cores` cores (2), what writes the lines
included. On a machine with other work `--ahead 15` puts it all ahead of that, as `nice -n -15` would if each process were not a
session, and so a group of the scheduler, of its own.

Parts: `idle`, and `loaded`, where 5,000 lines a second that say nothing are read beside it, and 500 that are signals: progress of
64 pods. The bar is `loaded` on a machine without other work: P50 at most 40 ms, P99 at most 150 ms, nothing lost; `--bar` ends
with 1 when it is missed.

Figures of each part, P50, P90 and P99 in ms:
  `whole`            from the time that the line's record bears until the API server received the cordon (audit log)
  `raw_signal`       until the detector wrote the signal
  `signal_incident`  from there until the correlator wrote the incident
  `incident_run`     from there until the responder wrote the run
  `run_cordon`       from there until the API server received the cordon
and `lost`, faults whose node was not closed within a minute after the last one; `cpu_…`, shares of a core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from time import monotonic

import orjson

from bench.brokered import ROOT
from bench.detector_process import spent_cpu_s
from bench.figures import Figure, progress, report
from streams.kafka.topics import INCIDENTS, RAW_NODE_LOGS, RUNS, SIGNALS
from streams.model.clock import from_millis
from streams.model.codec import decode
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.testbed import workloads
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

RELEVANT_PER_S, OTHER_PER_S = 500, 5_000
BAR = {"whole_p50_ms": 40.0, "whole_p99_ms": 150.0, "lost": 0}
"""What the loaded part may come to at most. Set before it was measured."""
PODS, PODS_ON_A_NODE = 64, 4
GAP_S = (0.2, 1.2)
"""Faults follow each other at random, so that no beat of any process is met by all of them or by none."""

UNBOUNDED = {
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_NODES": "100000",
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_SHARE": "1",
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_PER_WINDOW": "100000",
    "FAULTLINE_RESPONDER__BREAKER__MASS_MIN_NODES": "0",
    "FAULTLINE_RESPONDER__BREAKER__FAILURES": "0",
    "FAULTLINE_RESPONDER__LEASE_S": "12",
    "FAULTLINE_KAFKA__SESSION_TIMEOUT_MS": "15000",
}
"""Guardrails are computed and hold nobody: a hundred bad nodes in a minute are the bench's doing. The rest is as shipped."""

STAGES = ("raw_signal", "signal_incident", "incident_run", "run_cordon")
PARTS = ("idle", "loaded")


@dataclass
class Way:
    """When one node's fault passed each station: the line, the signal, the incident, the run, the cordon."""

    at: list[datetime] = field(default_factory=list)

    def stages_ms(self) -> list[float]:
        """Between each station and the next."""
        return [(b - a).total_seconds() * 1e3 for a, b in zip(self.at, self.at[1:], strict=False)]

    def whole_ms(self) -> float:
        """From the line to the cordon."""
        return (self.at[-1] - self.at[0]).total_seconds() * 1e3


class Site:
    """An installation at work, and what was told of its nodes."""

    def __init__(self, installation: Installation, control_plane: ControlPlane, kafka: Kafka) -> None:
        self.installation = installation
        self._control_plane = control_plane
        self._kafka = kafka
        self._mark = control_plane.audit.mark()

    async def strike(self, nodes: Sequence[str], *, timeout_s: float = 60) -> dict[str, Way]:
        """A fault on each node, and how far each of them came."""
        chance = random.Random(len(nodes))
        sent: dict[str, Way] = {}
        for number, node in enumerate(nodes):
            await asyncio.sleep(chance.uniform(*GAP_S))
            line = text_line(node) if number % 2 else shippers.off_bus(node)
            sent[node] = Way([await self.send(line)])
        try:
            await eventually(lambda: self._closed(sent), "every node is closed", timeout_s=timeout_s)
        except TimeoutError as late:
            progress(str(late))
        await self._trace(sent)
        return sent

    def cpu(self) -> dict[str, float]:
        """CPU time so far in s, by process."""
        return {name: spent_cpu_s(pid) for name, pid in self.pids().items()}

    def pids(self) -> dict[str, int]:
        """Every process that has a part in it."""
        programs = {name: self._control_plane.component(name).pid for name in ("kube-apiserver", "etcd")}
        return {"kafka": self._kafka.pid, **programs, **self.installation.pids()}

    async def send(self, line: str | dict[str, object]) -> datetime:
        """Write one line as shippers do; returns the time that its record bears."""
        now = datetime.now(UTC)
        await self.installation.send(RAW_NODE_LOGS, [line])
        return now

    def _cordons(self) -> dict[str, datetime]:
        """When the API server received the first request that closed a node, by node."""
        found: dict[str, datetime] = {}
        for write in self._control_plane.audit.writes(since=self._mark, resource="nodes", code=200):
            if ((write.body or {}).get("spec") or {}).get("unschedulable"):
                found.setdefault(write.name, write.at)
        return found

    async def _closed(self, sent: dict[str, Way]) -> bool:
        return sent.keys() <= (await asyncio.to_thread(self._cordons)).keys()

    async def _trace(self, sent: dict[str, Way]) -> None:
        """Append the other stations to each way, as far as it went."""
        signals: dict[str, datetime] = {}
        for record in await self.installation.records(SIGNALS):
            for told in decode(SignalBatch, record.value).signals if record.value else ():
                if told.kind == "gpu.xid" and told.entity.node:
                    signals.setdefault(told.entity.node, from_millis(record.timestamp))
        incidents: dict[str, datetime] = {}
        nodes: dict[str, str] = {}
        for record in await self.installation.records(INCIDENTS):
            incident = decode(Incident, record.value)
            if incident.root.node:
                nodes[incident.id] = incident.root.node
                incidents.setdefault(incident.root.node, from_millis(record.timestamp))
        runs: dict[str, datetime] = {}
        for record in await self.installation.records(RUNS):
            if record.value and (node := nodes.get(decode(Run, record.value).incident)):
                runs.setdefault(node, from_millis(record.timestamp))
        for stations in (signals, incidents, runs, self._cordons()):
            for node, way in sent.items():
                if node in stations:
                    way.at.append(stations[node])


def text_line(node: str) -> str:
    """XID 79 as rsyslog's omkafka writes it."""
    now = datetime.now(UTC).isoformat()
    return (
        f"<4>{now} {node} kernel: [ 4711.000012] "
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, name=python, GPU has fallen off the bus."
    )


@asynccontextmanager
async def site(folder: Path, kafka: Kafka, control_plane: ControlPlane) -> AsyncIterator[Site]:
    """The processes, each of which has shown that it works: two faults went all the way."""
    control_plane.add_nodes("first", 2)
    async with Installation.running(kafka, control_plane, folder, **UNBOUNDED) as installation:
        running = Site(installation, control_plane, kafka)
        installation.start()
        progress("the processes start")
        await running.strike(["first-0", "first-1"], timeout_s=240)
        yield running


def place_pods(control_plane: ControlPlane) -> list[tuple[str, str, str]]:
    """A job of 64 pods: namespace, pod and node of each."""
    pool = "training"
    control_plane.add_nodes(pool, PODS // PODS_ON_A_NODE)
    control_plane.kubectl("create", "namespace", "ml")
    control_plane.create(workloads.indexed_job("train", "ml", pool=pool, pods=PODS, gpus=8 // PODS_ON_A_NODE))
    control_plane.kubectl(
        *("wait", "--namespace", "ml", "--for=jsonpath={.status.ready}=64", "--timeout=180s", "job/train")
    )
    found = control_plane.get("pods", "--namespace", "ml")
    return [("ml", pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in found]


@contextmanager
def flood(
    installation: Installation, pods: Sequence[tuple[str, str, str]], log: Path, ahead: int
) -> Iterator[None]:
    """Ordinary traffic for the length of a `with` block."""
    settings = installation.kafka_settings
    options = {
        "bootstrap": settings.bootstrap,
        "topic_prefix": settings.topic_prefix,
        "partitions": settings.raw_partitions,
        "relevant_per_s": RELEVANT_PER_S,
        "other_per_s": OTHER_PER_S,
        "pods": pods,
    }
    command = [sys.executable, "-m", "bench.flood", orjson.dumps(options).decode()]
    child = Child("flood", command, log=log, cwd=ROOT)
    try:
        put_ahead([child.pid], ahead)
        yield
    finally:
        child.kill()


def figures(part: str, ways: Sequence[Way], cpu: dict[str, float], lasted_s: float) -> dict[str, Figure]:
    """What one part came to."""
    whole = [way for way in ways if len(way.at) == len(STAGES) + 1]
    found: dict[str, Figure] = {"faults": len(ways), "lost": len(ways) - len(whole)}
    rows = {"whole": [way.whole_ms() for way in whole]}
    rows |= {name: [way.stages_ms()[i] for way in whole] for i, name in enumerate(STAGES)}
    for name, values in rows.items():
        cut = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [float("nan")] * 99
        found |= {f"{name}_p50_ms": cut[49], f"{name}_p90_ms": cut[89], f"{name}_p99_ms": cut[98]}
        progress(f"{part:8} {name:16} P50 {cut[49]:8.1f}  P90 {cut[89]:8.1f}  P99 {cut[98]:8.1f} ms")
    found |= {f"cpu_{name}": spent / lasted_s for name, spent in cpu.items()}
    found["load"] = f"{os.getloadavg()[0]:.1f}"
    return found


def put_ahead(pids: Iterable[int], by: int) -> None:
    """Have the scheduler prefer these sessions to the machine's other work (Linux, root)."""
    for pid in pids if by else ():
        Path(f"/proc/{pid}/autogroup").write_text(str(-by))


async def measure(parts: Sequence[str], faults: int, folder: Path, ahead: int) -> dict[str, Figure]:
    """The parts asked for, one after the other, with the same processes."""
    found: dict[str, Figure] = {}
    with Kafka.running(for_load=True) as kafka, ControlPlane.running(node_grace_s=600) as control_plane:
        progress("broker and control plane are up")
        pods = place_pods(control_plane)
        nodes = {part: control_plane.add_nodes(part, faults) for part in parts}
        async with site(folder, kafka, control_plane) as running:
            put_ahead((os.getpid(), *running.pids().values()), ahead)
            for part in parts:
                with (
                    flood(running.installation, pods, folder / "flood.log", ahead)
                    if part == "loaded"
                    else _calm()
                ):
                    before, begun = running.cpu(), monotonic()
                    ways = await running.strike(nodes[part])
                    after, lasted_s = running.cpu(), monotonic() - begun
                cpu = {name: after[name] - before[name] for name in after}
                found[part] = figures(part, list(ways.values()), cpu, lasted_s)
    return found


@contextmanager
def _calm() -> Iterator[None]:
    yield


def main() -> int:
    parser = argparse.ArgumentParser(description="How long a fault's line is on its way to the cordon.")
    parser.add_argument("--quick", action="store_true", help="20 faults a part")
    parser.add_argument("--faults", type=int, default=100, help="faults a part, each on a node of its own")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--ahead", type=int, default=0, help="how far ahead of other work, 1 to 20")
    parser.add_argument("--bar", action="store_true", help="end with 1 when the loaded part misses its bar")
    parser.add_argument("--cores", type=int, default=2, help="how many cores all of it may use")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    with tempfile.TemporaryDirectory(prefix="faultline-bench-") as folder:
        faults = 20 if options.quick else options.faults
        found = asyncio.run(measure(options.only, faults, Path(folder), options.ahead))
    missed = missing(found)
    report(
        found | {"cores_used": options.cores, "ahead": options.ahead, "missed": missed},
        packages=("aiokafka", "faust-streaming"),
    )
    return 1 if options.bar and missed else 0


def missing(found: Mapping[str, Figure]) -> dict[str, Figure]:
    """The figures of the loaded part that are over the bar, or were not taken; what is not a number is over it."""
    loaded = found.get("loaded", {})
    assert isinstance(loaded, Mapping)
    figures = {name: loaded.get(name) for name in BAR}
    return {
        n: value for n, value in figures.items() if not (isinstance(value, (int, float)) and value <= BAR[n])
    }


if __name__ == "__main__":
    sys.exit(main())
