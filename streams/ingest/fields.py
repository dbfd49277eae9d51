"""The fields of a shipper's record under one spelling, whatever its own: nested, flattened, dotted, in any case.

`{"kubernetes": {"pod": {"name"}}}`, `kubernetes.pod_name` and `kubernetes_pod_name` are all `kubernetes_pod_name`; `_HOSTNAME`
and `hostname` are `hostname`; `@timestamp` and `Timestamp` are `timestamp`. So a shape is a list of names, and a shipper that is
configured to rename, lift or strip is still read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streams.ingest import pod_paths, timestamps
from streams.ingest.header import KERNEL_TAGS
from streams.ingest.records import Origin
from streams.model.entity import PodRef

TEXTS = (
    "message",
    "msg",
    "log",
    "line",
    "short_message",
    "textpayload",
    "event_original",
    "body",
    "text",
    "content",
    "rawmsg",
    "raw",
    "syslogmessage",
    "event",
    "record",
    "payload",
    "data",
    "value",
)
"""Where shippers put the text, the surest first."""

_WRITERS = (
    "log_syslog_hostname",
    "syslog_hostname",
    "hostname",
    "nodename",
    "node_name",
    "k8s_node_name",
    "resource_labels_node_name",
    "host_name",
    "host_hostname",
    "sysloghost",
    "source_host",
    "logsource",
    "computer",
)
_HOSTS = (
    "host",
    "node",
    "fromhost",
    "beat_hostname",
    "agent_hostname",
    "instance_name",
    "fromhost_ip",
    "source_ip",
    "host_ip",
)
_POD_HOSTS = (
    "kubernetes_host",
    "kubernetes_node_name",
    "kubernetes_pod_node_name",
    "kubernetes_node",
    "kubernetes_node_hostname",
    "k8s_node_name",
    "pod_node_name",
)
_POD_NAMES = (
    "kubernetes_pod_name",
    "kubernetes_pod",
    "k8s_pod_name",
    "resource_labels_pod_name",
    "kubernetes_name",
    "pod_name",
    "podname",
    "pod",
)
_NAMESPACES = (
    "kubernetes_namespace_name",
    "kubernetes_pod_namespace",
    "kubernetes_namespace",
    "k8s_namespace_name",
    "resource_labels_namespace_name",
    "namespace_name",
    "pod_namespace",
    "namespace",
)
_UIDS = ("kubernetes_pod_id", "kubernetes_pod_uid", "kubernetes_uid", "k8s_pod_uid", "pod_id", "pod_uid")
_CONTAINERS = (
    "kubernetes_container_name",
    "kubernetes_container",
    "k8s_container_name",
    "resource_labels_container_name",
    "container_name",
    "container",
)
_PATHS = (
    "file",
    "filepath",
    "filename",
    "path",
    "log_file_path",
    "file_path",
    "file_name",
    "log_file_name",
    "tag",
)
_TIMES = (
    "timestamp",
    "date",
    "time",
    "ts",
    "timereported",
    "syslog_timestamp",
    "event_time",
    "eventtime",
    "datetime",
    "asctime",
    "source_realtime_timestamp",
    "realtime_timestamp",
    "timegenerated",
    "log_time",
    "t",
)
_PROGRAMS = (
    "syslog_identifier",
    "ident",
    "appname",
    "app_name",
    "log_syslog_appname",
    "programname",
    "program",
    "syslogtag",
    "syslog_tag",
    "tag",
    "process_name",
    "processname",
    "comm",
)
_TRANSPORTS = ("transport", "systemd_transport", "journald_transport")
_FACILITIES = (
    "facility",
    "syslog_facility",
    "syslogfacility",
    "syslogfacility_text",
    "facility_label",
    "syslog_facility_name",
    "log_syslog_facility_name",
    "log_syslog_facility_code",
)
_KERNEL_FACILITIES = frozenset({"kern", "kernel", "0"})
_KMSG = frozenset({"priority", "sequence", "sec"})
_SPEAKER = frozenset({"channel", "thread_ts", "author", "username", "role", "sender", "assignee", "reporter"})
"""Fields of what people say; programs have none of them."""

_NOT_A_HOST = re.compile(r"[\s\"'{}<>]")
_TAG = re.compile(r"(?P<program>[\w./#@+-]{1,64})(?P<ends>(?:\[[\w.-]{0,32}\])?:?)\s?$")
_UNREAD = frozenset(
    {"labels", "annotations", "pod_labels", "namespace_labels", "node_labels", "pod_annotations"}
)
"""Maps of people's own names, of which none says where a line comes from; but those of a cloud's `resource` do."""

_MAX_DEPTH = 4
_MAX_FIELDS = 256
_MAX_NAMES = 4096

_names: dict[str, str] = {}


class Fields(dict[str, Any]):
    """Values by the one spelling of their names. Of two fields of the same name the first that is not empty counts."""

    def text(self, names: tuple[str, ...]) -> str | None:
        """The first of the named fields that can be a name: short, without blanks or quotes."""
        for name in names:
            value = self.get(name)
            if type(value) is list and value:
                value = value[0]
            if isinstance(value, str) and 0 < len(value) <= 253 and not _NOT_A_HOST.search(value):
                return value
        return None

    def origin(self) -> Origin:
        """Who wrote, where and when, as far as the fields say."""
        at, certain = self._at()
        pod, container = self._pod()
        node = self.text(_POD_HOSTS) if pod is not None else None
        sure = node is not None
        if node is None and (node := self.text(_WRITERS)) is not None:
            sure = True
        source = "container" if pod is not None else self._source()
        return Origin(at, node or self.text(_HOSTS), pod, container, source, certain, sure)

    def _at(self) -> tuple[datetime | None, bool]:
        for name in _TIMES:
            value = self.get(name)
            if type(value) is list and len(value) == 1:
                value = value[0]
            if value is not None and (at := timestamps.any_form(value)) is not None:
                return at, not isinstance(value, str) or timestamps.has_zone(value)
        return None, False

    def _pod(self) -> tuple[PodRef | None, str | None]:
        container = self.text(_CONTAINERS)
        name, namespace = self.text(_POD_NAMES), self.text(_NAMESPACES)
        if name is not None and namespace is not None:
            return PodRef(namespace, name, self.text(_UIDS)), container
        for field in _PATHS:
            path = self.get(field)
            if isinstance(path, str) and (found := pod_paths.pod_of(path[:1024])) is not None:
                return found[0], container or found[1]
        return None, container

    def _source(self) -> str:
        if self.text(_TRANSPORTS) == "kernel" or self.keys() >= _KMSG or self.get("source_type") == "dmesg":
            return "kernel"
        for name in _FACILITIES:
            if (facility := self.get(name)) is not None and str(facility).lower() in _KERNEL_FACILITIES:
                return "kernel"
        for name in _PROGRAMS:
            value = self.get(name)
            if isinstance(value, str) and (match := _TAG.match(value)) is not None:
                if name == "tag" and not (
                    match["ends"] or "severity" in self or match["program"] in KERNEL_TAGS
                ):
                    continue  # where Fluent Bit and Fluentd say which way a record goes
                return "kernel" if match["program"] in KERNEL_TAGS else match["program"]
        return ""


def fields(record: Mapping[str, Any]) -> Fields:
    """The fields of a record and of the maps within it, to a bounded depth and number."""
    found = Fields()
    _gather(record, "", found, _MAX_DEPTH)
    return found


def _gather(record: Mapping[str, Any], prefix: str, into: Fields, depth: int) -> None:
    for key, value in record.items():
        name = _names.get(key) or _named(key)
        if isinstance(value, dict):
            if depth and (name not in _UNREAD or prefix == "resource_") and len(into) < _MAX_FIELDS:
                _gather(value, f"{prefix}{name}_", into, depth - 1)
            continue
        if value is None or value == "" or len(into) >= _MAX_FIELDS:
            continue
        into.setdefault(prefix + name if prefix else name, value)


def _named(key: str) -> str:
    name = "".join("_" if c in ".-/ :" else c for c in key[:128].lower()).strip("_@")
    if len(_names) < _MAX_NAMES:
        _names[key] = name
    return name


def is_chat_record(record: Mapping[str, Any]) -> bool:
    """True for what people said, retold by a chat, a forum or a model's prompt."""
    return not _SPEAKER.isdisjoint(record)
