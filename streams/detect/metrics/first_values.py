"""Values that are bad whenever they are read: `catalog/first_values.yaml`.

A counter's first value may be a year old, and a rule that measures needs more samples than one, so neither says anything of it.
A last XID that is not zero, or a memory that could not be repaired, is still worth a person's look: the first such value of a
series is a weak sign, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.metrics.dcgm_gauges import gpu_of
from streams.model.digest import digest
from streams.model.entity import Gpu
from streams.model.kinds import SignalKind
from streams.model.record import Sample
from streams.model.signal import Severity

AUTHOR = "metrics"
_MAX_SERIES = 50_000


class FirstValues(Strict):
    """The file: by sign, the metrics whose value must be zero. `below` leaves out what stands for no value."""

    below: float
    zero: Mapping[str, tuple[str, ...]]


@cache
def sheet() -> FirstValues:
    """The file, read once."""
    return load_catalog("first_values", FirstValues)


class FirstBadValues:
    """Reads samples. Remembers the series that were not zero, so that each is one sign."""

    def __init__(self) -> None:
        self._signs = {metric.lower(): sign for sign, names in sheet().zero.items() for metric in names}
        self.hints = tuple(metric.encode() for names in sheet().zero.values() for metric in names)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """A sign, when the series is seen not to be zero for the first time."""
        sign = self._signs.get(sample.name.lower())
        if sign is None or not math.isfinite(sample.value) or not 1 <= sample.value < sheet().below:
            return
        labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        seen = stream.rule_state.table("metrics.first", _MAX_SERIES)
        key = (stream.cluster, sample.node or stream.lines, sample.name, digest(labels, size=8))
        if key in seen:
            return
        seen[key] = (1,)
        gpu = gpu_of(sample)
        attributes: Attributes = {"author": AUTHOR, "subtype": sign, "value": sample.value}
        yield Finding(SignalKind.UNKNOWN, Severity.INFO, attributes, gpu=None if gpu == Gpu() else gpu)
