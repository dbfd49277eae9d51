"""Why, and why not, by what Kafka has: the raw lines again, and a replay of a piece of the topics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.cli.raw_records import read_lines
from faultline.replay.capture import Capture, read
from faultline.replay.replay import facts_of
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INVENTORY, partition_of
from streams.model.clock import to_millis
from streams.model.codec import encode
from streams.model.facts import FactRecord
from streams.model.signal import Evidence

pytestmark = pytest.mark.embedded

TOLD = {"bootstrap", "check_crcs", "managed_topics", "raw_partitions", "cluster_partitions"}
"""What a client of the embedded broker has to be told."""

CAPTURE = Path(__file__).parents[3] / "docs/examples/gpu-off-bus"
LINE = "Mar  3 03:04:12 gpu-03 kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=8812, name=python, GPU has fallen off the bus."


async def publish(settings: KafkaSettings, capture: Capture) -> None:
    """What shippers and inventory had written, with the times that Kafka gave it."""
    producer = await clients.started(clients.producer(settings), settings)
    try:
        for topic, records in capture.records.items():
            for record in records:
                await producer.send_and_wait(
                    topic, record.value, record.key, record.partition, to_millis(record.timestamp)
                )
        home = partition_of(capture.meta.cluster, settings.cluster_partitions)
        for at, key, fact in facts_of(capture):
            value = encode(FactRecord(fact)) if fact is not None else None
            await producer.send_and_wait(INVENTORY.name, value, key.encode(), home, to_millis(at))
    finally:
        await producer.stop()


async def test_the_raw_line_of_a_record_is_read_again_while_kafka_has_it(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        await publish(embedded.settings, read(CAPTURE))
        wanted = {f"raw.node-logs:0:{n}": Evidence("raw.node-logs", 0, n, LINE[:60]) for n in (0, 4711)}
        assert await read_lines(embedded.settings, wanted) == {"raw.node-logs:0:0": LINE}


async def test_why_not_asks_kafka_where_nothing_else_is_named(tmp_path: Path) -> None:
    capture = read(CAPTURE)
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        await publish(embedded.settings, capture)
        config = tmp_path / "faultline.yaml"
        kafka = embedded.settings.model_dump(mode="json", include=TOLD)
        config.write_bytes(orjson.dumps({"cluster": capture.meta.cluster, "kafka": kafka}))
        asked = ["--config", str(config), "why-not", "gpu-02", "--at", "2026-03-03T03:16:00Z", "-o", "json"]
        # The command has an event loop of its own.
        result = await asyncio.to_thread(CliRunner().invoke, cli, asked)
    assert result.exit_code == 0, (result.output, result.exception)
    answer = orjson.loads(result.stdout)["tree"]["answer"]
    assert answer.startswith("not cordoned: it is a victim of inc-")
    assert answer.endswith("whose root cause is GPU 0000:9d:00 on gpu-03")
