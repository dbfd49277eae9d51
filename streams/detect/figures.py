"""What the detector counts: a batch at a time, once the broker has it. Records without a finding cost nothing here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from streams.detect import sxid_catalog, xid_catalog
from streams.detect.batch import STAGE, Batch
from streams.kafka.topics import RAW
from streams.model.kinds import SignalKind
from streams.model.signal import BY_SUBJECT, Signal
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics
from streams.telemetry.trace_context import TraceContext


class DetectorFigures:
    """Adds delivered batches to the metrics.

    Args:
        clock: Seconds since 1970.
    """

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._clock = clock
        for topic in RAW:
            metrics.begin(shown.RECORDS, topic.name)

    def delivered(self, batch: Batch, context: TraceContext | None = None) -> None:
        """Count a batch whose signals are acknowledged and whose offsets are committed; `context` is its span's."""
        metrics, now = self._metrics, self._clock()
        for topic, counts in batch.counts.items():
            metrics.add(shown.RECORDS, counts.signalling, topic, "signals")
            metrics.add(shown.RECORDS, counts.ignored, topic, "ignored")
            metrics.add(shown.RECORDS, counts.dead_letters, topic, "dead_letter")
            if counts.records:
                metrics.set(shown.SHIPPER_LAST_RECORD, now, topic)
        for topic, latest_ms in batch.latest_ms.items():
            metrics.set(shown.SHIPPER_LAST_EVENT, latest_ms / 1000, topic)
        if batch.letters:
            metrics.add(shown.DEAD_LETTERS, len(batch.letters) - batch.failures, STAGE, "unreadable")
            metrics.add(shown.DEAD_LETTERS, batch.failures, STAGE, "failed")
        for kind, count in Counter([signal.kind for signal in batch.signals]).items():
            metrics.add(shown.SIGNALS, count, kind)
        for what, count in Counter(map(_unknown, batch.signals)).items():
            if what is not None:
                metrics.add(shown.UNKNOWN_CODES, count, what)
        # A count of repeats waits for the end of its window, which is no delay.
        delays = [now - one.occurred_at.timestamp() for one in batch.signals if one.first_at is None]
        if delays and context is not None and context.sampled:
            metrics.observe(shown.SIGNAL_DELAY, delays.pop(), trace_id=context.trace_id)
        metrics.observe_all(shown.SIGNAL_DELAY, delays)


def _unknown(signal: Signal) -> str | None:
    """What of a signal no row knows: its code, or the line or alert as a whole."""
    if BY_SUBJECT in signal.attributes:
        return "line"
    match signal.kind:
        case SignalKind.UNKNOWN:
            return "line"
        case SignalKind.ALERT_UNMAPPED:
            return "alert"
        case SignalKind.GPU_XID:
            return None if xid_catalog.is_known(signal.attributes.get("xid")) else "xid"
        case SignalKind.GPU_SXID:
            return None if sxid_catalog.is_known(signal.attributes.get("sxid")) else "sxid"
    return None
