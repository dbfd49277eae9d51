"""Every family there is. A new one is a line here.

None keeps anything of what it reads, so those of a process are made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Protocol

from streams.detect.alerts import Alerts
from streams.detect.comm_init import CommInit
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
from streams.detect.metrics.pause_counters import PauseCounters
from streams.detect.nccl import NcclRanks
from streams.detect.off_bus import OffBus
from streams.detect.sel import Sel
from streams.detect.smi_csv import SmiCsv
from streams.detect.smi_query import SmiQuery
from streams.detect.smi_tables import SmiTables
from streams.detect.sxid import Sxid
from streams.detect.xid import Xid
from streams.model.record import Alert, KubeEvent, LogLine, Sample


class Family(Protocol):
    """What every family has. None keeps anything of a record in itself: what must be remembered is in the stream's memory."""

    @property
    def hints(self) -> tuple[bytes, ...]:
        """RE2 patterns of bytes, one of which a record must hold to be of interest."""
        ...


class LineFamily(Family, Protocol):
    """What reads log lines."""

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """What the line says, in order."""
        ...


class SampleFamily(Family, Protocol):
    """What reads samples of metrics."""

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """What the sample says, after those before it."""
        ...


class EventFamily(Family, Protocol):
    """What reads Kubernetes Events."""

    def read(self, event: KubeEvent, stream: Stream) -> Iterator[Finding]:
        """What the event says."""
        ...


@cache
class AlertFamily(Family, Protocol):
    """What reads alerts."""

    def read(self, alert: Alert, stream: Stream) -> Iterator[Finding]:
        """What the alert says."""
        ...


def line_families() -> tuple[LineFamily, ...]:
    """Readers of log lines, in the order in which a line is put to them."""
    query = SmiQuery()
    return (
        GpuNames(),
        Xid(),
        Sxid(),
        OffBus(),
        PatternFamily("nvrm"),
        PatternFamily("gpu_tools"),
        query,
        SmiTables(),
        SmiCsv(query),
        NcclRanks("nccl"),
        NcclRanks("nccl_errors"),
        NcclRanks("launcher"),
        CommInit(),
        RootCause(),
        PatternFamily("nic"),
        PatternFamily("pfc"),
        Host("kernel"),
        Host("host"),
        Sel(),
        PatternFamily("pcie"),
        PatternFamily("storage"),
        PatternFamily("switch"),
        PatternFamily("subnet"),
        Ibstat(),
        JobProgress(),
        PrintedEvents(),
        KubeLines(),
    )


@cache
def sample_families() -> tuple[SampleFamily, ...]:
    """Readers of samples."""
    return (DcgmXid(), PauseCounters(), MetricRules())


@cache
def event_families() -> tuple[EventFamily, ...]:
    """Readers of Kubernetes Events."""
    return (KubeEvents(),)


def alert_families() -> tuple[AlertFamily, ...]:
    """Readers of alerts."""
    return (Alerts(),)
