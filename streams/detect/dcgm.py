"""DCGM's XID gauge, which holds the *last* code until the next: only its change says anything.

The kernel log is the source for XIDs; this confirms one, or tells of one whose line was lost. A value seen for the first time
may be a week old, so it is remembered and not reported. Sentinels for "no value" are dropped (dcgm_structs.h).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from streams.detect import xid_catalog
from streams.detect.finding import Finding, Recent, Stream
from streams.model.entity import Gpu, canonical_pci
from streams.model.record import Sample

_NAME = "DCGM_FI_DEV_XID_ERRORS"
_MAX_CODE = 100_000
_MAX_GPUS = 200_000


class DcgmXid:
    """Reads samples. Remembers each GPU's last value."""

    hints = (b"DCGM_FI_DEV_XID_ERRORS",)

    def __init__(self) -> None:
        self._last: Recent[tuple[str, str, str], tuple[float, datetime]] = Recent(_MAX_GPUS)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """An XID, when the gauge changed to it."""
        if sample.name != _NAME or not math.isfinite(sample.value) or not 0 <= sample.value < _MAX_CODE:
            return
        gpu = gpu_of(sample)
        at = sample.at or stream.received_at
        key = (stream.cluster, sample.node or stream.lines, gpu.uuid or gpu.key)
        before = self._last.get(key)
        if before is not None and at <= before[1]:
            return  # partitions of a topic are read out of step
        self._last[key] = (sample.value, at)
        number = int(sample.value)
        if before is None or before[0] == sample.value or number == 0:
            return
        row = xid_catalog.code(number)
        yield Finding(
            "gpu.xid",
            row.severity,
            {
                "xid": number,
                "mnemonic": row.mnemonic,
                "action": row.action,
                "family": row.family,
                "subtype": "dcgm",
                **({"pci": gpu.pci} if gpu.pci else {}),
            },
            gpu=gpu,
        )


def gpu_of(sample: Sample) -> Gpu:
    """The GPU that a sample's labels name, by address, UUID and index, as far as they do."""
    labels = sample.labels
    index = labels.get("gpu", "")
    return Gpu(
        canonical_pci(labels.get("pci_bus_id", "")),
        labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid"),
        int(index) if index.isdecimal() and len(index) < 4 else None,
        labels.get("GPU_I_ID") or None,
    )
