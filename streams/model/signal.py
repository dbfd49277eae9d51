"""A signal: one normalised observation, the only input of the correlator besides inventory facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

import orjson
from pydantic import AwareDatetime

from streams.model.clock import to_millis
from streams.model.digest import digest
from streams.model.entity import Entity

Attribute = str | int | float | bool | tuple[str, ...] | tuple[int, ...]
"""What an attribute may hold. Names are the field's own: `xid`, `pid`, `op`, `rank`, `timeout_ms` …"""

SHARES = "shares"
"""The attribute for what the labels of a host's metrics say that it shares with others: `kind=name` each, `rack=r12`."""

LABELLED = "labelled"
"""The subtype of `job.allocation` for a job that the metrics of a host's GPUs bear; `gpus` of them do."""

RACK = "rack"
"""The attribute for where a part stands that is reported: a coolant unit, a power feed."""
SERVES = "serves"
"""The attribute for the racks that such a part says it serves, as it writes them: `R07,R08`, `k11-k14`."""
SERIES, SINCE, REACHED = "series", "since_ms", "reached"
"""Attributes of what a metric shows, by which it is known for one however many partitions its samples are spread over: a short
name of the series at its entity, since when it may be so (ms), and the value that a counter or a gauge of codes has reached."""

CONTROLLER = "controller"
"""Attribute of what is said of a host under the name of its management controller: that name."""
MANAGER = "manager"
"""Attribute of what the manager of a fabric says of other machines' ports: the host that it runs on."""
RELAYED = "relayed"
"""Attribute of what a pod said of hardware: anybody can print such a line, so it is likely at most."""
PRINTED_BY = "printed_by"
"""Attribute of the same where it is of the pod's own host: the pod, `namespace/name`, where a field names it."""
SPEAKER = "speaker"
"""Attribute of what a pod said of another host's hardware: the pod, `namespace/name`, empty where no field names it. A job may
speak of the nodes it stands on (a launcher gathers what their kernels say); of any other node it is no evidence at all."""

BY_SUBJECT = "by_subject"
"""Attribute of what no row knows, whose kind only says what the line speaks of (`catalog/subjects.yaml`): `error` where a machine
author called it one, `sign` where only its words do. It is information: whoever reasons about kinds reads it as `unknown`."""

MAX_EVIDENCE_TEXT = 1024
"""Most characters of the raw line that evidence keeps: log text is unbounded, records are not."""

MAX_BATCH = 500
"""Signals in one `SignalBatch` at most: Faust pays per record, not per signal."""


class SignalState(StrEnum):
    """Whether the signal reports a fault or its end."""

    FIRING = "firing"
    CLEARED = "cleared"


class Severity(StrEnum):
    """How bad one signal or incident is, from its catalog row."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for info up to 3 for critical, for comparisons."""
        return _SEVERITIES.index(self)


_SEVERITIES = [Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.CRITICAL]


@dataclass(frozen=True, slots=True)
class Evidence:
    """The raw line of a signal and its coordinates in Kafka. `text` is bounded and untrusted."""

    topic: str
    partition: int
    offset: int
    text: str = ""

    @property
    def coordinates(self) -> str:
        """`topic:partition:offset`."""
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Signal:
    """One observation, or the last of `count` alike. `occurred_at` is the time in the source itself, `observed_at` is Kafka's.

    One that was published at once has no `first_at`. One with `first_at` is a roll-up: it stands for all of its kind from
    `first_at` to `occurred_at` that were not published before, itself included. So the sum of `count` is the number of lines.

    Build it with `signal()`, which computes the content id.
    """

    id: str
    kind: str
    entity: Entity
    state: SignalState
    severity: Severity
    occurred_at: AwareDatetime
    observed_at: AwareDatetime
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    count: int = 1
    first_at: AwareDatetime | None = None

    def rolled_up(self, count: int, first_at: datetime) -> Signal:
        """The same observation as the last of `count`, since `first_at`.

        Its id is that of this count in this place: lines that look the same may be counted twice, but never for one another.
        """
        places = (evidence.coordinates for evidence in self.evidence)
        rolled_id = digest(self.id, to_millis(first_at), count, *places, size=12)
        return replace(self, id=rolled_id, count=count, first_at=first_at)

    def placed(self, entity: Entity) -> Signal:
        """The same observation with a better known place; the id stays, for it is the observation's."""
        return replace(self, entity=entity)


def signal(
    kind: str,
    entity: Entity,
    *,
    severity: Severity,
    occurred_at: datetime,
    observed_at: datetime,
    state: SignalState = SignalState.FIRING,
    attributes: Mapping[str, Attribute] | None = None,
    evidence: Sequence[Evidence] = (),
) -> Signal:
    """Build a signal whose id is a hash of its content, so that a line shipped twice is one signal.

    Evidence and `observed_at` are left out of the hash: they differ between the two copies.
    """
    attributes = dict(attributes or {})
    content = orjson.dumps(attributes, option=orjson.OPT_SORT_KEYS).decode()
    sid = digest(kind, entity.cluster, entity.key, state, to_millis(occurred_at), content, size=12)
    return Signal(sid, kind, entity, state, severity, occurred_at, observed_at, attributes, tuple(evidence))


@dataclass(frozen=True, slots=True)
class SignalBatch:
    """Up to `MAX_BATCH` signals of one cluster: the value of the `signals` topic."""

    cluster: str
    signals: tuple[Signal, ...]
    schema: int = 1
