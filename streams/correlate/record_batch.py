"""Records of one topic and partition that are evaluated as one, and how each kind of record is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streams.correlate.changes import Changes
from streams.correlate.write_ahead import StepEngine
from streams.model.codec import decode
from streams.model.errors import BadInput
from streams.model.facts import Fact, FactRecord
from streams.model.signal import Signal, SignalBatch

Step = tuple[str, Callable[[StepEngine], Changes]]
"""A cluster, and what its engine has to do."""


@dataclass(slots=True)
class RecordBatch:
    """What a thousand ranks report in several records is evaluated, stored, published and acknowledged once."""

    topic: str
    events: list[Any] = field(default_factory=list)
    signals: dict[str, list[Signal]] = field(default_factory=dict)
    facts: dict[str, list[tuple[str, Fact | None, datetime]]] = field(default_factory=dict)
    ticks: list[Step] = field(default_factory=list)
    at: datetime | None = None

    def add_signals(self, batch: SignalBatch, at: datetime | None) -> None:
        """Add a record of signals; `at` is its time, None while no time may pass."""
        self.signals.setdefault(batch.cluster, []).extend(batch.signals)
        self.at = max(self.at, at) if self.at is not None and at is not None else at

    def add_fact(self, key: str, fact: Fact | None, at: datetime) -> None:
        """Add a record of the inventory."""
        self.facts.setdefault(key.partition("/")[0], []).append((key, fact, at))

    def steps(self) -> list[Step]:
        """The steps of its records, by cluster."""
        found = [(cluster, _on_signals(signals, self.at)) for cluster, signals in self.signals.items()]
        found += [(cluster, _on_facts(facts)) for cluster, facts in self.facts.items()]
        return [*found, *self.ticks]


# Functions, since a lambda in the comprehension would see the variables of its last turn.
def _on_signals(signals: list[Signal], at: datetime | None) -> Callable[[StepEngine], Changes]:
    return lambda engine: engine.on_signals(signals, at)


def _on_facts(facts: list[tuple[str, Fact | None, datetime]]) -> Callable[[StepEngine], Changes]:
    return lambda engine: engine.on_facts(facts)


def read_signals(value: bytes | None) -> SignalBatch:
    """The signals of one record.

    Raises:
        BadInput: when it cannot be read, or holds signals of several clusters.
    """
    if value is None:
        raise BadInput("a batch of signals without a value")
    batch = decode(SignalBatch, value)
    if any(signal.entity.cluster != batch.cluster for signal in batch.signals):
        raise BadInput("a batch with signals of several clusters")
    return batch


def read_fact(key: bytes | None, value: bytes | None) -> tuple[str, Fact | None]:
    """The key and the fact of one record of the inventory; None for a tombstone.

    Raises:
        BadInput: when it cannot be read, or its key is another fact's.
    """
    name = (key or b"").decode(errors="replace")
    if name.count("/") < 2:
        raise BadInput("a fact whose key is not cluster/kind/name")
    fact = decode(FactRecord, value).fact if value is not None else None
    if fact is not None and fact.key != name:
        raise BadInput(f"a fact of {fact.key[:80]} under the key {name[:80]}")
    return name, fact
