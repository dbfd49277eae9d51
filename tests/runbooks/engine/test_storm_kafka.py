"""Two thousand nodes that are not ready, and one true XID among them, on a real broker and a Jira that takes its time."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from sandbox.fake_services.jira import JiraStandin
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, INVENTORY, Topic
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.entity import Entity
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import Certainty, Incident
from tests.runbooks.engine.storm_child import POLICY
from tests.runbooks.herd import ALL, PARTITION, calls, fresh
from tests.runbooks.scenes import CLUSTER, cluster, incident
from tests.runbooks.topics import with_topics
from tests.testbed.children import Child, free_port
from tests.testbed.kafka import Kafka
from tests.testbed.probing import Probing
from tests.testbed.waiting import PATIENCE_S, eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

NODES = 2_000


async def test_a_true_fault_in_a_storm_is_acted_on_while_health_answers_and_jira_is_not_flooded(
    kafka: Kafka, tmp_path: Path
) -> None:
    settings = await with_topics(kafka.bootstrap, *ALL)
    await write_at_once(settings, INVENTORY, [(f.key, encode(FactRecord(f))) for f in facts()])
    port = free_port()
    async with JiraStandin() as jira:
        jira.takes_s = 0.05
        first = start(settings, jira, tmp_path, port, "first")
        second: Child | None = None
        try:
            with Probing(port) as probing:
                await eventually(ready(probing), "the responder is ready")
                await write_at_once(settings, INCIDENTS, [(i.id, encode(i)) for i in storm()])

                async def tickets_flow() -> bool:
                    return len(jira.issues) > 0

                await eventually(tickets_flow, "it works on the storm")
                decisive = fresh()
                await write_at_once(settings, INCIDENTS, [(decisive.id, encode(decisive))])

                async def cordoned() -> bool:
                    return any(call[1:3] == ["cordon_node", "node-03"] for call in calls(tmp_path))

                await eventually(cordoned, "the node of the true fault is closed")
                assert len(jira.issues) < NODES / 2, "it did not wait for the tickets of the others"

                probing.pause()
                first.kill()
                opened = len(jira.issues)
                second = start(settings, jira, tmp_path, port, "second")
                probing.resume()
                await eventually(ready(probing), "the next one is ready")

                async def goes_on() -> bool:
                    return len(jira.issues) >= min(NODES, opened + 60)

                await eventually(goes_on, "it opens further tickets", timeout_s=2 * PATIENCE_S)
                answers = dict(probing.answers)
        finally:
            for child in (first, second):
                if child is not None:
                    child.kill()
        assert set(answers) == {200}, f"/live answered {answers}"
        assert jira.most_at_once <= POLICY.tickets_at_once
        labels = Counter(label for issue in jira.issues for label in issue.labels if label != "faultline")
        assert set(labels.values()) == {1}, "one ticket for each incident and effect, also across the restart"
    made = Counter((call[1], call[3]) for call in calls(tmp_path))
    assert set(made.values()) == {1}
    assert [call[2] for call in calls(tmp_path) if call[1] == "cordon_node"] == ["node-03"]


def storm() -> list[Incident]:
    """As many incidents as the correlator would tell of one by one."""
    return [
        incident(
            "node_down",
            Entity(CLUSTER, node=name(number)),
            certainty=Certainty.LIKELY,
            opened_at=utc_now(),
            updated_at=utc_now(),
            nodes=(name(number),),
        )
        for number in range(NODES)
    ]


def facts() -> list[NodeFact]:
    nodes = [NodeFact(CLUSTER, name(n), f"uid-{n}", utc_now(), gpus=8) for n in range(NODES)]
    return [*nodes, *cluster().nodes.values()]


def name(number: int) -> str:
    return f"storm-{number:04}"


def ready(probing: Probing) -> Callable[[], Awaitable[bool]]:
    async def answers() -> bool:
        return await asyncio.to_thread(probing.is_ready)

    return answers


def start(settings: KafkaSettings, jira: JiraStandin, folder: Path, port: int, label: str) -> Child:
    options = {
        "bootstrap": settings.bootstrap,
        "prefix": settings.topic_prefix,
        "folder": str(folder),
        "jira": jira.url,
        "user": jira.user,
        "token": jira.token,
        "port": port,
    }
    command = [sys.executable, "-m", "tests.runbooks.engine.storm_child", json.dumps(options)]
    return Child("responder", command, log=folder / f"{label}.log")


async def write_at_once(settings: KafkaSettings, topic: Topic, records: Sequence[tuple[str, bytes]]) -> None:
    """Write many records, as processes do that do not wait for each."""
    producer = await clients.started(clients.producer(settings), settings)
    try:
        where = clients.topic_name(settings, topic)
        sent = [await producer.send(where, v, key=k.encode(), partition=PARTITION) for k, v in records]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()
