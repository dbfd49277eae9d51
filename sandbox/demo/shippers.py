"""How log lines, samples and events look when shippers have put them into Kafka: the records the demo writes.

Shapes: Fluent Bit's kmsg and tail inputs with the Kafka output, prometheus-kafka-adapter, kubernetes-event-exporter, and
the syslog of SONiC switches as plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import orjson

from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.clock import rfc3339


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be written."""

    topic: Topic
    key: str | None
    value: bytes


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A training pod as the storyteller sees it. `rank` is its first global rank; `job` is `namespace/name`."""

    namespace: str
    name: str
    uid: str
    node: str
    ip: str
    job: str
    rank: int


def kernel_line(node: str, text: str, at: datetime, *, priority: int = 4) -> Record:
    """A line of a node's kernel log, through Fluent Bit's kmsg input; only the key names the node."""
    boot_s = at.timestamp() % 10_000_000
    value = {
        "@timestamp": at.timestamp(),
        "priority": priority,
        "sequence": int(boot_s * 10),
        "sec": int(boot_s),
        "usec": at.microsecond,
        "msg": text,
    }
    return Record(RAW_NODE_LOGS, node, orjson.dumps(value))


def pod_line(pod: RunningPod, text: str, at: datetime, *, stream: str = "stderr") -> Record:
    """A line of a container's output, through Fluent Bit's tail input and kubernetes filter."""
    value = {
        "@timestamp": at.timestamp(),
        "log": text + "\n",
        "stream": stream,
        "kubernetes": {
            "pod_name": pod.name,
            "namespace_name": pod.namespace,
            "pod_id": pod.uid,
            "host": pod.node,
            "container_name": "pytorch",
            "container_image": "training:24.08",
        },
    }
    return Record(RAW_JOB_LOGS, f"{pod.namespace}/{pod.name}", orjson.dumps(value))


def sample(name: str, value: float, labels: Mapping[str, str], at: datetime) -> Record:
    """One sample, through prometheus-kafka-adapter: seconds only, the value as text, no key."""
    record = {
        "timestamp": rfc3339(at.replace(microsecond=0)),
        "value": f"{value:g}" if value < 1e6 else f"{value:.0f}",
        "name": name,
        "labels": {"__name__": name, **labels},
    }
    return Record(RAW_METRICS, None, orjson.dumps(record))


def switch_line(switch: str, text: str, at: datetime) -> Record:
    """A line of a switch's syslog, as SONiC's rsyslog words it."""
    stamp = at.strftime("%b %d %H:%M:%S.%f")
    return Record(RAW_FABRIC, switch, f"{stamp} {switch} NOTICE swss#orchagent: :- {text}".encode())


def event(kind: str, namespace: str, name: str, reason: str, message: str, at: datetime) -> Record:
    """A Kubernetes Event, through kubernetes-event-exporter."""
    stamp = rfc3339(at.replace(microsecond=0))
    about = {"kind": kind, "name": name, "uid": name, "apiVersion": "v1"}
    if namespace:
        about["namespace"] = namespace
    value = {
        "metadata": {
            "name": f"{name}.{int(at.timestamp() * 1000):x}",
            "namespace": namespace or "default",
            "creationTimestamp": stamp,
        },
        "reason": reason,
        "message": message,
        "source": {"component": "node-controller"},
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
        "type": "Warning" if reason in ("NodeNotReady", "FailedScheduling") else "Normal",
        "involvedObject": about,
        "clusterName": "",
    }
    return Record(RAW_K8S_EVENTS, None, orjson.dumps(value))
