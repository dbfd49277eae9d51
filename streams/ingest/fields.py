"""The fields of a shipper's record under one spelling, whatever its own: nested, flattened, dotted, in any case.

`{"kubernetes": {"pod": {"name"}}}`, `kubernetes.pod_name` and `kubernetes_pod_name` are all `kubernetes_pod_name`; `_HOSTNAME`
and `hostname` are `hostname`; `@timestamp` and `Timestamp` are `timestamp`. So a format is a list of names (`field_names.yaml`),
and a shipper configured to rename or flatten its fields is still read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from streams.config.yaml_tables import Strict, load_table
from streams.ingest import levels, timestamps
from streams.ingest.header import KERNEL_TAGS
from streams.ingest.records import Origin
from streams.model.entity import SLURM, PodRef

_POD_DIRECTORY = re.compile(
    r"/pods/(?P<namespace>[a-z0-9-]{1,63})_(?P<pod>[a-z0-9.-]{1,253})_(?P<uid>[0-9a-f-]{8,64})"
    r"(?:/(?P<container>[a-z0-9.-]{1,63})(?:/|$)|$)"
)
"""`/var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log`, the kubelet's file of a container's output."""
_POD_LINK = re.compile(
    r"[./]containers[./](?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9.-]{1,63})"
    r"-[0-9a-f]{12,64}(?:\.log)?"
)
"""`/var/log/containers/POD_NAMESPACE_CONTAINER-<64 hex>.log`, its link; a tag of Fluent Bit has dots for slashes."""

_POD_FILE = re.compile(
    r"(?:\S{0,200}[./])?(?P<pod>[a-z0-9.-]{1,253})_(?P<namespace>[a-z0-9-]{1,63})_(?P<container>[a-z0-9.-]{1,63})"
    r"-[0-9a-f]{64}(?:\.log)?",
    re.ASCII,
)
"""The same file by its own name, as shippers key records by it: no host is called so."""

_SLURM_ID = re.compile(r"(\d{1,10}(?:_\d{1,7})?)(?:\.(?:\d{1,6}|batch))?", re.ASCII)
"""A job, or a task of an array; behind a dot is a step."""
_SLURM_OUTPUT = re.compile(
    r"(?:(?:^|/)slurm[-_.]|slurm[^/]{0,64}/(?:[^/]{1,128}/){0,4}(?!slurm[a-z])(?:[^/]{0,128}[-_.])?)(\d{2,10}(?:_\d{1,7})?)"
    r"(?:[-_.][\w-]{1,64})?\.(?:out|err|log|txt)$",
    re.ASCII,
)
"""`slurm-48873.out` (sbatch, --output), or a name of the site's own with the number in it, in a directory of Slurm's."""

_SLURM_DIRECTORY = re.compile(
    r"slurm[^/]{0,64}/(?:[^/]{1,128}/){0,4}?(?!20[2-9]\d/)(\d{3,10}(?:_\d{1,7})?)/(?!slurm[a-z])[^/]{1,128}\.(?:out|err|log|txt)$",
    re.ASCII,
)
"""`/run/slurm-logs/48873/vlm.task044.out`: a directory for each job, with a file for each task; a year is no number of a job."""

_JOB_OUTPUT = re.compile(
    r"/[^/]{1,128}[-_.](?!20[2-9]\d[01]\d[0-3]\d\.)(\d{4,10}(?:_\d{1,7})?)\.(?:out|err)$", re.ASCII
)
"""`pretrain-48873.out` (sbatch, `--output %x-%j.out`); a date is no number of a job."""

_KERNEL_FACILITIES = frozenset({"kern", "kernel", "0"})
_KMSG = frozenset({"priority", "sequence", "sec"})
_NOT_A_HOST = re.compile(r"[\s\"'{}<>]")
_TAG = re.compile(r"(?P<program>[\w./#@+-]{1,64})(?P<ends>(?:\[[\w.-]{0,32}\])?:?)\s?$")
_MAX_DEPTH = 4
_MAX_FIELDS = 256
_MAX_NAMES = 4096

_names: dict[str, str] = {}


class FieldNames(Strict):
    """`field_names.yaml`: the names under which shippers put each part of a record, the surest first."""

    texts: tuple[str, ...]
    nested_texts: tuple[str, ...]
    errors: tuple[str, ...]
    beside: tuple[str, ...]
    line_fields: frozenset[str]
    writers: tuple[str, ...]
    hosts: tuple[str, ...]
    pod_hosts: tuple[str, ...]
    pod_names: tuple[str, ...]
    namespaces: tuple[str, ...]
    pod_uids: tuple[str, ...]
    containers: tuple[str, ...]
    paths: tuple[str, ...]
    slurm_jobs: tuple[str, ...]
    times: tuple[str, ...]
    programs: tuple[str, ...]
    transports: tuple[str, ...]
    facilities: tuple[str, ...]
    streams: tuple[str, ...]
    chat_fields: frozenset[str]
    user_maps: frozenset[str]
    node_labels: tuple[str, ...]
    node_agents: frozenset[str]


NAMES = load_table(Path(__file__).with_name("field_names.yaml"), FieldNames)


class Fields(dict[str, Any]):
    """The values of a record by the one spelling of their names. The first value of a name that is not empty counts."""

    def text(self, names: tuple[str, ...]) -> str | None:
        """The value of the first of these fields that can be a host or a pod: short, without blanks or quotes."""
        for name in names:
            value = self.get(name)
            if type(value) is list and value:
                value = value[0]
            if isinstance(value, str) and 0 < len(value) <= 253 and not _NOT_A_HOST.search(value):
                return value
        return None

    def origin(self) -> Origin:
        """Host, pod, program and time of the writer, as far as the fields say."""
        at, certain = self._at()
        pod, container = self._pod()
        node = self.text(NAMES.pod_hosts) if pod is not None else None
        sure = node is not None
        if node is None and (node := self.text(NAMES.writers)) is not None:
            sure = True
        source = "container" if pod is not None else self._source()
        level = levels.of_fields(self)
        return Origin(at, node or self.text(NAMES.hosts), pod, container, source, certain, sure, level)

    def _at(self) -> tuple[datetime | None, bool]:
        for name in NAMES.times:
            value = self.get(name)
            if type(value) is list and len(value) == 1:
                value = value[0]
            if value is not None and (at := timestamps.any_form(value)) is not None:
                return at, not isinstance(value, str) or timestamps.has_zone(value)
        return None, False

    def _pod(self) -> tuple[PodRef | None, str | None]:
        container = self.text(NAMES.containers)
        name, namespace = self.text(NAMES.pod_names), self.text(NAMES.namespaces)
        if name is not None and namespace is not None:
            return PodRef(namespace, name, self.text(NAMES.pod_uids)), container
        for field in NAMES.paths:
            path = self.get(field)
            if isinstance(path, str) and (found := _pod_of(path[:1024])) is not None:
                return found[0], container or found[1]
        return self._slurm_job(), container

    def _slurm_job(self) -> PodRef | None:
        """The Slurm job whose output this is: by a field, else by the name of its file."""
        for name in NAMES.slurm_jobs:
            if (value := self.get(name)) is not None and (match := _SLURM_ID.fullmatch(str(value)[:32])):
                return PodRef(SLURM, match[1])
        for name in NAMES.paths:
            path = self.get(name)
            if not isinstance(path, str) or not path.endswith((".out", ".err", ".log", ".txt")):
                continue
            match = _of_slurm(path[-1024:]) if "slurm" in path else None
            if match is None and not path.startswith("/var/"):
                match = _JOB_OUTPUT.search(path[-1024:])
            if match is not None:
                return PodRef(SLURM, match[1])
        return None

    def _source(self) -> str:
        if (
            self.text(NAMES.transports) == "kernel"
            or self.keys() >= _KMSG
            or self.get("source_type") == "dmesg"
        ):
            return "kernel"
        for name in NAMES.facilities:
            if (facility := self.get(name)) is not None and str(facility).lower() in _KERNEL_FACILITIES:
                return "kernel"
        for name in NAMES.programs:
            value = self.get(name)
            if isinstance(value, str) and (match := _TAG.match(value)) is not None:
                if name == "tag" and not (
                    match["ends"] or "severity" in self or match["program"] in KERNEL_TAGS
                ):
                    continue  # the routing tag of Fluent Bit and Fluentd
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
            if depth and (name not in NAMES.user_maps or prefix == "resource_") and len(into) < _MAX_FIELDS:
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


def _of_slurm(path: str) -> re.Match[str] | None:
    return _SLURM_DIRECTORY.search(path) or _SLURM_OUTPUT.search(path)


def _pod_of(path: str) -> tuple[PodRef, str | None] | None:
    """Pod and container of a log file the kubelet named; None for any other file."""
    if "/pods/" in path and (match := _POD_DIRECTORY.search(path)) is not None:
        return PodRef(match["namespace"], match["pod"], match["uid"]), match["container"]
    if "containers" in path and (match := _POD_LINK.search(path)) is not None:
        return PodRef(match["namespace"], match["pod"]), match["container"]
    return None


def pod_in_key(key: str) -> tuple[PodRef, str] | None:
    """The pod and the container in a record's key that is the name of a container's log file; None for any other key."""
    match = _POD_FILE.fullmatch(key)
    return (PodRef(match["namespace"], match["pod"]), match["container"]) if match is not None else None


def is_chat_record(record: Mapping[str, Any]) -> bool:
    """True for a message from a chat, a forum or a prompt: people quote log lines there."""
    return not NAMES.chat_fields.isdisjoint(record)
