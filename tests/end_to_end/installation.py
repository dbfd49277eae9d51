"""A whole installation of Faultline for a test: every process a child of its own, on a real broker and a real API server.

The processes run with the rights that the shipped manifests give them. Slack and Jira are the stand-ins, served from the
test's own process, so that a test sees each request they got.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaProducer

from faultline.processes import PROCESSES
from faultline.reading import read_incidents, read_runs
from faultline.standins.jira import JiraStandin
from faultline.standins.slack import SlackStandin
from streams import kafka as clients
from streams import provisioning
from streams.model.clock import to_millis
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.settings import KafkaSettings
from streams.topics import Topic
from tests.deploy.manifests import objects
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

ROOT = Path(__file__).parents[2]
RIGHTS = {"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}


class Installation:
    """One installation with topics of its own. `start` its processes; all of them end with the context."""

    def __init__(
        self, kafka: Kafka, control_plane: ControlPlane, folder: Path, environment: dict[str, str]
    ) -> None:
        self.name = unique("e2e")
        self.folder = folder
        self.control_plane = control_plane
        self.slack = SlackStandin()
        self.jira = JiraStandin()
        self.kafka_settings = KafkaSettings(
            bootstrap=kafka.bootstrap,
            topic_prefix=f"{self.name}.",
            replication_factor=1,
            raw_partitions=2,
            cluster_partitions=2,
            session_timeout_ms=6000,
        )
        self._more = environment
        self._children: dict[str, Child] = {}
        self._producer: AIOKafkaProducer | None = None

    @classmethod
    @asynccontextmanager
    async def running(
        cls, kafka: Kafka, control_plane: ControlPlane, folder: Path, **environment: str
    ) -> AsyncIterator[Self]:
        """Topics, rights and stand-ins, ready for `start`; `environment` adds settings, e.g. `FAULTLINE_RESPONDER__MODE`."""
        installation = cls(kafka, control_plane, folder, environment)
        await provisioning.apply(installation.kafka_settings)
        rights = {"apiVersion": "v1", "kind": "List", "items": [o for o in objects() if o["kind"] in RIGHTS]}
        control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(rights))
        await installation.slack.start()
        await installation.jira.start()
        producer = clients.producer(installation.kafka_settings)
        installation._producer = await clients.started(producer, installation.kafka_settings)
        try:
            yield installation
        finally:
            for child in installation._children.values():
                child.stop()
            await producer.stop()
            await installation.jira.stop()
            await installation.slack.stop()

    def start(self, *names: str) -> None:
        """Start processes by name; all of them without one."""
        for name in names or PROCESSES:
            self.start_as(name, name, "-m", "faultline", "run", name)

    def start_as(self, label: str, process: str, *arguments: str) -> Child:
        """Start `python ARGUMENTS…` with the settings of `process`, remembered as `label`."""
        child = Child(
            label,
            [sys.executable, *arguments],
            log=self.folder / "logs" / f"{label}.log",
            env=self.environment(process),
            cwd=ROOT,
        )
        self._children[label] = child
        return child

    def child(self, label: str) -> Child:
        """A process that was started, to kill, freeze or watch."""
        return self._children[label]

    def environment(self, process: str) -> dict[str, str]:
        """The settings of one process, as its environment."""
        kafka = {
            f"FAULTLINE_KAFKA__{key.upper()}": str(value)
            for key, value in self.kafka_settings.model_dump(exclude_none=True, exclude_defaults=True).items()
        }
        own = {
            "FAULTLINE_CLUSTER": self.name,
            "FAULTLINE_LOG_FORMAT": "json",
            "FAULTLINE_SLACK__BASE_URL": self.slack.base_url,
            "FAULTLINE_SLACK__TOKEN": self.slack.token,
            "FAULTLINE_SLACK__CHANNEL": "C0INCIDENTS",
            "FAULTLINE_JIRA__BASE_URL": self.jira.url,
            "FAULTLINE_JIRA__USER": self.jira.user,
            "FAULTLINE_JIRA__TOKEN": self.jira.token,
            "FAULTLINE_RESPONDER__MODE": "auto",
        }
        if process in ("inventory", "responder"):
            user = f"system:serviceaccount:faultline:{process}"
            own["FAULTLINE_KUBERNETES__KUBECONFIG"] = str(self.control_plane.kubeconfig(user))
        return kafka | own | self._more

    async def send(
        self, topic: Topic, lines: Iterable[dict[str, Any] | str | bytes], *, key: str | None = None
    ) -> None:
        """Put shipper's records on a raw topic, stamped with the present, and wait until the broker has them."""
        assert self._producer is not None
        name = clients.topic_name(self.kafka_settings, topic)
        for line in lines:
            value = (
                line
                if isinstance(line, bytes)
                else line.encode()
                if isinstance(line, str)
                else json.dumps(line).encode()
            )
            await self._producer.send_and_wait(
                name, value, key=key.encode() if key else None, timestamp_ms=to_millis(datetime.now(UTC))
            )

    async def incidents(self) -> list[Incident]:
        """Every incident at its latest revision."""
        return list((await read_incidents(self.kafka_settings)).values())

    async def incident(
        self, family: str, what: str = "is open", timeout_s: float = 60, **wanted: Any
    ) -> Incident:
        """The one incident of a family whose attributes equal `wanted`, once there is one."""

        async def found() -> Incident | None:
            for incident in await self.incidents():
                if incident.family == family and all(getattr(incident, k) == v for k, v in wanted.items()):
                    return incident
            return None

        return await eventually(
            found, f"an incident of family {family} {what} ({wanted})", timeout_s=timeout_s
        )

    async def runs(self, incident: Incident) -> list[Run]:
        """The runs of an incident."""
        return await read_runs(self.kafka_settings, incident)
