"""A report of what the topics hold is the report of the replay that decides the same, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline.cli.commands.digest import written as digest
from faultline.cli.commands.report import written
from faultline.cli.incident_documents import (
    ClusterDocuments,
    cluster_of_capture,
    cluster_of_topics,
    of_capture,
    of_topics,
)
from faultline.runtime.settings import Settings
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS, TIMELINE, partition_of
from streams.model.codec import encode
from streams.model.facts import FactRecord

pytestmark = pytest.mark.embedded

CAPTURE = Path(__file__).parents[3] / "docs/examples/gpu-off-bus"


async def publish(settings: KafkaSettings, documents: ClusterDocuments) -> None:
    """What the processes would have written, the timeline twice: a takeover may write an entry again."""
    producer = await clients.started(clients.producer(settings), settings)
    partition = partition_of(documents.cluster, settings.cluster_partitions)
    records = [
        *((INCIDENTS, name, incident) for name, incident in documents.incidents.items()),
        *((RUNS, run.id, run) for run in documents.runs),
        *((TIMELINE, entry.incident, entry) for entry in documents.timeline),
        *((TIMELINE, entry.incident, entry) for entry in documents.timeline),
        *((INVENTORY, fact.key, FactRecord(fact)) for fact in documents.nodes.values()),
    ]
    try:
        for topic, key, document in records:
            await producer.send_and_wait(topic.name, encode(document), key=key.encode(), partition=partition)
    finally:
        await producer.stop()


async def test_a_report_of_the_topics_is_that_of_the_replay(tmp_path: Path) -> None:
    settings = Settings(cluster="west")
    replayed = of_capture(settings, CAPTURE, "inc-")
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        await publish(embedded.settings, cluster_of_capture(settings, CAPTURE))
        live = settings.model_copy(update={"kafka": embedded.settings})
        stored = await of_topics(live, replayed.incident.id[:8])
    assert stored.timeline, "the timeline was read"
    for kind in ("md", "html", "json"):
        assert written(stored, kind, replayed.now) == written(replayed, kind, replayed.now)


async def test_a_digest_of_the_topics_is_that_of_the_replay(tmp_path: Path) -> None:
    settings = Settings(cluster="west")
    replayed = cluster_of_capture(settings, CAPTURE)
    since = min(incident.opened_at for incident in replayed.incidents.values())
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        await publish(embedded.settings, replayed)
        stored = await cluster_of_topics(settings.model_copy(update={"kafka": embedded.settings}))
    for kind in ("md", "html", "json"):
        assert digest(stored, kind, since, replayed.now) == digest(replayed, kind, since, replayed.now)
