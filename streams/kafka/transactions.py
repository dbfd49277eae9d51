"""How aiokafka ends a transaction that failed: which errors mean that another producer has taken over, and where the reason is.

aiokafka keeps the reason in futures that it never retrieves; asyncio would log each of them as an error of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    IllegalOperation,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
)
from aiokafka.producer.transaction_manager import TransactionState

log = structlog.get_logger(__name__)

FENCED = (
    ProducerFenced,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
)
"""A later producer of the same transactional id has begun, or the broker has ended the transaction of this one."""


def failure_of(future: asyncio.Future[Any] | None) -> BaseException | None:
    """What a future failed with. aiokafka never retrieves the exception of a fenced one, and asyncio would log that."""
    if future is None or not future.done() or future.cancelled():
        return None
    return future.exception()


def why_ended(producer: AIOKafkaProducer) -> BaseException | None:
    """What the transaction failed with, if it did. Asked after every error, or asyncio logs an exception never retrieved."""
    return failure_of(producer._txn_manager.wait_for_transaction_end())


async def write_together(
    producer: AIOKafkaProducer, sends: Sequence[Callable[[], Awaitable[asyncio.Future[Any]]]]
) -> None:
    """Make every send and commit them as one transaction. After an error the producer is of no more use.

    Raises:
        KafkaError: one of `FENCED` when another producer has taken over; else the outcome is unknown.
    """
    sent: list[asyncio.Future[Any]] = []
    try:
        await producer.begin_transaction()
        for send in sends:
            sent.append(await send())
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await producer.commit_transaction()
    except IllegalOperation as error:
        # aiokafka aborted the transaction while it was being filled; only its own future holds the reason.
        for future in sent:
            future.add_done_callback(failure_of)
        if (why := why_ended(producer)) is None:
            raise
        raise why from error
    except KafkaError:
        for future in sent:
            future.add_done_callback(failure_of)
        why_ended(producer)
        raise


async def stop(producer: AIOKafkaProducer) -> None:
    """Stop a producer that may be fenced, inside a transaction or without a broker; none of that may delay a shutdown.

    A transaction that is open is ended: perhaps nobody succeeds this producer, and until the broker aborts the transaction for
    its age, whoever reads committed records sees nothing that anybody writes behind it.
    """
    for end, within_s in ((partial(_end_transaction, producer), 1), (producer.stop, 2)):
        try:
            async with asyncio.timeout(within_s):
                await end()
        except (KafkaError, TimeoutError) as error:
            log.debug("producer did not shut down cleanly", error=str(error))


async def _end_transaction(producer: AIOKafkaProducer) -> None:
    """Abort an open transaction; one that is being committed is waited for."""
    transaction = producer._txn_manager
    if transaction.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
        await producer.abort_transaction()
    elif transaction.state in (
        TransactionState.COMMITTING_TRANSACTION,
        TransactionState.ABORTING_TRANSACTION,
    ):
        await asyncio.shield(transaction.wait_for_transaction_end())
