"""How soon a transaction follows another is a private number of aiokafka's: see that it is still the one that counts."""

from types import SimpleNamespace

from aiokafka import TopicPartition
from aiokafka.errors import ConcurrentTransactions
from aiokafka.producer.sender import AddPartitionsToTxnHandler

from streams.kafka import clients

SOON_S = 0.005
"""A transaction takes 5 to 15 ms."""


def test_one_that_is_refused_since_the_markers_of_the_last_are_not_written_yet_is_soon_tried_again() -> None:
    nothing_added = SimpleNamespace(txn_partitions=set())
    sender = SimpleNamespace(_txn_manager=nothing_added, _retry_backoff=0.1)
    handler = AddPartitionsToTxnHandler(sender, {TopicPartition("runs", 0)})
    refused = SimpleNamespace(errors=[("runs", [(0, ConcurrentTransactions.errno)])])
    assert handler.handle_response(refused) <= SOON_S
    assert clients.RETRY_TRANSACTION_S <= SOON_S
