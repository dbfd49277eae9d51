"""Detector, correlator and responder as `faultline run` starts them, in shadow mode, on a broker alone.

The inventory is what a test says. The responder has all its connectors, and an API server's address where nobody listens: in
shadow mode nothing is asked and nothing is changed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import yaml
from aiokafka import AIOKafkaProducer

from faultline.cli.read_topics import read_control, read_incidents, read_runs
from streams.inventory.recorded_watch import facts
from streams.kafka import clients, provisioning
from streams.kafka.topics import COMMANDS, INVENTORY, Topic, partition_of
from streams.model.clock import to_millis
from streams.model.codec import encode
from streams.model.conversation import Command
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.watch import ObjectChange
from tests.testbed.children import Child, free_port
from tests.testbed.kafka import Kafka

ROOT = Path(__file__).parents[2]
CLUSTER = "east"


class ShadowPipeline:
    """One pipeline with topics of its own. Everything that it started ends with the context."""

    def __init__(self, kafka: Kafka, folder: Path, **more: str) -> None:
        self.kafka_settings = kafka.settings("shadow", raw_partitions=2, session_timeout_ms=6000)
        self._folder = folder
        self._more = more
        self._children: dict[str, Child] = {}
        self._producer: AIOKafkaProducer | None = None
        self.began_at = datetime.now(UTC)

    @classmethod
    @asynccontextmanager
    async def running(cls, kafka: Kafka, folder: Path, **more: str) -> AsyncIterator[Self]:
        """Topics, ready for `start`. `more` are settings, e.g. `FAULTLINE_RESPONDER__MODE`."""
        pipeline = cls(kafka, folder, **more)
        await provisioning.apply(pipeline.kafka_settings)
        producer = clients.producer(pipeline.kafka_settings)
        pipeline._producer = await clients.started(producer, pipeline.kafka_settings)
        try:
            yield pipeline
        finally:
            for child in pipeline._children.values():
                child.stop()
            await producer.stop()

    def start(self, *labels: str) -> None:
        """Start processes; `detector-2` is a second detector."""
        for label in labels:
            self._children[label] = Child(
                label,
                [sys.executable, "-m", "faultline", "run", label.partition("-")[0]],
                log=self._folder / "logs" / f"{label}.log",
                env=self._environment(),
                cwd=ROOT,
            )

    def kill(self, label: str) -> None:
        """SIGKILL: nothing is flushed, committed or left."""
        self._children[label].kill()

    def revive(self) -> None:
        """Start again what was killed, and see that nothing has ended in any other way."""
        for label, child in list(self._children.items()):
            code = child.exit_code
            assert code in (None, -signal.SIGKILL), f"{label} ended with {code}:\n{child.tail()}"
            if code is not None:
                self.start(label)

    def _environment(self) -> dict[str, str]:
        kafka = {
            f"FAULTLINE_KAFKA__{key.upper()}": str(value)
            for key, value in self.kafka_settings.model_dump(exclude_none=True, exclude_defaults=True).items()
        }
        own = {
            "FAULTLINE_CLUSTER": CLUSTER,
            "FAULTLINE_LOG_FORMAT": "json",
            "FAULTLINE_RESPONDER__MODE": "shadow",
            "FAULTLINE_RESPONDER__LEASE_S": "6",
            "FAULTLINE_KUBERNETES__KUBECONFIG": str(self._kubeconfig()),
        }
        return kafka | own | self._more

    def _kubeconfig(self) -> Path:
        path = self._folder / "kubeconfig"
        if not path.exists():
            server = {"server": f"http://127.0.0.1:{free_port()}"}
            context = {"cluster": "none", "user": "none"}
            content = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "none",
                "clusters": [{"name": "none", "cluster": server}],
                "users": [{"name": "none", "user": {}}],
                "contexts": [{"name": "none", "context": context}],
            }
            path.write_text(yaml.safe_dump(content))
        return path

    async def know(self, objects: Iterable[dict[str, Any]], *, at: datetime | None = None) -> None:
        """Put Kubernetes objects into the inventory, as the inventory process would write them."""
        now = at or datetime.now(UTC)
        changes = [ObjectChange(now, "ADDED", content) for content in objects]
        for _, (key, fact) in facts(CLUSTER, changes, begin=now):
            await self._write(INVENTORY, encode(fact) if fact else None, key)

    async def send(
        self,
        topic: Topic,
        lines: Iterable[dict[str, Any]],
        *,
        partition: int | None = None,
        stamped: datetime | None = None,
    ) -> None:
        """A shipper's records. `stamped` is the time that it gives them, by default the present."""
        for line in lines:
            await self._write(topic, json.dumps(line).encode(), None, partition=partition, at=stamped)

    async def command(self, command: Command) -> None:
        """What an operator sends."""
        await self._write(COMMANDS, encode(command), CLUSTER)

    async def _write(
        self,
        topic: Topic,
        value: bytes | None,
        key: str | None,
        *,
        partition: int | None = None,
        at: datetime | None = None,
    ) -> None:
        assert self._producer is not None
        if topic.partitions == "cluster":
            partition = partition_of(CLUSTER, self.kafka_settings.cluster_partitions)
        await self._producer.send_and_wait(
            clients.topic_name(self.kafka_settings, topic),
            value,
            key=key.encode() if key else None,
            partition=partition,
            timestamp_ms=to_millis(at or datetime.now(UTC)),
        )

    async def incidents(self) -> dict[str, Incident]:
        """Every incident at its latest revision."""
        return dict(await read_incidents(self.kafka_settings))

    async def runs(self) -> list[Run]:
        """Every run at its latest revision."""
        known = await self.incidents()
        return [run for one in known.values() for run in await read_runs(self.kafka_settings, one)]

    async def is_planned(self) -> bool:
        """Whether the latest revision of every incident is planned for."""
        runs = {run.incident: run for run in await self.runs()}
        return all(
            incident.id in runs and runs[incident.id].incident_revision == incident.revision
            for incident in (await self.incidents()).values()
        )

    async def is_switched_off(self) -> bool:
        """Whether the kill switch of the cluster is engaged."""
        return (await read_control(self.kafka_settings, CLUSTER)).kill_switch is not None

    async def faultline(self, *arguments: str) -> tuple[int, str]:
        """A command with the settings of the pipeline: its exit code and what it prints."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "faultline", *arguments,
            env={**os.environ, **self._environment()}, cwd=ROOT, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        code = process.returncode
        assert code in (0, 1), err.decode()
        return code, out.decode()


def ago(seconds: float) -> datetime:
    """So long before the present."""
    return datetime.now(UTC) - timedelta(seconds=seconds)
