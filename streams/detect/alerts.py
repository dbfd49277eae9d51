"""Alerts of other people's rules: the table `catalog/alerts.yaml` gives their kind, their labels the place.

Annotations change between two notifications of one alert (they hold current values), so they are no attributes: an alert sent
again is the same signal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from streams.config.vocabularies import KindName
from streams.config.yaml_tables import Strict
from streams.detect import xid_catalog
from streams.detect.catalog import load_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.re2_patterns import Pattern
from streams.detect.storage_alerts import StorageAlerts, StorageAlertSheet
from streams.ingest.metrics.labels import node_of
from streams.model.entity import SLURM, Gpu, JobRef, PodRef, canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import Alert
from streams.model.signal import RACK, SERVES, Severity, SignalState
from streams.model.switch_descriptions import read_description

UNMAPPED = SignalKind.ALERT_UNMAPPED
"""An alert whose own label names an unknown kind: nothing acts on it, and the author of its rule can find it."""

KINDS = frozenset(kind for kind in SignalKind if not kind.startswith(("run.", "alert."))) - {
    SignalKind.JOB_PROGRESS,
    SignalKind.JOB_BUSY,
    SignalKind.JOB_CHECKPOINT,
    SignalKind.JOB_RANK,
    SignalKind.JOB_ALLOCATION,
    SignalKind.FABRIC_NEIGHBOUR,
    SignalKind.FABRIC_NIC_NAMES,
    SignalKind.NODE_GPUS,
}
"""Kinds that the label of an alert may name."""

_SUBTYPE = re.compile(r"[a-z][a-z0-9_]{1,39}")
"""What a rule may name as subtype: the word of a row, no sentence."""

_SEPARATORS = str.maketrans("", "", "_-./: ")
_PORTS = ("port", "ifName", "interface", "ifDescr", "ifname", "port_name")
_SWITCHES = ("switch", "sysName", "switch_name")
_OF_PARTS = (SignalKind.NODE_POWER, SignalKind.NODE_THERMAL)
"""Kinds of alerts that may tell of what many nodes share instead of one."""
_INSIDE = re.compile(r"(?i)(?:feed[ -]?)?(?:[a-z]|\d{1,3})")
"""The letter or the number of a part within another one."""
_RACKS = ("rack", "rack_name")
_SERVED = ("serves", "served_racks", "racks_served", "racks")
_PARTS = (
    "pdu",
    "pdu_name",
    "power_feed",
    "feed",
    "cdu",
    "cdu_name",
    "coolant_loop",
    "chassis",
    *_RACKS,
)
_HOSTS = ("node", "nodename", "hostname", "Hostname", "host", "kubernetes_node")
_SLURM_JOBS = ("slurm_job_id", "slurm_jobid", "slurm_job", "slurmjobid", "job_id", "jobid", "JobId")
_SLURM_NUMBER = re.compile(r"\d{1,10}(?:_\d{1,7})?", re.ASCII)
_KEPT = {
    "queue": "queue",
    "priority": "priority",
    "link": "link",
    "mountpoint": "mountpoint",
    "fstype": "fstype",
    "name": "service",
    "container": "container",
    "sensor": "sensor",
    "reason": "reason",
    "condition": "condition",
}
"""Labels that become attributes, under the name on the right."""
_NUMBERS = frozenset({"queue", "priority", "link"})
_CODES = {"xid": ("xid", "err_code", "code", "xid_code"), "sxid": ("sxid", "err_code", "code")}
_MAX_VALUE = 256


class AlertRow(Strict):
    """What an alert becomes. `needs`: the code it must name, else it is `instead`; `users`: not in system namespaces."""

    alert: str
    where: Mapping[str, str] = {}
    kind: KindName
    severity: Severity
    subtype: str = ""
    needs: str | None = None
    instead: KindName | None = None
    users: bool = False


class AlertLabels(Strict):
    """An alert given by name and labels."""

    alert: str
    labels: Mapping[str, str]


class AlertSample(AlertLabels):
    """An alert and what it must become."""

    kind: KindName
    entity: str | None = None
    expect: Mapping[str, Any] = {}


class AlertSheet(Strict):
    """`catalog/alerts.yaml`."""

    kind_label: str
    subtype_label: str
    ignored: frozenset[str]
    system_namespaces: str
    severities: Mapping[str, Severity]
    storage: StorageAlertSheet
    rows: tuple[AlertRow, ...]
    look_alikes: tuple[AlertLabels, ...]
    samples: tuple[AlertSample, ...]


@cache
def sheet() -> AlertSheet:
    """The table, read once."""
    return load_catalog("alerts", AlertSheet)


class Alerts:
    """Reads alerts."""

    hints = (rb"startsAt|activeAt|endsAt", rb"\"alertname\\{0,3}\"\s{0,4}:")

    def __init__(self) -> None:
        self._sheet = sheet()
        self._system = re2_patterns.compile(self._sheet.system_namespaces)
        self._storages = StorageAlerts(self._sheet.storage)
        self._rows: list[tuple[AlertRow, Pattern, dict[str, Pattern]]] = [
            (
                row,
                re2_patterns.compile(row.alert),
                {label: re2_patterns.compile(p) for label, p in row.where.items()},
            )
            for row in self._sheet.rows
        ]

    def read(self, alert: Alert, stream: Stream) -> Iterator[Finding]:
        """The one signal of an alert; none for those that the table does not know: most are about something else."""
        if _plain(alert.name) in self._sheet.ignored:
            return
        labels = {name: value[:_MAX_VALUE] for name, value in alert.labels.items()}
        if (of_storage := self._of_storage(alert, labels, stream)) is not None:
            yield of_storage
            return
        classified = self._kind(_plain(alert.name), labels)
        if classified is None:
            return
        kind, severity, subtype = classified
        attributes = _attributes(alert.name, labels, kind)
        if subtype:
            attributes["subtype"] = subtype
        state = SignalState.FIRING if alert.firing else SignalState.CLEARED
        found = _placed(Finding(kind, severity, attributes, state), labels)
        # Alertmanager dates its alerts: one with neither time nor place is quoted by a person, and the end of an alert
        # without a place clears nothing.
        placed = found.node or found.pod or found.job or found.gpu
        if placed or (alert.firing and alert.at is not None):
            yield found

    def _of_storage(self, alert: Alert, labels: Mapping[str, str], stream: Stream) -> Finding | None:
        """The signal of an alert about a storage, at the host that its labels name, else at the storage itself."""
        if self._sheet.kind_label in labels:
            return None
        read = self._storages.read(_plain(alert.name), labels, stream.cluster)
        if read is None:
            return None
        attributes = {**_attributes(alert.name, labels, SignalKind.NODE_STORAGE), **read.attributes}
        attributes["subtype"] = "remote_filesystem"
        severity = Severity.ERROR if read.gone else Severity.WARNING
        state = SignalState.FIRING if alert.firing else SignalState.CLEARED
        found = _placed(Finding(SignalKind.NODE_STORAGE, severity, attributes, state), labels)
        # What a probe asks has a URL for its instance, and that is no host.
        if found.node is not None and "/" not in found.node:
            return found
        return found._replace(node=None, storage=read.name) if read.name is not None else None

    def _kind(self, name: str, labels: Mapping[str, str]) -> tuple[str, Severity, str] | None:
        own_kind = labels.get(self._sheet.kind_label)
        if own_kind is not None:
            severity = self._sheet.severities.get(labels.get("severity", "").lower(), Severity.WARNING)
            if own_kind not in KINDS:
                return UNMAPPED, Severity.INFO, ""
            subtype = labels.get(self._sheet.subtype_label, "")
            return own_kind, severity, subtype if _SUBTYPE.fullmatch(subtype) else ""
        for row, pattern, where in self._rows:
            if not pattern.search(name):
                continue
            if any(not p.search(labels.get(label, "")) for label, p in where.items()):
                continue
            if row.users and self._system.search(labels.get("namespace", "")):
                continue
            if row.needs is None:
                return row.kind, row.severity, row.subtype
            if _code(labels, row.needs) is not None:
                return row.kind, row.severity, ""
            return (row.instead, row.severity, row.subtype) if row.instead else None
        return None


def _plain(name: str) -> str:
    return name[:_MAX_VALUE].translate(_SEPARATORS).lower()


def _code(labels: Mapping[str, str], name: str) -> int | None:
    """The code in the labels, which hold whatever the author of the rule wrote."""
    found = (labels.get(label, "") for label in _CODES[name])
    return next((int(value) for value in found if value.isdecimal() and 0 < len(value) < 6), None)


def _attributes(name: str, labels: Mapping[str, str], kind: str) -> Attributes:
    attributes: Attributes = {"alert": name[:_MAX_VALUE]}
    if severity := labels.get("severity"):
        attributes["severity"] = severity
    for label, attribute in _KEPT.items():
        if value := labels.get(label):
            numeric = attribute in _NUMBERS and value.isdecimal() and len(value) < 10
            attributes[attribute] = int(value) if numeric else value
    for wanted in (SignalKind.GPU_XID, SignalKind.GPU_SXID):
        code = wanted.removeprefix("gpu.")
        if kind == wanted and (number := _code(labels, code)) is not None:
            attributes[code] = number
    if kind == SignalKind.GPU_XID and isinstance(xid := attributes.get("xid"), int):
        attributes |= xid_catalog.code(xid).attributes
    return attributes


def _placed(finding: Finding, labels: Mapping[str, str]) -> Finding:
    """The finding with the place that the labels name, as far as it fits the kind."""
    attributes = dict(finding.attributes)
    family = finding.kind.partition(".")[0]
    described = _first(labels, _SWITCHES)
    switch = read_description(described).name if described is not None else None
    gpu = nic = port = pod = job = None
    if family == "gpu":
        gpu = _gpu(labels)
        if gpu is not None and gpu.pci:
            attributes["pci"] = gpu.pci
        if gpu is not None and gpu.uuid:
            attributes["uuid"] = gpu.uuid
    elif family == "fabric":
        port = _first(labels, _PORTS)
        nic = labels.get("device") or (
            labels.get("hca") or labels.get("interface") if switch is None else None
        )
        attributes |= {name: value for name, value in (("port", port), ("device", nic)) if value}
    elif device := labels.get("device"):
        attributes["device"] = device
    if family in ("job", "nccl", "alert"):
        pod, job = _workload(labels)
        if finding.kind == SignalKind.JOB_STALLED and pod is None and job is None:
            pod = _slurm_output(labels)  # how a job ended, Slurm reports itself
    of_node = dict(labels)
    if "kube-state-metrics" in labels.get("job", "") or labels.get("pod"):
        of_node.pop("instance", None)  # an exporter of cluster state runs on a node it does not report about
    part = None
    if finding.kind in _OF_PARTS and not any(labels.get(name) for name in _HOSTS):
        part = _part(labels)  # before `instance`, which is the exporter that asked the device
        if part is not None and attributes.get("subtype") == "psu":
            attributes["subtype"] = "feed"  # no supply of a host's own, of which it has more
        rack = _first(labels, _RACKS)
        if part is not None and rack is not None and rack != part:
            attributes[RACK] = rack
        if part is not None and (served := _first(labels, _SERVED)) is not None:
            attributes[SERVES] = served
    return Finding(
        finding.kind,
        finding.severity,
        attributes,
        finding.state,
        gpu=gpu,
        node=switch or part or node_of(of_node),
        nic=nic if switch is None else None,
        port=port,
        on_switch=switch is not None,
        pod=pod,
        job=job,
    )


def _part(labels: Mapping[str, str]) -> str | None:
    """The part that an alert is about by its own name. `feed: B` is none: every rack has a feed B, so it is the rack's."""
    named = [value for name in _PARTS if (value := labels.get(name))]
    return next((value for value in named if not _INSIDE.fullmatch(value)), None)


def _gpu(labels: Mapping[str, str]) -> Gpu | None:
    index = _first(labels, ("gpu", "gpu_id", "GPU", "index", "minor_number")) or ""
    uuid = _first(labels, ("UUID", "uuid", "gpu_uuid"))
    pci = canonical_pci(_first(labels, ("pci_bus_id", "pci_bus", "pci")) or "")
    number = int(index) if index.isdecimal() and len(index) < 4 else None
    if uuid is None and index.startswith("GPU-"):
        uuid = index
    return (
        Gpu(pci, uuid, number, labels.get("GPU_I_ID") or None)
        if (pci or uuid or number is not None)
        else None
    )


def _workload(labels: Mapping[str, str]) -> tuple[PodRef | None, JobRef | None]:
    namespace = labels.get("exported_namespace") or labels.get("namespace") or ""
    name = labels.get("exported_pod") or labels.get("pod")
    pod = PodRef(namespace, name) if name and namespace else None
    job = labels.get("job_name") or labels.get("exported_job")
    kind = labels.get("job_kind") or labels.get("owner_kind") or "Job"
    return pod, JobRef(kind, namespace, job) if job and namespace else None


def _slurm_output(labels: Mapping[str, str]) -> PodRef | None:
    """What stands for the output of the Slurm job that the labels name."""
    number = _first(labels, _SLURM_JOBS) or ""
    return PodRef(SLURM, number) if _SLURM_NUMBER.fullmatch(number) else None


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := labels.get(name))), None)
