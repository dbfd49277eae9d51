"""The family of all metric rules: finds the rules of a sample by its name in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Final
from zlib import crc32

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.baselines import Baseline
from streams.detect.metrics.counters import CounterRule, Increase, RateRule
from streams.detect.metrics.levels import LEAST_BLANK, Bits, Rule, Value, is_blank
from streams.detect.metrics.nodes import NodeRule
from streams.detect.metrics.pairs import BusyGpus, Fraction, Zeros
from streams.detect.metrics.peers import PeerRule
from streams.detect.metrics.recorded_gauges import LEAST, MOST, RecordedGauge
from streams.detect.metrics.recorded_rates import recorded_rate
from streams.detect.metrics.rule_rows import Metric, MetricRow, MetricSheet, Named, sheet
from streams.model.errors import ConfigError
from streams.model.record import Sample

Read = Callable[[Sample, float, Stream, Named], Iterator[Finding] | None]
Reader = tuple[Read, float, Named]
"""What to call, the factor to the row's unit, and attributes from the metric's name."""

_NOTHING: Final[Iterator[Finding]] = iter(())
_PREFIXES = ("prometheus_", "prometheus.", "telegraf_", "otel_")
_MAX_NAMES = 20_000
_MAX_COUNTERS = 60


class MetricRules:
    """Reads samples by the rows of `catalog/metrics/*.yaml`.

    Names match in any case, with or without `_total`, and after a shipper's prefix. A recorded rate of a counter is read as one.

    Raises:
        ConfigError: when there are more counters than a shared row has bits.
    """

    def __init__(self, rows: MetricSheet | None = None) -> None:
        rows = rows or sheet()
        self._known: dict[str, tuple[Reader, ...]] = {}
        self._counters: dict[str, tuple[tuple[CounterRule, float, Named], ...]] = {}
        self._named = [
            metric.name.partition("{")[0]
            for metric in (
                *(m for row in rows.rows for m in (*row.metrics, *row.of, *row.reasons, *row.heat)),
                *rows.busy.metrics,
            )
        ]
        self._gauges: list[tuple[RecordedGauge, Read]] = []
        self._spelled: set[str] = set()
        bits = count()
        counters = [row.id for row in rows.rows if row.measure in ("increase", "rate")]
        if len(counters) > _MAX_COUNTERS:
            raise ConfigError(
                f"catalog metrics: {len(counters)} rows are counters, at most {_MAX_COUNTERS} can be"
            )
        # Bits stand for rows by their order, so another set of rows must not read them.
        zeros = f"metrics.zeros.{crc32(' '.join(counters).encode()):08x}"
        for row in rows.rows:
            rule = _rule(row, bits, zeros)
            self._add(row.metrics, rule.read)
            if isinstance(rule, CounterRule):
                self._add_counter(row.metrics, rule)
            self._add(row.of, rule.second)
            self._add(row.reasons, rule.reason)
            if isinstance(rule, NodeRule):
                self._add(row.heat, rule.heat)
                self._gauges += [(RecordedGauge(row.recorded, LEAST), rule.of_node)]
                self._gauges += [(RecordedGauge(row.recorded_heat, MOST), rule.heat)]
                if row.recorded:
                    self._add(rows.busy.metrics, partial(rule.works, above=rows.busy.above))
        self._add(rows.busy.metrics, BusyGpus(rows.busy.above, 300_000).remember)
        self._by_name = {name: self._known[_plain(name)] for name in self._spelled}

    def _add(self, metrics: Iterable[Metric], read: Read) -> None:
        for metric in metrics:
            for name, named in metric.names():
                self._spelled.add(name)
                plain = _plain(name)
                self._known[plain] = (*self._known.get(plain, ()), (read, metric.scale, named))

    def _add_counter(self, metrics: Iterable[Metric], rule: CounterRule) -> None:
        for metric in metrics:
            # What is turned round is a state, of which there is no rate.
            for name, named in metric.names() if metric.scale > 0 else ():
                plain = _plain(name)
                self._counters[plain] = (*self._counters.get(plain, ()), (rule, metric.scale, named))

    @property
    def hints(self) -> tuple[bytes, ...]:
        """The names of all metrics; of those with a link number the part before it.

        A name within another one finds both: `packet_seq_err` stands for all its prefixes.
        """
        found: list[str] = []
        # OpenTelemetry and recording rules leave `_total` out. Recording rules are written in lower case, so that their names are
        # no part of an exporter's own in capitals.
        recorded = (name for gauge, _ in self._gauges for name in gauge.names)
        named = dict.fromkeys((*(name.removesuffix("_total") for name in self._named), *recorded))
        for name in sorted(named, key=len):
            if not any(shorter in name for shorter in found):
                found.append(name)
        return tuple(name.encode() for name in named if name in found)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """The findings of the sample, given those before it."""
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
        """The rules of a name in another spelling, or none; remembered for the next sample."""
        readers = self._known.get(_plain(name), ()) or self._recorded(name)
        if not readers and ":" in name:
            readers = tuple((read, 1.0, ()) for gauge, read in self._gauges if gauge.is_name(name))
        if len(self._by_name) < _MAX_NAMES:
            self._by_name[name] = readers
        return readers

    def _recorded(self, name: str) -> tuple[Reader, ...]:
        """The rules of counters that a recording rule has made a rate of."""
        rate = recorded_rate(name)
        if rate is None:
            return ()
        return tuple(
            (partial(_read_recorded, rule, rate.over_ms), scale * rate.per_second, named)
            for rule, scale, named in self._counters.get(_plain(rate.metric), ())
        )


def _read_recorded(
    rule: CounterRule, over_ms: int, sample: Sample, per_second: float, stream: Stream, named: Named
) -> Iterator[Finding] | None:
    if sample.node is None:
        return None  # summed up over a whole cluster
    return rule.recorded(sample, per_second, over_ms, stream, named)


def _plain(name: str) -> str:
    name = name.lower()
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.removesuffix("_total")


def _rule(row: MetricRow, bits: Iterator[int], zeros: str) -> Rule:
    match row.measure:
        case "zeros":
            return Zeros(row)
        case "share" | "ratio":
            return Fraction(row)
        case "bits":
            return Bits(row)
        case "increase" | "rate":
            kind: type[CounterRule] = Increase if row.measure == "increase" else RateRule
            return kind(row, next(bits), zeros)
        case "baseline":
            return Baseline(row)
        case "peers":
            return PeerRule(row)
        case "node":
            return NodeRule(row)
        case _:
            return Value(row)
