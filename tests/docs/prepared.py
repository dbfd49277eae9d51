"""An installation that holds what pages speak of: an incident by the name that a block has for it, a node that was closed for
one, letters that could not be read. Its people may do what pages show."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from faultline.cli.incident_documents import cluster_of_capture
from faultline.cli.read_topics import read_runs
from faultline.cli.send_command import command_of, decide
from faultline.cli.send_options import SendOptions
from faultline.runtime.settings import Settings, load
from sandbox.demo import stack
from sandbox.demo.stack import Stack
from streams.kafka import clients
from streams.kafka.topics import DEAD_LETTERS, INCIDENTS, RAW_METRICS, Topic, partition_of
from streams.model.clock import rfc3339, utc_now
from streams.model.codec import encode
from streams.model.conversation import Verb
from streams.model.incident import Incident, IncidentState
from streams.model.run import StepState
from tests.docs.checkout import EXAMPLE, checkout, run
from tests.docs.pages import Block
from tests.testbed.waiting import eventually

_NODE = re.compile(r"\b(?:gpu-0?07|gpu-017)\b(?![^\n]*--capture)")
"""The node that pages speak of, where it is one of the installation: a capture has nodes of its own."""
_RUN = re.compile(r"\brun-[0-9a-f]+\b")
_INCIDENT = re.compile(r"\binc-[0-9a-f]+\b")
_OF_CAPTURE = re.compile(r"inc-[0-9a-f]+(?=[^\n]*--capture)")
_LETTERS = ("0:1289", "0:1290")
_GROUP = "5c1f09ab"
_HOURS = {"2026-03-01T06:00:00Z": 24, "2026-03-02T03:00:00Z": -1, "2026-03-02T05:00:00Z": 0}
"""Times that pages name, and how many hours from now they stand for."""


@dataclass(slots=True)
class Prepared:
    """The installation, and the checkout from which somebody works with it."""

    running: Stack
    folder: Path
    settings: Settings
    like: Incident
    free: list[str]
    """Nodes that nothing runs on, and that no block had yet."""

    @classmethod
    @asynccontextmanager
    async def installation(cls, folder: Path) -> AsyncIterator[Prepared]:
        """Everything as processes of their own, on servers of our own, in mode `approve`."""
        (like,) = cluster_of_capture(Settings(cluster="west"), EXAMPLE).incidents.values()
        (folder / "servers").mkdir()
        (folder / "checkouts").mkdir()
        changes: dict[str, Any] = {"mode": "approve", "approvers": [getpass.getuser()]}
        async with stack.running(folder / "servers", **changes) as running:
            pods = await running.api.list_all("/api/v1/pods")
            busy = {
                pod["spec"].get("nodeName") for pod in pods if pod["metadata"]["namespace"] != "monitoring"
            }
            nodes = [node["metadata"]["name"] for node in await running.api.list_all("/api/v1/nodes")]
            free = sorted(set(nodes) - busy)
            yield cls(running, folder / "checkouts", load(running.settings_file), like, free)

    async def run(self, block: Block) -> None:
        """Prepare what the block speaks of, and run it in a shell, in a checkout of its own."""
        folder = self.folder / _digest(block.place)
        folder.mkdir()
        text = await self._named(block)
        config = str(self.running.settings_file)
        await asyncio.to_thread(run, replace(block, text=text), checkout(folder), FAULTLINE_CONFIG=config)

    async def _named(self, block: Block) -> str:
        """The block with the names of what was prepared for it. Each has incidents of its own: what is decided is decided."""
        text = _OF_CAPTURE.sub("inc-", block.text)
        for told, hours in _HOURS.items():
            text = text.replace(told, rfc3339(utc_now() + timedelta(hours=hours)))
        closes = "nodes release" in text
        node = self.free.pop(0) if closes else self.free[-1]
        text = _NODE.sub(node, text)
        for name in sorted({*_INCIDENT.findall(text), *(["inc-"] if closes or _RUN.search(text) else [])}):
            own = f"{name}{_digest(block.place)}"[:20]
            opened = await self._opened(own, node)
            if name != "inc-":
                text = re.sub(rf"\b{name}\b", own[:-2], text)
            if closes or _RUN.search(text):
                run_id = await self._over(opened)
                text = _RUN.sub(run_id[:-2], text)
        return await self._with_letters(text) if "dead-letters" in text else text

    async def _opened(self, name: str, node: str) -> Incident:
        """An incident of a GPU, and a run for it that waits for an approval."""
        now, cluster = utc_now(), self.settings.cluster
        incident = replace(
            self.like, id=name, cluster=cluster, root=replace(self.like.root, cluster=cluster, node=node), nodes=(node,), jobs=(),
            state=IncidentState.OPEN, fault_at=now, opened_at=now, updated_at=now, evident_at=now, evident_read_at=now,
            candidates=(),
        )  # fmt: skip
        await self._write(INCIDENTS, name.encode(), encode(incident))

        async def asked() -> bool:
            runs = await read_runs(self.settings.kafka, incident)
            return any(step.state is StepState.AWAITING_APPROVAL for one in runs for step in one.steps)

        await eventually(asked, f"{name} waits for an approval")
        return incident

    async def _over(self, incident: Incident) -> str:
        """Approve what is planned for it, until its run has ended and the node is closed for it; the run's id."""
        (waiting,) = await read_runs(self.settings.kafka, incident)
        options = SendOptions("", None, 30.0, "json")
        approval = command_of(
            Verb.APPROVE, incident.cluster, options, incident=incident.id, digest=waiting.plan.digest
        )
        assert await decide(self.settings.kafka, approval, options.wait_s)

        async def over() -> bool:
            return all(one.state.is_over for one in await read_runs(self.settings.kafka, incident))

        await eventually(over, f"the run of {incident.id} has ended")
        return waiting.id

    async def _with_letters(self, text: str) -> str:
        """Two records that nothing reads, of one reason; the block names them and their group."""
        for number in (1, 2):
            await self._write(RAW_METRICS, None, b"\x1f\x8b\x08broken %d" % number)
        letters: list[dict[str, str]] = []

        async def dead() -> bool:
            listed = Block("", "sh", "faultline dead-letters list --since 1h --topic raw.metrics -o json")
            config = str(self.running.settings_file)
            said = await asyncio.to_thread(run, listed, self.folder, FAULTLINE_CONFIG=config)
            letters[:] = [json.loads(line) for line in said.splitlines()]
            return len(letters) >= len(_LETTERS)

        await eventually(dead, f"two records are in {DEAD_LETTERS.name}")
        for name, letter in zip(_LETTERS, letters, strict=False):
            text = text.replace(name, letter["letter"])
        return text.replace(_GROUP, letters[0]["group"])

    async def _write(self, topic: Topic, key: bytes | None, value: bytes) -> None:
        kafka = self.settings.kafka
        producer = await clients.started(clients.producer(kafka), kafka)
        partition = partition_of(self.settings.cluster, kafka.cluster_partitions) if key else None
        try:
            await producer.send_and_wait(
                clients.topic_name(kafka, topic), value, key=key, partition=partition
            )
        finally:
            await producer.stop()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
