"""What a row of `catalog/metrics/*.yaml` may say. Unknown keys are refused, and so is a row whose numbers contradict each other.

Names of one quantity stand side by side, whoever exports it: dcgm-exporter (DCGM_FI_…, DCGM_EXP_…), nvidia_gpu_exporter
(nvidia_smi_…), Telegraf (bare fields), node_exporter (node_…), ipmi_exporter (ipmi_…). `{0..17}` is that many names, one for each
link. Stories are series in Prometheus' notation for rule tests: `80x3` is 80 four times, `0+5x2` is 0 5 10, `_` a missing scrape.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from streams.config.vocabularies import KnownWords
from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.model.kinds import SignalKind
from streams.model.signal import Severity, SignalState

Measure = Literal["value", "bits", "increase", "rate", "share", "ratio", "zeros", "baseline", "peers", "node"]
"""`value`: the sample itself. `bits`: which bits of a mask are set. `increase`: a counter went up. `rate`: how fast it does.
`share`: of itself and a second metric. `ratio`: to a second metric. `zeros`: it and a second metric are both zero.
`baseline`: to its own usual value. `peers`: to the median of the job's other GPUs. `node`: what all busy GPUs of a node have
together, to what busy GPUs of their model have."""

# Snapshots know counters by the order of their rows: another order of files discards what they hold.
FILES = ("gpu_thermal", "gpu_memory", "gpu_work", "gpu_links", "fabric", "host", "storage")
"""The files of `catalog/metrics`, by device."""

TWO_METRICS = frozenset({"share", "ratio", "zeros"})
WINDOWED = frozenset({"rate", "baseline", "peers", "node"})
OPTIONAL_SECOND = frozenset({"node"})
"""Measures whose second metric is evidence that may be missing."""
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _milliseconds(value: Any) -> int:
    total, digits = 0, ""
    for letter in str(value):
        if letter.isdecimal():
            digits += letter
        elif digits and letter in _UNITS_MS:
            total, digits = total + int(digits) * _UNITS_MS[letter], ""
        else:
            break
    else:
        if not digits and value:
            return total
    raise ValueError(f"{value!r} is no duration such as 30s, 5m or 1h30m")


def _metric(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Duration = Annotated[int, BeforeValidator(_milliseconds)]
"""Milliseconds, written as `30s`, `5m`, `1h30m` or `1d`."""


Named = tuple[tuple[str, str | int], ...]
"""Attributes from a metric's name, in addition to its labels, that tell its series apart."""


class Metric(Strict):
    """One exporter's name for what is measured, and the factor to the row's unit. `L{0..17}` stands for that many names.

    A row's metrics are one quantity under the names of different exporters. Where one exporter has several for the same fault,
    each has its own `counter`, which becomes an attribute.
    """

    name: str
    scale: float = 1.0
    counter: str = ""

    def names(self) -> tuple[tuple[str, Named], ...]:
        """Each name with the attributes it stands for."""
        counter: Named = (("counter", self.counter),) if self.counter else ()
        head, brace, rest = self.name.partition("{")
        if not brace:
            return ((self.name, counter),)
        span, _, tail = rest.partition("}")
        first, _, last = span.partition("..")
        return tuple(
            (f"{head}{link}{tail}", (*counter, ("link", link))) for link in range(int(first), int(last) + 1)
        )

    @property
    def exporter(self) -> str:
        """The exporter, by its prefix."""
        return self.name.partition("_")[0].lower()


NamedMetric = Annotated[Metric, BeforeValidator(_metric)]


class Series(Strict):
    """Samples of one series in Prometheus' notation for rule tests: `80x3 0+5x10 _ NaN`. `gpus` repeats it on so many GPUs."""

    metric: str
    values: str
    labels: Mapping[str, str] = {}
    gpus: tuple[int, ...] = (0,)


class MetricTransition(Strict):
    """A finding a story must give: how long after the first sample, and with which attributes among others."""

    state: SignalState
    after: Duration
    attributes: Mapping[str, Any] = {}


class Story(Strict):
    """Series that start together, with a sample each `step`."""

    step: Duration = 30_000
    series: tuple[Series, ...] = Field(min_length=1)
    why: str = ""
    expect: tuple[MetricTransition, ...] = ()


class MetricRow(Strict):
    """One rule.

    It fires from `above` or `below` on and clears at `clear`, after `for` in a row and in `samples` consecutive samples. A series
    that pauses for longer than `gap` starts over.
    """

    id: str
    kind: SignalKind
    severity: Severity
    entity: Literal["gpu", "instance", "nic", "node", "pci", "port"]
    """What it is about; a `port` is a switch's, or a NIC where the labels say so; `pci` is any device, by its address."""
    measure: Measure
    metrics: tuple[NamedMetric, ...] = Field(min_length=1)
    of: tuple[NamedMetric, ...] = ()
    """The second metric of `share`, `ratio` and `zeros`, exporter for exporter as in `metrics`; of `node` the GPU's power (W)."""
    reasons: tuple[NamedMetric, ...] = ()
    """Of `node`: masks that tell why a GPU's clock is low."""
    heat: tuple[NamedMetric, ...] = ()
    """Of `node`: the temperature of a GPU (C)."""
    recorded: tuple[str, ...] = ()
    """Of `node`: what the least or mean value of a node's GPUs is called within the name of a site's own recording rule
    (`level:metric:operation`, as Prometheus recommends)."""
    recorded_heat: tuple[str, ...] = ()
    """The same of the highest temperature of a node's GPUs."""
    attributes: Annotated[Mapping[str, str], KnownWords]
    says: str
    """The attribute that holds what was measured."""
    source: str = Field(min_length=10)

    above: float | None = None
    below: float | None = None
    clear: float | None = None
    valid: tuple[float, float] = (0.0, 9e18)
    """The valid range of a reading; others are ignored."""
    for_: Duration = Field(0, alias="for", validate_default=False)
    samples: int = Field(1, ge=1)
    gap: Duration = 900_000

    bits: Mapping[int, str] = {}
    hot: float | None = None
    """Of `node`: from this temperature on GPUs slow themselves down, and `below_hot` counts in place of `below`."""
    below_hot: float | None = None
    unless: int = 0
    """More specific bits: the row is silent while one of them is set; of `node` in any of its `reasons`."""
    where: Mapping[str, tuple[str, ...]] = {}
    """Labels and the values they may have."""
    parts: tuple[str, ...] = ()
    """Labels that tell several series of an entity apart; they become attributes."""
    allocated: bool = False
    """Only while the GPU belongs to a pod; starts over with each pod."""
    busy: bool = False
    """Only while the GPU is known to be busy. `peers` never speaks of one that is known to be idle."""
    quiet: Duration | None = None
    """Clears after this time without an `increase`, each of which is reported."""
    per: Duration = 1_000
    """The unit of time of a `rate`."""
    window: Duration = 60_000
    """The time a `rate` is taken over, between comparisons of a `baseline`, and of a step of `peers` or `node`."""
    warmup: int = 30
    """Windows a `baseline` is learned before it is compared."""
    floor: float = 0.0
    """A `baseline` below this share of itself has ended and is no fault; `peers` with a median below this are idle."""
    peers: int = 8
    """Of more GPUs than this there must be samples in a step of `peers`; of so many busy ones in a step of `node`."""

    stories: tuple[Story, ...] = Field(min_length=1)
    look_alikes: tuple[Story, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_whole(self) -> MetricRow:
        if self.measure == "increase":
            if self.above is not None or self.below is not None:
                raise ValueError(f"{self.id}: any increase counts, it has no threshold")
        elif self.measure == "bits":
            if not self.bits:
                raise ValueError(f"{self.id}: bits have no names")
        elif self.measure != "zeros" and (self.above is None) == (self.below is None):
            raise ValueError(f"{self.id}: needs either above or below")
        if self.measure in WINDOWED and self.gap < 2 * self.window:
            raise ValueError(f"{self.id}: a gap of less than two windows would break every duration")
        if self.measure in ("increase", "rate"):
            whose = [(metric.exporter, metric.counter, "{" in metric.name) for metric in self.metrics]
            if len(set(whose)) < len(whose):
                raise ValueError(f"{self.id}: counters of one exporter need a `counter` to be told apart")
        wanted = len(self.metrics) if self.measure in TWO_METRICS else 0
        if self.measure not in OPTIONAL_SECOND and len(self.of) != wanted:
            raise ValueError(
                f"{self.id}: `of` must name as many metrics as `metrics` for {sorted(TWO_METRICS)}, else none"
            )
        if (self.reasons or self.heat or self.recorded) and self.measure != "node":
            raise ValueError(f"{self.id}: only `node` reads `reasons`, `heat` and recording rules")
        if (self.hot is None) != (self.below_hot is None):
            raise ValueError(f"{self.id}: `hot` and `below_hot` mean something only together")
        if self.above is not None and self.clear is not None and self.clear > self.above:
            raise ValueError(f"{self.id}: is over at {self.clear}, which is above {self.above}")
        if self.below is not None and self.clear is not None and self.clear < self.below:
            raise ValueError(f"{self.id}: is over at {self.clear}, which is below {self.below}")
        return self


class Busy(Strict):
    """The metrics that show a busy GPU, and their threshold."""

    metrics: tuple[NamedMetric, ...]
    above: float


class JobLabels(Strict):
    """When a host's metrics begin or cease to bear a job of Slurm, and how often that is reported."""

    lasts: Duration
    gone: Duration
    again: Duration

    @model_validator(mode="after")
    def _can_be_seen(self) -> JobLabels:
        if not self.lasts <= self.gone < self.again:
            raise ValueError("job_labels: wants lasts <= gone < again")
        return self


class MetricFile(Strict):
    """One file of `catalog/metrics`."""

    busy: Busy | None = None
    job_labels: JobLabels | None = None
    rows: tuple[MetricRow, ...]


class MetricSheet(Strict):
    """All of `catalog/metrics`."""

    busy: Busy
    job_labels: JobLabels
    rows: tuple[MetricRow, ...]

    @model_validator(mode="after")
    def _names_are_unique(self) -> MetricSheet:
        ids = [row.id for row in self.rows]
        if twice := sorted({name for name in ids if ids.count(name) > 1}):
            raise ValueError(f"rows with the same id: {', '.join(twice)}")
        return self


@cache
def sheet() -> MetricSheet:
    """All rows of `catalog/metrics`, read once."""
    files = [load_catalog(f"metrics/{name}", MetricFile) for name in FILES]
    (busy,) = (file.busy for file in files if file.busy is not None)
    (job_labels,) = (file.job_labels for file in files if file.job_labels is not None)
    return MetricSheet(
        busy=busy, job_labels=job_labels, rows=tuple(row for file in files for row in file.rows)
    )
