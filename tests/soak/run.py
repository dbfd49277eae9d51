"""The same records twice through detectors: killed, ended and frozen every few seconds, and undisturbed; then compared.

python -m tests.soak.run [--lines 10000000] [--seed 1] [--every 4]

Ends with 1 when anything differs. The last line of standard output is one JSON object with the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.kafka import clients, provisioning
from streams.kafka.dead_letters import why_buried
from streams.kafka.topics import DEAD_LETTERS, RAW, SIGNALS, Topic
from streams.model.clock import utc_now
from streams.model.codec import decode
from streams.model.signal import Signal, SignalBatch
from tests.soak.workload import Sent, Workload
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

ROOT = Path(__file__).parents[2]
PARTITIONS = 4
PROCESSES = 2
_BATCH_BYTES = 256 * 1024
_SESSION_MS = 2000
_UNDISTURBED_SESSION_MS = 60_000
"""Long: whoever gets no CPU for some seconds shall not lose its partitions, and read and count something twice."""
_MOVES_ON = 0.01
"""Share of the records that is read between two blows at least: on a slow machine detectors would be hit before they begin."""
_LEAVES_WITHIN_S = 60
_IN_ORDER = (0, -signal.SIGTERM)
"""How a detector ends that is asked to: in order, or at once while it has hardly begun."""


@dataclass(slots=True)
class Outcome:
    """What a run of detectors has told. `at_once` are the ids of first reports and changes, `counts` what was said how often."""

    signals: int = 0
    repeated: int = 0
    at_once: set[str] = field(default_factory=set)
    changes: int = 0
    counts: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    broken: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Figures:
    """What a soak shows. `missing` and `added` are reports told at once in one run and not in the other: none, if all is well."""

    lines: int
    kills: int = 0
    ends: int = 0
    freezes: int = 0
    disturbed_s: float = 0.0
    undisturbed_s: float = 0.0
    told_at_once: int = 0
    changes: int = 0
    missing: int = 0
    added: int = 0
    lines_lost: int = 0
    counts_below_the_truth: int = 0
    counts_undisturbed_wrong: int = 0
    signals: int = 0
    signals_undisturbed: int = 0
    signals_written_twice: int = 0
    dead_letters_missing: int = 0
    taken_over: int = 0
    longest_catching_up_s: float = 0.0
    most_records_read_again: int = 0
    without_snapshot: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Soak:
    """One soak on one broker.

    Args:
        bootstrap: The broker.
        folder: For the logs of the processes.
        lines: How many records.
        seed: Of the workload and of who is hit when.
        every_s: How long the detectors are left alone between two blows, in the mean.
        batch_records: How many records a detector takes per poll.
    """

    bootstrap: str
    folder: Path
    lines: int
    seed: int = 1
    every_s: float = 4.0
    batch_records: int = 5000

    async def run(self) -> Figures:
        """Fill the topics, run both, compare."""
        settings = KafkaSettings(
            bootstrap=self.bootstrap,
            topic_prefix=f"soak-{self.seed}-{self.lines}.",
            replication_factor=1,
            min_insync_replicas=1,
            raw_partitions=PARTITIONS,
            cluster_partitions=1,
            session_timeout_ms=_SESSION_MS,
        )
        await provisioning.apply(settings)
        # Records bear the times of the workload: much older ones the broker would delete.
        workload = Workload(self.seed, self.lines, utc_now().replace(microsecond=0) - timedelta(hours=2))
        await fill(settings, workload.records())
        figures = Figures(self.lines)
        began = time.monotonic()
        await self._disturbed(settings, figures, workload)
        figures.disturbed_s = round(time.monotonic() - began, 1)
        disturbed, then = await outcome(settings, Counter())
        figures.lines_lost = await left(settings)
        await begin_again(settings)
        began = time.monotonic()
        await self._undisturbed(settings, figures, workload, then)
        figures.undisturbed_s = round(time.monotonic() - began, 1)
        undisturbed, _ = await outcome(settings, then)
        self._read_logs(figures)
        compare(figures, workload, disturbed, undisturbed)
        return figures

    async def _disturbed(self, settings: KafkaSettings, figures: Figures, workload: Workload) -> None:
        r = random.Random(self.seed)
        names = [f"detector-{number}" for number in range(PROCESSES)]
        running = {name: self._start(name, settings) for name in names}
        try:
            while before := await left(settings):
                await asyncio.sleep(r.uniform(0.5, 1.5) * self.every_s)
                await read_on(settings, max(0, before - int(self.lines * _MOVES_ON)))
                name = r.choice(names)
                match r.choice(("kill", "kill", "kill", "kill", "end", "freeze")):
                    case "kill":
                        running[name].kill()
                        figures.kills += 1
                    case "end":
                        code = await asyncio.to_thread(running[name].stop, _LEAVES_WITHIN_S)
                        figures.ends += 1
                        if code not in _IN_ORDER:
                            figures.faults.append(f"{name} ended with {code}: {running[name].tail(3)}")
                    case _:
                        running[name].signal(signal.SIGSTOP)
                        await asyncio.sleep(2 * _SESSION_MS / 1000)
                        running[name].signal(signal.SIGCONT)
                        figures.freezes += 1
                for other, child in running.items():
                    if child.exit_code not in (None, -signal.SIGKILL, *_IN_ORDER):
                        figures.faults.append(f"{other} ended with {child.exit_code}: {child.tail(3)}")
                    if child.exit_code is not None:
                        running[other] = self._start(other, settings)
            await all_counted(settings, workload, Counter())
        finally:
            for child in running.values():
                await asyncio.to_thread(child.stop, _LEAVES_WITHIN_S)

    async def _undisturbed(
        self, settings: KafkaSettings, figures: Figures, workload: Workload, begin: Counter[TopicPartition]
    ) -> None:
        calm = settings.model_copy(update={"session_timeout_ms": _UNDISTURBED_SESSION_MS})
        child = self._start("undisturbed", calm)
        try:
            await read_on(settings, 0, timeout_s=120 + self.lines / 5000)
            await all_counted(settings, workload, begin)
            await quiet(settings)
        finally:
            await asyncio.to_thread(child.stop, _LEAVES_WITHIN_S)
        counted: Counter[str] = Counter()
        for line in child.log.read_text().splitlines():
            if "detector stopped" in line:
                counted.update({name: int(number) for name, number in re.findall(r"(\w+)=(\d+)\b", line)})
        parts = counted["signalling"] + counted["ignored"] + counted["dead_letters"]
        if not self.lines == counted["records"] == parts:
            figures.faults.append(f"undisturbed: {dict(counted)} do not make up {self.lines} records")

    def _start(self, name: str, settings: KafkaSettings) -> Child:
        wanted = DetectorSettings(batch_records=self.batch_records, snapshot_s=1.0)
        arguments = [settings.model_dump_json(), "", "0", wanted.model_dump_json()]
        command = [sys.executable, "-m", "tests.streams.detect.process.child", *arguments]
        return Child(name, command, log=self.folder / f"{name}.log", cwd=ROOT)

    def _read_logs(self, figures: Figures) -> None:
        for log in self.folder.glob("detector-*.log"):
            for line in log.read_text(errors="replace").splitlines():
                if "partition taken over" in line:
                    told = dict(re.findall(r"(\w+)=([\d.]+)\b", line))
                    figures.taken_over += 1
                    figures.longest_catching_up_s = max(figures.longest_catching_up_s, float(told["seconds"]))
                    figures.most_records_read_again = max(
                        figures.most_records_read_again, int(told["records"])
                    )
                figures.without_snapshot += "no usable snapshot" in line


def compare(figures: Figures, workload: Workload, disturbed: Outcome, undisturbed: Outcome) -> None:
    """Fill in what differs between the runs, and between them and the truth."""
    figures.told_at_once, figures.changes = len(undisturbed.at_once), undisturbed.changes
    figures.missing = len(undisturbed.at_once - disturbed.at_once)
    figures.added = len(disturbed.at_once - undisturbed.at_once)
    figures.signals, figures.signals_undisturbed = disturbed.signals, undisturbed.signals
    figures.signals_written_twice = disturbed.repeated
    figures.dead_letters_missing = max(
        workload.broken - len(told.broken) for told in (disturbed, undisturbed)
    )
    figures.counts_below_the_truth = sum(disturbed.counts[key] < n for key, n in workload.said.items())
    figures.counts_undisturbed_wrong = sum(undisturbed.counts[key] != n for key, n in workload.said.items())
    for name in (
        "missing",
        "added",
        "lines_lost",
        "counts_below_the_truth",
        "counts_undisturbed_wrong",
        "dead_letters_missing",
    ):
        if number := getattr(figures, name):
            figures.faults.append(f"{name}: {number}")


async def fill(settings: KafkaSettings, records: Iterable[Sent]) -> None:
    """Write all records, each with its own time, in order within each partition."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap, max_batch_size=_BATCH_BYTES, max_request_size=8 * _BATCH_BYTES
    )
    await producer.start()
    builders: dict[tuple[str, int], Any] = {}
    last: dict[tuple[str, int], asyncio.Future[Any]] = {}

    async def send(place: tuple[str, int]) -> None:
        builder = builders.pop(place)
        builder.close()
        # One after the other in each partition: an order that is lost would be the test's, not the detector's.
        if place in last:
            await last[place]
        last[place] = await producer.send_batch(builder, place[0], partition=place[1])

    try:
        for sent in records:
            place = (clients.topic_name(settings, sent.topic), sent.partition % settings.raw_partitions)
            while True:
                builder = builders.get(place)
                if builder is None:
                    builder = builders[place] = producer.create_batch()
                if builder.append(key=None, value=sent.value, timestamp=sent.at_ms) is not None:
                    break
                await send(place)
        for place in list(builders):
            await send(place)
        await asyncio.gather(*last.values())
    finally:
        await producer.stop()


def places(settings: KafkaSettings, topics: Sequence[Topic], partitions: int) -> list[TopicPartition]:
    """All partitions of these topics."""
    names = [clients.topic_name(settings, topic) for topic in topics]
    return [TopicPartition(name, number) for name in names for number in range(partitions)]


async def left(settings: KafkaSettings) -> int:
    """How many records of the raw topics lie behind the group's commits."""
    wanted = places(settings, RAW, settings.raw_partitions)
    reader = await clients.started(clients.consumer(settings, group=None), settings)
    try:
        ends = await reader.end_offsets(wanted)
    finally:
        await reader.stop()
    commits = await clients.committed(settings, "detector", wanted)
    return sum(end - (commits[tp].offset if tp in commits else 0) for tp, end in ends.items())


async def read_on(settings: KafkaSettings, most: int, *, timeout_s: float = 120) -> None:
    """Wait until no more than `most` records are left."""

    async def few_left() -> bool:
        return await left(settings) <= most

    await eventually(few_left, f"at most {most} records are left", timeout_s=timeout_s)


async def all_counted(settings: KafkaSettings, workload: Workload, begin: Counter[TopicPartition]) -> None:
    """Wait until all that was said is counted: the last counts come when their windows are over. What stays out is told later."""

    async def in_full() -> bool:
        told, _ = await outcome(settings, begin)
        return all(told.counts[key] >= n for key, n in workload.said.items())

    with suppress(TimeoutError):
        await eventually(in_full, "all is counted", timeout_s=60)


async def quiet(settings: KafkaSettings) -> None:
    """Wait until nothing more is told."""
    (place,) = places(settings, [SIGNALS], settings.cluster_partitions)
    reader = await clients.started(clients.consumer(settings, group=None), settings)
    try:
        last, since = -1, time.monotonic()

        async def nothing_new() -> bool:
            nonlocal last, since
            (end,) = (await reader.end_offsets([place])).values()
            if end != last:
                last, since = end, time.monotonic()
            # Progress has the longest window: two of five seconds.
            return time.monotonic() - since > 11

        await eventually(nothing_new, "nothing more is told", timeout_s=180)
    finally:
        await reader.stop()


async def begin_again(settings: KafkaSettings) -> None:
    """Put the group back to the beginning of all topics, without a pointer to any snapshot."""
    consumer = clients.consumer(settings, group="detector")
    wanted = places(settings, RAW, settings.raw_partitions)
    consumer.assign(wanted)
    await clients.started(consumer, settings)

    async def committed() -> bool:
        try:
            await consumer.commit(dict.fromkeys(wanted, 0))
        except CommitFailedError:
            return False  # the group remembers a killed member until its session is over
        return True

    try:
        await eventually(committed, "the group is empty")
    finally:
        await consumer.stop()


async def outcome(
    settings: KafkaSettings, begin: Counter[TopicPartition]
) -> tuple[Outcome, Counter[TopicPartition]]:
    """What was told from these offsets on, and where it ends."""
    wanted = places(settings, [SIGNALS], settings.cluster_partitions)
    wanted += places(settings, [DEAD_LETTERS], settings.raw_partitions)
    reader = await clients.started(clients.consumer(settings, group=None), settings)
    told, ids, states = Outcome(), set[str](), dict[tuple[str, str], str]()
    try:
        reader.assign(wanted)
        ends = Counter(await reader.end_offsets(wanted))
        for place in wanted:
            reader.seek(place, begin[place])
        while any([await reader.position(place) < ends[place] for place in wanted]):
            for place, records in (await reader.getmany(timeout_ms=200)).items():
                for record in records:
                    if place.topic == clients.topic_name(settings, DEAD_LETTERS):
                        why = why_buried(record.headers)
                        told.broken.add(f"{why.topic}:{why.partition}:{why.offset}")
                        continue
                    for one in decode(SignalBatch, record.value).signals:
                        told.signals += 1
                        told.repeated += one.id in ids
                        if one.id not in ids:
                            ids.add(one.id)
                            _take(told, one, states)
    finally:
        await reader.stop()
    return told, ends


def _take(told: Outcome, one: Signal, states: dict[tuple[str, str], str]) -> None:
    if one.first_at is None:
        told.at_once.add(one.id)
        matter = (one.kind, one.entity.key)
        told.changes += states.get(matter, one.state) != one.state
        states[matter] = one.state
    if one.kind == "gpu.xid" and one.attributes.get("subtype") != "dcgm":
        told.counts[one.kind, str(one.entity.node), int(str(one.attributes["xid"]))] += one.count


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=4.0)
    wanted = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="faultline-soak-") as folder,
        Kafka.running(for_load=True) as kafka,
    ):
        soak = Soak(kafka.bootstrap, Path(folder), wanted.lines, seed=wanted.seed, every_s=wanted.every)
        figures = asyncio.run(soak.run())
        for fault in figures.faults:
            print(fault, file=sys.stderr)
    print(orjson.dumps(asdict(figures)).decode())
    return 1 if figures.faults else 0


if __name__ == "__main__":
    sys.exit(main())
