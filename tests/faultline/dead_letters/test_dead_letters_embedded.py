"""`faultline dead-letters` on a broker that answers less than Kafka: it neither searches by time nor tells settings of topics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from faultline.cli.main import cli
from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.dead_letters import dead_letter
from streams.kafka.topics import DEAD_LETTERS
from streams.model.clock import utc_now
from streams.model.errors import BadInput
from streams.model.record import RawRecord

pytestmark = pytest.mark.embedded

TOLD = {"bootstrap", "check_crcs", "managed_topics", "raw_partitions", "cluster_partitions"}
"""What a client of the embedded broker has to be told."""


async def bury(settings: KafkaSettings) -> None:
    line = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=8812, GPU has fallen off the bus."
    record = RawRecord("raw.node-logs", 1, 100, utc_now(), b"n1", line, (("faultline-cluster", b"west"),))
    key, value, headers = dead_letter(record, stage="detector", reasons=["not known"])
    producer = await clients.started(clients.producer(settings), settings)
    try:
        name = clients.topic_name(settings, DEAD_LETTERS)
        await producer.send_and_wait(name, value, key=key, headers=headers, partition=0)
    finally:
        await producer.stop()


async def test_letters_are_listed_by_age_and_shown_and_a_retry_says_what_the_broker_lacks(
    tmp_path: Path,
) -> None:
    config = tmp_path / "faultline.yaml"

    async def typed(*words: str) -> Result:
        # The command has an event loop of its own.
        return await asyncio.to_thread(CliRunner().invoke, cli, ["--config", str(config), *words])

    async with broker.running(log=tmp_path / "broker.log") as embedded:
        await bury(embedded.settings)
        kafka = embedded.settings.model_dump(mode="json", include=TOLD)
        config.write_bytes(orjson.dumps({"cluster": "west", "kafka": kafka}))
        listed = orjson.loads((await typed("dead-letters", "list", "--since", "7d", "-o", "json")).stdout)
        assert listed["letter"] == "0:0"
        none = await typed("dead-letters", "list", "--since", "2099-01-01T00:00:00Z", "-o", "json")
        assert (none.exit_code, none.stdout) == (0, "")
        shown = await typed("dead-letters", "show", "0:0", "-o", "json")
        assert shown.exit_code == 0, (shown.output, shown.exception)
        told = orjson.loads(shown.stdout)["today"]
        assert told.startswith("readable: 1 gpu.xid")
        assert "is not known, because this broker" in told
        retried = await typed("dead-letters", "retry", "0:0", "--yes")
        assert retried.exit_code == 1, (retried.output, retried.exception)
        assert "does not tell settings of topics (DescribeConfigs)" in retried.stdout
        purged = await typed("dead-letters", "purge", "--before", "7d")
        assert isinstance(purged.exception, BadInput)
        assert "does not search by time: 0:0" in str(purged.exception)
