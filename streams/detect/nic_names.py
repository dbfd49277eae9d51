"""The names of one NIC, from whatever gives it two at once: lines of the kernel and of tools, and labels of metrics.

The kernel reports a link under its interface, NCCL a connection under its RDMA device. What is healthy reports its names too, so
they are known before anything fails. Reported when they are first seen together, and every hour again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal, cast

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching.pattern_family import PatternFamily
from streams.model.clock import to_millis
from streams.model.entity import canonical_pci
from streams.model.kinds import SignalKind
from streams.model.nics import nic_name_kind
from streams.model.record import LogLine, Sample
from streams.model.signal import Severity

_AGAIN_MS = 3_600_000
"""Of a node whose names changed, the correlator knows only what was reported since. Nine NICs of 2,000 nodes are ten a second."""
_MAX_NICS = 100_000


class NicLabelSheet(Strict):
    """`catalog/nic_labels.yaml`."""

    metrics: tuple[str, ...]
    labels: Mapping[Literal["netdev", "rdma_device", "pci"], tuple[str, ...]]


@cache
def _sheet() -> NicLabelSheet:
    return load_catalog("nic_labels", NicLabelSheet)


class NicNames:
    """Reads lines by `catalog/lines/nic_names.yaml`."""

    def __init__(self) -> None:
        self._patterns = PatternFamily("nic_names")
        self.hints = self._patterns.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The names in the line, where they were not reported for an hour."""
        for found in self._patterns.read(line, stream):
            if _is_due(line.node or stream.lines, to_millis(line.at or stream.received_at), found, stream):
                yield found


class NicLabels:
    """Reads labels. A name is what its value is: `device` holds an interface or an RDMA device."""

    @property
    def hints(self) -> tuple[bytes, ...]:
        """The names of the metrics."""
        return tuple(name.encode() for name in _sheet().metrics)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """The names in the labels, where they were not reported for an hour."""
        names: Attributes = {}
        for kind, labels in _sheet().labels.items():
            for value in filter(None, map(sample.labels.get, labels)):
                if kind == "pci":
                    attribute = "pci" if canonical_pci(value) else None
                else:
                    attribute = "rdma_device" if nic_name_kind(value) == "rdma" else kind
                if attribute is not None:
                    names.setdefault(attribute, value)
        if sample.node is None or len(names) < 2:
            return
        found = Finding(
            SignalKind.FABRIC_NIC_NAMES, Severity.INFO, names, nic=str(min(names.values(), key=str))
        )
        if _is_due(sample.node, to_millis(sample.at or stream.received_at), found, stream):
            yield found


def _is_due(node: str, at_ms: int, found: Finding, stream: Stream) -> bool:
    names = (
        found.attributes.get(name) for name in ("device", "netdev", "rdma_device", "pci", "pci_function")
    )
    table = stream.rule_state.table("nic.names", _MAX_NICS)
    key = (stream.cluster, node, *("" if name is None else str(name) for name in names))
    last = table.get(key)
    if last is not None and abs(at_ms - cast("int", last[0])) < _AGAIN_MS:
        return False
    table[key] = (at_ms,)
    return True
