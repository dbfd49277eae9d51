"""The gateway process on the embedded broker: what is answered is durable, whatever happens to Kafka, by however many of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, ClientTimeout
from aiokafka import TopicPartition

from faultline.gateway.process import Gateway
from sandbox.emulated import broker
from streams.config.connector_settings import SlackSettings
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import COMMANDS, INCIDENTS, RAW_ALERTS, TIMELINE, Topic, partition_of
from streams.model.clock import utc_now
from streams.model.codec import decode, encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.pulse import Pulse
from tests.connectors.chat import thread_documents
from tests.faultline.gateway import deliveries, serving
from tests.faultline.gateway.serving import bearer
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded

INCIDENT = thread_documents.incident()


@dataclass
class Running:
    """A gateway that runs."""

    url: str
    pulse: Pulse
    client: ClientSession

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[int, str]:
        sent = {"Content-Type": "application/json"} | headers
        async with self.client.post(self.url + path, data=body, headers=sent) as answer:
            return answer.status, await answer.text()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def gateway(kafka: KafkaSettings, **changes: object) -> AsyncIterator[Running]:
    pulse, port = Pulse(), free_port()
    settings = serving.settings(port=port, **changes)
    process = Gateway(kafka, settings, cluster="c1", slack=SlackSettings(), pulse=pulse)
    running = asyncio.create_task(process.run())
    try:
        async with ClientSession(timeout=ClientTimeout(total=60)) as client:
            await seen(lambda: pulse.is_ready or running.done(), "the gateway is ready")
            yield Running(f"http://127.0.0.1:{port}", pulse, client)
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@asynccontextmanager
async def several(kafka: KafkaSettings, count: int) -> AsyncIterator[list[Running]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(gateway(kafka)) for _ in range(count)]


async def seen(condition: Callable[[], object], what: str) -> None:
    async def look() -> object:
        return condition()

    await eventually(look, what)


async def values(kafka: KafkaSettings, topic: Topic) -> list[bytes]:
    """Every record of a topic."""
    client = await clients.started(clients.consumer(kafka, group=None, fetch_max_wait_ms=50), kafka)
    found: list[bytes] = []
    try:
        for number in range(kafka.raw_partitions if topic is RAW_ALERTS else kafka.cluster_partitions):
            place = TopicPartition(clients.topic_name(kafka, topic), number)
            async for batch in clients.batches_to_end(client, place):
                found += [record.value for record in batch if record.value is not None]
    finally:
        await client.stop()
    return found


async def tell(kafka: KafkaSettings, topic: Topic, document: Any) -> None:
    client = await clients.started(clients.producer(kafka), kafka)
    try:
        place = partition_of("c1", kafka.cluster_partitions)
        await client.send_and_wait(topic.name, encode(document), key=INCIDENT.id.encode(), partition=place)
    finally:
        await client.stop()


async def test_two_thousand_alerts_in_one_body_are_one_durable_record(tmp_path: Path) -> None:
    body = orjson.dumps(deliveries.alert_group(2000))
    async with broker.running(log=tmp_path / "broker.log") as kafka, gateway(kafka.settings) as running:
        assert await running.post("/hooks/alertmanager", body, **bearer()) == (
            200,
            '{"ok": true, "text": "2000 alerts"}',
        )
        assert await values(kafka.settings, RAW_ALERTS) == [body]


async def test_two_thousand_groups_at_once_are_taken_by_two_gateways(tmp_path: Path) -> None:
    bodies = [orjson.dumps(deliveries.alert_group(groupKey=str(number))) for number in range(2000)]
    async with broker.running(log=tmp_path / "broker.log") as kafka, several(kafka.settings, 2) as running:
        posts = (
            running[number % 2].post("/hooks/alertmanager", body, **bearer())
            for number, body in enumerate(bodies)
        )
        assert {status for status, _ in await asyncio.gather(*posts)} == {200}
        assert sorted(await values(kafka.settings, RAW_ALERTS)) == sorted(bodies)


async def test_while_kafka_is_away_senders_are_told_so_and_afterwards_nothing_is_missing(
    tmp_path: Path,
) -> None:
    body = orjson.dumps(deliveries.alert_group())
    async with (
        broker.running(log=tmp_path / "broker.log") as kafka,
        gateway(kafka.settings, kafka_timeout_s=0.3) as running,
    ):
        assert (await running.post("/hooks/alertmanager", body, **bearer()))[0] == 200
        await kafka.down()
        refused = [await running.post("/hooks/alertmanager", body, **bearer()) for _ in range(20)]
        assert {status for status, _ in refused} == {503}
        await kafka.up()

        async def taken() -> bool:
            return (await running.post("/hooks/alertmanager", body, **bearer()))[0] == 200

        await eventually(taken, "Kafka takes records again")
        # The first of them was handed to the producer, so its outcome was open; the others were refused at once.
        assert 2 <= len(await values(kafka.settings, RAW_ALERTS)) <= 3
        assert running.pulse.is_ready


async def test_a_decision_delivered_to_both_gateways_is_one_command(tmp_path: Path) -> None:
    acked = deliveries.pagerduty(at=utc_now())
    acked["event"]["data"]["incident_key"] = f"faultline/{INCIDENT.id}"
    body = orjson.dumps(acked)
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        await tell(kafka.settings, INCIDENTS, INCIDENT)
        async with several(kafka.settings, 2) as running:
            for one in running:
                status, text = await one.post("/hooks/pagerduty", body, **serving.pagerduty(body))
                assert (status, "taken: ack" in text) == (200, True), text
            commands = [decode(Command, value) for value in await values(kafka.settings, COMMANDS)]
            assert {command.id for command in commands} == {commands[0].id}
            assert commands[0].verb is Verb.ACK

            # Once it is answered, no gateway sends it again; and each knows what a note there is about.
            entry = TimelineEntry(
                INCIDENT.id,
                "c1",
                utc_now(),
                "Ann Smith (PANN)",
                "incident.acked",
                "",
                {"command": commands[0].id},
            )
            await tell(kafka.settings, TIMELINE, entry)

            async def known() -> bool:
                told = [
                    (await one.post("/hooks/pagerduty", body, **serving.pagerduty(body)))[1]
                    for one in running
                ]
                return all("taken before" in text for text in told)

            await eventually(known, "both gateways have the answer")
            note = orjson.dumps(deliveries.pagerduty_note(occurred_at=acked["event"]["occurred_at"]))
            for one in running:
                status, text = await one.post("/hooks/pagerduty", note, **serving.pagerduty(note))
                assert (status, "no incident" in text) == (200, False), text
