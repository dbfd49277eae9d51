"""How tests put lines through the whole detector."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from streams.detect import Detected, Detector
from streams.model.kinds import SignalKind
from streams.model.record import RawRecord
from streams.model.signal import BY_SUBJECT, Severity, Signal

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)


def record(
    value: bytes | str | None,
    *,
    topic: str = "raw.node-logs",
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes], ...] = (),
    at: datetime = NOW,
    offset: int = 0,
) -> RawRecord:
    """One Kafka record."""
    raw = value.encode() if isinstance(value, str) else value
    return RawRecord(topic, 0, offset, at, key, raw, headers)


def detect(value: bytes | str, **options: bytes) -> Detected:
    """A record through a detector of its own."""
    return Detector("c1").detect(record(value, key=options.get("key")))


def signals(value: bytes | str) -> tuple[Signal, ...]:
    """The signals of a record put through a detector of its own."""
    return detect(value).signals


def firm(found: Iterable[Signal]) -> list[Signal]:
    """The signals without weak signs, that a host has GPUs and a NIC names: those are context, and may stand beside anything."""
    return [
        one
        for one in found
        if one.kind not in (SignalKind.NODE_GPUS, SignalKind.FABRIC_NIC_NAMES)
        and (one.kind != SignalKind.UNKNOWN or "subtype" not in one.attributes)
        and one.attributes.get(BY_SUBJECT) != "sign"
    ]


def is_unknown(signal: Signal) -> bool:
    """Whether no row knows the line: its kind says at most what it speaks of, and it is information."""
    return signal.severity is Severity.INFO and (
        signal.kind == SignalKind.UNKNOWN or BY_SUBJECT in signal.attributes
    )
