"""DCGM's gauges of the last XID and SXid, which hold a code until the next one: only a change counts.

The kernel log is the source for both; the gauge confirms it, or replaces a line that was lost. The first value seen may be a
week old, so it is remembered and not reported. Sentinels for "no value" are dropped (dcgm_structs.h). dcgm-exporter's own counts
of XIDs have a series for each code (label `xid`) that exists from its first XID on: a count over some minutes (`…_COUNT`) is
reported when it appears or grows, one since the exporter's start (`…_TOTAL`) only when it grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from streams.detect import sxid_catalog, xid_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.rule_state import Key
from streams.model.clock import not_ahead, to_millis
from streams.model.digest import digest
from streams.model.entity import Gpu, canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import Sample
from streams.model.signal import REACHED, SERIES, SINCE

_LAST_XID = "dcgm_fi_dev_xid_errors"
_XID_COUNT, _XID_TOTAL = "dcgm_exp_xid_errors_count", "dcgm_exp_xid_errors_total"
_LAST_SXIDS = {
    "dcgm_fi_dev_nvswitch_fatal_errors": "Fatal",
    "dcgm_fi_dev_nvswitch_non_fatal_errors": "Non-fatal",
}
_BARE_UUID = re2_patterns.compile(r"^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")
_MAX_CODE = 100_000
_MAX_GPUS = 200_000


class DcgmXid:
    """Reads samples. Remembers the last value of each GPU and switch."""

    hints = (
        b"DCGM_FI_DEV_XID_ERRORS",
        b"dcgm_fi_dev_xid_errors",
        b"DCGM_EXP_XID_ERRORS_",
        b"DCGM_FI_DEV_NVSWITCH_(?:NON_)?FATAL_ERRORS",
    )

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """An XID or SXid, when the gauge changed to it."""
        if not math.isfinite(sample.value) or not 0 <= sample.value < _MAX_CODE:
            return
        name = sample.name.lower()
        if name == _LAST_XID:
            yield from _last_xid(sample, stream)
        elif name in (_XID_COUNT, _XID_TOTAL):
            yield from _counted(sample, stream, appears=name == _XID_COUNT)
        elif name in _LAST_SXIDS:
            yield from _last_sxid(sample, stream, _LAST_SXIDS[name])


def _last_xid(sample: Sample, stream: Stream) -> Iterator[Finding]:
    gpu = gpu_of(sample)
    before = _before(sample, stream, "dcgm.xid", (gpu.uuid or gpu.key,))
    number = int(sample.value)
    if before is not None and before[0] != sample.value and number:
        yield _xid(number, gpu, _identity("dcgm.xid", gpu.uuid or gpu.key, number, before[1]))


def _counted(sample: Sample, stream: Stream, *, appears: bool) -> Iterator[Finding]:
    code = sample.labels.get("xid", "")
    if not code.isdecimal() or not 0 < int(code[:6]) < _MAX_CODE:
        return
    gpu = gpu_of(sample)
    table = f"dcgm.{sample.name.lower()}"
    name = gpu.uuid or gpu.key
    before = _before(sample, stream, table, (name, code), first=0.0 if appears else None)
    if before is not None and sample.value > before[0]:
        identity = _identity(f"{table} {code}", name, int(sample.value), before[1])
        yield _xid(int(code), gpu, identity)


def _last_sxid(sample: Sample, stream: Stream, severity: str) -> Iterator[Finding]:
    switch = sample.labels.get("nvswitch", "")
    before = _before(sample, stream, "dcgm.sxid", (switch, severity))
    number = int(sample.value)
    if before is None or before[0] == sample.value or not number:
        return
    row = sxid_catalog.code(number)
    attributes: Attributes = {"sxid": number, **row.attributes, "severity": severity, "subtype": "dcgm"}
    attributes |= _identity(f"dcgm.sxid {severity}", switch, number, before[1])
    if switch:
        attributes["device"] = switch
    yield Finding(SignalKind.GPU_SXID, sxid_catalog.severity(row, severity), attributes)


def _before(
    sample: Sample, stream: Stream, table: str, what: Key, first: float | None = None
) -> tuple[float, int] | None:
    """The value before this one and its time (ms); `first` when there is none. None for a late or repeated sample."""
    last = stream.rule_state.table(table, _MAX_GPUS)
    key = (stream.cluster, sample.node or stream.lines, *what)
    at = at_ms(sample, stream)
    row = last.get(key)
    if row is not None and at <= float(row[1] or 0):
        return None
    last[key] = (sample.value, at)
    if row is None:
        return None if first is None else (first, at)
    return float(row[0] or 0), int(row[1] or 0)


def _identity(series: str, place: str, reached: int, since: int) -> Attributes:
    """What makes one change one, whichever partition sees it."""
    return {SERIES: digest(series, place, size=6), REACHED: reached, SINCE: since}


def _xid(number: int, gpu: Gpu, identity: Attributes) -> Finding:
    row = xid_catalog.code(number)
    attributes: Attributes = {"xid": number, **row.attributes, "subtype": "dcgm", **identity}
    if gpu.pci:
        attributes["pci"] = gpu.pci
    return Finding(SignalKind.GPU_XID, row.severity, attributes, gpu=gpu)


def at_ms(sample: Sample, stream: Stream) -> int:
    """When the sample was taken, milliseconds. A time in the future counts as now: it would make all later samples look late."""
    return _millis(not_ahead(sample.at, stream.received_at))


_millis = lru_cache(1024)(to_millis)
"""Cached: the thousands of samples of a scrape have one time, and several rules ask for it."""


def gpu_of(sample: Sample) -> Gpu:
    """The GPU in a sample's labels: address, UUID and index, as far as they name them.

    dcgm-exporter writes `gpu`, `UUID` and `pci_bus_id`, in other versions `uuid` or `gpu_uuid`; Telegraf `index` and `uuid`;
    nvidia_gpu_exporter a `uuid` without its `GPU-`.
    """
    return gpu_named(*names_of_gpu(sample))


def names_of_gpu(sample: Sample) -> tuple[str, str, str, str]:
    """Address, UUID, index and MIG instance as a sample's labels have them; empty where they have none."""
    get = sample.labels.get
    return (
        get("pci_bus_id") or get("pci_bus") or "",
        get("UUID") or get("uuid") or get("gpu_uuid") or "",
        get("gpu") or get("index") or "",
        get("GPU_I_ID") or "",
    )


@lru_cache(65_536)
def gpu_named(address: str, uuid: str, index: str, mig: str) -> Gpu:
    """The GPU of these names."""
    if _BARE_UUID.search(uuid):
        uuid = f"GPU-{uuid}"
    number = int(index) if index.isdecimal() and len(index) < 4 else None
    return Gpu(canonical_pci(address), uuid or None, number, mig or None)
