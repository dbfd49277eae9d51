"""What a transaction is made of: the time of each request that aiokafka sends for it, told when it has ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from statistics import median
from time import monotonic
from typing import Any

from aiokafka.producer import sender

from streams.kafka.fenced_store import FencedStore

STEPS = {
    sender.AddPartitionsToTxnHandler: "add_partitions",
    sender.SendProduceReqHandler: "produce",
    sender.AddOffsetsToTxnHandler: "add_offsets",
    sender.TxnOffsetCommitHandler: "commit_offsets",
    sender.EndTxnHandler: "end",
}
"""Its steps in their order. Offsets are added beside the records; adding partitions includes the wait for the markers of the
transaction before."""

Tell = Callable[..., None]


class Watch:
    """Tells the milliseconds of each transaction of a process that has one store: `ms` of the whole, and of each step.

    `encode` is what comes before it, a step that was not needed is left out, and `requests` counts those of all steps.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._ms: defaultdict[str, float] = defaultdict(float)
        self._requests = 0

    def begin(self) -> None:
        """From now on, in this process."""
        for handler, step in STEPS.items():
            handler.do = self._timed(step, handler.do)
        store_type: Any = FencedStore
        commit = store_type.commit

        async def committed(store: Any, *documents: Any, **more: Any) -> None:
            self._ms.clear()
            self._requests, since = 0, monotonic()
            await commit(store, *documents, **more)
            if self._requests:
                ms = (monotonic() - since) * 1e3
                encode_ms = ms - self._ms.pop("transaction")
                self._tell(
                    "transaction", ms=ms, encode=encode_ms, requests=self._requests, steps=dict(self._ms)
                )

        store_type.commit = committed
        store_type._transaction = self._timed("transaction", store_type._transaction)

    def _timed(self, step: str, act: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def timed(*given: Any) -> Any:
            since = monotonic()
            try:
                return await act(*given)
            finally:
                self._ms[step] += (monotonic() - since) * 1e3
                self._requests += step != "transaction"

        return timed


def middles(told: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Medians over transactions as told: the whole, what it was made of (a step where it was needed), and requests."""
    transactions = list(told)
    found = {name: median(t[name] for t in transactions) for name in ("ms", "encode", "requests")}
    for step in STEPS.values():
        if times := [t["steps"][step] for t in transactions if step in t["steps"]]:
            found[step] = median(times)
    return found
