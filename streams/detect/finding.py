"""What a family finds in one observation, before it is given a cluster, a time and evidence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from streams.model.entity import Gpu
from streams.model.signal import Attribute, Severity, SignalState

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was said, and what was said about where. The line's own node and pod are added by the detector.

    `node` is the node a line speaks of, where that is not the one that wrote it. `on_switch` turns the line's host into the
    switch. `text` is the part of the line that says it.
    """

    kind: str
    severity: Severity
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    state: SignalState = SignalState.FIRING
    gpu: Gpu | None = None
    node: str | None = None
    nic: str | None = None
    port: str | None = None
    on_switch: bool = False
    rank: int | None = None
    at: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """Where an observation comes from, for state that joins several: `lines` names the stream its lines come in."""

    cluster: str
    lines: str
    received_at: datetime


class Recent(OrderedDict[K, V], Generic[K, V]):
    """A dictionary that forgets what was written longest ago once it holds `limit` entries."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)
