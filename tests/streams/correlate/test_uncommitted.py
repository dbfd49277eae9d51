"""What a responder wrote in a transaction that was never committed is not read: it may be the end of a run that did not end."""

from __future__ import annotations

import pytest

from streams.kafka import clients, provisioning
from streams.kafka.topics import SIGNALS
from tests.streams.correlate.test_faust_consumer import Reading, started
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka


async def test_a_record_of_an_aborted_transaction_is_never_read(kafka: Kafka) -> None:
    settings = kafka.settings("uncommitted", cluster_partitions=1, session_timeout_ms=60_000)
    await provisioning.apply(settings)
    name = clients.topic_name(settings, SIGNALS)
    responder = clients.producer(settings, transactional_id=f"{settings.topic_prefix}responder")
    await clients.started(responder, settings)
    try:
        for value, stands in ((b"0", True), (b"1", False), (b"2", True)):
            await responder.begin_transaction()
            await responder.send_and_wait(name, value, partition=0)
            await (responder.commit_transaction() if stands else responder.abort_transaction())
    finally:
        await responder.stop()

    reading = Reading(settings)

    async def to_the_end() -> bool:
        return 2 in reading.read

    async with started(reading):
        await eventually(to_the_end, "the last record is read")
    assert set(reading.read) == {0, 2}
