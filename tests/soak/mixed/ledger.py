"""The truth about a soak: which nodes were broken how and when, which jobs came and went, what a person did.

`Faults` strikes one fresh node after the other; every fourth has a job on it. All of it is written down before it is done.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError

from streams.kafka.topics import RAW_NODE_LOGS
from tests.end_to_end import shippers
from tests.soak.mixed.site import Site
from tests.testbed import workloads
from tests.testbed.control_plane import ControlPlane, KubectlFailed

NAMESPACE = "ml"
PERSON = "alice"
_JOB_PODS = 2
_RETRY_S = 1.0
ASKED = "gpu_fault"
"""The family of a fault about which a person is asked before anything is done."""


@dataclass(slots=True)
class Struck:
    """One fault that was told of: on which node, of which family, at which time (s since the start), on whose job."""

    node: str
    family: str
    at_s: float
    job: str | None = None
    closes: bool = True
    """Whether it is decisive, so that its node is closed; else a person is asked first, and the node stays open."""
    records: int = 0
    """How many records told of it: one, or more where the broker's answer was lost."""


@dataclass(slots=True)
class Ledger:
    """All of it. `foreign` are nodes that a person had cordoned; `healthy` are those that nothing was ever wrong with."""

    struck: list[Struck] = field(default_factory=list)
    healthy: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)


def _lines(node: str) -> dict[str, Callable[[], dict[str, Any]]]:
    """One decisive report of each family."""
    remap = "Row Remapper: New row (0x00000000000a1b2c) could not be remapped, no spare rows left"
    text = "NVRM: Xid (PCI:0000:3b:00): 64, pid=4242, name=python, " + remap
    contained = "Uncontained: FBHUB. RST: Yes, D-RST: No"
    return {
        "gpu_off_bus": lambda: shippers.off_bus(node),
        "gpu_memory": lambda: shippers.kernel(node, text),
        "gpu_memory ": lambda: shippers.kernel(
            node, f"NVRM: Xid (PCI:0000:3b:00): 95, pid=4242, name=python, {contained}"
        ),
        ASKED: lambda: shippers.kernel(
            node,
            "NVRM: Xid (PCI:0000:3b:00): 119, pid=4242, name=python, Timeout after 6s of waiting for RPC response from GPU0 "
            "GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801348 0x410).",
        ),
    }


FAMILIES = tuple(_lines(""))


class Faults:
    """Strikes. `nodes` are struck in order; `pool` is where jobs are, two nodes each."""

    def __init__(
        self,
        site: Site,
        control_plane: ControlPlane,
        ledger: Ledger,
        *,
        nodes: list[str],
        began: float,
        pods: Path,
    ) -> None:
        self._site, self._plane, self.ledger = site, control_plane, ledger
        self._nodes: Iterator[str] = iter(nodes)
        self._families = cycle(FAMILIES)
        self._began = began
        self._pods = pods
        self._ours: set[str] = set()
        self._count = 0

    async def strike_until(self, over: asyncio.Event, every_s: float, r: random.Random) -> None:
        """A fault every so often, until there are no fresh nodes left."""
        while not over.is_set():
            await asyncio.sleep(r.uniform(0.5, 1.5) * every_s)
            self._count += 1
            await self.strike_next(on_a_job=self._count % 4 == 0)

    async def strike_next(self, *, on_a_job: bool = False) -> None:
        """A fault on the next node; or on one with a lasting job that was spared so far, if there is one."""
        placed = await self._placed() if on_a_job else {}
        if placed:
            job = min(placed)
            self._ours.add(job)
            await self._strike(placed[job], "gpu_off_bus", job)
        elif node := next(self._nodes, None):
            await self._strike(node, next(self._families))

    async def _strike(self, node: str, family: str, job: str | None = None) -> None:
        at_s = round(time.monotonic() - self._began, 1)
        struck = Struck(node, family.strip(), at_s, job, closes=family != ASKED)
        self.ledger.struck.append(struck)
        while True:
            struck.records += 1
            try:
                await self._site.send(RAW_NODE_LOGS, [_lines(node)[family]()])
            except KafkaError:
                await asyncio.sleep(_RETRY_S)  # a shipper tries again, and may so tell it twice
                continue
            return

    async def _placed(self) -> dict[str, str]:
        """Jobs that run whole and were not struck yet, with the node of their first pod."""
        found: dict[str, str] = {}
        with suppress(KubectlFailed):  # no API server just now: no job is struck this time
            for pod in await asyncio.to_thread(self._plane.get, "pods", "--namespace", NAMESPACE):
                job = pod["metadata"]["labels"].get("batch.kubernetes.io/job-name", "")
                first = pod["metadata"]["labels"].get("batch.kubernetes.io/job-completion-index") == "0"
                lasting = job.startswith("long")
                if first and lasting and pod["status"].get("phase") == "Running" and job not in self._ours:
                    found[job] = pod["spec"]["nodeName"]
        struck = {s.node for s in self.ledger.struck}
        return {job: node for job, node in found.items() if node not in struck}

    async def work_until(self, over: asyncio.Event, every_s: float) -> None:
        """Jobs that come, run and end; what runs is told to the writer of lines, so that its pods make progress."""
        number, waiting = 0, 0.0
        while not over.is_set():
            await asyncio.sleep(2.0)
            await self._tell_pods()
            if time.monotonic() < waiting:
                continue
            waiting = time.monotonic() + every_s
            await self._patiently(lambda n=number: self._begin(f"short-{n}"))  # type: ignore[misc]
            if number >= 2:
                await self._patiently(lambda n=number: self._end(f"short-{n - 2}"))  # type: ignore[misc]
            number += 1

    async def begin_lasting(self, count: int) -> None:
        """Jobs that run from the beginning to the end, for faults to strike."""
        for number in range(count):
            name = f"long-{number}"
            self.ledger.jobs.append(name)
            await self._patiently(lambda n=name: self._begin(n))  # type: ignore[misc]
        await self._tell_pods()

    def _begin(self, name: str) -> None:
        job = workloads.indexed_job(name, NAMESPACE, pool="work", pods=_JOB_PODS, grace_s=2)
        try:
            self._plane.create(job)
        except KubectlFailed as failed:
            if "AlreadyExists" not in str(failed):  # the answer to the first attempt was lost
                raise

    def _end(self, name: str) -> None:
        self._plane.kubectl(
            "delete", "job", name, "--namespace", NAMESPACE, "--wait=false", "--ignore-not-found"
        )

    async def _patiently(self, act: Callable[[], None]) -> None:
        """Until the API server takes it."""
        while True:
            try:
                await asyncio.to_thread(act)
            except KubectlFailed:
                await asyncio.sleep(_RETRY_S)
                continue
            return

    async def _tell_pods(self) -> None:
        try:
            found = await asyncio.to_thread(self._plane.get, "pods", "--namespace", NAMESPACE)
        except KubectlFailed:
            return  # what ran goes on
        running = [
            (NAMESPACE, pod["metadata"]["name"], pod["spec"]["nodeName"])
            for pod in found
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        fresh = self._pods.with_suffix(".new")
        fresh.write_text(json.dumps(running))
        fresh.replace(self._pods)
