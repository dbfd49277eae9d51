"""How what is said reaches Kafka: shippers' formats, and what goes wrong on the way.

Shapes: Fluent Bit's kmsg, systemd, tail and kubernetes_events inputs, Vector's journald and kubernetes_logs, the OpenTelemetry
collector's journald, filelog and k8s_events receivers, rsyslog, prometheus-kafka-adapter, Telegraf's line protocol,
kubernetes-event-exporter, and switches' own syslog. A source's lines keep their order, except what is sent twice.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from sandbox.simulation.scenario import NoiseLevel
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.clock import rfc3339, to_millis
from streams.model.record import RawRecord

PARTITIONS = 4
RECORDER = "flight-recorder"
"""Whoever uploads the dumps that ranks have written."""


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that something on the cluster said at a time, before any shipper saw it.

    `place` is the node, switch or pod it comes from. `vital` lines are the only trace of a fault and are never lost: a fault
    without any trace would not be a fair one.
    """

    at: datetime
    topic: Topic
    place: str
    program: str
    text: str = ""
    vital: bool = False
    pod: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float = 0.0
    event: Mapping[str, Any] = field(default_factory=dict)
    age: timedelta = timedelta()
    """How long before `at` it was written: a shipper that starts anew may read a journal from its beginning."""


METRICS_KEY = "sim"
"""All samples of a cluster in one partition, as docs/detection.md asks of those who want a job's median."""

Render = Callable[[Said, datetime], tuple[str | None, bytes]]
"""What was said, and its time by the clock of its place, into a record's key and value."""


def _kmsg(said: Said, at: datetime) -> tuple[str | None, bytes]:
    boot_s = at.timestamp() % 10_000_000
    record = {"@timestamp": at.timestamp(), "priority": 4, "sequence": int(boot_s * 10), "sec": int(boot_s)}
    return said.place, orjson.dumps({**record, "usec": at.microsecond, "msg": said.text})


def _systemd(said: Said, at: datetime) -> tuple[str | None, bytes]:
    transport = "kernel" if said.program == "kernel" else "journal"
    record = {
        "@timestamp": at.timestamp(),
        "MESSAGE": said.text,
        "_HOSTNAME": said.place,
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": said.program,
        "_TRANSPORT": transport,
    }
    return said.place, orjson.dumps(record)


def _journald(said: Said, at: datetime) -> tuple[str | None, bytes]:
    record = {
        "message": said.text,
        "host": said.place,
        "timestamp": rfc3339(at),
        "source_type": "journald",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": said.program,
        "_TRANSPORT": "kernel" if said.program == "kernel" else "journal",
        "__REALTIME_TIMESTAMP": str(int(at.timestamp() * 1e6)),
    }
    return None, orjson.dumps(record)


def _otlp_journald(said: Said, at: datetime) -> tuple[str | None, bytes]:
    told = {
        "MESSAGE": said.text,
        "_HOSTNAME": said.place,
        "SYSLOG_IDENTIFIER": said.program,
        "_TRANSPORT": "kernel" if said.program == "kernel" else "journal",
        "__REALTIME_TIMESTAMP": str(int(at.timestamp() * 1e6)),
    }
    body = {"kvlistValue": {"values": _attributes(told)}}
    return None, _otlp_logs({"host.name": said.place}, body, {}, at)


def _syslog(said: Said, at: datetime) -> tuple[str | None, bytes]:
    clock = f"[{at.timestamp() % 10_000_000:.6f}] " if said.program == "kernel" else ""
    return said.place, f"{at:%b %d %H:%M:%S} {said.place} {said.program}: {clock}{said.text}".encode()


def _syslog5424(said: Said, at: datetime) -> tuple[str | None, bytes]:
    return said.place, f"<4>1 {rfc3339(at)} {said.place} {said.program} - - - {said.text}".encode()


def _tail(said: Said, at: datetime) -> tuple[str | None, bytes]:
    pod = said.pod
    about = {
        "pod_name": pod["name"],
        "namespace_name": pod["namespace"],
        "pod_id": pod["uid"],
        "host": pod["node"],
        "container_name": "pytorch",
    }
    record = {"@timestamp": at.timestamp(), "log": said.text + "\n", "stream": "stderr", "kubernetes": about}
    return f"{pod['namespace']}/{pod['name']}", orjson.dumps(record)


def _vector_pod(said: Said, at: datetime) -> tuple[str | None, bytes]:
    pod = said.pod
    about = {
        "pod_name": pod["name"],
        "pod_namespace": pod["namespace"],
        "pod_uid": pod["uid"],
        "pod_node_name": pod["node"],
        "container_name": "pytorch",
    }
    record = {"kubernetes": about, "message": said.text, "source_type": "kubernetes_logs", "stream": "stderr"}
    return f"{pod['namespace']}/{pod['name']}", orjson.dumps(record | {"timestamp": rfc3339(at)})


def _otlp_pod(said: Said, at: datetime) -> tuple[str | None, bytes]:
    pod = said.pod
    about = {
        "k8s.node.name": pod["node"],
        "k8s.pod.name": pod["name"],
        "k8s.pod.uid": pod["uid"],
        "k8s.namespace.name": pod["namespace"],
        "k8s.container.name": "pytorch",
    }
    body = {"stringValue": said.text}
    return f"{pod['namespace']}/{pod['name']}", _otlp_logs(about, body, {"log.iostream": "stderr"}, at)


def _as_it_is(said: Said, at: datetime) -> tuple[str | None, bytes]:
    """What somebody uploads is no line of a log."""
    return None, said.text.encode()


def _adapter(said: Said, at: datetime) -> tuple[str | None, bytes]:
    value = f"{said.value:g}" if said.value < 1e6 else f"{said.value:.0f}"
    labels = {"__name__": said.program, **said.labels}
    record = {
        "timestamp": rfc3339(at.replace(microsecond=0)),
        "value": value,
        "name": said.program,
        "labels": labels,
    }
    return said.place, orjson.dumps(record)


def _telegraf(said: Said, at: datetime) -> tuple[str | None, bytes]:
    tags = {"host": said.place, **said.labels}
    written = ",".join(f"{name}={_escaped(value)}" for name, value in sorted(tags.items()))
    field_name = "counter" if said.program.endswith(("_duration", "_pause", "_total", "_events")) else "gauge"
    text = f"{said.program},{written} {field_name}={said.value:g} {int(at.timestamp() * 1e9)}"
    return said.place, text.encode()


def _otlp_metric(said: Said, at: datetime) -> tuple[str | None, bytes]:
    point = {
        "attributes": _attributes(said.labels),
        "timeUnixNano": str(int(at.timestamp() * 1e9)),
        "asDouble": said.value,
    }
    metric = {"name": said.program, "gauge": {"dataPoints": [point]}}
    resource = {"attributes": _attributes({"host.name": said.place, "service.name": "dcgm-exporter"})}
    scope = {"scope": {"name": "prometheusreceiver"}, "metrics": [metric]}
    return said.place, orjson.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})


def _switch(said: Said, at: datetime) -> tuple[str | None, bytes]:
    if said.program.startswith("%"):  # EOS puts a mnemonic behind the agent's name
        agent = "Ebra" if "LINEPROTO" in said.program else "PfcWatchdog"
        return said.place, f"{at:%b %d %H:%M:%S} {said.place} {agent}: {said.program}: {said.text}".encode()
    return said.place, f"{at:%b %d %H:%M:%S.%f} {said.place} NOTICE {said.program}: :- {said.text}".encode()


def _exporter(said: Said, at: datetime) -> tuple[str | None, bytes]:
    return kube_uid(said), orjson.dumps(_event(said, at) | {"clusterName": ""})


def _raw_event(said: Said, at: datetime) -> tuple[str | None, bytes]:
    return None, orjson.dumps({"@timestamp": at.timestamp()} | _event(said, at))


def _otlp_event(said: Said, at: datetime) -> tuple[str | None, bytes]:
    event = said.event
    about = {
        "k8s.event.reason": event["reason"],
        "k8s.event.name": f"{event['name']}.{to_millis(at):x}",
        "k8s.event.uid": kube_uid(said),
        "k8s.namespace.name": event["namespace"],
    }
    where = {"k8s.object.kind": event["kind"], "k8s.object.name": event["name"]}
    if event["host"]:
        where["k8s.node.name"] = event["host"]  # the receiver takes it from the event's source
    return None, _otlp_logs(where, {"stringValue": said.text}, about, at, severity=event["type"])


def _event(said: Said, at: datetime) -> dict[str, Any]:
    event, stamp = said.event, rfc3339(at.replace(microsecond=0))
    about = {"kind": event["kind"], "name": event["name"], "uid": event["uid"], "apiVersion": "v1"}
    if event["namespace"]:
        about["namespace"] = event["namespace"]
    metadata = {
        "name": f"{event['name']}.{to_millis(said.at):x}",
        "namespace": event["namespace"] or "default",
        "uid": kube_uid(said),
        "creationTimestamp": stamp,
    }
    return {
        "metadata": metadata,
        "reason": event["reason"],
        "message": said.text,
        "source": {"component": event["component"], "host": event["host"]},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "type": event["type"],
        "involvedObject": about,
    }


def kube_uid(said: Said) -> str:
    """The uid of an Event object."""
    event = said.event
    return f"{zlib.crc32(repr((event['name'], event['reason'], said.at)).encode()):08x}-0000-4000-8000-000000000000"


def _otlp_logs(
    resource: Mapping[str, str], body: Any, attributes: Mapping[str, str], at: datetime, severity: str = ""
) -> bytes:
    record = {
        "timeUnixNano": str(int(at.timestamp() * 1e9)),
        "body": body,
        "attributes": _attributes(attributes),
    }
    if severity:
        record["severityText"] = severity
    scope = {"scope": {"name": ""}, "logRecords": [record]}
    logs = {"resource": {"attributes": _attributes(resource)}, "scopeLogs": [scope]}
    return orjson.dumps({"resourceLogs": [logs]})


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in values.items()]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace(" ", "\\ ").replace("=", "\\=")


NODE_LOGS: Mapping[str, Render] = {
    "fluent-bit-kmsg": _kmsg,
    "fluent-bit-systemd": _systemd,
    "vector-journald": _journald,
    "otlp-journald": _otlp_journald,
    "rsyslog": _syslog,
    "rsyslog-5424": _syslog5424,
}
JOB_LOGS: Mapping[str, Render] = {
    "fluent-bit-tail": _tail,
    "vector-pods": _vector_pod,
    "otlp-filelog": _otlp_pod,
}
METRICS: Mapping[str, Render] = {
    "prometheus-kafka-adapter": _adapter,
    "telegraf": _telegraf,
    "otlp-metrics": _otlp_metric,
}
EVENTS: Mapping[str, Render] = {
    "event-exporter": _exporter,
    "fluent-bit-events": _raw_event,
    "otlp-events": _otlp_event,
}


@dataclass(frozen=True, slots=True)
class Site:
    """Which shippers a cluster uses, by name. `second` ships kernel lines again, as sites do that change over."""

    node_logs: str
    job_logs: str
    metrics: str
    events: str
    second: str | None = None

    @classmethod
    def draw(cls, rng: random.Random) -> Site:
        """Any mix of them."""
        node_logs = rng.choice(list(NODE_LOGS))
        second = rng.choice([None, None, None, *(name for name in NODE_LOGS if name != node_logs)])
        return cls(
            node_logs, rng.choice(list(JOB_LOGS)), rng.choice(list(METRICS)), rng.choice(list(EVENTS)), second
        )

    def renders(self, said: Said) -> tuple[Render, ...]:
        """Who ships it. Fluent Bit's kmsg input sees the kernel alone; programs of the host go by the journal there."""
        if said.topic is RAW_NODE_LOGS:
            if said.program != "kernel":
                return (_systemd if self.node_logs == "fluent-bit-kmsg" else NODE_LOGS[self.node_logs],)
            return (NODE_LOGS[self.node_logs], *((NODE_LOGS[self.second],) if self.second else ()))
        if said.program == RECORDER:
            return (_as_it_is,)
        if said.topic is RAW_JOB_LOGS:
            return (JOB_LOGS[self.job_logs],)
        if said.topic is RAW_METRICS:
            return (METRICS[self.metrics],)
        return (_switch,) if said.topic is RAW_FABRIC else (EVENTS[self.events],)


def ship(
    said: Iterable[Said], site: Site, noise: NoiseLevel, rng: random.Random
) -> dict[str, tuple[RawRecord, ...]]:
    """Records of each topic, in the order in which Kafka got them, with partitions and offsets."""
    skews: defaultdict[str, timedelta] = defaultdict(
        lambda: timedelta(seconds=rng.uniform(-noise.skew_s, noise.skew_s))
    )
    sent: dict[tuple[str, str], datetime] = {}
    arrivals: list[tuple[datetime, int, Topic, str | None, bytes]] = []
    for thing in sorted(said, key=lambda s: (s.at, s.topic.name, s.place)):
        clock = thing.pod.get("node", thing.place) if thing.topic is not RAW_K8S_EVENTS else "api-server"
        skew = skews[clock] if thing.topic is not RAW_METRICS else timedelta()
        for number, render in enumerate(site.renders(thing)):
            if not thing.vital and rng.random() < noise.lost_share:
                continue
            source = thing.place, f"{thing.topic.name}/{number}"
            delay = noise.delay_s * rng.lognormvariate(0, 0.6)
            if rng.random() < noise.late_share:
                delay += rng.uniform(0, noise.late_s)
            at = max(thing.at + timedelta(seconds=delay), sent.get(source, thing.at))
            sent[source] = at
            key, value = render(thing, thing.at - thing.age + skew)
            key = METRICS_KEY if thing.topic is RAW_METRICS else key
            arrivals.append((at, len(arrivals), thing.topic, key, value))
            if rng.random() < noise.duplicate_share:
                again = at + timedelta(seconds=rng.uniform(0.1, 20))
                arrivals.append((again, len(arrivals), thing.topic, key, value))
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
