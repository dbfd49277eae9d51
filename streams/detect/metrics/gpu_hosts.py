"""Which hosts have GPUs, and in which rack, by the metrics that every one of them sends, well or not.

Where no inventory lists the nodes, only those in trouble would be known, and nothing could be said of what share of a rack they
are. Reported when a host first sends any, and every few hours again. Sites label their metrics by rack, row or coolant loop
(Telegraf's global tags, Prometheus' target labels): the same key words count as in labels of nodes (`inventory/parts.yaml`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.gpu_jobs import jobs_of_host
from streams.detect.metrics.rule_rows import sheet
from streams.inventory.parts import shared_parts
from streams.model.kinds import SignalKind
from streams.model.record import NOTHING_MORE, Sample
from streams.model.signal import SHARES, Severity

_AGAIN_MS = 6 * 3_600_000
"""Well within the day that the correlator remembers a host by it."""
_MAX_HOSTS = 20_000
_NOTHING: Final[Iterator[Finding]] = iter(())


class GpuHosts:
    """Reads how busy GPUs are; the number itself does not matter."""

    hints = tuple(metric.name.encode() for metric in sheet().busy.metrics)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """That the sample's host has GPUs, where that was not told for hours, and which jobs hold them."""
        if sample.node is None:
            return _NOTHING
        table, key = stream.rule_state.table("metrics.gpu_hosts", _MAX_HOSTS), (stream.cluster, sample.node)
        at, told = at_ms(sample, stream), table.get(key)
        jobs = jobs_of_host(sample, stream, key, at)
        if told is not None and abs(at - cast("int", told[0])) < _AGAIN_MS:
            return jobs
        table[key] = (at,)
        parts = tuple(f"{kind}={name}" for kind, name in shared_parts("", sample.labels).parts.items())
        host = Finding(SignalKind.NODE_GPUS, Severity.INFO, {SHARES: parts} if parts else NOTHING_MORE)
        return iter((host, *jobs))
