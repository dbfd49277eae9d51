"""A real Kafka broker: one process, broker and controller in one (KRaft), with transactions and compaction.

Measured on two cores: ready 3 to 5 s after ``start``, 400 MB resident. In a script::

    with Kafka.running() as kafka:
        AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
"""

from __future__ import annotations

import base64
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streams.config.settings import KafkaSettings
from tests.testbed import parts
from tests.testbed.children import Child, ChildFailed, free_port

_STARTED = b"Kafka Server started"

_FOR_MINUTES = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The optimising compiler takes more CPU than all that a test asks of its broker: 8 s until it has topics, 4 without it."""


class Kafka:
    """One broker with its data in ``folder``; it keeps data and address over ``stop`` and ``start``.

    ``properties`` adds to or overrides the broker's own, e.g. ``{"message.max.bytes": "8000000"}``.
    Topics are never made by use: create them, and wait for their leaders. A broker that is measured, or under load for long, is
    made ``for_load``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        java_options: Sequence[str] = (),
        for_load: bool = False,
    ) -> None:
        self._folder = folder
        self._java_options = [*java_options, *(() if for_load else _FOR_MINUTES)]
        self._heap_mb = heap_mb
        self._broker_port, self._controller_port = free_port(), free_port()
        self._properties = self._defaults() | dict(properties or {})
        self._child: Child | None = None

    def settings(self, prefix: str, **changes: Any) -> KafkaSettings:
        """Settings of an installation of its own on this broker: no other test sees its topics."""
        few = {
            "raw_partitions": 1,
            "cluster_partitions": 2,
            "replication_factor": 1,
            "min_insync_replicas": 1,
        }
        unique = f"{prefix}-{uuid.uuid4().hex[:8]}."
        return KafkaSettings(bootstrap=self.bootstrap, topic_prefix=unique, **(few | changes))

    @classmethod
    @contextmanager
    def running(
        cls,
        folder: Path | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        for_load: bool = False,
    ) -> Iterator[Kafka]:
        """Run a broker for the length of a ``with`` block, in a folder of its own unless one is given."""
        with tempfile.TemporaryDirectory(prefix="faultline-kafka-") as own:
            kafka = cls(folder or Path(own), properties=properties, for_load=for_load)
            try:
                kafka.start()
                yield kafka
            finally:
                kafka.stop()

    @property
    def bootstrap(self) -> str:
        """The address clients start from, ``host:port``."""
        return f"127.0.0.1:{self._broker_port}"

    @property
    def controller(self) -> str:
        """The address of its controller, ``host:port``."""
        return f"127.0.0.1:{self._controller_port}"

    def add(self, properties: Mapping[str, str]) -> None:
        """Add to or override the broker's properties, before its first start."""
        self._properties |= properties

    @property
    def log(self) -> Path:
        """What the broker printed, over all its starts."""
        return self._folder / "broker.log"

    @property
    def pid(self) -> int:
        """The broker's process id; raises ``ChildFailed`` when it is not running."""
        return self._running().pid

    def start(self) -> None:
        """Start the broker and return once it takes requests; an earlier start's data is taken up again."""
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "server.properties"
        if not config.exists():
            config.write_text("".join(f"{key}={value}\n" for key, value in self._properties.items()))
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
            self._format(cluster, config)
        said_before = self.log.stat().st_size if self.log.exists() else 0
        self._child = Child("kafka", [*self._java(self._java_options), "kafka.Kafka", config], log=self.log)

        def has_started() -> bool:
            return _STARTED in self.log.read_bytes()[said_before:]

        self._child.wait_until(has_started, "takes requests")

    def stop(self) -> None:
        """End the broker in order; nothing happens if it is not running."""
        if self._child is not None:
            self._child.stop(grace_s=20)
            self._child = None

    def kill(self) -> None:
        """End the broker as a crash would."""
        self._running().kill()
        self._child = None

    def restart(self) -> None:
        """Stop and start on the same address with the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the broker: connections stay open and nothing answers."""
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen broker go on."""
        self._running().signal(signal.SIGCONT)

    def _running(self) -> Child:
        if self._child is None:
            raise ChildFailed("kafka is not running")
        return self._child

    def _java(self, options: Sequence[str]) -> list[str]:
        libs = parts.part("kafka").folder / "libs"
        logging = parts.RECIPES / "kafka" / "log4j2.properties"
        return [
            "java",
            f"-Xmx{self._heap_mb}m",
            f"-Dlog4j2.configurationFile={logging}",
            *options,
            "-cp",
            f"{libs}/*",
        ]

    def _format(self, cluster: str, config: Path) -> None:
        tool = [*self._java(_FOR_MINUTES), "kafka.tools.StorageTool"]
        command = [*tool, "format", "-t", cluster, "-c", str(config)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise ChildFailed(
                f"kafka's storage tool ended with {result.returncode}:\n{result.stdout}{result.stderr}"
            )

    def _defaults(self) -> dict[str, str]:
        broker, controller = self.bootstrap, self.controller
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "num.partitions": "4",
            "auto.create.topics.enable": "false",
            # One broker holds every copy there is.
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Internal topics of 50 partitions each cost seconds at every start and nothing here needs them.
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "4",
            # Tests kill group members; they should not wait for a production session to run out.
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            # After a crash the controller refuses the broker until its old session has run out.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
