"""All rows together: which rules want a sample, found by its name in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final
from zlib import crc32

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.baselines import Baseline
from streams.detect.metrics.counters import CounterRule, Increase, RateRule
from streams.detect.metrics.levels import LEAST_BLANK, Bits, Rule, Value, is_blank
from streams.detect.metrics.pairs import BusyGpus, pair
from streams.detect.metrics.peers import PeerRule
from streams.detect.metrics.rule_rows import TWO_METRICS, MetricRow, MetricSheet, Named, sheet
from streams.model.errors import ConfigError
from streams.model.record import Sample

Reader = tuple[Callable[[Sample, float, Stream, Named], Iterator[Finding] | None], float, Named]
"""What to call, the factor to the row's unit, and what the name itself tells of the part."""

_NOTHING: Final[Iterator[Finding]] = iter(())
_PREFIXES = ("prometheus_", "prometheus.", "telegraf_", "otel_")
_MAX_NAMES = 20_000
_MAX_COUNTERS = 60


class MetricRules:
    """Reads samples by the rows of `catalog/metrics/*.yaml`.

    A name is known in the case the exporter writes it or in any other, with or without `_total`, and behind a shipper's prefix.

    Raises:
        ConfigError: when there are more counters than one row of memory has bits for.
    """

    def __init__(self, rows: MetricSheet | None = None) -> None:
        rows = rows or sheet()
        self._known: dict[str, tuple[Reader, ...]] = {}
        self._named = [
            metric.name.partition("{")[0]
            for metric in (*(m for row in rows.rows for m in (*row.metrics, *row.of)), *rows.busy.metrics)
        ]
        self._spelled: set[str] = set()
        bits = count()
        counters = [row.id for row in rows.rows if row.measure in ("increase", "rate")]
        if len(counters) > _MAX_COUNTERS:
            raise ConfigError(f"catalog metrics: {len(counters)} rows count, at most {_MAX_COUNTERS} can")
        # Bits mean rows by their order, so another set of rows must not read them.
        zeros = f"metrics.zeros.{crc32(' '.join(counters).encode()):08x}"
        for row in rows.rows:
            rule = _rule(row, bits, zeros)
            for metric in row.metrics:
                for name, named in metric.names():
                    self._add(name, (rule.read, metric.scale, named))
            for metric in row.of:
                for name, named in metric.names():
                    self._add(name, (rule.second, metric.scale, named))
        busy = BusyGpus(rows.busy.above, 300_000)
        for metric in rows.busy.metrics:
            for name, named in metric.names():
                self._add(name, (busy.take, metric.scale, named))
        self._by_name = {name: self._known[_plain(name)] for name in self._spelled}

    def _add(self, name: str, reader: Reader) -> None:
        self._spelled.add(name)
        plain = _plain(name)
        self._known[plain] = (*self._known.get(plain, ()), reader)

    @property
    def hints(self) -> tuple[bytes, ...]:
        """The rows' names; those of single links by what is before the number."""
        return tuple(dict.fromkeys(name.encode() for name in self._named))

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """What the sample says, after those before it."""
        readers = self._by_name.get(sample.name)
        if readers is None:
            readers = self._learned(sample.name)
        if not readers:
            return _NOTHING
        value = sample.value
        if not -LEAST_BLANK < value < LEAST_BLANK and is_blank(value):
            return _NOTHING
        found: list[Finding] = []
        for read, scale, named in readers:
            findings = read(sample, value * scale, stream, named)
            if findings is not None:
                found += findings
        return iter(found)

    def _learned(self, name: str) -> tuple[Reader, ...]:
        """The rules of a name that is spelled in another way, or of none."""
        readers = self._known.get(_plain(name), ())
        if len(self._by_name) < _MAX_NAMES:
            self._by_name[name] = readers
        return readers


def _plain(name: str) -> str:
    name = name.lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.removesuffix("_total")


def _rule(row: MetricRow, bits: Iterator[int], zeros: str) -> Rule:
    if row.measure in TWO_METRICS:
        return pair(row)
    match row.measure:
        case "bits":
            return Bits(row)
        case "increase" | "rate":
            kind: type[CounterRule] = Increase if row.measure == "increase" else RateRule
            return kind(row, next(bits), zeros)
        case "baseline":
            return Baseline(row)
        case "peers":
            return PeerRule(row)
        case _:
            return Value(row)
