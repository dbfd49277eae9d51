"""What the processes log at their first start, at work, and while the broker is away: a line at `error` means something."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from streams.config.settings import KafkaSettings
from streams.kafka import provisioning
from tests.testbed.children import Child, free_port
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import until

NAMES = ("detector", "correlator", "responder", "chat", "notifier", "inventory", "gateway")
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: none
contexts: [{name: none, context: {cluster: none, user: none}}]
clusters: [{name: none, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: none, user: {}}]
"""


def lines(child: Child) -> list[dict[str, Any]]:
    """What it has logged; everything has to be one JSON object a line."""
    whole = child.log.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def events(child: Child, level: str = "") -> list[str]:
    return [line["event"] for line in lines(child) if level in ("", line["level"])]


@pytest.mark.nightly
@pytest.mark.kafka
async def test_errors_are_few_and_mean_something_from_a_first_start_through_a_broker_outage(
    tmp_path: Path,
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG % free_port())
    with Kafka.running(tmp_path / "kafka") as broker:
        settings = KafkaSettings(
            bootstrap=broker.bootstrap,
            replication_factor=1,
            raw_partitions=1,
            cluster_partitions=1,
            session_timeout_ms=6000,
        )
        await provisioning.apply(settings)
        children = {}
        for name in NAMES:
            dumped = settings.model_dump(exclude_none=True, exclude_defaults=True)
            env = {f"FAULTLINE_KAFKA__{key.upper()}": str(value) for key, value in dumped.items()} | {
                "FAULTLINE_LOG_FORMAT": "json",
                "FAULTLINE_RESPONDER__LEASE_S": "6",
                "FAULTLINE_KUBERNETES__KUBECONFIG": str(kubeconfig),
                "FAULTLINE_SLACK__BASE_URL": f"http://127.0.0.1:{free_port()}/api",
                "FAULTLINE_SLACK__TOKEN": "xoxb-standin",
                "FAULTLINE_SLACK__CHANNEL": "C0INCIDENTS",
                "FAULTLINE_GATEWAY__PORT": str(free_port()),
                # Without any sink the notifier has nothing to read.
                "FAULTLINE_NOTIFIER__SINKS": '{"hook": {"kind": "webhook"}}',
                "FAULTLINE_POSTS__WEBHOOK__URL": f"http://127.0.0.1:{free_port()}",
                "FAULTLINE_POSTS__WEBHOOK__SECRET": "whsec_c3RhbmRpbi1zZWNyZXQtb2YtdGhpcnR5LXR3by1iLi4=",
            }
            command = [sys.executable, "-m", "faultline", "run", name]
            children[name] = Child(name, command, log=tmp_path / f"{name}.log", env=env)
        try:
            reading = [child for name, child in children.items() if name != "inventory"]
            for child in (child for child in reading if child.name != "gateway"):
                child.wait_until(lambda c=child: "partitions assigned" in events(c), "has partitions")  # type: ignore[misc]
            began = "adopted the facts published earlier"
            children["inventory"].wait_until(lambda: began in events(children["inventory"]), "has begun")
            ready = "partition ready"
            children["responder"].wait_until(lambda: ready in events(children["responder"]), "is ready")
            children["gateway"].wait_until(lambda: "listening" in events(children["gateway"]), "listens")
            for name, child in children.items():
                first = lines(child)[0]
                assert list(first)[:4] == ["event", "level", "timestamp", "process"]
                assert (first["event"], first["process"], first["cluster"]) == ("starting", name, "default")
                assert events(child, "error") == [], f"{name} logs errors at its first start"

            # The correlator ends when a broker comes back without its topics for a moment, and is started again.
            children["correlator"].stop()
            reading.remove(children.pop("correlator"))
            broker.kill()
            away = time.monotonic()
            for child in reading:
                until(lambda c=child: events(c, "error"), f"{child.name} says that Kafka is away")  # type: ignore[misc]
            until(lambda: time.monotonic() - away > 15, "the broker was away for as long as a restart takes")
            broker.start()
            for child in reading:
                until(lambda c=child: "Kafka reachable again" in events(c), f"{child.name} says it is back")  # type: ignore[misc]
            for name, child in children.items():
                assert child.exit_code is None, f"{name} has ended:\n{child.tail()}"
                told = [event for event in events(child, "error") if event != "Kafka unreachable, retrying"]
                assert told == [], f"{name} logs other errors when the broker restarts"
                assert len(events(child, "error")) <= 3, f"{name}: {events(child, 'error')}"
                clients = [line for line in lines(child) if line.get("logger", "").startswith("aiokafka")]
                assert [line for line in clients if line["level"] == "error"] == []
        finally:
            for child in children.values():
                child.stop()
