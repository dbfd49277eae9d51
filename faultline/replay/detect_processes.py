"""Detection in a big capture on all cores: a process for some of the partitions each, and what they find merged in order.

Each process reads whole files and skips the lines of the others' partitions, which is cheaper than to hand lines over; where each
partition has a file, it opens those of its own alone. They are programs of their own (`detect_worker`), nothing is forked. Each
ends when its pipe from here closes, however this one ends.
"""

from __future__ import annotations

import heapq
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import cast

from faultline.replay.detection import Clock, Detection, Found, order
from faultline.replay.topic_records import StoredTopic, TopicRecords
from streams.model.errors import BadInput, Temporary

_WORKER = ("-m", "faultline.replay.detect_worker")

WORTH_IT = 128 * 1024 * 1024
"""Bytes of raw records from which on a second process pays: it takes a second or two to start."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one process reads: partitions of topics, by the topic's name."""

    cluster: str
    clock: Clock
    topics: Mapping[str, StoredTopic]
    partitions: Mapping[str, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Ended:
    """The last thing that a process says: how many records it could not read, or why it gave up."""

    dead_letters: int = 0
    bad_input: str = ""


def detection_of(
    cluster: str, clock: Clock, topics: Mapping[str, TopicRecords], processes: int | None = None
) -> Detection | DetectProcesses:
    """How to detect in these topics: in so many processes, else in as many as pay. Only files in order can be dealt out."""
    files = {name: topic for name, topic in topics.items() if isinstance(topic, StoredTopic)}
    if len(files) == len(topics) and not any(file.must_be_sorted for file in files.values()):
        dealt = shares(cluster, clock, files, processes or _that_pay(files))
        if len(dealt) > 1:
            return DetectProcesses(dealt)
    return Detection(cluster, clock, topics)


def _that_pay(topics: Mapping[str, StoredTopic]) -> int:
    size = sum(topic.survey.weights.total() for topic in topics.values())
    return len(os.sched_getaffinity(0)) if size >= WORTH_IT else 1


def shares(cluster: str, clock: Clock, topics: Mapping[str, StoredTopic], processes: int) -> list[Share]:
    """The partitions dealt out, the heaviest first, each to whom has least."""
    weights = {
        (name, partition): weight
        for name, topic in topics.items()
        for partition, weight in topic.survey.weights.items()
    }
    loads = [(0, number) for number in range(processes)]
    dealt: list[dict[str, set[int]]] = [{} for _ in range(processes)]
    for (name, partition), weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
        load, number = heapq.heappop(loads)
        dealt[number].setdefault(name, set()).add(partition)
        heapq.heappush(loads, (load + weight, number))
    return [
        Share(
            cluster,
            clock,
            topics,
            {name: frozenset(partitions) for name, partitions in mine.items()},
        )
        for mine in dealt
        if mine
    ]


class DetectProcesses:
    """Detects in several processes. `dead_letters` counts the records that could not be read, once all is found."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self.dead_letters = 0
        self._shares = shares

    def found(self) -> Iterator[Found]:
        """What is found, in `order`; the processes end with it.

        Raises:
            BadInput: naming the file and line that is invalid.
            Temporary: when one of the processes was ended from outside.
        """
        with ExitStack() as running:
            processes = [running.enter_context(_running(share)) for share in self._shares]
            yield from heapq.merge(*map(self._of, processes), key=order)

    def _of(self, process: subprocess.Popen[bytes]) -> Iterator[Found]:
        assert process.stdout is not None
        while True:
            try:
                told = cast("list[Found] | Ended", pickle.load(process.stdout))
            except (EOFError, pickle.UnpicklingError) as error:
                raise Temporary(f"a process that detects ended: exit code {process.wait()}") from error
            if isinstance(told, Ended):
                if told.bad_input:
                    raise BadInput(told.bad_input)
                self.dead_letters += told.dead_letters
                return
            yield from told


@contextmanager
def _running(share: Share) -> Iterator[subprocess.Popen[bytes]]:
    """A process at work on a share. It is in a group of its own: Ctrl-C interrupts this process, which ends the others."""
    process = subprocess.Popen(
        [sys.executable, *_WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # why it ended is told when something is read from it
            pickle.dump(share, process.stdin)
            process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()
