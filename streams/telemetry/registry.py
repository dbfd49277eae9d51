"""The metrics of one process, by the families that `metrics.py` declares.

prometheus-client writes the exposition; the values are kept here, in plain dictionaries. So counting costs no lock, and label
values are bounded in one place: a value outside its table, or one too many where there is no table, counts as `other`.

Values change in the event loop only, and are read by the thread that answers a scrape. Nothing here is global: tests run several
processes in one interpreter.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    Exemplar,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

log = structlog.get_logger(__name__)

PREFIX = "faultline_"
OTHER = "other"
"""The label value of everything that is outside a label's bounds."""

MOST_AT_ZERO = 250
"""Series of a family that are shown before anything happened, at most."""

LONGEST_VALUE = 100
"""Characters of a label value; names in settings are shorter."""

Series = tuple[str, ...]
"""The label values of one series, in the order of the family's labels."""

Reading = Callable[[], Mapping[Series, float]]
"""Called at a scrape, in the thread that answers it."""


@dataclass(frozen=True, slots=True)
class Label:
    """One label and what bounds it: a table of values, or a number of values where those come from settings or topics."""

    name: str
    values: tuple[str, ...] = ()
    most: int = 0
    """With no table: how many different values are shown; all further ones are `other`."""
    meaning: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric, declared once and compared by identity. `name` is without the prefix, and of a counter without `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[Label, ...] = ()
    processes: frozenset[str] = frozenset()
    """Those that have it; empty for every process."""
    buckets: tuple[float, ...] = ()
    absent: bool = False
    """A gauge without labels that is missing until its value is known, instead of 0."""

    @property
    def exposed(self) -> str:
        """The name as queries have it."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")

    @property
    def most_series(self) -> int:
        """How many combinations of label values one process shows at most, `other` included."""
        most = 1
        for label in self.labels:
            most *= (len(label.values) or label.most) + 1
        return most


@dataclass(slots=True)
class _Distribution:
    """The observations of one series of a histogram."""

    counts: list[int]
    total: float = 0.0
    exemplars: dict[int, Exemplar] = field(default_factory=dict)


class Metrics(Collector):
    """The values of one process. `component` is its name: it shows those of the `families` that this process has."""

    def __init__(self, component: str, families: tuple[Family, ...] | None = None) -> None:
        if families is None:
            from streams.telemetry.metrics import FAMILIES  # the table is made of the classes above

            families = FAMILIES
        self.component = component
        self.registry = CollectorRegistry(auto_describe=False)
        self._families: dict[Family, dict[Series, float]] = {
            family: {} for family in families if not family.processes or component in family.processes
        }
        self._distributions: dict[tuple[Family, Series], _Distribution] = {}
        self._seen: dict[tuple[Family, str], set[str]] = {}
        self._readings: dict[Family, list[Reading]] = {}
        self._watches: list[Callable[[], Awaitable[None]]] = []
        for family, series in self._families.items():
            self._begin(family, series)
        self.registry.register(self)

    def with_process(self) -> Metrics:
        """The same, with memory, CPU time and garbage collection of the whole interpreter as prometheus-client shows them."""
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        return self

    def add(self, family: Family, amount: float = 1.0, *values: str) -> None:
        """Add to a counter. What this process does not have is not counted."""
        if amount and (known := self._families.get(family)) is not None:
            series = self._series(family, known, values)
            if series not in known:
                self._begin_beside(family, known, series)
            known[series] = known.get(series, 0.0) + amount

    def begin(self, family: Family, value: str) -> None:
        """Show a family at 0 for this value of its label without a table, with all values of its other labels.

        For values that are known before anything is counted: `increase()` and `rate()` do not see what a series begins with.
        """
        if (known := self._families.get(family)) is None:
            return
        sides = (label.values or (self._bounded(family, label, value),) for label in family.labels)
        for series in product(*sides):
            if family.kind == "histogram":
                self._distribution(family, series)
            else:
                known.setdefault(series, 0.0)

    def set(self, family: Family, value: float, *values: str) -> None:
        """Set a gauge."""
        if (known := self._families.get(family)) is not None:
            known[self._series(family, known, values)] = value

    def replace(self, family: Family, values: Mapping[Series, float]) -> None:
        """Set all series of a gauge. One that is not among `values` goes to 0 and stays: a series that vanishes looks like one
        that is no longer scraped."""
        if (known := self._families.get(family)) is None:
            return
        new = dict.fromkeys(known, 0.0)
        for labels, value in values.items():
            series = self._series(family, known, labels)
            new[series] = new.get(series, 0.0) + value
        known.update(new)

    def observe(self, family: Family, value: float, *labels: str, trace_id: str | None = None) -> None:
        """Add an observation to a histogram. A time that would be negative counts as 0: clocks differ."""
        if family not in self._families:
            return
        value = max(0.0, value)
        kept = self._distribution(family, labels)
        place = bisect_left(family.buckets, value)
        kept.counts[place] += 1
        kept.total += value
        if trace_id is not None:
            kept.exemplars[place] = Exemplar({"trace_id": trace_id}, value, time.time())

    def observe_all(self, family: Family, values: Iterable[float], *labels: str) -> None:
        """Add many observations to one series."""
        if family not in self._families:
            return
        kept = self._distribution(family, labels)
        counts, buckets, total = kept.counts, family.buckets, 0.0
        for value in values:
            counts[bisect_left(buckets, value)] += 1
            total += max(0.0, value)
        kept.total += total

    def read_at_scrape(self, family: Family, reading: Reading) -> None:
        """Have a gauge, or a counter kept elsewhere, computed whenever it is asked for: what ages by itself, even while the event
        loop hangs."""
        self._readings.setdefault(family, []).append(reading)

    def watch(self, look: Callable[[], Awaitable[None]]) -> None:
        """Have something looked at every few seconds in the event loop (`look_around`)."""
        self._watches.append(look)

    async def look_around(self) -> None:
        """Take all the looks that `watch` was given. One that fails is logged: what is watched must not end because of it."""
        for look in list(self._watches):
            try:
                await look()
            except Exception:
                log.exception("metrics are incomplete")

    def value(self, family: Family, *values: str) -> float:
        """The value of one series, 0 where it is not there; of a histogram the number of observations."""
        if family.kind == "histogram":
            kept = self._distributions.get((family, values))
            return float(sum(kept.counts)) if kept is not None else 0.0
        return {**self._families.get(family, {}), **self._read(family)}.get(values, 0.0)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """The text of a scrape and its content type: OpenMetrics where `accept` asks for it, else Prometheus text."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def collect(self) -> Iterator[Metric]:
        """What prometheus-client asks for at a scrape."""
        for family, known in self._families.items():
            if family.kind == "histogram":
                yield self._histogram(family)
                continue
            name, labels = PREFIX + family.name, [label.name for label in family.labels]
            shown: CounterMetricFamily | GaugeMetricFamily
            shown = (CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily)(
                name, family.help, labels=labels
            )
            for series, value in {**known, **self._read(family)}.items():
                shown.add_metric(series, value)
            yield shown

    def _histogram(self, family: Family) -> HistogramMetricFamily:
        labels = [label.name for label in family.labels]
        shown = HistogramMetricFamily(PREFIX + family.name, family.help, labels=labels)
        bounds = [*map(str, map(float, family.buckets)), "+Inf"]
        for (other, series), kept in list(self._distributions.items()):
            if other is not family:
                continue
            counts, total, exemplars = list(kept.counts), kept.total, dict(kept.exemplars)
            cumulated = 0
            buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
            for place, bound in enumerate(bounds):
                cumulated += counts[place]
                exemplar = exemplars.get(place)
                buckets.append(
                    (bound, cumulated) if exemplar is None else (bound, cumulated, exemplar)
                )  # fmt: skip
            shown.add_metric(series, buckets, total)
        return shown

    def _read(self, family: Family) -> dict[Series, float]:
        """What is computed at the scrape. A reading that fails is left out: the others are still worth having."""
        found: dict[Series, float] = {}
        for reading in self._readings.get(family, ()):
            try:
                values = reading()
            except Exception:  # a scrape must not fail for one family
                log.exception("metric cannot be read", metric=family.exposed)
                continue
            for labels, value in values.items():
                series = self._series(family, found, labels)
                found[series] = max(value, found.get(series, value))
        return found

    def _distribution(self, family: Family, labels: Series) -> _Distribution:
        series = self._series(family, self._families[family], labels)
        kept = self._distributions.get((family, series))
        if kept is None:
            kept = self._distributions[family, series] = _Distribution([0] * (len(family.buckets) + 1))
        return kept

    def _begin(self, family: Family, series: dict[Series, float]) -> None:
        """Show all series of a family whose labels have tables of values from the start: the first increase then shows as one,
        and a counter that begins at 3 is a flood that no alert sees."""
        values: list[Series] = []
        if not (family.absent or family.most_series > MOST_AT_ZERO):
            values = list(product(*(label.values for label in family.labels)))
        if family.kind == "histogram":
            for one in values:
                self._distributions[family, one] = _Distribution([0] * (len(family.buckets) + 1))
        else:
            series.update(dict.fromkeys(values, 0.0))

    def _begin_beside(self, family: Family, known: dict[Series, float], series: Series) -> None:
        """Show what may yet be counted beside a series whose labels have no table: once an action is confirmed, its first unknown
        outcome is an increase."""
        sides = (label.values or (value,) for label, value in zip(family.labels, series, strict=True))
        for beside in product(*sides):
            known.setdefault(beside, 0.0)

    def _series(self, family: Family, known: Mapping[Series, float], values: Series) -> Series:
        """The series for these label values, each within its bounds."""
        if values in known:
            return values
        if len(values) != len(family.labels):
            raise ValueError(f"{family.exposed} has the labels {[label.name for label in family.labels]}")
        return tuple(
            self._bounded(family, label, value) for label, value in zip(family.labels, values, strict=True)
        )

    def _bounded(self, family: Family, label: Label, value: str) -> str:
        if label.values:
            return value if value in label.values else OTHER
        seen = self._seen.setdefault((family, label.name), set())
        if value in seen:
            return value
        if len(seen) >= label.most or len(value) > LONGEST_VALUE:
            return OTHER
        seen.add(value)
        return value
