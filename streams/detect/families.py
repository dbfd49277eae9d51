"""All families of signals. A new one is one line here.

Families keep nothing of what they read, so a process builds them once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Protocol

from streams.detect.agents import Agents
from streams.detect.alerts import Alerts
from streams.detect.ceph_osds import CephOsds
from streams.detect.comm_init import CommInit
from streams.detect.facility import Facility
from streams.detect.finding import Finding, Stream
from streams.detect.gpu_names import GpuNames
from streams.detect.host import Host
from streams.detect.job_progress import JobProgress
from streams.detect.kube_events import KubeEvents
from streams.detect.kube_lines import KubeLines, PrintedEvents
from streams.detect.matching.multiline import Ibstat, RootCause
from streams.detect.matching.pattern_family import PatternFamily
from streams.detect.metrics import MetricRules
from streams.detect.metrics.dcgm_gauges import DcgmXid
from streams.detect.metrics.first_values import FirstBadValues
from streams.detect.metrics.gpu_hosts import GpuHosts
from streams.detect.metrics.pause_counters import PauseCounters
from streams.detect.nccl import NcclRanks
from streams.detect.nic_names import NicLabels, NicNames
from streams.detect.off_bus import OffBus
from streams.detect.printed_objects import PrintedObjects
from streams.detect.sel import Sel
from streams.detect.slurm import Slurm
from streams.detect.slurm_tables import SlurmTables
from streams.detect.smi_csv import SmiCsv
from streams.detect.smi_query import SmiQuery
from streams.detect.smi_tables import SmiTables
from streams.detect.sxid import Sxid
from streams.detect.unknown_errors import UnknownErrors
from streams.detect.weak_signs import WeakSigns
from streams.detect.xid import Xid
from streams.model.record import Alert, KubeEvent, LogLine, Sample


class Family(Protocol):
    """Reads one kind of observation. Keeps nothing of it: what must be remembered is in the stream's `rule_state`."""

    @property
    def hints(self) -> tuple[bytes, ...]:
        """RE2 patterns of bytes; a record is only read when it matches one."""
        ...


class LineFamily(Family, Protocol):
    """Reads log lines."""

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The findings of the line, in order."""
        ...


class LastResort(LineFamily, Protocol):
    """Reads lines in which no other family found anything."""

    def concerns(self, line: LogLine, stream: Stream) -> bool:
        """True for a line that must be read although its text matches no hint: for its program, topic or shipper's level."""
        ...


class SampleFamily(Family, Protocol):
    """Reads samples of metrics."""

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """The findings of the sample, given those before it."""
        ...


class EventFamily(Family, Protocol):
    """Reads Kubernetes Events."""

    def read(self, event: KubeEvent, stream: Stream) -> Iterator[Finding]:
        """The findings of the event."""
        ...


class AlertFamily(Family, Protocol):
    """Reads alerts."""

    def read(self, alert: Alert, stream: Stream) -> Iterator[Finding]:
        """The findings of the alert."""
        ...


@cache
def line_families() -> tuple[LineFamily, ...]:
    """Families of log lines, in the order in which they read a line."""
    query = SmiQuery()
    return (
        GpuNames(),
        Xid(),
        Sxid(),
        OffBus(),
        PatternFamily("nvrm"),
        PatternFamily("accelerators"),
        PatternFamily("gpu_tools"),
        Agents(),
        query,
        SmiTables(),
        SmiCsv(query),
        NcclRanks("nccl"),
        NcclRanks("nccl_errors"),
        NcclRanks("launcher"),
        NcclRanks("names", ends=False),
        NcclRanks("ray"),
        NcclRanks("transport"),
        CommInit(),
        RootCause(),
        PatternFamily("nic"),
        NicNames(),
        PatternFamily("pfc"),
        Host("kernel"),
        Host("host"),
        Sel(),
        PatternFamily("pcie"),
        PatternFamily("storage"),
        CephOsds(),
        PatternFamily("storage_servers"),
        PatternFamily("switch"),
        Facility("facility"),
        PatternFamily("switch_health"),
        PatternFamily("switch_vendors"),
        PatternFamily("switch_work"),
        PatternFamily("subnet"),
        Ibstat(),
        Slurm(),
        PatternFamily("cloud"),
        JobProgress(),
        PrintedEvents(),
        PrintedObjects(),
        SlurmTables(),
        KubeLines(),
    )


@cache
def last_resorts() -> tuple[LastResort, ...]:
    """Families that read only lines in which no other found anything."""
    return (UnknownErrors(), WeakSigns())


@cache
def sample_families() -> tuple[SampleFamily, ...]:
    """Families of samples."""
    return (DcgmXid(), PauseCounters(), MetricRules(), FirstBadValues(), GpuHosts(), NicLabels())


@cache
def event_families() -> tuple[EventFamily, ...]:
    """Families of Kubernetes Events."""
    return (KubeEvents(),)


@cache
def alert_families() -> tuple[AlertFamily, ...]:
    """Families of alerts."""
    return (Alerts(),)
