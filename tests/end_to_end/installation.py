"""A whole installation of Faultline for a test: every process a child of its own, on a real broker and a real API server.

The processes run with the rights that the shipped manifests give them. Slack and Jira are the stand-ins, served from the
test's own process, so that a test sees each request they got.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaProducer, TopicPartition

from faultline.cli.read_topics import read_incidents, read_runs
from faultline.runtime.processes import PROCESSES
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.slack import SlackStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.topics import SIGNALS, Topic
from streams.model.clock import to_millis
from streams.model.codec import decode
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import Signal, SignalBatch
from tests.deploy.manifests import objects
from tests.end_to_end.crashing import mark
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

END_S = 60
"""How long a process may take to end in order: it ends itself before that, and says so."""
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
        self._started: dict[str, tuple[str, tuple[str, ...]]] = {}
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

    def start_crashing(
        self, name: str, labels: Iterable[str], *, sends: str = "KILL", label: str | None = None
    ) -> Child:
        """Start a process that kills (or with STOP freezes) itself once at each label; see `crashed_at`."""
        self.crashes.mkdir(exist_ok=True)
        module = ("-m", "tests.end_to_end.crashing")
        return self.start_as(label or name, name, *module, name, sends, str(self.crashes), *labels)

    @property
    def crashes(self) -> Path:
        """Where processes leave a mark at each label that hit them."""
        return self.folder / "crashes"

    def crashed_at(self, label: str) -> int | None:
        """The id of the process that was hit at this label; None while none was."""
        found = mark(self.crashes, label)
        written = found.read_text() if found.exists() else ""
        return int(written) if written else None

    def revive(self) -> None:
        """Start again what was killed, and see that nothing has ended in any other way."""
        for label, (process, arguments) in list(self._started.items()):
            code = self._children[label].exit_code
            if code == -signal.SIGKILL:
                self.start_as(label, process, *arguments)
            assert code in (None, -signal.SIGKILL), (
                f"{label} ended with {code}:\n{self._children[label].tail()}"
            )

    async def restart(self, name: str, **environment: str) -> None:
        """End a process in order and start it with other settings."""
        child = self._children[name]

        async def can_end() -> bool:
            return child.heeds(signal.SIGTERM)

        await eventually(can_end, f"{name} has come so far that it can be ended in order")
        # In a thread: what it still has to say to a stand-in is answered by this one.
        assert await asyncio.to_thread(child.stop, END_S) == 0, child.tail()
        self._more = self._more | environment
        self.start(name)

    def start_as(self, label: str, process: str, *arguments: str) -> Child:
        """Start `python ARGUMENTS…` with the settings of `process`, remembered as `label`."""
        self._started[label] = (process, arguments)
        child = Child(
            label,
            [sys.executable, *arguments],
            log=self.folder / "logs" / f"{label}.log",
            env=self.environment(process) | self.own(label),
            cwd=self.tree(label),
        )
        self._children[label] = child
        return child

    def own(self, label: str) -> dict[str, str]:
        """What the environment of this one process has besides; for subclasses."""
        return {}

    def tree(self, label: str) -> Path:
        """The folder whose code this process runs; for subclasses."""
        return ROOT

    def child(self, label: str) -> Child:
        """A process that was started, to kill, freeze or watch."""
        return self._children[label]

    def pids(self) -> dict[str, int]:
        """The processes that are alive, by label."""
        return {label: child.pid for label, child in self._children.items() if child.exit_code is None}

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
            "FAULTLINE_RESPONDER__LEASE_S": "6",
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
        self, family: str, what: str = "is open", timeout_s: float = 120, **wanted: Any
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

    async def incident_that(
        self, holds: Callable[[Incident], bool], what: str, timeout_s: float = 120
    ) -> Incident:
        """The incident for which `holds` is true, once there is one. What was killed meanwhile is started again."""

        async def found() -> Incident | None:
            self.revive()
            return next((incident for incident in await self.incidents() if holds(incident)), None)

        try:
            return await eventually(found, what, timeout_s=timeout_s)
        except TimeoutError as late:
            told = [f"{i.family} {i.root} {i.state} {i.title}" for i in await self.incidents()]
            raise TimeoutError(f"{late}; there are {told}") from late

    async def signals(self) -> list[Signal]:
        """Every signal there is, also those that are there twice."""
        return [
            signal
            for record in await self.records(SIGNALS)
            if record.value is not None
            for signal in decode(SignalBatch, record.value).signals
        ]

    async def records(self, topic: Topic) -> list[Any]:
        """Everything on a topic that is committed, up to its end as it is now."""
        client = clients.consumer(self.kafka_settings, group=None, fetch_max_wait_ms=100)
        await clients.started(client, self.kafka_settings)
        try:
            count = (
                self.kafka_settings.raw_partitions
                if topic.partitions == "raw"
                else self.kafka_settings.cluster_partitions
            )
            name = clients.topic_name(self.kafka_settings, topic)
            places = [TopicPartition(name, number) for number in range(count)]
            client.assign(places)
            await client.seek_to_beginning(*places)
            ends = await client.end_offsets(places)
            found: list[Any] = []
            while any([await client.position(place) < end for place, end in ends.items()]):
                for records in (await client.getmany(timeout_ms=200)).values():
                    found += records
            return found
        finally:
            await client.stop()

    async def runs(self, incident: Incident) -> list[Run]:
        """The runs of an incident."""
        return await read_runs(self.kafka_settings, incident)
