"""What opening a record gives, and what is known about the record from outside its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streams.model.record import Observation

MAX_LINE = 16 * 1024
"""Characters of one line that are read. What stands behind is not looked at, and the record says so."""

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outside:
    """What Kafka and the record's key and headers say. `node` is used when the payload names no host."""

    received_at: datetime
    node: str | None = None


@dataclass(slots=True)
class Opened:
    """The observations of one record and what in it could not be read (`unreadable`: one reason each).

    `cut` counts lines longer than `MAX_LINE`.
    """

    observations: list[Observation] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    cut: int = 0
