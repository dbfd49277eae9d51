"""How fast the detector reads: `bench/detect.py [--quick] [--only PART …]`, a real broker and one detector process.

Lines are 210 bytes in the mean, over four partitions; the programs read the same records, in turn, three rounds, and the median
counts. What happens before a program's first records is no part of its rate. `getmany` is a loop over aiokafka's `getmany` with
the detector's own settings that counts bytes. The Faust agent and the Quix Streams app are what one writes first: a record at a
time, an expression for each kind of report, a message for each report. They cannot keep up, so they read fewer records of the
same kind, and rates are compared; that they find what the detector finds in them is checked.

Figures, medians of the rounds:
  `lines_per_s`                  the detector where 0.1 % of the lines are reports
  `ratio_0p1_to_getmany`         the same over `getmany` on the same topic: 1 is the floor itself
  `lines_5p_per_s`               the detector where 5 % of the lines are reports, each about another place
  `ratio_5p_to_getmany`          the same over `getmany` on the same topic
  `ratio_5p_repeats_to_getmany`  the same where 64 places repeat themselves; not with --quick
  `us_per_line`, `us_per_signal` CPU time of an ordinary line, and of a line that is a report beyond that, each about another
                                 place: what one core reads of any mixture follows from the two
  `x_two_processes`              two detectors, each with 5 % reports in a topic of its own, over one beside them: 2 where the
                                 cores are free; a broker and two detectors share this machine's
  `x_faust`, `x_quix`            the detector's rate at 0.1 % over the agent's and the app's
  `dcgm_samples_per_s`           the detector, one sample a record as prometheus-kafka-adapter writes it; `us_per_sample`
                                 its CPU time
  `rss_mb`, `rss_lines`          its resident memory after that many lines; 10 million, with --quick fewer
  `start_s`                      from starting `faultline run detector` to its first record in `signals`
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

from bench import chatter, detector_process
from bench.brokered import Rival, Timed, fill, installation
from bench.figures import Figure, middle, progress, report
from bench.rivals import quix_environment
from streams.config.settings import KafkaSettings
from streams.detect import Detector
from streams.kafka import clients
from streams.kafka.provisioning import apply
from streams.kafka.topics import RAW_METRICS, RAW_NODE_LOGS, Topic
from streams.model.clock import from_millis
from streams.model.record import RawRecord
from tests.testbed.kafka import Kafka

SEED = 20261121
PARTITIONS = 4
ROUNDS = 3
MIXES = {"0p1": (0.001, 10**6), "5p": (0.05, 10**6), "5p_repeats": (0.05, 64)}
"""Share of the lines that are reports, and of how many places they are."""

PARTS = (*MIXES, "dcgm", "two", "faust", "quix", "memory")
NOT_QUICK = {"5p_repeats", "two", "memory"}


@dataclass(frozen=True)
class Sizes:
    """How many records a pass reads."""

    lines: int
    samples: int
    faust: int
    quix: int
    memory: int = 0


FULL = Sizes(lines=1_500_000, samples=400_000, faust=60_000, quix=300_000, memory=10_000_000)
QUICK = Sizes(lines=800_000, samples=100_000, faust=6_000, quix=30_000)

Step = Callable[[], Awaitable[None]]


class Rounds:
    """What was measured, by name, a value for each round."""

    def __init__(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float, remark: str = "") -> None:
        """One round's value."""
        self._values[name].append(value)
        progress(f"  {name:24} {value:12,.1f}  {remark}")

    def of(self, name: str) -> float | None:
        """The median, None when it was not measured."""
        return middle(self._values[name]) if name in self._values else None

    def ratio(self, above: str, below: str) -> float | None:
        """The median of the rounds' own ratios: what disturbs a round disturbs both."""
        pairs = list(zip(self._values[above], self._values[below], strict=False))
        return middle(a / b for a, b in pairs) if pairs else None

    def costs(self) -> dict[str, Figure]:
        """CPU time in µs of an ordinary line and of a report beyond that, from the two mixtures; None when one is missing."""
        few, many = self.of("0p1_cpu_us"), self.of("5p_cpu_us")
        if few is None or many is None:
            return {"us_per_line": None, "us_per_signal": None}
        a_signal = (many - few) / (MIXES["5p"][0] - MIXES["0p1"][0])
        return {"us_per_line": few - MIXES["0p1"][0] * a_signal, "us_per_signal": a_signal}


class Bench:
    """Who reads what on one broker."""

    def __init__(self, bootstrap: str, sizes: Sizes) -> None:
        self._bootstrap = bootstrap
        self._sizes = sizes
        self._now = datetime.now(UTC)
        self._rivals: list[Rival] = []
        self._getmany = self._rival(sys.executable, "bench.rivals.getmany")
        self.rounds = Rounds()
        self.rss_lines = sizes.lines

    async def step(self, part: str) -> Step:
        """Write the records of a part, and give what measures it once."""
        sizes = self._sizes
        if part in MIXES:
            settings = await self._written(part, RAW_NODE_LOGS, self._lines(part, sizes.lines))
            return lambda: self._against_floor(part, settings)
        if part == "dcgm":
            values = chatter.samples(SEED, sizes.samples, begin=self._now - timedelta(hours=12))
            settings = await self._written(part, RAW_METRICS, values)
            return lambda: self._samples(settings)
        if part == "two":
            both = [
                await self._written(name, RAW_NODE_LOGS, self._lines("5p", sizes.lines))
                for name in ("left", "right")
            ]
            return lambda: self._side_by_side(*both)
        if part == "memory":
            values = chain.from_iterable(repeat(list(self._lines("0p1", 500_000)), sizes.memory // 500_000))
            settings = await self._written(part, RAW_NODE_LOGS, values)
            return lambda: self._memory(settings)
        count = sizes.faust if part == "faust" else sizes.quix
        python = sys.executable if part == "faust" else quix_environment.python()
        rival = self._rival(
            python, "bench.rivals.faust_agent" if part == "faust" else "bench.rivals.quix_app"
        )
        settings = await self._written(part, RAW_NODE_LOGS, self._lines("0p1", count))
        expected = self._found(self._lines("0p1", count))
        return lambda: self._against_rival(part, rival, settings, count, expected)

    async def end(self) -> None:
        """End the compared programs."""
        for rival in self._rivals:
            await rival.end()

    async def _against_floor(self, part: str, settings: KafkaSettings) -> None:
        records = self._sizes.lines
        floor = await self._getmany.ask(
            settings=settings.model_dump(mode="json"),
            topic=clients.topic_name(settings, RAW_NODE_LOGS),
            partitions=PARTITIONS,
            records=records,
        )
        remark = f"{floor['bytes'] / records:.0f} bytes a record, {floor['cpu_us']:.2f} µs of CPU"
        self.rounds.add(f"getmany_{part}_per_s", floor["per_s"], remark)
        done = await detector_process.one_pass(settings, RAW_NODE_LOGS, records)
        remark = (
            f"{done.signals} signals, {done.cpu_us:.2f} µs of CPU a record, {done.peak_rss_mb:.0f} MB at most"
        )
        self.rounds.add(f"{part}_per_s", done.per_s, remark)
        self.rounds.add(f"{part}_cpu_us", done.cpu_us)
        self.rounds.add(f"{part}_rss_mb", done.rss_mb)
        self.rounds.add("start_s", done.start_s)

    async def _samples(self, settings: KafkaSettings) -> None:
        done = await detector_process.one_pass(settings, RAW_METRICS, self._sizes.samples)
        self.rounds.add("dcgm_per_s", done.per_s, f"{done.signals} signals")
        self.rounds.add("dcgm_cpu_us", done.cpu_us)

    async def _side_by_side(self, left: KafkaSettings, right: KafkaSettings) -> None:
        records = self._sizes.lines
        alone = await detector_process.one_pass(left, RAW_NODE_LOGS, records)
        both = await asyncio.gather(
            *(detector_process.one_pass(settings, RAW_NODE_LOGS, records) for settings in (left, right))
        )
        remark = f"{alone.cpu_us:.2f} µs of CPU a record alone, {both[0].cpu_us:.2f} and {both[1].cpu_us:.2f} beside"
        self.rounds.add("x_two", sum(one.per_s for one in both) / alone.per_s, remark)

    async def _memory(self, settings: KafkaSettings) -> None:
        if self.rounds.of("rss_mb") is None:
            self.rss_lines = self._sizes.memory
            done = await detector_process.one_pass(settings, RAW_NODE_LOGS, self.rss_lines)
            self.rounds.add("rss_mb", done.rss_mb, f"{done.peak_rss_mb:.0f} MB at most")

    async def _against_rival(
        self, part: str, rival: Rival, settings: KafkaSettings, count: int, expected: int
    ) -> None:
        done = await rival.ask(
            bootstrap=self._bootstrap,
            topic=clients.topic_name(settings, RAW_NODE_LOGS),
            reports=clients.topic_name(settings, RAW_METRICS),
            records=count,
            run=f"{part}-{datetime.now(UTC):%H%M%S%f}",
        )
        if done["signals"] != expected:
            raise RuntimeError(f"{part} found {done['signals']} signals, the detector {expected}")
        self.rounds.add(f"{part}_per_s", done["per_s"], f"{expected} signals")

    def _lines(self, mix: str, count: int) -> Iterator[bytes]:
        share, places = MIXES[mix]
        return chatter.mixed(SEED, count, share, begin=self._now - timedelta(hours=1), places=places)

    async def _written(self, part: str, topic: Topic, values: Iterable[bytes]) -> KafkaSettings:
        settings = installation(self._bootstrap, part, PARTITIONS)
        await apply(settings)
        name = clients.topic_name(settings, topic)
        written = await fill(self._bootstrap, name, PARTITIONS, self._timed(values))
        progress(f"{part}: {written / 1e6:.0f} MB written")
        return settings

    def _timed(self, values: Iterable[bytes]) -> Iterator[Timed]:
        now_ms = int(self._now.timestamp() * 1000)
        return ((now_ms + number // 1000, value) for number, value in enumerate(values))

    def _found(self, values: Iterable[bytes]) -> int:
        """How many signals the detector finds, without Kafka."""
        detector = Detector("bench")
        return sum(
            len(detector.detect(RawRecord(RAW_NODE_LOGS.name, 0, 0, from_millis(at_ms), None, value)).signals)
            for at_ms, value in self._timed(values)
        )

    def _rival(self, python: object, module: str) -> Rival:
        self._rivals.append(Rival(str(python), module))
        return self._rivals[-1]


async def measure(bootstrap: str, sizes: Sizes, parts: Iterable[str]) -> dict[str, Figure]:
    """All parts in turn, three times over."""
    bench = Bench(bootstrap, sizes)
    try:
        steps = [await bench.step(part) for part in parts]
        for number in range(ROUNDS):
            progress(f"round {number + 1} of {ROUNDS}")
            for step in steps:
                await step()
    finally:
        await bench.end()
    rounds = bench.rounds
    return {
        "lines_per_s": rounds.of("0p1_per_s"),
        "ratio_0p1_to_getmany": rounds.ratio("0p1_per_s", "getmany_0p1_per_s"),
        "lines_5p_per_s": rounds.of("5p_per_s"),
        "ratio_5p_to_getmany": rounds.ratio("5p_per_s", "getmany_5p_per_s"),
        "ratio_5p_repeats_to_getmany": rounds.ratio("5p_repeats_per_s", "getmany_5p_repeats_per_s"),
        **rounds.costs(),
        "x_two_processes": rounds.of("x_two"),
        "x_faust": rounds.ratio("0p1_per_s", "faust_per_s"),
        "x_quix": rounds.ratio("0p1_per_s", "quix_per_s"),
        "dcgm_samples_per_s": rounds.of("dcgm_per_s"),
        "us_per_sample": rounds.of("dcgm_cpu_us"),
        "rss_mb": rounds.of("rss_mb") or rounds.of("0p1_rss_mb"),
        "rss_lines": bench.rss_lines,
        "start_s": rounds.of("start_s"),
        "line_bytes": chatter.LINE_BYTES,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast the detector reads.")
    parser.add_argument("--quick", action="store_true", help="smaller passes, about two minutes on two cores")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts, for profiling")
    options = parser.parse_args()
    parts = [part for part in PARTS if part in (options.only or PARTS)]
    if options.quick:
        parts = [part for part in parts if part not in NOT_QUICK]
    with Kafka.running(for_load=True) as server:
        figures = asyncio.run(measure(server.bootstrap, QUICK if options.quick else FULL, parts))
    versions = ("aiokafka", "faust-streaming", "google-re2", "orjson")
    report(
        {**figures, "quix_streams": quix_environment.version() if "quix" in parts else None},
        packages=versions,
    )


if __name__ == "__main__":
    main()
