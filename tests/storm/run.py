"""A brownout of the control plane: thousands of nodes miss their leases at once, and one GPU dies in the middle of it.

python -m tests.storm.run [--nodes 2000] [--closed-within 5] [--quiet-within 150]

Every process of an installation on a real broker and a real control plane, with simulated kubelets; the ticket system and the
chat are stand-ins that count. Ends with 1 when the node of the true fault is not closed in time, when more than a handful of
tickets or threads come of it, when a probe goes unanswered, or when it is not quiet soon after the leases are back. The last
line of standard output is one JSON object with the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from faultline.cli.read_topics import read_runs
from faultline.runtime.processes import PROCESSES
from streams.kafka.topics import RAW_NODE_LOGS
from streams.model.incident import IncidentState
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.testbed import workloads
from tests.testbed.children import free_port
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.kafka import Kafka
from tests.testbed.probing import Probing
from tests.testbed.waiting import eventually

AT_MOST = 3
"""Tickets, and threads, that a whole storm may come to: one for it, one for the GPU, and one to spare."""

HEALTHY = 4
"""Nodes that keep their leases."""

_AT_ONCE = 32
"""Leases that are changed at the same time: as fast as one API server takes it."""

_NEVER_S = 10 * 365 * 24 * 3600
_MODE = {"FAULTLINE_RESPONDER__MODE": "auto"}


@dataclass(slots=True)
class Figures:
    """What a storm has shown."""

    nodes: int
    not_ready: int = 0
    silenced_s: float = 0.0
    closed_s: float = 0.0
    quiet_s: float = 0.0
    tickets: int = 0
    threads: int = 0
    incidents: int = 0
    probes: dict[str, dict[int, int]] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Probed(Installation):
    """An installation whose processes answer probes, each on a port of its own."""

    ports: dict[str, int]

    def environment(self, process: str) -> dict[str, str]:
        """The settings of one process."""
        if not hasattr(self, "ports"):
            self.ports = {name: free_port() for name in PROCESSES}
        return super().environment(process) | {"FAULTLINE_HTTP_PORT": str(self.ports[process])}


class Storm:
    """One storm on a control plane.

    Args:
        nodes: How many fall silent.
        closed_within_s: How long after its line the node of the true fault may take to be closed.
        quiet_within_s: How long after the leases are back nothing may be open any more.
    """

    def __init__(
        self,
        kafka: Kafka,
        control_plane: ControlPlane,
        folder: Path,
        *,
        nodes: int,
        closed_within_s: float,
        quiet_within_s: float,
    ) -> None:
        self._kafka = kafka
        self._plane = control_plane
        self._folder = folder
        self._closed_within_s = closed_within_s
        self._quiet_within_s = quiet_within_s
        self._pool = unique("storm")
        self.silent = [f"{self._pool}-{number:04}" for number in range(nodes)]
        self.healthy = [f"{self._pool}-well-{number}" for number in range(HEALTHY)]
        self.figures = Figures(nodes)

    async def run(self) -> Figures:
        """Let it come, strike in the middle, let it pass; then say what was wrong."""
        figures, bad = self.figures, self.healthy[1]
        patience_s = 120 + 0.3 * len(self.silent)
        await self._add_nodes()
        async with Probed.running(self._kafka, self._plane, self._folder, **_MODE) as installation:
            assert isinstance(installation, Probed)
            installation.start()
            with ExitStack() as stack:
                probes = {
                    name: stack.enter_context(Probing(port)) for name, port in installation.ports.items()
                }
                for name, probing in probes.items():
                    await eventually(_ready(probing), f"{name} is ready", timeout_s=patience_s)
                began = time.monotonic()
                await self._each(self.silent, self._silence)
                figures.silenced_s = time.monotonic() - began
                half = len(self.silent) // 2
                await eventually(
                    lambda: self._not_ready_at_least(half), "half of the nodes are gone", timeout_s=patience_s
                )
                sent = time.monotonic()
                await installation.send(RAW_NODE_LOGS, [shippers.off_bus(bad)])
                await eventually(lambda: self._is_closed(bad), f"{bad} is closed", timeout_s=patience_s)
                figures.closed_s = time.monotonic() - sent
                await eventually(
                    lambda: self._not_ready_at_least(len(self.silent)),
                    "all of them are gone",
                    timeout_s=patience_s,
                )
                await eventually(
                    lambda: _told_of_silence(installation), "the storm is told of", timeout_s=patience_s
                )
                await self._each(self.silent, self._revive)
                await eventually(self._all_ready, "all nodes are back", timeout_s=patience_s)
                back = time.monotonic()
                try:
                    await eventually(
                        lambda: _is_quiet(installation), "nothing is open", timeout_s=self._quiet_within_s
                    )
                except TimeoutError:
                    figures.faults.append(f"not quiet: {await _open(installation)}")
                figures.quiet_s = time.monotonic() - back
                figures.probes = {name: dict(probing.answers) for name, probing in probes.items()}
            await self._count(installation, bad)
        return figures

    async def _count(self, installation: Installation, bad: str) -> None:
        figures = self.figures
        incidents = await installation.incidents()
        figures.incidents = len([i for i in incidents if i.state is not IncidentState.MERGED])
        figures.tickets = len(installation.jira.issues)
        figures.threads = len(installation.slack.roots())
        figures.closed = [name for name in (*self.silent, *self.healthy) if await self._is_closed(name)]
        faults = figures.faults
        if figures.closed != [bad]:
            faults.append(f"closed are {figures.closed}, not {bad} alone")
        if figures.closed_s > self._closed_within_s:
            faults.append(f"{bad} was closed after {figures.closed_s:.1f} s")
        if figures.tickets > AT_MOST:
            faults.append(f"{figures.tickets} tickets")
        if figures.threads > AT_MOST:
            faults.append(f"{figures.threads} threads")
        for name, answers in figures.probes.items():
            if set(answers) != {200}:
                faults.append(f"/live of {name} answered {answers}")
        for name in PROCESSES:
            if (code := installation.child(name).exit_code) is not None:
                faults.append(f"{name} ended with {code}")

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _add_nodes(self) -> None:
        """In pieces: one request for all of them is more than a small machine answers in time."""
        names = [*self.healthy, *self.silent]
        for start in range(0, len(names), 200):
            piece = [workloads.gpu_node(name, pool=self._pool) for name in names[start : start + 200]]
            await asyncio.to_thread(self._plane.create, *piece)
        await eventually(self._all_ready, "all nodes are ready", timeout_s=120 + 0.5 * len(names))

    async def _each(self, names: Iterable[str], act: Callable[[Any, str], Awaitable[None]]) -> None:
        """Do the same to many nodes, some at a time."""
        async with self._plane.kube_client() as api:
            free = asyncio.Semaphore(_AT_ONCE)

            async def one(name: str) -> None:
                async with free:
                    await act(api, name)

            await asyncio.gather(*(one(name) for name in names))

    async def _silence(self, api: Any, name: str) -> None:
        """As `ControlPlane.silence` does: its lease is held in another name, and KWOK leaves it alone."""
        lease = {
            "holderIdentity": "silenced",
            "leaseDurationSeconds": _NEVER_S,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        from kubernetes.aio import client

        await client.CoordinationV1Api(api).patch_namespaced_lease(
            name, "kube-node-lease", {"spec": lease}, _content_type="application/merge-patch+json"
        )

    async def _revive(self, api: Any, name: str) -> None:
        from kubernetes.aio import client

        await client.CoordinationV1Api(api).delete_namespaced_lease(name, "kube-node-lease")

    async def _nodes(self) -> list[dict[str, Any]]:
        found = await asyncio.to_thread(
            self._plane.kubectl, "get", "nodes", "--selector", f"{workloads.POOL}={self._pool}", "-o", "json"
        )
        items: list[dict[str, Any]] = json.loads(found)["items"]
        return items

    async def _all_ready(self) -> bool:
        nodes = await self._nodes()
        return len(nodes) == len(self.silent) + HEALTHY and all(workloads.is_ready(node) for node in nodes)

    async def _not_ready_at_least(self, count: int) -> bool:
        nodes = await self._nodes()
        self.figures.not_ready = sum(not workloads.is_ready(node) for node in nodes)
        return self.figures.not_ready >= count

    async def _is_closed(self, name: str) -> bool:
        closed = "{.spec.unschedulable}"
        told = await asyncio.to_thread(self._plane.kubectl, "get", "node", name, "-o", f"jsonpath={closed}")
        return told == "true"


def _ready(probing: Probing) -> Callable[[], Awaitable[bool]]:
    async def answers() -> bool:
        return await asyncio.to_thread(probing.is_ready)

    return answers


async def _told_of_silence(installation: Installation) -> bool:
    return any(incident.family != "gpu_off_bus" for incident in await installation.incidents())


async def _is_quiet(installation: Installation) -> bool:
    return not await _open(installation)


async def _open(installation: Installation) -> Sequence[str]:
    """Incidents of the storm that are not over, and runs with work left."""
    found = []
    for incident in await installation.incidents():
        if not incident.state.is_over and incident.family != "gpu_off_bus":
            found.append(f"{incident.family} {incident.root} {incident.state}")
        runs = await read_runs(installation.kafka_settings, incident)
        found += [f"{run.id} {run.state}" for run in runs if run.has_work]
    return found


@asynccontextmanager
async def _servers(folder: Path) -> AsyncIterator[tuple[Kafka, ControlPlane]]:
    with (
        Kafka.running(folder / "kafka", for_load=True) as kafka,
        ControlPlane.running(folder / "kubernetes") as plane,
    ):
        yield kafka, plane


async def storm(folder: Path, options: argparse.Namespace) -> Figures:
    """One storm on servers of its own."""
    async with _servers(folder) as (kafka, plane):
        return await Storm(
            kafka,
            plane,
            folder,
            nodes=options.nodes,
            closed_within_s=options.closed_within,
            quiet_within_s=options.quiet_within,
        ).run()


def main() -> int:
    """Run one and tell its figures."""
    parser = argparse.ArgumentParser(description="Thousands of nodes not ready at once, and one true fault.")
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--closed-within", type=float, default=5.0, help="seconds")
    parser.add_argument(
        "--quiet-within",
        type=float,
        default=150.0,
        help="seconds after the leases are back: an incident ends two minutes after what it is about did",
    )
    parser.add_argument("--keep", type=Path, help="keep the logs of all processes here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="faultline-storm-") as own:
        figures = asyncio.run(storm(options.keep or Path(own), options))
    for fault in figures.faults:
        print(fault, file=sys.stderr)
    print(json.dumps(asdict(figures)))
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
