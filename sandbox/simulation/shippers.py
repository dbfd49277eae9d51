"""How what the cluster emits reaches Kafka: which shippers a site uses, and what goes wrong on the way.

A source's lines keep their order, except duplicates.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.simulation import shipper_formats as formats
from sandbox.simulation.scenario import NoiseLevel
from sandbox.simulation.shipper_formats import (
    EVENTS,
    JOB_LOGS,
    METRICS,
    NODE_LOGS,
    RECORDER,
    Render,
    SourceRecord,
)
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.record import RawRecord

PARTITIONS = 4
METRICS_KEY = "sim"
"""All samples of a cluster in one partition, which docs/detection.md requires for a job's median."""


@dataclass(frozen=True, slots=True)
class Site:
    """Which shippers a cluster uses, by name. `second` ships kernel lines again, as at sites that migrate."""

    node_logs: str
    job_logs: str
    metrics: str
    events: str
    second: str | None = None

    @classmethod
    def draw(cls, rng: random.Random) -> Site:
        """A random mix."""
        node_logs = rng.choice(list(NODE_LOGS))
        second = rng.choice([None, None, None, *(name for name in NODE_LOGS if name != node_logs)])
        return cls(
            node_logs, rng.choice(list(JOB_LOGS)), rng.choice(list(METRICS)), rng.choice(list(EVENTS)), second
        )

    def renders(self, source: SourceRecord) -> tuple[Render, ...]:
        """The formats it is shipped in. Fluent Bit's kmsg input reads the kernel only; there the journal input ships daemons."""
        if source.topic is RAW_NODE_LOGS:
            if source.program != "kernel":
                return (
                    formats.systemd if self.node_logs == "fluent-bit-kmsg" else NODE_LOGS[self.node_logs],
                )
            return (NODE_LOGS[self.node_logs], *((NODE_LOGS[self.second],) if self.second else ()))
        if source.program == RECORDER:
            return (formats.unchanged,)
        if source.topic is RAW_JOB_LOGS:
            return (JOB_LOGS[self.job_logs],)
        if source.topic is RAW_METRICS:
            return (METRICS[self.metrics],)
        return (formats.switch,) if source.topic is RAW_FABRIC else (EVENTS[self.events],)


def ship(
    emitted: Iterable[SourceRecord], site: Site, noise: NoiseLevel, rng: random.Random
) -> dict[str, tuple[RawRecord, ...]]:
    """Records of each topic, in the order in which Kafka received them, with partitions and offsets."""
    skews: defaultdict[str, timedelta] = defaultdict(
        lambda: timedelta(seconds=rng.uniform(-noise.skew_s, noise.skew_s))
    )
    sent: dict[tuple[str, str], datetime] = {}
    arrivals: list[tuple[datetime, int, Topic, str | None, bytes]] = []
    for record in sorted(emitted, key=lambda s: (s.at, s.topic.name, s.place)):
        clock = record.pod.get("node", record.place) if record.topic is not RAW_K8S_EVENTS else "api-server"
        skew = skews[clock] if record.topic is not RAW_METRICS else timedelta()
        for number, render in enumerate(site.renders(record)):
            if not record.vital and rng.random() < noise.lost_share:
                continue
            stream = record.place, f"{record.topic.name}/{number}"
            delay = noise.delay_s * rng.lognormvariate(0, 0.6)
            if rng.random() < noise.late_share:
                delay += rng.uniform(0, noise.late_s)
            at = max(record.at + timedelta(seconds=delay), sent.get(stream, record.at))
            sent[stream] = at
            key, value = render(record, record.at - record.age + skew)
            key = METRICS_KEY if record.topic is RAW_METRICS else key
            arrivals.append((at, len(arrivals), record.topic, key, value))
            if rng.random() < noise.duplicate_share:
                again = at + timedelta(seconds=rng.uniform(0.1, 20))
                arrivals.append((again, len(arrivals), record.topic, key, value))
    return _on_topics(arrivals)


def _on_topics(
    arrivals: list[tuple[datetime, int, Topic, str | None, bytes]],
) -> dict[str, tuple[RawRecord, ...]]:
    offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
    topics: defaultdict[str, list[RawRecord]] = defaultdict(list)
    for at, number, topic, key, value in sorted(arrivals, key=lambda entry: entry[:2]):
        partition = (zlib.crc32(key.encode()) if key is not None else number) % PARTITIONS
        offset = offsets[topic.name, partition]
        offsets[topic.name, partition] += 1
        moment = at.replace(microsecond=at.microsecond // 1000 * 1000)
        raw_key = key.encode() if key is not None else None
        topics[topic.name].append(RawRecord(topic.name, partition, offset, moment, raw_key, value))
    return {name: tuple(records) for name, records in topics.items()}
