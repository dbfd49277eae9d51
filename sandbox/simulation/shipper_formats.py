"""What the cluster emits, in the formats of shippers.

Each takes the record, its time by the clock of its place, and what the host is called in that pipeline.

Shapes: Fluent Bit's kmsg, systemd, tail and kubernetes_events inputs, Vector's journald and kubernetes_logs, the OpenTelemetry
collector's journald, filelog and k8s_events receivers, rsyslog, Filebeat, prometheus-kafka-adapter, Telegraf's line protocol,
kubernetes-event-exporter, and switches' own syslog.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import orjson

from streams.kafka.topics import Topic
from streams.model.clock import rfc3339, to_millis

UNCHANGED = "unchanged"
"""The program of documents that no shipper wraps: dumps that a sidecar uploads, what Telegraf asked a switch for."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """One log line, sample or event before any shipper has read it.

    `place` is the node, switch or pod it comes from. `vital` lines are the only trace of a fault and are never lost: without
    any trace nothing could find it.
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
    """How long before `at` it was written: a new shipper may read a journal from its beginning."""
    beside: tuple[SourceRecord, ...] = ()
    """Samples of the same scrape, where the shipper sends them together."""


Keyed = tuple[str | None, bytes]
"""The key and value of a record."""
Render = Callable[[SourceRecord, datetime], Keyed]
"""Formats what was emitted, with its time by the clock of its place."""


def kmsg(source: SourceRecord, at: datetime) -> Keyed:
    """Fluent Bit's kmsg input: only the key names the node."""
    boot_s = at.timestamp() % 10_000_000
    record = {"@timestamp": at.timestamp(), "priority": 4, "sequence": int(boot_s * 10), "sec": int(boot_s)}
    return source.place, orjson.dumps({**record, "usec": at.microsecond, "msg": source.text})


def systemd(source: SourceRecord, at: datetime) -> Keyed:
    """Fluent Bit's systemd input."""
    record = {
        "@timestamp": at.timestamp(),
        "MESSAGE": source.text,
        "_HOSTNAME": source.place,
        "PRIORITY": "4",
    }
    return source.place, orjson.dumps(record | _journal_fields(source))


def _journald(source: SourceRecord, at: datetime) -> Keyed:
    record = {
        "message": source.text,
        "host": source.place,
        "timestamp": rfc3339(at),
        "source_type": "journald",
        "PRIORITY": "4",
        **_journal_fields(source),
        "__REALTIME_TIMESTAMP": _since_epoch(at, 1e6),
    }
    return None, orjson.dumps(record)


def _otlp_journald(source: SourceRecord, at: datetime) -> Keyed:
    entry = {"MESSAGE": source.text, "_HOSTNAME": source.place, **_journal_fields(source)}
    entry["__REALTIME_TIMESTAMP"] = _since_epoch(at, 1e6)
    body = {"kvlistValue": {"values": _attributes(entry)}}
    return None, _otlp_logs({"host.name": source.place}, body, {}, at)


def _syslog(source: SourceRecord, at: datetime) -> Keyed:
    clock = f"[{at.timestamp() % 10_000_000:.6f}] " if source.program == "kernel" else ""
    return source.place, f"{at:%b %d %H:%M:%S} {source.place} {source.program}: {clock}{source.text}".encode()


def _syslog5424(source: SourceRecord, at: datetime) -> Keyed:
    return source.place, f"<4>1 {rfc3339(at)} {source.place} {source.program} - - - {source.text}".encode()


def tail(source: SourceRecord, at: datetime) -> Keyed:
    """Fluent Bit's tail input with its kubernetes filter."""
    pod = source.pod
    about = {
        "pod_name": pod["name"],
        "namespace_name": pod["namespace"],
        "pod_id": pod["uid"],
        "host": pod["node"],
        "container_name": pod["container"],
    }
    record = {
        "@timestamp": at.timestamp(),
        "log": f"{source.text}\n",
        "stream": "stderr",
        "kubernetes": about,
    }
    return source.place, orjson.dumps(record)


def _vector_pod(source: SourceRecord, at: datetime) -> Keyed:
    pod = source.pod
    about = {
        "pod_name": pod["name"],
        "pod_namespace": pod["namespace"],
        "pod_uid": pod["uid"],
        "pod_node_name": pod["node"],
        "container_name": pod["container"],
    }
    record = {
        "kubernetes": about,
        "message": source.text,
        "source_type": "kubernetes_logs",
        "stream": "stderr",
    }
    return source.place, orjson.dumps(record | {"timestamp": rfc3339(at)})


def _otlp_pod(source: SourceRecord, at: datetime) -> Keyed:
    pod = source.pod
    about = {
        "k8s.node.name": pod["node"],
        "k8s.pod.name": pod["name"],
        "k8s.pod.uid": pod["uid"],
        "k8s.namespace.name": pod["namespace"],
        "k8s.container.name": pod["container"],
    }
    body = {"stringValue": source.text}
    return source.place, _otlp_logs(about, body, {"log.iostream": "stderr"}, at)


def _filebeat(source: SourceRecord, at: datetime) -> Keyed:
    """Filebeat on the output files of Slurm's jobs: the file says which job, the line's first word which task."""
    pod = source.pod
    record = {
        "@timestamp": rfc3339(at),
        "message": f"{pod['task']}: {source.text}" if "task" in pod else source.text,
        "host": {"name": source.place},
        "log": {"file": {"path": f"/scratch/slurm-logs/{pod['job_name']}-{pod['job_id']}.out"}},
        "fields": {"slurm_job_id": pod["job_id"], "slurm_job_name": pod["job_name"]},
        "agent": {"type": "filebeat", "version": "8.13.4"},
    }
    return source.place, orjson.dumps(record)


def unchanged(source: SourceRecord, at: datetime) -> Keyed:
    """An uploaded document is no log line."""
    return None, source.text.encode()


def prometheus_adapter(source: SourceRecord, at: datetime) -> Keyed:
    """prometheus-kafka-adapter: seconds only, the value as text, no key."""
    value = f"{source.value:g}" if source.value < 1e6 else f"{source.value:.0f}"
    labels = {"__name__": source.program, **source.labels}
    record = {
        "timestamp": rfc3339(at.replace(microsecond=0)),
        "value": value,
        "name": source.program,
        "labels": labels,
    }
    return None, orjson.dumps(record)


def _telegraf(source: SourceRecord, at: datetime) -> Keyed:
    tags = {"host": source.place, **source.labels}
    written = ",".join(f"{name}={_escaped(value)}" for name, value in sorted(tags.items()))
    field_name = (
        "counter" if source.program.endswith(("_duration", "_pause", "_total", "_events")) else "gauge"
    )
    text = f"{source.program},{written} {field_name}={source.value:g} {_since_epoch(at, 1e9)}"
    return source.place, text.encode()


def _otlp_metrics(source: SourceRecord, at: datetime) -> Keyed:
    """A host's scrape is one record: what a collector receives at once it sends at once."""
    points: dict[str, list[dict[str, Any]]] = {}
    for one in (source, *source.beside):
        about = {
            "attributes": _attributes(one.labels),
            "timeUnixNano": _since_epoch(at, 1e9),
            "asDouble": one.value,
        }
        points.setdefault(one.program, []).append(about)
    metrics = [{"name": name, "gauge": {"dataPoints": mine}} for name, mine in points.items()]
    resource = {"attributes": _attributes({"host.name": source.place, "service.name": "dcgm-exporter"})}
    scope = {"scope": {"name": "prometheusreceiver"}, "metrics": metrics}
    return source.place, orjson.dumps({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})


def switch(source: SourceRecord, at: datetime) -> Keyed:
    """A switch's own syslog, or that of the manager of an InfiniBand fabric."""
    if source.program in ("redfish", "nvos"):
        return (
            source.place,
            f"<130>1 {rfc3339(at)} {source.place} {source.program} - - - {source.text}".encode(),
        )
    if source.program == "ufm":
        return source.place, f"<132>{at:%b %d %H:%M:%S} ufm01 ufm[1877]: {source.text}".encode()
    if source.program.startswith("%"):  # EOS puts a mnemonic behind the agent's name
        agent = "Ebra" if "LINEPROTO" in source.program else "PfcWatchdog"
        return (
            source.place,
            f"{at:%b %d %H:%M:%S} {source.place} {agent}: {source.program}: {source.text}".encode(),
        )
    return (
        source.place,
        f"{at:%b %d %H:%M:%S.%f} {source.place} NOTICE {source.program}: :- {source.text}".encode(),
    )


def event_exporter(source: SourceRecord, at: datetime) -> Keyed:
    """kubernetes-event-exporter."""
    return event_uid(source), orjson.dumps(_event(source, at) | {"clusterName": ""})


def _raw_event(source: SourceRecord, at: datetime) -> Keyed:
    return None, orjson.dumps({"@timestamp": at.timestamp()} | _event(source, at))


def _otlp_event(source: SourceRecord, at: datetime) -> Keyed:
    event = source.event
    about = {
        "k8s.event.reason": event["reason"],
        "k8s.event.name": f"{event['name']}.{to_millis(at):x}",
        "k8s.event.uid": event_uid(source),
        "k8s.namespace.name": event["namespace"],
    }
    where = {"k8s.object.kind": event["kind"], "k8s.object.name": event["name"]}
    if event["host"]:
        where["k8s.node.name"] = event["host"]  # the receiver takes it from the event's source
    return None, _otlp_logs(where, {"stringValue": source.text}, about, at, severity=event["type"])


def _event(source: SourceRecord, at: datetime) -> dict[str, Any]:
    event, stamp = source.event, rfc3339(at.replace(microsecond=0))
    about = {"kind": event["kind"], "name": event["name"], "uid": event["uid"], "apiVersion": "v1"}
    if event["namespace"]:
        about["namespace"] = event["namespace"]
    metadata = {
        "name": f"{event['name']}.{to_millis(source.at):x}",
        "namespace": event["namespace"] or "default",
        "uid": event_uid(source),
        "creationTimestamp": stamp,
    }
    return {
        "metadata": metadata,
        "reason": event["reason"],
        "message": source.text,
        "source": {"component": event["component"], "host": event["host"]},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "type": event["type"],
        "involvedObject": about,
    }


def event_uid(source: SourceRecord) -> str:
    """The uid of an Event object."""
    event = source.event
    return f"{zlib.crc32(repr((event['name'], event['reason'], source.at)).encode()):08x}-0000-4000-8000-000000000000"


def _otlp_logs(
    resource: Mapping[str, str], body: Any, attributes: Mapping[str, str], at: datetime, severity: str = ""
) -> bytes:
    record = {
        "timeUnixNano": _since_epoch(at, 1e9),
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


def _journal_fields(source: SourceRecord) -> dict[str, str]:
    transport = "kernel" if source.program == "kernel" else "journal"
    return {"SYSLOG_IDENTIFIER": source.program, "_TRANSPORT": transport}


def _since_epoch(at: datetime, units_per_s: float) -> str:
    return str(int(at.timestamp() * units_per_s))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace(",", "\\,").replace(" ", "\\ ").replace("=", "\\=")


NODE_LOGS: Mapping[str, Render] = {
    "fluent-bit-kmsg": kmsg,
    "fluent-bit-systemd": systemd,
    "vector-journald": _journald,
    "otlp-journald": _otlp_journald,
    "rsyslog": _syslog,
    "rsyslog-5424": _syslog5424,
}
JOB_LOGS: Mapping[str, Render] = {
    "fluent-bit-tail": tail,
    "vector-pods": _vector_pod,
    "otlp-filelog": _otlp_pod,
    "filebeat": _filebeat,
}
METRICS: Mapping[str, Render] = {
    "prometheus-kafka-adapter": prometheus_adapter,
    "telegraf": _telegraf,
    "otlp-metrics": _otlp_metrics,
}
TOGETHER = frozenset({"otlp-metrics"})
"""Formats of which one record holds a whole scrape of a host."""
EVENTS: Mapping[str, Render] = {
    "event-exporter": event_exporter,
    "fluent-bit-events": _raw_event,
    "otlp-events": _otlp_event,
}
