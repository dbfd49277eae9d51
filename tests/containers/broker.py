"""Kafka in a container, under the name that the manifests' settings have for it."""

from __future__ import annotations

from typing import Any

import yaml

from tests.testbed.children import free_port
from tests.testbed.engine import Engine, EngineFailed
from tests.testbed.images import ROOT
from tests.testbed.waiting import until

SERVICE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["kafka"]
ASK = ("/opt/kafka/bin/kafka-broker-api-versions.sh", "--bootstrap-server", "127.0.0.1:9092")


def start(engine: Engine, network: str, name: str) -> str:
    """Start a broker that containers on the network find as `NAME:9092`, and return its address for this machine.

    Its settings are the compose file's, but for the addresses.
    """
    port = free_port()
    settings = SERVICE["environment"] | {
        "KAFKA_LISTENERS": f"INSIDE://:9092,OUTSIDE://:{port},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"INSIDE://{name}:9092,OUTSIDE://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@127.0.0.1:9093",
    }
    container = f"kafka-{network}"
    engine.podman(
        "run",
        "--detach",
        f"--name={container}",
        f"--network={network}",
        f"--network-alias={name}",
        f"--publish=127.0.0.1:{port}:{port}",
        *(f"--env={key}={value}" for key, value in settings.items()),
        SERVICE["image"],
    )
    until(lambda: answers(engine, container), "Kafka answers in its container")
    return f"127.0.0.1:{port}"


def answers(engine: Engine, container: str) -> bool:
    """Whether the broker in a container takes requests. Raises ``EngineFailed`` with its log when it has ended."""
    try:
        engine.podman("exec", container, *ASK)
    except EngineFailed:
        if not engine.inspect(container)["State"]["Running"]:
            raise EngineFailed(engine.logs(container)) from None
        return False
    return True
