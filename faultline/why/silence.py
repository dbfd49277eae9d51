"""Sources that fell silent: what used to be read of a node and was not any more at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import quantiles

from streams.kafka.topics import RAW
from streams.model.clock import moment, span
from streams.model.record import RawRecord

LEAST = timedelta(minutes=3)
"""A shorter pause of a source is none: shippers batch, and scrapes are a minute apart."""
ENOUGH = 5
"""Records that a source must have sent, before its pauses say anything."""
FACTOR = 5
"""A source is silent once nothing came for so many times its usual pause."""
_NAMES = {
    "raw.node-logs": "system log",
    "raw.job-logs": "job log",
    "raw.metrics": "metrics",
    "raw.fabric": "fabric record",
    "raw.k8s-events": "Kubernetes event",
    "raw.alerts": "alert",
}
_STEADY = ("raw.metrics", "raw.node-logs", "raw.job-logs")
"""Topics whose sources speak all the time. Events and alerts come only when there is something to tell."""
_DCGM = b"DCGM_"


@dataclass(frozen=True, slots=True)
class SilentSource:
    """One source of one node. `since` is when it was heard last; None where it never was, though that of most other nodes was."""

    node: str
    source: str
    since: datetime | None
    usual: timedelta | None = None
    """No longer than this are nine of ten of its pauses."""
    others: tuple[int, int] = (0, 0)
    """Of how many other nodes it was heard, and how many there are."""

    def __str__(self) -> str:
        if self.since is None:
            heard, every = self.others
            return f"no {self.source} from {self.node} at all, though {heard} of {every} others have it"
        usual = (
            f"; it never paused for much more than {span(self.usual)} before"
            if self.usual is not None
            else ""
        )
        return f"no {self.source} from {self.node} since {moment(self.since)}{usual}"


@dataclass(slots=True)
class _Heard:
    times: list[datetime] = field(default_factory=list)


def silent_sources(
    records: Mapping[str, Collection[RawRecord]], nodes: Iterable[str], others: Iterable[str], at: datetime
) -> tuple[SilentSource, ...]:
    """The sources of these nodes that were silent at a time, by what the raw topics hold before it.

    Args:
        records: Raw records by topic.
        nodes: The nodes that are asked about.
        others: The nodes that each is compared with: those that run the same, or all. What most of them have is expected.
        at: The time.
    """
    wanted, beside = set(nodes), set(others)
    heard: dict[str, dict[str, _Heard]] = {}
    pattern = _pattern(wanted | beside)
    for topic in (topic.name for topic in RAW if topic.name in _STEADY):
        for record in records.get(topic, ()):
            if record.timestamp > at or record.value is None:
                continue
            of_source = heard.setdefault(_source(topic, record.value), {})
            hay = record.value if record.key is None else record.key + b"\0" + record.value
            for name in set(pattern.findall(hay)):
                of_node = of_source.setdefault(name.decode(), _Heard())
                if name.decode() in wanted:
                    of_node.times.append(record.timestamp)
    found = (
        _silence(node, source, heard[source], beside - {node}, at)
        for node in sorted(wanted)
        for source in sorted(heard)
    )
    return tuple(one for one in found if one is not None)


def _silence(
    node: str, source: str, heard: Mapping[str, _Heard], others: set[str], at: datetime
) -> SilentSource | None:
    if node not in heard:
        having = len(others & heard.keys())
        most = 2 * having > len(others)
        return SilentSource(node, source, None, others=(having, len(others))) if most else None
    times = sorted({at.replace(microsecond=0) for at in heard[node].times})
    if len(times) < ENOUGH or times[-1] - times[0] < LEAST:
        return None  # a burst of lines, and no source that speaks all the time
    # Lines come in bursts: what counts is how long nearly all of its pauses are.
    usual = timedelta(seconds=quantiles(((b - a).total_seconds() for a, b in pairwise(times)), n=10)[-1])
    if at - times[-1] <= max(LEAST, FACTOR * usual):
        return None
    return SilentSource(node, source, times[-1], usual)


def _source(topic: str, value: bytes) -> str:
    return "DCGM metrics" if topic == "raw.metrics" and _DCGM in value else _NAMES.get(topic, topic)


def _pattern(names: Collection[str]) -> re.Pattern[bytes]:
    """One of the names as a whole: `gpu-1` is no part of `gpu-12`."""
    every = b"|".join(re.escape(name.encode()) for name in sorted(names, key=len, reverse=True))
    return re.compile(rb"(?<![\w.-])(?:" + (every or rb"(?!)") + rb")(?![\w-])")
