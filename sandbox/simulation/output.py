"""What the cluster emits before any shipper reads it: log lines, samples, events, and the objects that a watch shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import orjson

from sandbox.simulation import driver_logs, kube
from sandbox.simulation.shipper_formats import UNCHANGED, SourceRecord
from sandbox.simulation.topology import Leaf, Node
from sandbox.simulation.workload import Pod
from streams.kafka.topics import RAW_FABRIC, RAW_JOB_LOGS, RAW_K8S_EVENTS, RAW_METRICS, RAW_NODE_LOGS
from streams.model.watch import ObjectChange

SLURM_CONTROLLER = "slurm-ctl1"


def seconds(value: float) -> timedelta:
    """A duration."""
    return timedelta(seconds=value)


class ClusterOutput:
    """Everything emitted so far. `vital` lines are the only trace of a fault; no shipper loses them."""

    def __init__(self, begin: datetime, *, kubernetes: bool = True) -> None:
        self.kubernetes = kubernetes
        """Without it there are neither objects nor events."""
        self.records: list[SourceRecord] = []
        self.changes: list[ObjectChange] = []
        self.end = begin
        """The latest time of anything emitted."""
        self.horizon: datetime | None = None
        """Nothing is emitted after this."""
        self._introduced: set[str] = set()

    def kernel(
        self, node: Node, at: datetime, *lines: str, vital: bool = False, age: timedelta = timedelta()
    ) -> None:
        """Lines of a node's kernel log, sent at `at` and written `age` before."""
        for number, text in enumerate(lines):
            moment = at + timedelta(milliseconds=number)
            self._emit(SourceRecord(moment, RAW_NODE_LOGS, node.name, "kernel", text, vital=vital, age=age))

    def gpu(self, node: Node, gpu: int, at: datetime, *lines: str, vital: bool = True) -> None:
        """Lines of the driver about one GPU; the first are preceded by the GPU's UUID and serial number."""
        if node.gpu_uuid(gpu) not in self._introduced:
            self._introduced.add(node.gpu_uuid(gpu))
            self.kernel(node, at, *driver_logs.introduction(node, gpu))
        self.kernel(node, at + timedelta(milliseconds=5), *lines, vital=vital)

    def xid(
        self, node: Node, gpu: int, at: datetime, code: int, body: str,
        *, pid: int | None = None, process: str = "python3", vital: bool = True,
    ) -> None:  # fmt: skip
        """One Xid of a GPU."""
        self.gpu(node, gpu, at, driver_logs.xid(node, gpu, code, body, pid=pid, process=process), vital=vital)

    def daemon(self, node: Node, at: datetime, program: str, text: str, *, vital: bool = False) -> None:
        """A line of a program of the host."""
        self._emit(SourceRecord(at, RAW_NODE_LOGS, node.name, program, text, vital=vital))

    def slurmctld(self, at: datetime, text: str, *, vital: bool = False) -> None:
        """A line of Slurm's controller, on a machine of its own."""
        self._emit(SourceRecord(at, RAW_NODE_LOGS, SLURM_CONTROLLER, "slurmctld[2210]", text, vital=vital))

    def machine(self, name: str, at: datetime, program: str, text: str) -> None:
        """A line of a machine of the hall: a PDU, a coolant distribution unit, an NVLink switch tray."""
        self._emit(SourceRecord(at, RAW_FABRIC, name, program, text, vital=True))

    def neighbour(self, leaf: Leaf, at: datetime, port: str, host: str, interface: str) -> None:
        """What a switch has learned by LLDP about one of its ports, as Telegraf's gNMI input sends it."""
        document = {
            "name": "lldp", "tags": {"source": leaf.name, "name": port, "host": "telegraf-gnmi-0"},
            "fields": {"system_name": host, "port_id": interface}, "timestamp": int(at.timestamp()),
        }  # fmt: skip
        self._emit(SourceRecord(at, RAW_FABRIC, leaf.name, UNCHANGED, orjson.dumps(document).decode()))

    def pod(self, pod: Pod, at: datetime, *lines: str, vital: bool = False, rank: int | None = None) -> None:
        """Lines of a training container, of one of its ranks where they do not say it themselves.

        The runtime makes one record of each line, also of a block written at once.
        """
        for number, text in enumerate(line for block in lines for line in block.split("\n")):
            moment = at + timedelta(milliseconds=number)
            speaker, line = pod.speaker or pod, pod.printed(text, rank)
            self._emit(SourceRecord(moment, RAW_JOB_LOGS, speaker.key, "pytorch", line, vital, speaker.about))

    def upload(self, pod: Pod, at: datetime, document: Mapping[str, Any]) -> None:
        """A document that a sidecar sends unchanged."""
        text = orjson.dumps(document).decode()
        self._emit(SourceRecord(at, RAW_JOB_LOGS, pod.key, UNCHANGED, text, pod=pod.about))

    def switch(self, leaf: Leaf, at: datetime, program: str, text: str, *, vital: bool = False) -> None:
        """A line of a switch's syslog."""
        self._emit(SourceRecord(at, RAW_FABRIC, leaf.name, program, text, vital=vital))

    def sample(self, node: Node, at: datetime, metric: str, value: float, /, **labels: str) -> None:
        """One sample of a node's exporter. Scrapes are monitored themselves: no sample is lost alone."""
        self._emit(SourceRecord(at, RAW_METRICS, node.name, metric, vital=True, labels=labels, value=value))

    def event(
        self, at: datetime, kind: str, name: str, reason: str, message: str,
        *, namespace: str = "", uid: str = "", component: str = "node-controller", host: str = "",
        warning: bool = True, vital: bool = False,
    ) -> None:  # fmt: skip
        """A Kubernetes Event."""
        if not self.kubernetes:
            return
        about = {
            "kind": kind, "namespace": namespace, "name": name, "uid": uid or name, "reason": reason,
            "component": component, "host": host, "type": "Warning" if warning else "Normal",
        }  # fmt: skip
        self._emit(SourceRecord(at, RAW_K8S_EVENTS, component, component, message, vital, event=about))

    def node_status_event(self, node: Node, at: datetime, reason: str, *, host: str = "") -> None:
        """The event of a node's new status: NodeNotReady comes from the node controller, the others from the kubelet."""
        lost = reason == "NodeNotReady"
        text = f"Node {node.name} status is now: {reason}"
        self.event(
            at, "Node", node.name, reason, text, component="node-controller" if lost else "kubelet", host=host,
            warning=lost, vital=reason != "NodeNotSchedulable",
        )  # fmt: skip

    def show(self, at: datetime, change: Literal["ADDED", "MODIFIED", "DELETED"], thing: kube.Object) -> None:
        """A change of an object, as a watch on the API server shows it."""
        if self.kubernetes and (self.horizon is None or at <= self.horizon):
            self.changes.append(ObjectChange(at, change, thing))
            self.end = max(self.end, at)

    def _emit(self, record: SourceRecord) -> None:
        if self.horizon is None or record.at <= self.horizon:
            self.records.append(record)
            self.end = max(self.end, record.at)
