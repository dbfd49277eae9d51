"""Values that are bad whenever they are read: `catalog/first_values.yaml`.

A counter's first value may be a year old, and a rule that measures needs more samples than one, so neither says anything of it.
A last XID that is not zero, a sensor in its critical state or a mask with the bit of a power brake is still worth a person's
look: the first such value of a series is a weak sign, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from operator import le

from pydantic import Field

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


_PARTS = ("name", "device", "sensor", "health_watch", "clock_event")
"""Labels that say which of a node's or a GPU's parts a series is about."""


class From(Strict):
    """Metrics that are bad from `least` on."""

    least: float
    metrics: tuple[str, ...]


class Masks(Strict):
    """Metrics that are masks, and the bits that are bad."""

    mask: int
    metrics: tuple[str, ...]


class FirstValues(Strict):
    """The file: by sign, metrics that must be zero, small, or without some bits.

    `below` leaves out what stands for no value.
    """

    below: float
    zero: Mapping[str, tuple[str, ...]]
    from_: Mapping[str, From] = Field(alias="from")
    bits: Mapping[str, Masks]

    def bad(self) -> Iterator[tuple[str, str, Callable[[float], bool]]]:
        """Each metric with its sign and what is a bad value of it."""
        for sign, metrics in self.zero.items():
            for metric in metrics:
                yield metric, sign, lambda value: value >= 1
        for sign, level in self.from_.items():
            for metric in level.metrics:
                yield metric, sign, partial(le, level.least)
        for sign, masks in self.bits.items():
            for metric in masks.metrics:
                yield metric, sign, partial(_has, masks.mask)


def _has(mask: int, value: float) -> bool:
    return bool(int(value) & mask)


@cache
def sheet() -> FirstValues:
    """The file, read once."""
    return load_catalog("first_values", FirstValues)


class FirstBadValues:
    """Reads samples. Remembers the series that were not zero, so that each is one sign."""

    def __init__(self) -> None:
        known = list(sheet().bad())
        self._signs = {metric.lower(): (sign, is_bad) for metric, sign, is_bad in known}
        self.hints = tuple(metric.encode() for metric, *_ in known)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """A sign, when the series is seen to be bad for the first time."""
        known = self._signs.get(sample.name.lower())
        if known is None or not math.isfinite(sample.value) or not 0 <= sample.value < sheet().below:
            return
        sign, is_bad = known
        if not is_bad(sample.value):
            return
        labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        seen = stream.rule_state.table("metrics.first", _MAX_SERIES)
        key = (stream.cluster, sample.node or stream.lines, sample.name, digest(labels, size=8))
        if key in seen:
            return
        seen[key] = (1,)
        gpu = gpu_of(sample)
        attributes: Attributes = {"author": AUTHOR, "subtype": sign, "value": sample.value}
        attributes |= {part: text for part in _PARTS if (text := sample.labels.get(part))}
        yield Finding(SignalKind.UNKNOWN, Severity.INFO, attributes, gpu=None if gpu == Gpu() else gpu)
