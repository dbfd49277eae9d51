"""All busy GPUs of a node together: whether the node as a whole is held far below what busy GPUs of its model have.

A power brake, or a whole chassis that is too hot, slows all GPUs of a node alike and says nothing. What a model usually has is
learned within the partition, from the node itself where no label tells the model. That a node is low says little by itself:
somebody may have set its clocks, for one job, a rack or the cluster. So this only reports it, once, and who else is low is asked
where all of a cluster's reports come together: series of one job's nodes lie in different partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast
from zlib import crc32

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.levels import BETWEEN, PAST, WELL, Rule, rounded
from streams.detect.metrics.pairs import worked
from streams.detect.metrics.rule_rows import Named
from streams.detect.metrics.sample_origin import SamplePlace, gpu_place, node_place
from streams.detect.rule_state import Key, Row, RuleTable
from streams.model.record import Sample
from streams.model.signal import Attribute

_MODELS = ("modelName", "model_name", "gpu_model", "name", "model", "product_name")
"""Labels that tell a GPU's model: dcgm-exporter, OpenTelemetry, Telegraf (`name`), AMD."""
_MAX_MODELS = 1_000
_MAX_NODES = 20_000
_BITS = 48
"""GPUs are told apart within a node by a bit each."""

_WEIGHT = 0.002
"""How fast the usual value follows what is lower: a node that is seen alone is usual at a quarter only after a day and a half."""
_MOST = 0.75
"""Such a share of a node's busy GPUs must be low."""
_OWN = 0.7
"""And the node below this share of what it had itself before."""
_AT_POWER = 0.6
"""GPUs that draw this share of the most that any of their model was seen with are not braked: their power or work holds them."""
_OWN_HOT = 0.85
_AT_POWER_HOT = 0.8
"""The same two of GPUs that are hot: full power makes them hot as well, and then their clocks are lower than before."""
_ALL = (1 << _BITS) - 1


class _Window(NamedTuple):
    """A node's current step, as a row. Times in milliseconds, 0 for never."""

    step: int
    busy: int = 0
    """Bits of the GPUs that were at work in it."""
    low: int = 0
    well: int = 0
    """Bits of those that were low, and that were not: one may be both."""
    idle: bool = False
    """Whether any GPU was known to rest in it."""
    total: float = 0.0
    readings: int = 0
    """Sum and number of the readings of busy GPUs."""
    low_at: int = 0
    """The first low reading since nothing was low."""
    own: float = 0.0
    """What its busy GPUs had in the last step in which none was low."""
    unbroken: bool = False
    """Whether none of its GPUs rested from then on: then its work went on while the value fell."""


class NodeRule(Rule):
    """Compares all busy GPUs of a node with what busy GPUs of their model have. Those with MIG instances are left out."""

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires when most of a node's busy GPUs were low for long enough, clears when none is any more."""
        if sample.node is None or not self.is_reading(value):
            return None
        gpu = gpu_place(sample, stream, whole=False)
        if gpu is None or gpu.gpu is None or gpu.gpu.mig:
            return None
        at = at_ms(sample, stream)
        windows = stream.rule_state.table(f"{self._table}.windows", _MAX_NODES)
        key: Key = (stream.cluster, sample.node)
        known = windows.get(key)
        step = at // self.row.window
        if known is None:
            now = _Window(step)
        elif step < cast("int", known[0]):
            return None
        else:
            now = _Window(*known)  # type: ignore[arg-type]
        found: Iterator[Finding] | None = None
        if step > now.step:
            found, now = self._judge(now, step, sample, stream)
        windows[key] = self._with(now, gpu, value, at, sample, stream)
        return found

    def _with(
        self, now: _Window, gpu: SamplePlace, value: float, at: int, sample: Sample, stream: Stream
    ) -> tuple[int | float | bool, ...]:
        """The window with one more reading."""
        works = worked(gpu, at, stream, self.row.gap * stream.spread)
        if works is None or not works:
            return tuple(now if works is None or now.idle else now._replace(idle=True))
        step, busy, low, well, idle, total, count, low_at, own, unbroken = now
        bit = _bit(gpu)
        if self._is_low(value, sample, stream):
            low |= bit
            low_at = low_at or at
        else:
            well |= bit
        # Not `_replace`, which takes longer than all of the rest.
        return (step, busy | bit, low, well, idle, total + value, count + 1, low_at, own, unbroken)

    def _is_low(self, value: float, sample: Sample, stream: Stream) -> bool:
        """Whether a reading is low for the model; of hot GPUs less is enough to be told apart from those that are well."""
        usual = self._levels(stream).get(_model_key(sample, stream))
        if usual is None:
            return False
        below, share = cast("float", self.row.below), value / cast("float", usual[0])
        if share > (self.row.below_hot or below):
            return False  # nearly every reading: whether the GPUs are hot need not be looked up
        return share <= below or self._is_hot(sample, stream)

    def of_node(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """The same of what a recording rule makes of all GPUs of a node, which says nothing once one of them rests."""
        if (
            sample.node is None
            or not self.is_reading(value)
            or gpu_place(sample, stream, whole=False) is not None
        ):
            return None
        at, key = at_ms(sample, stream), (stream.cluster, sample.node)
        windows = stream.rule_state.table(f"{self._table}.recorded", _MAX_NODES)
        known, step = windows.get(key), at // self.row.window
        now = _Window(step) if known is None else _Window(*known)  # type: ignore[arg-type]
        if step < now.step:
            return None
        found: Iterator[Finding] | None = None
        if step > now.step:
            busy, idle = self._at_work(now.step, key, stream)
            found, now = self._judge(
                now._replace(busy=0 if idle else busy, idle=bool(idle)), step, sample, stream
            )
        is_low = self._is_low(value, sample, stream)
        low, well, low_at = (_ALL, now.well, now.low_at or at) if is_low else (now.low, _ALL, now.low_at)
        total, count = now.total + value, now.readings + 1
        windows[key] = tuple(now._replace(low=low, well=well, low_at=low_at, total=total, readings=count))
        return found

    def works(
        self, sample: Sample, value: float, stream: Stream, named: Named, *, above: float
    ) -> Iterator[Finding] | None:
        """Remember which GPUs of a node with recorded series work, and which rest."""
        windows = stream.rule_state.table(f"{self._table}.recorded", _MAX_NODES)
        if not windows or (key := (stream.cluster, sample.node)) not in windows or not 0 <= value <= 100:
            return None
        gpu = gpu_place(sample, stream, whole=True)
        if gpu is None:
            return None
        table, at, bit, works = (
            self.table(stream, "at_work"),
            at_ms(sample, stream),
            _bit(gpu),
            value >= above,
        )
        known = cast("tuple[int, ...]", table.get(key) or ())
        # Of each GPU its bit, when it was seen at work last, and when it rested: series of one node lie in different partitions,
        # where minutes pass between two samples of one GPU.
        rows = {known[i]: (known[i + 1], known[i + 2]) for i in range(0, len(known), 3)}
        busy_at, idle_at = rows.get(bit, (0, 0))
        rows[bit] = (max(busy_at, at), idle_at) if works else (busy_at, max(idle_at, at))
        table[key] = tuple(n for one, times in sorted(rows.items()) for n in (one, *times))
        return None

    def _at_work(self, step: int, key: Key, stream: Stream) -> tuple[int, int]:
        """Bits of the GPUs that were at work in a step, and of those that rested."""
        known = cast("tuple[int, ...]", self.table(stream, "at_work").get(key) or ())
        begins = step * self.row.window
        since, busy, idle = begins - self.row.gap * stream.spread, 0, 0
        for i in range(0, len(known), 3):
            bit, busy_at, idle_at = known[i : i + 3]
            if idle_at >= begins or idle_at > max(busy_at, since):
                idle |= bit
            elif busy_at >= since:
                busy |= bit
        return busy, idle

    def heat(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember the hottest reading of a node's GPUs, of a node that is hot or may be low."""
        if sample.node is None or not 0 < value < _MOST_C:
            return None
        table, key = self.table(stream, "heat"), (stream.cluster, sample.node)
        is_hot = self.row.hot is not None and value >= self.row.hot
        if is_hot or key in table or self._may_be_low(sample, stream):
            step, most, before = self._heats(sample, stream)
            table[key] = (step, max(most, value), before)
        return None

    def _heats(self, sample: Sample, stream: Stream) -> tuple[int, float, float]:
        """The sample's step, the hottest reading in it, and in the one before (0 for none)."""
        step, known = self._kept("heat", (0.0, 0.0), sample, stream)
        last, most, before = cast("tuple[int, float, float]", known)
        return (last, most, before) if step <= last else (step, 0.0, most if step == last + 1 else 0.0)

    def _is_hot(self, sample: Sample, stream: Stream) -> bool:
        # Of nearly all nodes no heat is kept.
        if self.row.hot is None or (stream.cluster, sample.node) not in self.table(stream, "heat"):
            return False
        return max(self._heats(sample, stream)[1:]) >= self.row.hot

    def _judge(
        self, over: _Window, step: int, sample: Sample, stream: Stream
    ) -> tuple[Iterator[Finding] | None, _Window]:
        """What a finished step shows, and the next one."""
        busy, low = over.busy.bit_count(), (over.low & ~over.well).bit_count()
        mean = over.total / over.readings if over.readings else 0.0
        unbroken = over.unbroken and not over.idle
        if busy < self.row.peers or not over.readings:
            # Part of a scrape says nothing; of a node that rests nothing is to be compared.
            found = self._assessed(BETWEEN, {}, sample, stream) if over.idle else None
            low_at = 0 if over.idle else over.low_at
            return found, _Window(step, low_at=low_at, own=over.own, unbroken=unbroken)
        usual, learned = self._learn(mean, sample, stream)
        if not over.low:
            verdict = WELL if mean >= cast("float", self.row.clear) * usual else BETWEEN
            measured: dict[str, Attribute] = {self.row.says: rounded(mean)}
            found = self._assessed(verdict, measured, sample, stream)
            return found, _Window(step, own=mean, unbroken=not over.idle)
        power, most = self._power(sample, stream)
        below, own, at_power = self.row.below, _OWN, _AT_POWER
        # What is known to be hot and to draw little is slowed down by its heat, whose first steps are small.
        if power is not None and power < _AT_POWER_HOT * most and self._is_hot(sample, stream):
            below, own, at_power = self.row.below_hot, _OWN_HOT, _AT_POWER_HOT
        is_low = low >= _MOST * busy and mean <= cast("float", below) * usual
        verdict = PAST if is_low and learned and 0 < mean <= own * over.own else BETWEEN
        if power is not None and power >= at_power * most:
            verdict = BETWEEN
        mask = self._masks(sample, stream)[2]
        if mask & self.row.unless:
            verdict = BETWEEN
        measured = {
            self.row.says: rounded(round(mean)),
            "usual": rounded(round(usual)),
            "before": rounded(round(over.own)),
            "percent": round(100 * mean / usual),
            "gpus": busy,
            "unbroken": unbroken,
            "elapsed_ms": max(0, at_ms(sample, stream) - over.low_at),
        }
        if power is not None:
            measured["power_w"] = round(power)
        if hottest := self._heats(sample, stream)[2]:
            measured["temperature_c"] = round(hottest)
        if reasons := ",".join(name for bit, name in self.row.bits.items() if mask & bit):
            measured["reason"] = reasons
        found = self._assessed(verdict, measured, sample, stream)
        return found, _Window(step, low_at=over.low_at, own=over.own, unbroken=unbroken)

    def _assessed(
        self, verdict: int, measured: dict[str, Attribute], sample: Sample, stream: Stream
    ) -> Iterator[Finding] | None:
        place = node_place(sample, stream)
        return self.assess(verdict, measured, place, sample, stream)

    def _learn(self, mean: float, sample: Sample, stream: Stream) -> tuple[float, bool]:
        """What busy GPUs of the model usually have, with a finished step in it, and whether that has been learned."""
        levels, key = self._levels(stream), _model_key(sample, stream)
        known = levels.get(key)
        level, steps = cast("tuple[float, int]", known) if known is not None else (mean, 0)
        level = mean if mean > level else level - _WEIGHT * (level - mean)
        steps = min(steps + 1, self.row.warmup)
        levels[key] = (level, steps)
        return level, steps >= self.row.warmup

    def second(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember the most power that any GPU of the model drew, and what those of a node draw that may be low."""
        if sample.node is None or not 0 < value < _MOST_W:
            return None
        most, key = stream.rule_state.table(f"{self._table}.power", _MAX_MODELS), _model_key(sample, stream)
        known = most.get(key)
        if known is None or value > cast("float", known[0]):
            most[key] = (value,)
        if self._may_be_low(sample, stream) or self._is_hot(sample, stream):
            step, total, count, before = self._drawn(sample, stream)
            self.table(stream, "drawn")[stream.cluster, sample.node] = (
                step,
                total + value,
                count + 1,
                before,
            )
        return None

    def reason(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember why the clocks of a node that may be low are held."""
        if sample.node is not None and 0 < value < 2**53 and self._may_be_low(sample, stream):
            step, mask, before = self._masks(sample, stream)
            self.table(stream, "masks")[stream.cluster, sample.node] = (step, mask | int(value), before)
        return None

    def _drawn(self, sample: Sample, stream: Stream) -> tuple[int, float, int, float]:
        """The sample's step, sum and number of the readings of power in it, and their mean in the one before (0 for none)."""
        step, known = self._kept("drawn", (0.0, 0, 0.0), sample, stream)
        last, total, count, before = cast("tuple[int, float, int, float]", known)
        return (last, total, count, before) if step <= last else (step, 0.0, 0, total / count)

    def _masks(self, sample: Sample, stream: Stream) -> tuple[int, int, int]:
        """The sample's step, the reasons in it, and those in the one before."""
        step, known = self._kept("masks", (0, 0), sample, stream)
        last, mask, before = cast("tuple[int, int, int]", known)
        return (last, mask, before) if step <= last else (step, 0, mask)

    def _kept(self, table: str, nothing: Row, sample: Sample, stream: Stream) -> tuple[int, Row]:
        """The sample's step, and what a table keeps of its node, its step first; `nothing` of this step where it keeps none."""
        step = at_ms(sample, stream) // self.row.window
        return step, self.table(stream, table).get((stream.cluster, sample.node), (step, *nothing))

    def _may_be_low(self, sample: Sample, stream: Stream) -> bool:
        states = self.states(stream)
        return bool(states) and (stream.cluster, sample.node) in states

    def _power(self, sample: Sample, stream: Stream) -> tuple[float | None, float]:
        """What the node's GPUs drew in the step before the sample's, and the most that one of their model ever did (W)."""
        drawn = self._drawn(sample, stream)[3]
        most = stream.rule_state.table(f"{self._table}.power", _MAX_MODELS).get(_model_key(sample, stream))
        return (drawn, cast("float", most[0])) if drawn and most is not None else (None, 0.0)

    def _levels(self, stream: Stream) -> RuleTable:
        return stream.rule_state.table(f"{self._table}.usual", _MAX_NODES)


_MOST_W = 5_000
_MOST_C = 150


def _bit(gpu: SamplePlace) -> int:
    index = gpu.gpu.index if gpu.gpu is not None else None
    number = index if index is not None else crc32(str(gpu.key[2]).encode("utf-8", "replace"))
    return 1 << (number % _BITS)


def _model_key(sample: Sample, stream: Stream) -> Key:
    """Whose values are alike: those of GPUs of one model; of the node's own where no label tells it."""
    if ":" in sample.name:
        return (stream.cluster, "recorded", sample.node)
    labels = sample.labels
    for name in _MODELS:
        model = labels.get(name)
        if model:
            return (stream.cluster, model)
    return (stream.cluster, "", sample.node)
