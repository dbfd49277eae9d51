"""How what the cluster emits reaches Kafka: through the pipelines of its site, and with what goes wrong on the way.

A source's lines keep their order, except duplicates.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby

from sandbox.simulation import shipper_formats as formats
from sandbox.simulation.scenario import NoiseLevel
from sandbox.simulation.shipper_formats import (
    EVENTS,
    JOB_LOGS,
    METRICS,
    NODE_LOGS,
    UNCHANGED,
    Render,
    SourceRecord,
)
from sandbox.simulation.sites import Pipeline, Site
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.record import RawRecord

METRICS_KEY = "sim"
"""Keyed samples of a cluster are all in one partition, which docs/detection.md asks for because of a job's median."""
_FORMATS: Mapping[str, Render] = {**NODE_LOGS, **JOB_LOGS, **METRICS, **EVENTS}
_PIPELINES = {
    RAW_NODE_LOGS.name: "node_logs", RAW_JOB_LOGS.name: "job_logs", RAW_METRICS.name: "metrics", RAW_K8S_EVENTS.name: "events",
}  # fmt: skip
"""Where a site has those of a topic."""
Way = tuple[Render, Pipeline]


def ways(source: SourceRecord, site: Site) -> tuple[Way, ...]:
    """The pipelines that ship a record. Fluent Bit's kmsg input reads the kernel only; there the journal input ships daemons."""
    if source.program == UNCHANGED:
        return ((formats.unchanged, Pipeline(format=UNCHANGED, keyed=False)),)
    if source.topic is RAW_FABRIC:
        return ((formats.switch, Pipeline(format="syslog", keyed=True)),)
    pipelines = getattr(site, _PIPELINES[source.topic.name])
    found = []
    for pipeline in pipelines:
        daemon = source.topic is RAW_NODE_LOGS and source.program != "kernel"
        if (daemon and pipeline.kernel_only) or not pipeline.reads(source.place):
            continue
        render = _FORMATS[pipeline.format]
        found.append((formats.systemd if daemon and render is formats.kmsg else render, pipeline))
    return tuple(found)


def ship(
    emitted: Iterable[SourceRecord], site: Site, noise: NoiseLevel, rng: random.Random
) -> dict[str, tuple[RawRecord, ...]]:
    """Records of each topic, in the order in which Kafka received them, with partitions and offsets."""
    skews: defaultdict[str, timedelta] = defaultdict(
        lambda: timedelta(seconds=rng.uniform(-noise.skew_s, noise.skew_s))
    )
    sent: dict[tuple[str, str], datetime] = {}
    arrivals: list[tuple[datetime, int, Topic, str | None, bytes]] = []
    for record in _scraped(sorted(emitted, key=lambda s: (s.at, s.topic.name, s.place)), site):
        clock = record.pod.get("node", record.place) if record.topic is not RAW_K8S_EVENTS else "api-server"
        skew = skews[clock] if record.topic is not RAW_METRICS else timedelta()
        for number, (render, pipeline) in enumerate(ways(record, site)):
            if not record.vital and rng.random() < noise.lost_share:
                continue
            stream = record.place, f"{record.topic.name}/{number}"
            delay = noise.delay_s * rng.lognormvariate(0, 0.6)
            if rng.random() < noise.late_share:
                delay += rng.uniform(0, noise.late_s)
            at = max(record.at + timedelta(seconds=delay), sent.get(stream, record.at))
            sent[stream] = at
            key, value = render(_as_called(record, site, pipeline), record.at - record.age + skew)
            key = None if not pipeline.keyed else METRICS_KEY if record.topic is RAW_METRICS else key
            arrivals.append((at, len(arrivals), record.topic, key, value))
            if rng.random() < noise.duplicate_share:
                again = at + timedelta(seconds=rng.uniform(0.1, 20))
                arrivals.append((again, len(arrivals), record.topic, key, value))
    return _on_topics(arrivals, site.partitions)


def _scraped(emitted: Iterable[SourceRecord], site: Site) -> Iterator[SourceRecord]:
    """What is emitted, in order, with the samples of one host at one time as one where the site's pipelines send them so."""
    together = all(pipeline.format in formats.TOGETHER for pipeline in site.metrics)
    for (topic, _, _), group in groupby(emitted, key=lambda s: (s.topic, s.place, s.at)):
        first, *others = group
        if together and topic is RAW_METRICS:
            yield replace(first, beside=tuple(others))
        else:
            yield from (first, *others)


def _as_called(record: SourceRecord, site: Site, pipeline: Pipeline) -> SourceRecord:
    """The record with its host under the name that the pipeline has for it."""
    if pipeline.host == "node" or record.topic in (RAW_FABRIC, RAW_K8S_EVENTS):
        return record
    host = record.pod["node"] if record.topic is RAW_JOB_LOGS else record.place
    return replace(record, place=site.host(host, pipeline.host))


def _on_topics(
    arrivals: list[tuple[datetime, int, Topic, str | None, bytes]], partitions: int
) -> dict[str, tuple[RawRecord, ...]]:
    offsets: defaultdict[tuple[str, int], int] = defaultdict(int)
    topics: defaultdict[str, list[RawRecord]] = defaultdict(list)
    for at, number, topic, key, value in sorted(arrivals, key=lambda entry: entry[:2]):
        partition = (zlib.crc32(key.encode()) if key is not None else number) % partitions
        offset = offsets[topic.name, partition]
        offsets[topic.name, partition] += 1
        moment = at.replace(microsecond=at.microsecond // 1000 * 1000)
        raw_key = key.encode() if key is not None else None
        topics[topic.name].append(RawRecord(topic.name, partition, offset, moment, raw_key, value))
    return {name: tuple(records) for name, records in topics.items()}
