"""The records the demo writes: log lines, samples and events as shippers put them into Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sandbox.simulation import shipper_formats
from sandbox.simulation.shipper_formats import Render, SourceRecord
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS, Topic


@dataclass(frozen=True, slots=True)
class Record:
    """One record to be written."""

    topic: Topic
    key: str | None
    value: bytes


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A training pod as the API server shows it. `rank` is its first global rank; `job` is `namespace/name`."""

    namespace: str
    name: str
    uid: str
    node: str
    ip: str
    job: str
    rank: int


def kernel_line(node: str, text: str, at: datetime) -> Record:
    """A line of a node's kernel log, through Fluent Bit's kmsg input; only the key names the node."""
    return _shipped(SourceRecord(at, RAW_NODE_LOGS, node, "kernel", text), shipper_formats.kmsg)


def pod_line(pod: RunningPod, text: str, at: datetime) -> Record:
    """A line of a container's output, through Fluent Bit's tail input and kubernetes filter."""
    about = {
        "namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "node": pod.node, "container": "pytorch",
    }  # fmt: skip
    source = SourceRecord(at, RAW_JOB_LOGS, f"{pod.namespace}/{pod.name}", "pytorch", text, pod=about)
    return _shipped(source, shipper_formats.tail)


def sample(name: str, value: float, labels: Mapping[str, str], at: datetime) -> Record:
    """One sample, through prometheus-kafka-adapter."""
    source = SourceRecord(at, RAW_METRICS, "", name, labels=labels, value=value)
    return _shipped(source, shipper_formats.prometheus_adapter)


def switch_line(switch: str, text: str, at: datetime) -> Record:
    """A line of a switch's syslog, as SONiC's rsyslog words it."""
    return _shipped(SourceRecord(at, RAW_FABRIC, switch, "swss#orchagent", text), shipper_formats.switch)


def node_event(node: str, reason: str, message: str, at: datetime) -> Record:
    """A Kubernetes Event about a node, through kubernetes-event-exporter."""
    about = {
        "kind": "Node", "namespace": "", "name": node, "uid": node, "reason": reason,
        "component": "node-controller", "host": "", "type": "Normal",
    }  # fmt: skip
    source = SourceRecord(at, RAW_K8S_EVENTS, node, "node-controller", message, event=about)
    return _shipped(source, shipper_formats.event_exporter)


def _shipped(source: SourceRecord, render: Render) -> Record:
    return Record(source.topic, *render(source, source.at))
