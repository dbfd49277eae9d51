"""One topic of a capture with a file per partition, `TOPIC/PARTITION.jsonl.zst`, read in the order of their times.

Whoever wants some partitions opens the files of these alone. One frame is in memory at a time.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from faultline.replay.frames import frames, has_small_frames
from faultline.replay.manifest import PartitionPart
from faultline.replay.topic_records import Batch, StoredTopic, Survey, TopicFile
from streams.model.errors import BadInput
from streams.model.record import RawRecord


class PartitionFile(TopicFile):
    """The file of one partition. `part` is what the manifest says of it: a file that was changed since is surveyed anew."""

    def __init__(self, topic: str, partition: int, path: Path, part: PartitionPart | None) -> None:
        super().__init__(topic, path)
        self._partition = partition
        self._part = part

    def blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """The lines of the file, a frame at a time, with the number of the first."""
        if self._part is not None and not self._part.records and not self._path.stat().st_size:
            return
        if self._path.suffix != ".zst" or not has_small_frames(self._path):
            yield from super().blocks()
            return
        number = 1
        for content in frames(self._path):
            if not content:
                continue
            lines = content.removesuffix(b"\n").split(b"\n")
            yield number, lines
            number += len(lines)

    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of it; raises BadInput for a record of another partition."""
        for batch in super().batches():
            if others := set(batch.partitions) - {self._partition}:
                raise BadInput(f"{self._path}: holds records of partition {min(others)}")
            yield batch

    @cached_property
    def _as_it_is(self) -> Survey:
        part = self._part
        if part is None or self._path.stat().st_size != part.size:
            return super()._as_it_is
        first, last = (None if at is None else at * 1000 for at in (part.first_ms, part.last_ms))
        weights = Counter({self._partition: part.bytes} if part.records else {})
        return Survey(part.records, first, last, weights=weights)


class TopicFolder(StoredTopic):
    """The files of a topic's partitions. Whatever reads an invalid line raises BadInput with file and line."""

    def __init__(self, topic: str, folder: Path, parts: Mapping[int, PartitionPart]) -> None:
        self._files = {
            partition: PartitionFile(topic, partition, path, parts.get(partition))
            for partition, path in sorted(_files(folder))
        }

    def __iter__(self) -> Iterator[RawRecord]:
        return (record for _, _, _, record in heapq.merge(*map(_timed, self._files.values())))

    def __len__(self) -> int:
        return sum(map(len, self._files.values()))

    @cached_property
    def survey(self) -> Survey:
        """How its records lie. `disorder` is left out: `batches` says of each how far it goes."""
        found = [file.survey for file in self._files.values()]
        return Survey(
            records=sum(survey.records for survey in found),
            first=min((survey.first for survey in found if survey.first is not None), default=None),
            last=max((survey.last for survey in found if survey.last is not None), default=None),
            weights=sum((survey.weights for survey in found), Counter()),
        )

    @property
    def must_be_sorted(self) -> bool:
        """Whether a file has its offsets in another order, so that it is held whole."""
        return any(file.must_be_sorted for file in self._files.values())

    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of them, or those of some partitions, always from the one that has come least far in time."""
        reached = {
            partition: first
            for partition, file in self._files.items()
            if (only is None or partition in only) and (first := file.survey.first) is not None
        }
        batches = {partition: self._files[partition].batches() for partition in reached}
        while reached:
            partition = min(reached, key=lambda one: (reached[one], one))
            batch = next(batches[partition], None)
            if batch is None:
                del reached[partition]
                continue
            if batch.times:
                reached[partition] = max(reached[partition], *batch.times)
            yield replace(batch, reached=min(reached.values()))

    def where(self, record: RawRecord) -> str:
        """File and line of a record."""
        return self._files[record.partition].where(record)


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    seen: set[int] = set()
    for path in folder.iterdir() if folder.is_dir() else ():
        name = path.name.removesuffix(".zst").removesuffix(".jsonl")
        if not name.isdecimal() or name == path.name:
            raise BadInput(f"{path}: is no PARTITION.jsonl or PARTITION.jsonl.zst")
        if int(name) in seen:
            raise BadInput(f"{folder}: partition {int(name)} is there twice")
        seen.add(int(name))
        yield int(name), path


def _timed(file: PartitionFile) -> Iterator[tuple[int, int, int, RawRecord]]:
    """The records of a partition in the order of their offsets, with a time that does not run backwards (µs)."""
    latest = 0
    for batch in file.batches():
        for index, time in enumerate(batch.times):
            latest = max(latest, time)
            record = batch.record(index)
            yield latest, record.partition, record.offset, record
