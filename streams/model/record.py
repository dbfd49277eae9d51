"""What Kafka hands over and what an envelope makes of it, before anything is known about its meaning.

Made by the hundred thousand a second, so these are tuples: a frozen dataclass takes four times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from streams.model.entity import PodRef

NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})
"""No labels, no attributes."""


class RawRecord(NamedTuple):
    """One Kafka record. `value` None is a tombstone; `timestamp` is Kafka's, aware, in UTC."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def coordinates(self) -> str:
        """`topic:partition:offset`."""
        return f"{self.topic}:{self.partition}:{self.offset}"


class LogLine(NamedTuple):
    """One line of text and what its shipper knew of its origin. `at` is the time in the line or envelope, None if none."""

    text: str
    at: datetime | None = None
    node: str | None = None
    pod: PodRef | None = None
    container: str | None = None
    labels: Mapping[str, str] = NOTHING_MORE
    source: str = ""
    """What wrote it, as far as known: `kernel`, `container` or the program's name in the line."""
    start: int = 0
    """Where the message begins in `text`, after timestamp, host and program name."""
    relayed: bool = False
    """Whether a pod printed it for another host, `node`."""
    level: int | None = None
    """How severe its shipper says it is, as syslog counts: 3 is an error, 4 a warning. A header in `text` may say more."""

    @property
    def message(self) -> str:
        """The text without its header."""
        return self.text[self.start :]


class Sample(NamedTuple):
    """One value of one metric. `labels` keep the exporter's own names."""

    name: str
    value: float
    at: datetime | None = None
    node: str | None = None
    labels: Mapping[str, str] = NOTHING_MORE


class KubeEvent(NamedTuple):
    """One Kubernetes Event, old style or new. `kind`, `namespace`, `name`, `uid` are the object's it is about."""

    reason: str
    message: str
    kind: str
    name: str
    namespace: str = ""
    uid: str | None = None
    type: str = "Normal"
    at: datetime | None = None
    host: str | None = None
    cluster: str | None = None


class Alert(NamedTuple):
    """One alert of an Alertmanager webhook."""

    name: str
    firing: bool
    at: datetime | None = None
    labels: Mapping[str, str] = NOTHING_MORE
    annotations: Mapping[str, str] = NOTHING_MORE


class Neighbour(NamedTuple):
    """What a device hears at the end of one of its cables. `bridges`: the remote says that it forwards."""

    device: str
    port: str
    remote: str
    remote_port: str
    bridges: bool = False
    side: Literal["switch", "host", ""] = ""
    """What the device is, when the table itself tells."""
    at: datetime | None = None


Observation = LogLine | Sample | KubeEvent | Alert | Neighbour
"""What an envelope yields."""
